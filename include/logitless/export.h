// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// LOGITLESS_API marks what the library exports; everything else has hidden visibility.
#pragma once

#if defined(__GNUC__)
#define LOGITLESS_API __attribute__((visibility("default")))
#else
#define LOGITLESS_API
#endif
