// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What a call computes on: seeded by a config, or real tensors from files.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/common/job.h"
#include "cli/common/output.h"
#include "io/error.h"
#include "io/safetensors.h"
#include "logitless/error.h"

namespace logitless::cli {

/// Where each tensor comes from: FILE or FILE:tensor, or empty. Hidden states, head and targets come
/// together; at level logits it is logits and targets. kOffsets stands for sequence lengths that sum to N.
struct TensorPaths {
  std::array<std::string, kTensorCount> specs;

  const std::string& operator[](TensorId id) const { return specs[static_cast<size_t>(id)]; }
  std::string& operator[](TensorId id) { return specs[static_cast<size_t>(id)]; }
  bool has(TensorId id) const { return !(*this)[id].empty(); }
  bool given() const { return has(TensorId::kTargets); }
  /// Without the names of tensors.
  std::vector<InputFile> files() const;
  /// Returns a message of the library with the flag and the file of the tensor that it begins with.
  std::string with_flag(const std::string& message) const;
  /// Returns what work() returns. Throws io::Error with_flag() where it throws InvalidInput.
  template <class Work>
  auto naming_flags(const Work& work) const try {
    return work();
  } catch (const InvalidInput& error) {
    throw io::Error(with_flag(error.what()));
  }
};

/// Adds the files of `spec`, which `flag` gives as FILE[:TENSOR], or FILE[:MODULE] of a LoRA; none if it is
/// empty. Throws io::Error.
void add_input_files(const std::string& flag, const std::string& spec, std::vector<InputFile>& files);

/// A flag that names a tensor.
struct TensorFlag {
  const char* flag;
  const char* help;
  TensorId id;
  std::vector<std::string> tasks = {};  ///< those that have a use for it; empty: all, since it belongs to the model
  int rank = 1;
  bool per_token = true;  ///< [N, ...] or [B, T, ...]
  io::TensorClass tensor_class = io::TensorClass::kFloat;
  const char* names = "FILE[:TENSOR]";  ///< what its value is

  /// Whether it goes with hidden states and a head.
  bool of_head() const { return tasks.empty() && id != TensorId::kLogits; }
  /// `help` after the names of `tasks`.
  std::string help_text() const;
  /// "old_logps" of "--old-logps".
  std::string conventional_name() const;
};
const std::vector<TensorFlag>& tensor_flags();

class ModelFiles;

/// The input part of a Job, and what holds its bytes.
struct Inputs {
  Job job;
  std::shared_ptr<ModelFiles> models;  ///< those that hold job.head
  std::vector<Memory> memory;
  std::vector<std::shared_ptr<const io::SafetensorsFile>> files;  ///< all that were read, used in place or copied

  /// A tensor of the file that `flag` names, which stays open. Throws io::Error.
  io::TensorHandle open(const char* flag, const std::string& spec, const io::TensorWish& wish);
  /// Throws io::Error where a file has been cut short since it was opened: what was computed of it means
  /// nothing.
  void check_files() const;
  /// New memory under an id of the job.
  std::byte* add(TensorId id, const std::string& name, uint64_t bytes);
  template <class T>
  void add_values(TensorId id, const std::string& name, const std::vector<T>& values) {
    std::copy(values.begin(), values.end(), reinterpret_cast<T*>(add(id, name, values.size() * sizeof(T))));
  }
  /// As int32 unless `wide`.
  void add_targets(const std::vector<int64_t>& targets, bool wide);
  /// Takes the entries that the call is over from the file that is named, or from the config, if either says
  /// so. Throws io::Error.
  void choose_entries(const io::Config& config, const std::string& spec = "");
  /// What a config draws beside any tensors: class weights and temperatures.
  void add_what_the_config_draws(const io::Config& config);
};

enum class SeededValues {
  kRandom,
  kZeros,  ///< hidden states, head, bias and logits are 0; everything else is drawn
};

/// Throws io::Error where the config leaves out what seeded inputs need, or names sizes that no machine
/// holds.
void check_seeded(const io::Config& config);

/// A job of the shape that a config says, without tensors.
Job seeded_shape(const io::Config& config);

/// Throws as check_seeded() does, and io::Error where this machine cannot give the memory.
Inputs make_seeded_inputs(const io::Config& config, SeededValues values = SeededValues::kRandom);

/// What a command takes as the file of a head.
enum class HeadFiles { kSafetensors, kSafetensorsOrGguf };

/// From files where there are any: the shape comes from the tensors, and what the config says about it must
/// agree. Else seeded. Throws io::Error.
Inputs read_inputs(const io::Config& config, const TensorPaths& paths, SeededValues values = SeededValues::kRandom,
                   HeadFiles heads = HeadFiles::kSafetensors);

}  // namespace logitless::cli
