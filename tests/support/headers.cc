// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// An empty source for targets that only precompile headers, because CMake requires one.
