// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One call as the commands know it: a shape, and the tensors that a config's task works on, by name.
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

/// A dense tensor of a call.
struct JobTensor {
  ConstTensor view;
  /// What each axis counts: N tokens, B sequences, V vocabulary entries of the call, J mismatched
  /// completions, or something that every rank has all of.
  std::string axes;

  size_t bytes() const { return static_cast<size_t>(view.count()) * size_of(view.dtype); }
  template <class T>
  std::span<const T> values() const {
    return {static_cast<const T*>(view.data), static_cast<size_t>(view.count())};
  }
  std::span<const std::byte> as_bytes() const { return {static_cast<const std::byte*>(view.data), bytes()}; }
  /// Only for outputs, which are in Memory.
  Tensor output() const;
};

/// The gradients of hidden states and a head, in the order of reports.
inline constexpr const char* kGradients[] = {"d_hidden", "d_weight", "d_bias", "d_lora_a", "d_lora_b"};
inline bool is_output(std::string_view name) { return name.starts_with("d_"); }

struct Job {
  int64_t tokens = 0;
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;      ///< of the call, which may be over a part of the head
  int64_t stored_entries = 0;  ///< of the head, and of a teacher's
  int64_t sequences = 1;
  DType dtype = DType::kFloat32;
  HeadLayout layout = HeadLayout::kVocabHidden;
  int64_t teacher_size = 0;  ///< H of the teacher, whose head has the same layout
  DType teacher_dtype = DType::kFloat32;
  int64_t lora_rank = 0;  ///< r; 0: the head has no LoRA
  double lora_scale = 1;
  DType lora_dtype = DType::kFloat32;
  DType gradient_dtype = DType::kFloat32;
  /// Named as the flags and the library's lists name them: "hidden", "lm_head", "old_logps", "d_weight". A
  /// head that stands as [H, V] has the axes "HV".
  std::map<std::string, JobTensor, std::less<>> tensors;
  std::optional<LmHead> head;  ///< a packed one, or one of a GGUF file: used instead of "lm_head"

  /// Returns the tensor; one that is not given if there is none.
  const JobTensor& operator[](std::string_view name) const;
  bool has(std::string_view name) const { return tensors.contains(name); }
  /// Makes every page resident, and fills every output with NaN: what a call leaves unwritten will show.
  void touch() const;
};

/// Bytes of a tensor: whole pages apart from the allocator's, zero until they are written.
class Memory {
 public:
  /// Throws io::Error that names `what` if the system has no room for it.
  Memory(const std::string& what, size_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&&) = delete;

  /// Never null: the library tells an absent tensor from an empty one.
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Adds a tensor of n, or [n, m], elements in memory of its own to the job. Throws io::Error if the machine
/// cannot hold it.
Memory add_tensor(Job& job, const std::string& name, const std::string& axes, DType dtype, int64_t n, int64_t m = 1);

/// Adds the outputs that a config asks for. Throws as check_outputs() does, and if the machine cannot hold
/// `copies` of them.
std::vector<Memory> add_outputs(const io::Config& config, Job& job, int copies = 1);

/// What a head has beside its weight.
struct HeadParts {
  bool bias, lora;
};
inline HeadParts parts_of(const io::ModelConfig& model) { return {model.bias, model.lora.rank > 0}; }

/// Throws io::Error for a key of outputs that this input gives nothing to act on.
void check_outputs(const io::Config& config, const HeadParts& head);

/// A config serves every command, but who sets a key by hand (--set, --sweep) expects something of it: throws
/// io::Error with `reason` where `has_no_use` holds for such a key.
template <class HasNoUse>
void reject_by_hand(const io::Config& config, const HasNoUse& has_no_use, const std::string& reason) {
  for (const auto& [key, place] : config.places) {
    if (place.starts_with("--") && has_no_use(key)) throw io::Error(config.place_of(key) + " " + reason);
  }
}
/// Throws io::Error where the config splits the call over ranks, for a command that does not.
void reject_ranks(const io::Config& config);
inline bool is_top_k(const std::string& key) { return key == "top_k"; }
inline bool is_tolerance(const std::string& key) { return key.starts_with("tolerances."); }

/// Returns rows · cols · element_bytes. Throws io::Error that names `what` if that is more than any machine
/// holds.
uint64_t tensor_bytes(const std::string& what, int64_t rows, int64_t cols, size_t element_bytes);

/// Throws io::Error if the machine cannot hold so much: it would be driven out of memory before any message.
void check_available(uint64_t bytes, const std::string& what);

}  // namespace logitless::cli
