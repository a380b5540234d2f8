// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// The version of these headers; version() of environment.h is that of the library that runs. CMake
/// reads it from here.
#pragma once

/// While this is 0, a minor version may change API and ABI.
#define LOGITLESS_VERSION_MAJOR 0
/// It rises with new functions, and while the major version is 0 with every change that breaks callers.
#define LOGITLESS_VERSION_MINOR 3
/// It rises when API and ABI stay as they are.
#define LOGITLESS_VERSION_PATCH 0
/// It joins the three of them.
#define LOGITLESS_VERSION_STRING "0.3.0"
