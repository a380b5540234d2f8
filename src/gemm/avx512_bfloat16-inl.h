// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// AVX-512 with bfloat16, for functions that run only if cpu_has_avx512_bfloat16(). The rest of the library is
// compiled for any CPU.
#pragma once

// GCC's header leaves registers undefined on purpose, which causes warnings.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstdint>

#define LOGITLESS_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

namespace logitless::gemm {

// Returns a mask of the first `count` of 32 elements.
LOGITLESS_TARGET_AVX512 inline __mmask32 first(int64_t count) {
  return count >= 32 ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
}

// Returns the pairs (even[i], odd[i]) for i = begin .. begin + 15.
LOGITLESS_TARGET_AVX512 inline __m512i pairs(__m512i even, __m512i odd, int16_t begin) {
  alignas(64) static constexpr uint16_t kFirst[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                      8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  return _mm512_permutex2var_epi16(even, _mm512_add_epi16(_mm512_load_si512(kFirst), _mm512_set1_epi16(begin)), odd);
}

}  // namespace logitless::gemm
