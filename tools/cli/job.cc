// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/job.h"

#include <cstring>

#include "cli/process_memory.h"

namespace logitless::cli {

JobTensors::JobTensors(const Job& job) {
  for (size_t i = 0; i < kTensorCount; ++i) {
    const bool output = is_output(static_cast<TensorId>(i));
    mappings_.emplace_back(job.tensors[i], output ? Mapping::Access::kWrite : Mapping::Access::kRead);
  }
}

void JobTensors::touch() const {
  for (size_t i = 0; i < kTensorCount; ++i) {
    const Mapping& mapping = mappings_[i];
    if (!is_output(static_cast<TensorId>(i))) {
      touch_for_reading(mapping.data(), mapping.bytes());
    } else if (mapping.bytes() > 0) {
      std::memset(mapping.data(), 0xff, mapping.bytes());
    }
  }
}

}  // namespace logitless::cli
