// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Losses of logits that the caller already holds, [B, T, V]: the same statistics, losses and row kernels as the fused
/// calls, for trainers whose model returns logits. One sweep over the logits where the loss couples no rows: a block of
/// rows is folded, its loss evaluated and its gradient written while it is still in the cache.
///
/// Tiles: ContextOptions::row_tile is the number of rows of such a block and vocab_tile the number of words that a row
/// kernel takes at once; 0 lets the library choose. Nothing outside of the V words of each row is read or written, and
/// rows that take no part are never read. The results have the same bits for every number of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "logitless/context.h"
#include "logitless/cross_entropy.h"
#include "logitless/policy.h"
#include "logitless/tensors.h"
#include "logitless/token_stats.h"

namespace logitless {

/// Logits [B, T, V]: element (b, t, v) stands at data[b * batch_stride + t * row_stride + v]; any strided slice such as
/// logits[:, :-1, :], or the transpose of [T, B, V]. Strides are in elements and at least V. Row i = b * T + t is token
/// i of targets, temperatures and all results. They are final raw logits: no bias and no softcap is applied to them.
/// float32, bfloat16 and float16 are computed in float32, float64 in float64.
struct Logits {
  const void* data = nullptr;     ///< element (0, 0, 0)
  DType dtype = DType::kFloat32;  ///< of the elements
  int64_t batch = 0;              ///< B, sequences
  int64_t time = 0;               ///< T, positions of each
  int64_t vocab = 0;              ///< V
  int64_t batch_stride = 0;       ///< from one sequence to the next, in elements
  int64_t row_stride = 0;         ///< from one position to the next, in elements

  Logits() = default;
  /// A stride of -1: the rows, or the sequences, follow one another.
  Logits(const void* data_, DType dtype_, int64_t batch_, int64_t time_, int64_t vocab_, int64_t batch_stride_ = -1,
         int64_t row_stride_ = -1)
      : data(data_),
        dtype(dtype_),
        batch(batch_),
        time(time_),
        vocab(vocab_),
        batch_stride(batch_stride_),
        row_stride(row_stride_ == -1 ? vocab_ : row_stride_) {
    if (batch_stride == -1) batch_stride = time * row_stride;
  }
  /// The same for a typed pointer.
  template <class T>
  Logits(const T* data_, int64_t batch_, int64_t time_, int64_t vocab_, int64_t batch_stride_ = -1,
         int64_t row_stride_ = -1)
      : Logits(data_, DTypeOf<T>::value, batch_, time_, vocab_, batch_stride_, row_stride_) {}

  /// N = B T.
  int64_t tokens() const { return batch * time; }
};

/// Where dL/dlogits goes; data == nullptr: it is not wanted. Of the logits' shape, and of their type or float32
/// (float64, and nothing else, for float64 logits). Either a buffer apart from the logits and every other input, or
/// exactly the logits: the same pointer, type and strides (in place). Rows may not overlap: one of the two strides must
/// step over all that the other one covers. It is overwritten; rows that take no part get zeros.
struct LogitsGradient {
  void* data = nullptr;           ///< element (0, 0, 0)
  DType dtype = DType::kFloat32;  ///< of the elements
  int64_t batch = 0;              ///< B, sequences
  int64_t time = 0;               ///< T, positions of each
  int64_t vocab = 0;              ///< V
  int64_t batch_stride = 0;       ///< from one sequence to the next, in elements
  int64_t row_stride = 0;         ///< from one position to the next, in elements

