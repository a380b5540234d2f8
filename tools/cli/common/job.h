// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One call as the commands see it: a shape, and the tensors of a config's task by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/matrices.h"
#include "io/config.h"
#include "logitless/logits.h"

namespace logitless::cli {

struct JobTensor {
  ConstTensor view;
  /// What each axis counts: N tokens, B sequences, V vocabulary entries of the call, J mismatched
  /// completions. Every rank has the whole of any other axis.
  std::string axes;

  size_t bytes() const { return static_cast<size_t>(view.count()) * size_of(view.dtype); }
  template <class T>
  std::span<const T> values() const {
    return {static_cast<const T*>(view.data), static_cast<size_t>(view.count())};
  }
  std::span<const std::byte> as_bytes() const { return {static_cast<const std::byte*>(view.data), bytes()}; }
  /// Only for outputs, whose memory (class Memory) is writable.
  Tensor output() const;
};

/// The gradients of hidden states and head, in the order of reports.
inline constexpr const char* kGradients[] = {"d_hidden", "d_weight", "d_bias", "d_lora_a", "d_lora_b"};
inline bool is_output(std::string_view name) { return name.starts_with("d_"); }

struct Job {
  int64_t tokens = 0;
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;      ///< of the call, which may cover only part of the head
  int64_t stored_entries = 0;  ///< of the head, and of a teacher's head
  int64_t sequences = 1;
  DType dtype = DType::kFloat32;
  HeadLayout layout = HeadLayout::kVocabHidden;
  int64_t teacher_size = 0;  ///< H of the teacher; its head has the same layout
  DType teacher_dtype = DType::kFloat32;
  int64_t lora_rank = 0;  ///< r; 0: the head has no LoRA
  double lora_scale = 1;
  DType lora_dtype = DType::kFloat32;
  DType gradient_dtype = DType::kFloat32;
  /// By the names of the flags and of the library's lists: "hidden", "lm_head", "old_logps", "d_weight". A
  /// head stored as [H, V] has the axes "HV".
  std::map<std::string, JobTensor, std::less<>> tensors;
  std::optional<LmHead> head;  ///< a packed head, or the head of a GGUF file: used instead of "lm_head"

  /// Returns a tensor that is not given() if there is none of that name.
  const JobTensor& operator[](std::string_view name) const;
  bool has(std::string_view name) const { return tensors.contains(name); }
  /// Makes every page resident and fills every output with NaN, so that elements that a call fails to write
  /// show up.
  void touch() const;
};

/// The memory of a tensor: whole pages, separate from the allocator's, zero until they are written.
class Memory {
 public:
  /// Throws io::Error that names `what` if the system cannot provide the memory.
  Memory(const std::string& what, size_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&&) = delete;

  /// Never null: to the library a null tensor is absent, not empty.
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Adds a tensor of n or [n, m] elements to the job, in memory of its own. Throws io::Error if the machine
/// cannot hold it.
Memory add_tensor(Job& job, const std::string& name, const std::string& axes, DType dtype, int64_t n, int64_t m = 1);

/// Adds the outputs that a config asks for. Throws as check_outputs() does, and if the machine cannot hold
/// `copies` of them.
std::vector<Memory> add_outputs(const io::Config& config, Job& job, int copies = 1);

/// The optional parts of a head.
struct HeadParts {
  bool bias, lora;
};
inline HeadParts parts_of(const io::ModelConfig& model) { return {model.bias, model.lora.rank > 0}; }

/// Throws io::Error if the config sets a key of an output that this input does not have.
void check_outputs(const io::Config& config, const HeadParts& head);

/// A config file serves every command, but a key set by hand (--set, --sweep) must have an effect: throws
/// io::Error with `reason` if `has_no_use` is true for such a key.
template <class HasNoUse>
void reject_by_hand(const io::Config& config, const HasNoUse& has_no_use, const std::string& reason) {
  for (const auto& [key, place] : config.places) {
    if (place.starts_with("--") && has_no_use(key)) throw io::Error(config.place_of(key) + " " + reason);
  }
}
/// Throws io::Error if the config splits the call over ranks, for commands that cannot do that.
void reject_ranks(const io::Config& config);
inline bool is_top_k(const std::string& key) { return key == "top_k"; }
inline bool is_tolerance(const std::string& key) { return key.starts_with("tolerances."); }

/// Returns rows · cols · element_bytes. Throws io::Error that names `what` if that is more than any machine
/// holds.
uint64_t tensor_bytes(const std::string& what, int64_t rows, int64_t cols, size_t element_bytes);

/// Throws io::Error if the machine cannot hold this many bytes: otherwise the system would kill the process
/// before any message.
void check_available(uint64_t bytes, const std::string& what);

}  // namespace logitless::cli
