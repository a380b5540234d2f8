// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What the two contenders compute on: seeded by a config, or real tensors from files. Both ways end in regions that
// child processes map.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/contender.h"
#include "cli/shared_memory.h"
#include "io/config.h"
#include "io/safetensors.h"

namespace logitless::cli {

/// Each is FILE or FILE:tensor, or empty. The first three come together.
struct TensorPaths {
  std::string hidden;
  std::string lm_head;
  std::string targets;
  std::string lengths;  ///< optional: sequence lengths that sum to N
  std::string bias;     ///< optional

  bool given() const { return !hidden.empty(); }
};

/// The input part of a Job, and what keeps its regions open.
struct Inputs {
  Job job;
  std::vector<SharedMemory> memory;
  std::vector<std::shared_ptr<const io::SafetensorsFile>> files;
};

/// Throws io::Error, or std::system_error where the machine cannot give the memory.
Inputs make_seeded_inputs(const io::Config& config);

/// The shape comes from the tensors; what the config says about it must agree. Throws io::Error.
Inputs read_inputs(const io::Config& config, const TensorPaths& paths);

/// rows · cols · element_bytes; throws io::Error that names `what` where that is more than any machine holds.
uint64_t tensor_bytes(const std::string& what, int64_t rows, int64_t cols, size_t element_bytes);

/// Throws io::Error where the machine cannot hold so much: it would be driven out of memory before any message.
void check_available(uint64_t bytes, const std::string& what);

}  // namespace logitless::cli
