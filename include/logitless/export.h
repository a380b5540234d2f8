// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// LOGITLESS_API marks what the library exports; everything else has hidden visibility. Every header includes
/// this one.
#pragma once

#if __cplusplus < 202002L
#error "logitless needs C++20: compile with -std=c++20 or later (GCC 11, Clang 14)"
// There is no such file: the compiler stops here, before it complains of every line.
#include "logitless/needs_cxx20"
#endif

#if defined(__GNUC__)
#define LOGITLESS_API __attribute__((visibility("default")))
#else
#define LOGITLESS_API
#endif