  LogitsGradient() = default;
  /// A stride of -1: the rows, or the sequences, follow one another.
  LogitsGradient(void* data_, DType dtype_, int64_t batch_, int64_t time_, int64_t vocab_, int64_t batch_stride_ = -1,
                 int64_t row_stride_ = -1)
      : data(data_),
        dtype(dtype_),
        batch(batch_),
        time(time_),
        vocab(vocab_),
        batch_stride(batch_stride_),
        row_stride(row_stride_ == -1 ? vocab_ : row_stride_) {
    if (batch_stride == -1) batch_stride = time * row_stride;
  }
  /// The same for a typed pointer.
  template <class T>
  LogitsGradient(T* data_, int64_t batch_, int64_t time_, int64_t vocab_, int64_t batch_stride_ = -1,
                 int64_t row_stride_ = -1)
      : LogitsGradient(data_, DTypeOf<T>::value, batch_, time_, vocab_, batch_stride_, row_stride_) {}
};

/// The statistics of every token (see token_stats.h; a = r / temperature). Throws InvalidInput.
LOGITLESS_API TokenStats token_stats_from_logits(const Context& context, const Logits& logits, const Targets& targets,
                                                 const TokenOptions& options = {}, StatsRequest request = {});

/// Statistics, any loss of them, and dL/dlogits. evaluate() is called from one thread at a time with blocks of rows in
/// row order; with all rows at once when the loss has groups(), and then the logits are read twice. Throws InvalidInput
/// before anything is written; what evaluate() throws reaches the caller and leaves dlogits undefined. Returns the
/// statistics.
LOGITLESS_API TokenStats run_token_loss_from_logits(const Context& context, const Logits& logits,
                                                    const Targets& targets, const TokenOptions& options,
                                                    TokenLoss& loss, const LogitsGradient& dlogits = {});

/// What cross_entropy_from_logits() returns.
struct CrossEntropyFromLogits {
  double loss = 0;                      ///< reduced as the options say; under kNone the sum of per_token_loss
  std::vector<double> per_token_loss;   ///< [N], loss_scale (nll_i + z_i), whatever the reduction; 0 without a part
  std::vector<double> per_token_logps;  ///< [N], logp of the target; 0 where a row takes no part
  CrossEntropyMetrics metrics;          ///< over the tokens that take part
};

/// The formulas and options of cross_entropy(). Under kNone dlogits is the gradient of the sum of all losses.
LOGITLESS_API CrossEntropyFromLogits cross_entropy_from_logits(const Context& context, const Logits& logits,
                                                               const Targets& targets,
                                                               const CrossEntropyOptions& options = {},
                                                               const LogitsGradient& dlogits = {});

/// What policy_loss_from_logits() returns.
struct PolicyFromLogits {
  double loss = 0;                      ///< with its normaliser and loss_scale
  std::vector<double> per_token_loss;   ///< ℓ_i, [N], before normaliser and loss_scale; 0 where a token takes no part
  std::vector<double> per_token_logps;  ///< [N], 0 where a token takes no part
  PolicyMetrics metrics;                ///< over the tokens that take part
};

/// The formulas, inputs and options of policy_loss(); the B sequences are those of the logits.
LOGITLESS_API PolicyFromLogits policy_loss_from_logits(const Context& context, const Logits& logits,
                                                       const PolicyBatch& batch, const PolicyOptions& options = {},
                                                       const LogitsGradient& dlogits = {});

/// What entropy_from_logits() does to the logits first.
struct EntropyOptions {
  double temperature = 1.0;                   ///< positive, and a normal number of the type of the sums
  std::span<const double> temperatures = {};  ///< [N], replaces `temperature` when not empty
  std::optional<DType> round_logits_to = {};  ///< as in TokenOptions
};

/// The entropy of every row, in nats, [N]; no row is left out. `upstream` is dL/dentropy, [N], finite; with it dlogits
/// gets
///
///     dL/dr_v = -upstream · p_v (log p_v + entropy) / temperature
///
/// and zeros where upstream is 0. dlogits without upstream, or upstream without dlogits, is an InvalidInput.
LOGITLESS_API std::vector<double> entropy_from_logits(const Context& context, const Logits& logits,
                                                      const EntropyOptions& options = {},
                                                      std::span<const double> upstream = {},
                                                      const LogitsGradient& dlogits = {});

}  // namespace logitless
