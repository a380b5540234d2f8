// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One call as a process is handed it: a shape, the settings of a config, and tensors in shared memory. Plain bytes, so
// that it travels to a child, which is the same executable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cli/shared_memory.h"
#include "logitless/dtype.h"
#include "logitless/plan.h"
#include "logitless/tensors.h"

namespace logitless::cli {

enum class TensorId {
  kHidden,         ///< [N, H]
  kWeight,         ///< the head
  kBias,           ///< [V]
  kLogits,         ///< [N, V], level logits
  kTargets,        ///< int64 or int32 [N]
  kOffsets,        ///< int64 [B + 1], packed sequences
  kClassWeights,   ///< float32 [V]
  kTemperatures,   ///< float64 [N]
  kMask,           ///< uint8 [N]
  kAdvantages,     ///< float64 [B] or [N], as are all below unless said otherwise
  kOldLogps,       ///< [N]
  kRefLogps,       ///< [N], or sums, one a sequence
  kSamplingLogps,  ///< [N]
  kLabels,         ///< uint8 [B]
  kKlLogps,        ///< [any]
  kKlRefLogps,     ///< as many
  kDHidden,        ///< outputs from here on
  kDWeight,
  kDBias,
  kDLogits,  ///< [N, V]
  kLosses,   ///< float64 [N]
};
inline constexpr size_t kTensorCount = static_cast<size_t>(TensorId::kLosses) + 1;
inline constexpr bool is_output(TensorId id) { return id >= TensorId::kDHidden; }

struct Job {
  bool dense = false;  ///< plan dense instead of the config's
  Region settings;     ///< of the config, each ended by a zero byte

  int64_t tokens = 0;
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int64_t sequences = 1;
  DType dtype = DType::kFloat32;
  HeadLayout layout = HeadLayout::kHiddenVocab;
  bool wide_targets = false;  ///< int64 instead of int32
  DType gradient_dtype = DType::kFloat32;
  std::array<Region, kTensorCount> tensors;

  const Region& operator[](TensorId id) const { return tensors[static_cast<size_t>(id)]; }
  Region& operator[](TensorId id) { return tensors[static_cast<size_t>(id)]; }
  bool has(TensorId id) const { return static_cast<bool>((*this)[id]); }
};

/// The tensors of a Job, mapped into this process as long as the object lives.
class JobTensors {
 public:
  /// Throws std::system_error.
  explicit JobTensors(const Job& job);

  const Mapping& operator[](TensorId id) const { return mappings_[static_cast<size_t>(id)]; }
  /// Elements of `size` bytes.
  int64_t count(TensorId id, size_t size) const { return static_cast<int64_t>((*this)[id].bytes() / size); }

  /// Afterwards every page is resident, and every output holds NaN: what a call leaves unwritten will show.
  void touch() const;

 private:
  std::vector<Mapping> mappings_;
};

}  // namespace logitless::cli
