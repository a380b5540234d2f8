// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One call as the commands know it: a shape, and the tensors that a config's task works on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/matrices.h"
#include "io/config.h"
#include "logitless/dtype.h"

namespace logitless::cli {

enum class TensorId {
  kHidden,           ///< [N, H]
  kWeight,           ///< the head
  kBias,             ///< [V]
  kLoraA,            ///< of the head's LoRA: [r, H]
  kLoraB,            ///< [V, r]
  kVocabIds,         ///< int64 [vocab_size]: the entries of the head, and of a teacher's, that the call is over
  kLogits,           ///< [N, V], level logits
  kTargets,          ///< int64 or int32 [N]
  kOffsets,          ///< int64 [B + 1], packed sequences
  kClassWeights,     ///< float32 [V]
  kTemperatures,     ///< float64 [N]
  kMask,             ///< uint8 [N]
  kAdvantages,       ///< float64 [B] or [N], as are all below unless said otherwise
  kOldLogps,         ///< [N]
  kRefLogps,         ///< [N], or sums, one a sequence
  kSamplingLogps,    ///< [N]
  kTeacherLogps,     ///< [N]
  kScores,           ///< [B]
  kLabels,           ///< uint8 [B]
  kKlLogps,          ///< [any]
  kKlRefLogps,       ///< as many
  kSequenceWeights,  ///< [B]
  kRewardTargets,    ///< [B]
  kTeacherHidden,    ///< [N, H of the teacher]
  kTeacherWeight,    ///< the teacher's head
  kTeacherBias,      ///< [V]
  kSetIds,           ///< int64 [N, K]
  kSetCounts,        ///< int64 [N]: how many of a token's K ids count
  kSetValues,        ///< float64 [N, K]: a weight, a teacher's log-probability, or dL/dlogp of each id
  kSoftRows,         ///< [N, V]: a weight of each vocabulary entry, float64 beside float64 states, else float32
  kDHidden,          ///< outputs from here on
  kDWeight,
  kDBias,
  kDLoraA,
  kDLoraB,
  kDLogits,  ///< [N, V]
};
inline constexpr size_t kTensorCount = static_cast<size_t>(TensorId::kDLogits) + 1;
inline constexpr bool is_output(TensorId id) { return id >= TensorId::kDHidden; }

/// The bytes of a tensor; null where it does not exist. An empty one has an address too: the library tells an
/// absent tensor from an empty one by its pointer.
struct TensorBytes {
  const std::byte* data = nullptr;
  size_t bytes = 0;

  explicit operator bool() const { return data != nullptr; }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data);
  }
  /// Of outputs, which lie in Memory.
  std::byte* writable() const { return const_cast<std::byte*>(data); }
  /// Elements of `size` bytes.
  int64_t count(size_t size) const { return static_cast<int64_t>(bytes / size); }
};

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
  bool wide_targets = false;  ///< int64 instead of int32
  int64_t lora_rank = 0;      ///< r; 0: the head has no LoRA
  double lora_scale = 1;
  DType lora_dtype = DType::kFloat32;
  DType gradient_dtype = DType::kFloat32;
  std::array<TensorBytes, kTensorCount> tensors;
  std::optional<HeadMatrices> head;  ///< that is packed or of a GGUF file, as it stands there: used instead of kWeight

  const TensorBytes& operator[](TensorId id) const { return tensors[static_cast<size_t>(id)]; }
  TensorBytes& operator[](TensorId id) { return tensors[static_cast<size_t>(id)]; }
  bool has(TensorId id) const { return static_cast<bool>((*this)[id]); }
  /// Afterwards every page is resident, and every output holds NaN: what a call leaves unwritten will show.
  void touch() const;
};

/// Bytes of a tensor: whole pages apart from the allocator's, zero until they are written.
class Memory {
 public:
  /// Throws io::Error that names `what` where the system has no room for it.
  Memory(const std::string& what, size_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&&) = delete;

  TensorBytes tensor() const { return {data_, bytes_}; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

/// The outputs that a config asks for, in memory of their own; adds them to `job`. Throws as check_outputs()
/// does, and where the machine cannot hold `copies` of them.
std::vector<Memory> add_outputs(const io::Config& config, Job& job, int copies = 1);

/// What a head has beside its weight.
struct HeadParts {
  bool bias, lora;
};
inline HeadParts parts_of(const io::ModelConfig& model) { return {model.bias, model.lora.rank > 0}; }

/// A key of outputs that this input gives nothing to act on is a mistake, not a wish to be forgotten: throws
/// io::Error.
void check_outputs(const io::Config& config, const HeadParts& head);

/// A config serves every command, but who sets a key by hand (--set, --sweep) expects something of it: throws
/// io::Error with `reason` where `has_no_use` holds for such a key.
template <class HasNoUse>
void reject_by_hand(const io::Config& config, const HasNoUse& has_no_use, const std::string& reason) {
  for (const auto& [key, place] : config.places) {
    if (place.starts_with("--") && has_no_use(key)) throw io::Error(config.place_of(key) + " " + reason);
  }
}
/// Throws io::Error where the config splits the call over ranks, for a command that knows none.
void reject_ranks(const io::Config& config);
inline bool is_top_k(const std::string& key) { return key == "top_k"; }
inline bool is_tolerance(const std::string& key) { return key.starts_with("tolerances."); }

/// rows · cols · element_bytes; throws io::Error that names `what` where that is more than any machine holds.
uint64_t tensor_bytes(const std::string& what, int64_t rows, int64_t cols, size_t element_bytes);

/// Throws io::Error where the machine cannot hold so much: it would be driven out of memory before any
/// message.
void check_available(uint64_t bytes, const std::string& what);

}  // namespace logitless::cli
