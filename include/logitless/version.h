// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// The version of these headers; version() of environment.h returns the version of the library at run time.
/// CMake reads the version from here.
#pragma once

/// While this is 0, a minor version may change API and ABI.
#define LOGITLESS_VERSION_MAJOR 0
/// Rises with new functions, and while the major version is 0 with every change that breaks callers.
#define LOGITLESS_VERSION_MINOR 3
/// Rises when API and ABI stay the same.
#define LOGITLESS_VERSION_PATCH 0
/// The three numbers joined by dots.
#define LOGITLESS_VERSION_STRING "0.3.0"
