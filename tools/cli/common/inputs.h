// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What a call computes on: seeded by a config, or real tensors from files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/common/job.h"
#include "cli/common/model_files.h"
#include "cli/common/output.h"
#include "io/error.h"
#include "io/safetensors.h"
#include "logitless/error.h"

namespace logitless::cli {

/// Where each tensor comes from, by its name: FILE or FILE:tensor, or empty. Hidden states, head and targets
/// come together; at level logits it is logits and targets.
struct TensorPaths {
  std::map<std::string, std::string> specs;

  std::string operator[](const std::string& name) const {
    const auto it = specs.find(name);
    return it == specs.end() ? "" : it->second;
  }
  bool has(const std::string& name) const { return !(*this)[name].empty(); }
  bool given() const { return has("targets"); }
  /// Returns the files, without the names of tensors.
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

/// What some tasks take under a tensor's name.
struct TensorUse {
  std::string help;
  std::vector<std::string> tasks = {};  ///< empty: all, since it belongs to the model
  std::string shape = "[N]";            ///< as the library's lists give it

  bool is_matrix() const { return shape.starts_with("[N, "); }
  /// Whether it may be [B, T, ...], too.
  bool per_token() const { return shape.find("[N") != std::string::npos; }
};

/// A tensor that a flag names.
struct TensorFlag {
  std::string name;  ///< of the tensor: "old_logps", whose flag is --old-logps
  std::vector<TensorUse> uses;
  io::TensorClass tensor_class = io::TensorClass::kFloat;
  const char* names = "FILE[:TENSOR]";  ///< what the flag's value is

  bool of_model() const { return uses.front().tasks.empty(); }
  /// Whether it goes with hidden states and a head.
  bool of_head() const { return of_model() && name != "logits"; }
  /// Returns what each use is, after the names of its tasks.
  std::string help_text() const;
};
const std::vector<TensorFlag>& tensor_flags();
/// Returns "--old-logps" of "old_logps".
std::string flag_of(std::string name);

/// The input part of a Job, and what holds its bytes.
struct Inputs {
  Job job;
  ModelFiles files;  ///< all that were read, used in place or copied
  std::vector<Memory> memory;

  /// Adds a tensor to the job in new memory, and returns this.
  std::byte* add(const std::string& name, const std::string& axes, DType dtype, int64_t n, int64_t m = 1) {
    memory.push_back(add_tensor(job, name, axes, dtype, n, m));
    return memory.back().data();
  }
  template <class T>
  void add_values(const std::string& name, const std::string& axes, const std::vector<T>& values) {
    std::byte* const to = add(name, axes, DTypeOf<T>::value, std::ssize(values));
    std::copy(values.begin(), values.end(), reinterpret_cast<T*>(to));
  }
  /// As int32 unless `wide`.
  void add_targets(const std::vector<int64_t>& targets, bool wide);
  /// Takes the entries that the call is over from the file that is named, or from the config, if either says
  /// so. Throws io::Error.
  void choose_entries(const io::Config& config, const std::string& spec = "");
  /// Adds what a config draws beside any tensors: class weights and temperatures.
  void add_what_the_config_draws(const io::Config& config);
};

enum class SeededValues {
  kRandom,
  kZeros,  ///< hidden states, head, bias and logits are 0; everything else is drawn
};

/// Throws io::Error where the config leaves out what seeded inputs need, or names sizes that no machine
/// holds.
void check_seeded(const io::Config& config);

/// Returns a job of the shape that a config says, without tensors.
Job seeded_shape(const io::Config& config);

/// Throws as check_seeded() does, and io::Error where this machine cannot give the memory.
Inputs make_seeded_inputs(const io::Config& config, SeededValues values = SeededValues::kRandom);

/// What a command takes as the file of a head.
enum class HeadFiles { kSafetensors, kSafetensorsOrGguf };

/// Reads files where there are any: the shape comes from the tensors, and what the config says about it must
/// agree. Else the inputs are seeded. Throws io::Error.
Inputs read_inputs(const io::Config& config, const TensorPaths& paths, SeededValues values = SeededValues::kRandom,
                   HeadFiles heads = HeadFiles::kSafetensors);

}  // namespace logitless::cli
