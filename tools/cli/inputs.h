// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What the two contenders compute on: seeded by a config, or real tensors from files. Both ways end in regions that
// child processes map.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/job.h"
#include "cli/output_file.h"
#include "cli/shared_memory.h"
#include "io/config.h"
#include "io/safetensors.h"

namespace logitless::cli {

/// Each is FILE or FILE:tensor, or empty. Hidden states, head and targets come together; at level logits it is logits
/// and targets.
struct TensorPaths {
  std::string hidden, lm_head, logits, targets;
  std::string lengths;  ///< sequence lengths that sum to N
  std::string bias;
  std::string mask, advantages, old_logps, ref_logps, sampling_logps;
  std::string labels, kl_logps, kl_ref_logps;

  bool given() const { return !targets.empty(); }
  /// Without the names of tensors.
  std::vector<InputFile> files() const;
};

/// The input part of a Job, and what keeps its regions open.
struct Inputs {
  Job job;
  std::vector<SharedMemory> memory;
  std::vector<std::shared_ptr<const io::SafetensorsFile>> files;  ///< all that were read, used in place or copied

  /// A tensor of a file that stays open. Throws io::Error.
  io::TensorHandle open(const std::string& spec, const io::TensorWish& wish);
  /// Throws io::Error where a file has been cut short since it was opened: what was computed of it means nothing.
  void check_files() const;
  /// New shared memory under an id of the job.
  Mapping add(TensorId id, const std::string& name, uint64_t bytes);
  template <class T>
  void add_values(TensorId id, const std::string& name, const std::vector<T>& values) {
    const Mapping mapping = add(id, name, values.size() * sizeof(T));
    std::copy(values.begin(), values.end(), mapping.as<T>());
  }
  /// As int32 unless `wide`.
  void add_targets(const std::vector<int64_t>& targets, bool wide);
  /// What a config draws beside any tensors: class weights and temperatures.
  void add_what_the_config_draws(const io::Config& config);
  /// The config's settings, for a child that makes its config of them.
  void add_settings(const io::Config& config);
};

/// A key of outputs that this input gives nothing to act on is a mistake, not a wish to be forgotten: throws io::Error.
void check_outputs(const io::Config& config, bool has_bias);

/// The outputs that a config asks for, in new shared memory; adds them to `job`. Throws as check_outputs() does.
std::vector<SharedMemory> add_outputs(const io::Config& config, Job& job);

enum class SeededValues {
  kRandom,
  kZeros,  ///< hidden states, head, bias and logits are 0; everything else is drawn
};

/// Throws io::Error where the config leaves out what seeded inputs need, or names sizes that no machine holds.
void check_seeded(const io::Config& config);

/// A job of the shape that a config says, without tensors.
Job seeded_shape(const io::Config& config);

/// Throws as check_seeded() does, and io::Error or std::system_error where this machine cannot give the memory.
Inputs make_seeded_inputs(const io::Config& config, SeededValues values = SeededValues::kRandom);

/// The shape comes from the tensors; what the config says about it must agree. Throws io::Error.
Inputs read_inputs(const io::Config& config, const TensorPaths& paths);

/// rows · cols · element_bytes; throws io::Error that names `what` where that is more than any machine holds.
uint64_t tensor_bytes(const std::string& what, int64_t rows, int64_t cols, size_t element_bytes);

/// Throws io::Error where the machine cannot hold so much: it would be driven out of memory before any message.
void check_available(uint64_t bytes, const std::string& what);

}  // namespace logitless::cli
