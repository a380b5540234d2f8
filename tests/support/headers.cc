// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The source of targets that compile headers ahead, and nothing else: CMake wants one.
