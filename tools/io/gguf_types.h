// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The types of ggml's tensors, which GGUF files identify by number.
#pragma once

#include <cstdint>
#include <string>

#include "io/gguf.h"

namespace logitless::io {

struct GgmlType {
  uint32_t number;
  const char* name;
  int64_t block;  // numbers of a row that are packed together; 0: unknown, the type is no longer in use
  int64_t bytes;  // per block
  GgufFormat format = {};
};

/// Returns nullptr if the number is unknown.
const GgmlType* ggml_type(uint32_t number);

/// Returns the types that have a format: "F32, F16, Q4_0 and BF16".
std::string names_of_read_types();

}  // namespace logitless::io
