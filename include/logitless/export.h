// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// LOGITLESS_API marks the exported symbols; all others have hidden visibility. Every header includes this
/// one.
#pragma once

#if __cplusplus < 202002L
#error "logitless needs C++20: compile with -std=c++20 or later (the tests use GCC 12 and clang 14)"
// This file does not exist, so the compiler stops here with one error instead of one per line.
#include "logitless/needs_cxx20"
#endif

#if defined(__GNUC__)
#define LOGITLESS_API __attribute__((visibility("default")))
#else
#define LOGITLESS_API
#endif
