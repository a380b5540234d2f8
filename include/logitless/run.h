// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// The four verbs. A task is a structure of tensors and options (CrossEntropy, PolicyLoss, PreferenceLoss,
/// KtoLoss, SoftCrossEntropy, Distillation, SetDistillation, IdLogps, TokenStatistics, CustomLoss), and every
/// verb takes every task, of every kind of logits:
///
///     run(context, logits, task, gradients)     the result, and the gradients that are wanted, in one call
///     forward(context, logits, task)            the result, and what backward() needs
///     backward(context, logits, task, forward, upstream, gradients)
///     plan(context, logits, task, gradients)    how run() would go about it; nothing is written
///
///     const double loss = run(context, Logits::of(hidden, head), CrossEntropy{.targets = ids},
///                             {.d_hidden = d_hidden, .d_weight = d_weight}).loss;
///
/// Each throws InvalidInput before anything is written. What a task and its logits point to must be the same
/// in both halves.
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
  /// Tells whether T is one of them.
  template <class T>
  static constexpr bool has = (std::is_same_v<T, Types> || ...);
  /// Calls use.operator()<T>() for each of them.
  template <class Use>
  static constexpr void each(const Use& use) {
    (use.template operator()<Types>(), ...);
  }
};

/// The tasks. Each has a kName, the one that every surface uses.
using AllTasks = TypeList<CrossEntropy, PolicyLoss, PreferenceLoss, KtoLoss, SoftCrossEntropy, Distillation,
                          SetDistillation, IdLogps, TokenStatistics, CustomLoss>;
/// Those whose vocabulary fold_slice() takes.
using SlicedTasks = TypeList<CrossEntropy, TokenStatistics>;

/// Any of the ten tasks.
template <class T>
concept Task = AllTasks::has<T>;
/// Tells whether the result of a task has a loss: run() then computes its gradients, too.
template <Task T>
inline constexpr bool kHasLoss = requires(typename T::Result result) {
  result.loss;
};
/// Any of those that slices have.
template <class T>
concept SlicedTask = SlicedTasks::has<T>;

/// What the forward half of a task leaves for its backward half: a few numbers a token, one an entry of sets
/// of ids, and under PlanKind::kExpectedRow H more, or H + r (TokenStats::expected). A part that the task's
/// backward half has no use for is empty; those of TokenStatistics are in its result.
template <Task T>
struct Forward {
  typename T::Result result = {};  ///< as run() returns it
  TokenStats stats = {};           ///< of all tokens
  TokenGrads grads = {};           ///< of the loss, per token
};

/// What stands above a task in the caller's graph.
///
///     every loss                            ∂L/∂loss, one number
///     a loss under Reduction::kNone, too    ∂L/∂loss of each token, [N]; one number is that of every token
///     IdLogps                               ∂L/∂logp of each entry, [E] or [N, K]
///     TokenStatistics                       ∂L/∂statistic of each token (TokenGrads)
///
/// Rows whose values are 0 cost no GEMM, and those of rows that take no part are not read. Numbers of a loss
/// must be finite: a NaN or ∞, as from a loss scale that overflowed, is an InvalidInput, and that step is to
/// be skipped.
class Upstream {
 public:
  /// Takes one number.
  Upstream(double one) : one_(one) {}
  /// Takes one of each token, or of each entry. It must outlive the call.
  Upstream(std::span<const double> each) : each_(each), is_each_(true) {}
  /// Does the same.
  Upstream(const std::vector<double>& each) : Upstream(std::span<const double>(each)) {}
  /// Takes those of statistics, which must outlive the call.
  Upstream(const TokenGrads& grads) : grads_(&grads) {}

  /// Returns the number, where it is one.
  double one() const { return one_; }
  /// Returns those of tokens or entries, where there is one of each.
  std::span<const double> each() const { return each_; }
  /// Tells whether there is one of each.
  bool is_each() const { return is_each_; }
  /// Returns those of statistics, or null.
  const TokenGrads* grads() const { return grads_; }

 private:
  double one_ = 1;
  std::span<const double> each_ = {};
  bool is_each_ = false;
  const TokenGrads* grads_ = nullptr;
};

/// Computes the task's result and those gradients that `gradients` asks for (none: forward only). Where ranks
/// have parts of a batch, each rank returns the loss of the whole batch.
template <Task T>
LOGITLESS_API typename T::Result run(const Context& context, const Logits& logits, const T& task,
                                     const Gradients& gradients = {});

/// Does the first half of it, for an autograd.
template <Task T>
LOGITLESS_API Forward<T> forward(const Context& context, const Logits& logits, const T& task);

/// Does the second half. It computes the logits again (two pass), but not those of a reference, and none
/// where the expected rows that the first half has left make all that is wanted. Returns the plan that ran.
template <Task T>
LOGITLESS_API Plan backward(const Context& context, const Logits& logits, const T& task, const Forward<T>& forward,
                            const Upstream& upstream, const Gradients& gradients);

/// Returns the plan that run() would run. It reads targets and ids, and writes nothing.
template <Task T>
LOGITLESS_API Plan plan(const Context& context, const Logits& logits, const T& task, const Gradients& gradients = {});

/// For callers that exchange between calls, and not within them (frameworks that compile communication into
/// their own graph): folds the logits of the slice of the vocabulary that the context has to a few bytes a
/// token. The caller gathers those of all slices, in the order of the vocabulary; with them in
/// VocabSlice::gathered, every verb is that of the whole vocabulary, with d_weight and d_bias of the slice's
/// entries, and a d_hidden that is to be summed over the slices:
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

/// Returns the bytes that each token has in what a slice leaves, for hidden states of this type.
template <SlicedTask T>
LOGITLESS_API size_t slice_bytes_per_token(DType hidden, const T& task);

}  // namespace logitless
