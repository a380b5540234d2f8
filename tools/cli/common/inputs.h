// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The tensors of a call: seeded by a config, or real ones from files.
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

/// The source of each tensor, by its name: FILE or FILE:tensor, or empty. Hidden states, head and targets
/// come together; at level logits, logits and targets.
struct TensorPaths {
  std::map<std::string, std::string> specs;

  std::string operator[](const std::string& name) const {
    const auto it = specs.find(name);
    return it == specs.end() ? "" : it->second;
  }
  bool has(const std::string& name) const { return !(*this)[name].empty(); }
  bool given() const { return has("targets"); }
  /// Returns the paths of the files.
  std::vector<InputFile> files() const;
  /// Prefixes a message of the library with the flag and the file of the tensor that it begins with.
  std::string with_flag(const std::string& message) const;
  /// Returns the result of work(). Turns InvalidInput into io::Error with_flag().
  template <class Work>
  auto naming_flags(const Work& work) const try {
    return work();
  } catch (const InvalidInput& error) {
    throw io::Error(with_flag(error.what()));
  }
};

/// Adds the files of `spec`, the value of `flag`: FILE[:TENSOR], or FILE[:MODULE] for a LoRA. Adds none if it
/// is empty. Throws io::Error.
void add_input_files(const std::string& flag, const std::string& spec, std::vector<InputFile>& files);

/// The meaning of a tensor for some tasks.
struct TensorUse {
  std::string help;
  std::vector<std::string> tasks = {};  ///< empty: all, since it belongs to the model
  std::string shape = "[N]";            ///< as in the library's lists

  bool is_matrix() const { return shape.starts_with("[N, "); }
  /// True if [B, T, ...] is accepted too.
  bool per_token() const { return shape.find("[N") != std::string::npos; }
};

/// A tensor that has a flag.
struct TensorFlag {
  std::string name;  ///< of the tensor: "old_logps" has the flag --old-logps
  std::vector<TensorUse> uses;
  io::TensorClass tensor_class = io::TensorClass::kFloat;
  const char* names = "FILE[:TENSOR]";  ///< form of the flag's value

  bool of_model() const { return uses.front().tasks.empty(); }
  /// True if it goes with hidden states and a head.
  bool of_head() const { return of_model() && name != "logits"; }
  /// Returns the help of each use, after the names of its tasks.
  std::string help_text() const;
};
const std::vector<TensorFlag>& tensor_flags();
/// Returns "--old-logps" for "old_logps".
std::string flag_of(std::string name);

/// The input part of a Job, and the memory that holds it.
struct Inputs {
  Job job;
  ModelFiles files;  ///< all files that were read, used in place or copied
  std::vector<Memory> memory;

  /// Adds a tensor to the job in new memory, and returns its data.
  std::byte* add(const std::string& name, const std::string& axes, DType dtype, int64_t n, int64_t m = 1) {
    memory.push_back(add_tensor(job, name, axes, dtype, n, m));
    return memory.back().data();
  }
  template <class T>
  void add_values(const std::string& name, const std::string& axes, const std::vector<T>& values) {
    std::byte* const to = add(name, axes, DTypeOf<T>::value, std::ssize(values));
    std::copy(values.begin(), values.end(), reinterpret_cast<T*>(to));
  }
  /// Stores int32 unless `wide`.
  void add_targets(const std::vector<int64_t>& targets, bool wide);
  /// Restricts the call to the vocabulary entries that the file `spec` or the config lists, if either does.
  /// Throws io::Error.
  void choose_entries(const io::Config& config, const std::string& spec = "");
  /// Adds the tensors that a config draws even for real inputs: class weights, temperatures and, if wanted,
  /// token weights.
  void add_seeded_vectors(const io::Config& config, bool token_weights);
};

enum class SeededValues {
  kRandom,
  kZeros,  ///< hidden states, head, bias and logits are 0; the rest is drawn
};

/// Throws io::Error if the config lacks a key that seeded inputs need, or has sizes that no machine could
/// hold.
void check_seeded(const io::Config& config);

/// Returns a job with the shape of a config, without tensors.
Job seeded_shape(const io::Config& config);

/// Throws as check_seeded() does, and io::Error if this machine has too little memory.
Inputs make_seeded_inputs(const io::Config& config, SeededValues values = SeededValues::kRandom);

/// The file formats of a head that a command reads.
enum class HeadFiles { kSafetensors, kSafetensorsOrGguf };

/// Reads the files if there are any: the shape comes from the tensors, and the config must agree with it.
/// Otherwise the inputs are seeded. Throws io::Error.
Inputs read_inputs(const io::Config& config, const TensorPaths& paths, SeededValues values = SeededValues::kRandom,
                   HeadFiles heads = HeadFiles::kSafetensors);

}  // namespace logitless::cli
