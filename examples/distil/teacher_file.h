// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The student's training data: a teacher's hidden states on a text, and its head.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model.h"

struct TeacherFile {
  RowMatrix hidden;          ///< [N, H]: row i has read the ids up to ids[i], and predicts ids[i + 1]
  RowMatrix lm_head;         ///< [V, H]
  std::vector<int32_t> ids;  ///< [N + 1], each in [0, V)

  int64_t tokens() const { return hidden.rows(); }
  int64_t vocabulary() const { return lm_head.rows(); }
};

/// Reads a safetensors file (https://huggingface.co/docs/safetensors) that has exactly three tensors: hidden
/// and lm_head in float32, and ids in int32 or int64. Throws std::runtime_error with the file and the tensor
/// if a header, shape or value is invalid.
TeacherFile read_teacher(const std::string& path);
