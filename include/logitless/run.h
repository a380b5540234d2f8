// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// The four verbs. A task is a structure of tensors and options (CrossEntropy, PolicyLoss, PreferenceLoss,
/// KtoLoss, SoftCrossEntropy, Distillation, SetDistillation, IdLogps, TokenStatistics, CustomLoss). Every
/// verb takes every task and either kind of logits:
///
///     run(context, logits, task, gradients)     returns the result and computes the requested gradients
///     forward(context, logits, task)            returns the result and what backward() needs
///     backward(context, logits, task, forward, upstream, gradients)
///     plan(context, logits, task, gradients)    returns how run() would run; computes nothing
///
///     const double loss = run(context, Logits::of(hidden, head), CrossEntropy{.targets = ids},
///                             {.d_hidden = d_hidden, .d_weight = d_weight}).loss;
///
/// An invalid argument throws InvalidInput before anything is written. Other exceptions may leave outputs
/// partly written:
///
///     std::bad_alloc       an allocation failed
///     RankError            another rank failed, or ranks did not make the same call (ranks.h)
///     std::logic_error     a TokenLoss broke its contract, or a bug in the library
///     any of your own      from a TokenLoss, a weight_sink or a Communicator
///
/// The memory that a task and its logits point to must be unchanged between forward() and backward().
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "logitless/context.h"
#include "logitless/cross_entropy.h"
#include "logitless/distillation.h"
#include "logitless/export.h"
#include "logitless/gradients.h"
#include "logitless/id_sets.h"
#include "logitless/logits.h"
#include "logitless/plan.h"
#include "logitless/policy.h"
#include "logitless/preference.h"
#include "logitless/set_distillation.h"
#include "logitless/soft_targets.h"
#include "logitless/token_stats.h"

namespace logitless {

/// A list of types.
template <class... Types>
struct TypeList {
  /// Whether T is in the list.
  template <class T>
  static constexpr bool has = (std::is_same_v<T, Types> || ...);
  /// Calls `use`, a generic lambda, with each type as its template argument.
  template <class Use>
  static constexpr void each(const Use& use) {
    (use.template operator()<Types>(), ...);
  }
};

/// The tasks. T::kName is the name of a task on every surface.
using AllTasks = TypeList<CrossEntropy, PolicyLoss, PreferenceLoss, KtoLoss, SoftCrossEntropy, Distillation,
                          SetDistillation, IdLogps, TokenStatistics, CustomLoss>;
/// The tasks that fold_slice() supports.
using SlicedTasks = TypeList<CrossEntropy, TokenStatistics>;

/// One of AllTasks.
template <class T>
concept Task = AllTasks::has<T>;
/// Whether a task's result has a loss. run() computes gradients for these tasks and for CustomLoss, whose
/// loss the caller keeps.
template <Task T>
inline constexpr bool kHasLoss = requires(typename T::Result result) {
  result.loss;
};
/// One of SlicedTasks.
template <class T>
concept SlicedTask = SlicedTasks::has<T>;

/// What forward() returns for backward(): a few numbers per token, one per entry of id sets, and under
/// PlanKind::kExpectedRow H or H + r more per token (TokenStats::expected). Parts that the task's backward()
/// does not use are empty; the statistics of TokenStatistics are in its result.
template <Task T>
struct Forward {
  typename T::Result result = {};  ///< as run() returns it
  TokenStats stats = {};           ///< of all tokens
  TokenGrads grads = {};           ///< of the loss, per token
};

/// The upstream gradient of a task in the caller's graph.
///
///     every loss                            ∂L/∂loss, one number
///     a loss under Reduction::kNone, too    ∂L/∂loss per token, [N], or one number for every token
///     IdLogps                               ∂L/∂logp of each entry, [E] or [N, K]
///     TokenStatistics                       ∂L/∂statistic per token (TokenGrads)
///
/// Rows with upstream 0 cost no GEMM, and entries of ignored rows are not read. Upstream gradients
/// of a loss must be finite: a NaN or ∞, as from a loss scale that overflowed, is an InvalidInput; skip that
/// step.
class Upstream {
 public:
  /// One number.
  Upstream(double one) : one_(one) {}
  /// One number per token, or per entry. Must outlive the call.
  Upstream(std::span<const double> each) : each_(each), is_each_(true) {}
  /// One number per token, or per entry. Must outlive the call.
  Upstream(const std::vector<double>& each) : Upstream(std::span<const double>(each)) {}
  /// Gradients of statistics. Must outlive the call.
  Upstream(const TokenGrads& grads) : grads_(&grads) {}

  /// Returns the single number, if there is one.
  double one() const { return one_; }
  /// Returns the numbers per token or entry, if given.
  std::span<const double> each() const { return each_; }
  /// Returns whether there is one number per token or entry.
  bool is_each() const { return is_each_; }
  /// Returns the gradients of statistics, or null.
  const TokenGrads* grads() const { return grads_; }

 private:
  double one_ = 1;
  std::span<const double> each_ = {};
  bool is_each_ = false;
  const TokenGrads* grads_ = nullptr;
};

/// Computes the task's result and the gradients that `gradients` requests (none: forward only). If ranks
/// share a batch, each rank returns the loss of the whole batch.
template <Task T>
LOGITLESS_API typename T::Result run(const Context& context, const Logits& logits, const T& task,
                                     const Gradients& gradients = {});

/// Computes the first half of run(), for use in an autograd function.
template <Task T>
LOGITLESS_API Forward<T> forward(const Context& context, const Logits& logits, const T& task);

/// Computes the second half: the gradients times `upstream`. It recomputes the logits (two pass), unless
/// the expected rows of forward() suffice for all requested gradients. The logits of a reference are never
/// recomputed. Returns the plan that ran.
template <Task T>
LOGITLESS_API Plan backward(const Context& context, const Logits& logits, const T& task, const Forward<T>& forward,
                            const Upstream& upstream, const Gradients& gradients);

/// Returns the plan that run() would use. Reads targets and ids; writes nothing.
template <Task T>
LOGITLESS_API Plan plan(const Context& context, const Logits& logits, const T& task, const Gradients& gradients = {});

/// For callers that exchange data between calls, such as frameworks that compile communication into their own
/// graph: folds the logits of the context's slice of the vocabulary to a few bytes per token. The caller
/// gathers the bytes of all slices in vocabulary order. With them in VocabSlice::gathered, every verb returns
/// the results of the whole vocabulary, d_weight and d_bias of the slice's entries, and a d_hidden that must
/// still be summed over the slices:
///
///     options.ranks.slice = {.first = 4096 * rank, .vocab_size = 16384};
///     std::vector<std::byte> mine = fold_slice(Context(options), logits, task);
///     all = ...gather `mine` of all ranks...
///     options.ranks.slice->gathered = all;
///     run(Context(options), logits, task, gradients);
///
/// For CrossEntropy and TokenStatistics. Returns [N, slice_bytes_per_token()].
template <SlicedTask T>
LOGITLESS_API std::vector<std::byte> fold_slice(const Context& context, const Logits& logits, const T& task);

/// Returns the bytes per token of fold_slice(), for hidden states of this type.
template <SlicedTask T>
LOGITLESS_API size_t slice_bytes_per_token(DType hidden, const T& task);

}  // namespace logitless
