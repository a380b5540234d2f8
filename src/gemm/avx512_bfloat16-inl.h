// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Intrinsics of AVX-512 with bfloat16, for functions that run where cpu_has_avx512_bfloat16() has found it.
// The rest of the library is compiled for any CPU.
#pragma once

// GCC's header leaves registers undefined on purpose, and warns of itself.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#define LOGITLESS_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
