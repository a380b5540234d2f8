// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Losses of logits that the caller already holds, [B, T, V]. They use the same statistics, losses
/// and row kernels as the fused calls, for trainers whose model returns logits. One walk over the logits is
/// enough where the loss couples no rows: a block of rows is folded, its loss evaluated and its gradient
/// written while it is still in the cache.
///
/// ContextOptions::row_block is the number of rows of such a block and vocab_tile the number of vocabulary
/// entries that a row kernel takes at once; 0 lets the library choose. Nothing outside of the V vocabulary
/// entries of each row is read or written, and rows that take no part are never read. The results have the
/// same bits for every number of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "logitless/context.h"
#include "logitless/cross_entropy.h"
#include "logitless/distillation.h"
#include "logitless/id_sets.h"
#include "logitless/policy.h"
#include "logitless/preference.h"
#include "logitless/set_distillation.h"
#include "logitless/soft_targets.h"
#include "logitless/tensors.h"
#include "logitless/token_stats.h"

namespace logitless {

// Every task on hidden states stands here once more on logits, under the same name and with the same
// formulas, options and results: there are the one call, its two halves, and its plan. Row i of the logits is
// token i, the sequences are those of the logits, and the only gradient is dL/dlogits. All of them throw
// InvalidInput before anything is written.

/// Computes the statistics of every token (see token_stats.h; a = r / temperature).
LOGITLESS_API TokenStats compute_token_stats(const Context& context, const Logits& logits, const Targets& targets,
                                             const TokenOptions& options = {}, const StatsRequest& request = {},
                                             Plan* plan = nullptr);
/// Computes the gradients of any loss of the statistics.
LOGITLESS_API void backpropagate_token_grads(const Context& context, const Logits& logits, const Targets& targets,
                                             const TokenOptions& options, const StatsRequest& request,
                                             const TokenStats& stats, const TokenGrads& grads,
                                             const LogitsGradient& dlogits, Plan* plan = nullptr);
/// Computes the statistics, any loss of them, and dL/dlogits. It calls evaluate() from one thread at a time
/// with blocks of rows in row order, or with all rows at once when the loss has groups(); the logits are read
/// twice then. What evaluate() throws reaches the caller and leaves dlogits undefined. Returns the
/// statistics.
LOGITLESS_API TokenStats run_token_loss(const Context& context, const Logits& logits, const Targets& targets,
                                        const TokenOptions& options, TokenLoss& loss,
                                        const LogitsGradient& dlogits = {}, Plan* plan = nullptr);
/// Returns the plan that compute_token_stats() would run.
LOGITLESS_API Plan plan_token_stats(const Context& context, const Logits& logits, const Targets& targets,
                                    const TokenOptions& options = {}, const StatsRequest& request = {});
/// Returns the plan that run_token_loss() would run.
LOGITLESS_API Plan plan_token_loss(const Context& context, const Logits& logits, const Targets& targets,
                                   const TokenOptions& options, const TokenLoss& loss,
                                   const LogitsGradient& dlogits = {});

/// Computes the loss and dL/dlogits. Under kNone dlogits is the gradient of the sum of all losses.
LOGITLESS_API CrossEntropyResult cross_entropy(const Context& context, const Logits& logits, const Targets& targets,
                                               const CrossEntropyOptions& options = {},
                                               const LogitsGradient& dlogits = {});
/// Runs the forward half.
LOGITLESS_API CrossEntropyForward cross_entropy_forward(const Context& context, const Logits& logits,
                                                        const Targets& targets,
                                                        const CrossEntropyOptions& options = {});
/// Runs the backward half, with ∂L/∂loss of the loss or under kNone of each token.
LOGITLESS_API Plan cross_entropy_backward(const Context& context, const Logits& logits, const Targets& targets,
                                          const CrossEntropyOptions& options, const CrossEntropyForward& forward,
                                          std::span<const double> upstream, const LogitsGradient& dlogits);
/// Does the same for one value; under kNone it is that of every token.
LOGITLESS_API Plan cross_entropy_backward(const Context& context, const Logits& logits, const Targets& targets,
                                          const CrossEntropyOptions& options, const CrossEntropyForward& forward,
                                          double upstream, const LogitsGradient& dlogits);
/// Returns the plan that cross_entropy() would run.
LOGITLESS_API Plan plan_cross_entropy(const Context& context, const Logits& logits, const Targets& targets,
                                      const CrossEntropyOptions& options = {}, const LogitsGradient& dlogits = {});

/// Computes the loss and dL/dlogits. The B sequences are those of the logits.
LOGITLESS_API PolicyResult policy_loss(const Context& context, const Logits& logits, const PolicyBatch& batch,
                                       const PolicyOptions& options = {}, const LogitsGradient& dlogits = {});
/// Runs the forward half.
LOGITLESS_API PolicyForward policy_loss_forward(const Context& context, const Logits& logits, const PolicyBatch& batch,
                                                const PolicyOptions& options = {});
/// Runs the backward half.
LOGITLESS_API Plan policy_loss_backward(const Context& context, const Logits& logits, const PolicyBatch& batch,
                                        const PolicyOptions& options, const PolicyForward& forward, double upstream,
                                        const LogitsGradient& dlogits);
/// Returns the plan that policy_loss() would run.
LOGITLESS_API Plan plan_policy_loss(const Context& context, const Logits& logits, const PolicyBatch& batch,
                                    const PolicyOptions& options = {}, const LogitsGradient& dlogits = {});

/// Computes the loss and dL/dlogits. `logits` holds 2B sequences: the B chosen ones, then the B rejected
/// ones.
LOGITLESS_API PreferenceResult preference_loss(const Context& context, const Logits& logits, const Targets& targets,
                                               const Reference& reference = {}, const PreferenceOptions& options = {},
                                               const LogitsGradient& dlogits = {});
/// Runs the forward half.
LOGITLESS_API PreferenceForward preference_loss_forward(const Context& context, const Logits& logits,
                                                        const Targets& targets, const Reference& reference = {},
                                                        const PreferenceOptions& options = {});
/// Runs the backward half.
LOGITLESS_API Plan preference_loss_backward(const Context& context, const Logits& logits, const Targets& targets,
                                            const Reference& reference, const PreferenceOptions& options,
                                            const PreferenceForward& forward, double upstream,
                                            const LogitsGradient& dlogits);
/// Returns the plan that preference_loss() would run.
LOGITLESS_API Plan plan_preference_loss(const Context& context, const Logits& logits, const Targets& targets,
                                        const Reference& reference = {}, const PreferenceOptions& options = {},
                                        const LogitsGradient& dlogits = {});

/// Computes the loss and dL/dlogits. `logits` holds B sequences, unpaired.
LOGITLESS_API KtoResult kto_loss(const Context& context, const Logits& logits, const KtoBatch& batch,
                                 const KtoOptions& options = {}, const LogitsGradient& dlogits = {});
/// Runs the forward half.
LOGITLESS_API KtoForward kto_loss_forward(const Context& context, const Logits& logits, const KtoBatch& batch,
                                          const KtoOptions& options = {});
/// Runs the backward half.
LOGITLESS_API Plan kto_loss_backward(const Context& context, const Logits& logits, const KtoBatch& batch,
                                     const KtoOptions& options, const KtoForward& forward, double upstream,
                                     const LogitsGradient& dlogits);
/// Returns the plan that kto_loss() would run.
LOGITLESS_API Plan plan_kto_loss(const Context& context, const Logits& logits, const KtoBatch& batch,
                                 const KtoOptions& options = {}, const LogitsGradient& dlogits = {});

/// Computes the log-probability of every entry of sets of token ids.
LOGITLESS_API IdLogps id_logps(const Context& context, const Logits& logits, const IdSets& sets,
                               const IdLogpsOptions& options = {});
/// Computes dL/dlogits from ∂L/∂logp of every entry.
LOGITLESS_API Plan id_logps_backward(const Context& context, const Logits& logits, const IdSets& sets,
                                     const IdLogpsOptions& options, const IdLogps& forward,
                                     std::span<const double> upstream, const LogitsGradient& dlogits);
/// Returns the plan that id_logps() would run.
LOGITLESS_API Plan plan_id_logps(const Context& context, const Logits& logits, const IdSets& sets,
                                 const IdLogpsOptions& options = {});

/// Computes the loss and dL/dlogits. Under kNone dlogits is the gradient of the sum of all losses.
LOGITLESS_API SoftCrossEntropyResult soft_cross_entropy(const Context& context, const Logits& logits,
                                                        const SoftTargets& targets,
                                                        const SoftCrossEntropyOptions& options = {},
                                                        const LogitsGradient& dlogits = {});
/// Runs the forward half.
LOGITLESS_API SoftCrossEntropyForward soft_cross_entropy_forward(const Context& context, const Logits& logits,
                                                                 const SoftTargets& targets,
                                                                 const SoftCrossEntropyOptions& options = {});
/// Runs the backward half, with ∂L/∂loss of the loss or under kNone of each token.
LOGITLESS_API Plan soft_cross_entropy_backward(const Context& context, const Logits& logits, const SoftTargets& targets,
                                               const SoftCrossEntropyOptions& options,
                                               const SoftCrossEntropyForward& forward, std::span<const double> upstream,
                                               const LogitsGradient& dlogits);
/// Does the same for one value; under kNone it is that of every token.
LOGITLESS_API Plan soft_cross_entropy_backward(const Context& context, const Logits& logits, const SoftTargets& targets,
                                               const SoftCrossEntropyOptions& options,
                                               const SoftCrossEntropyForward& forward, double upstream,
                                               const LogitsGradient& dlogits);
/// Returns the plan that soft_cross_entropy() would run.
LOGITLESS_API Plan plan_soft_cross_entropy(const Context& context, const Logits& logits, const SoftTargets& targets,
                                           const SoftCrossEntropyOptions& options = {},
                                           const LogitsGradient& dlogits = {});

/// Computes the loss and dL/dlogits. Under kNone dlogits is the gradient of the sum of all losses.
LOGITLESS_API SetDistillationResult set_distillation_loss(const Context& context, const Logits& logits,
                                                          const SetTeacher& teacher, const Targets& targets = {},
                                                          const SetDistillationOptions& options = {},
                                                          const LogitsGradient& dlogits = {});
/// Runs the forward half.
LOGITLESS_API SetDistillationForward set_distillation_loss_forward(const Context& context, const Logits& logits,
                                                                   const SetTeacher& teacher,
                                                                   const Targets& targets = {},
                                                                   const SetDistillationOptions& options = {});
/// Runs the backward half, with ∂L/∂loss of the loss or under kNone of each token.
LOGITLESS_API Plan set_distillation_loss_backward(const Context& context, const Logits& logits,
                                                  const SetTeacher& teacher, const Targets& targets,
                                                  const SetDistillationOptions& options,
                                                  const SetDistillationForward& forward,
                                                  std::span<const double> upstream, const LogitsGradient& dlogits);
/// Returns the plan that set_distillation_loss() would run.
LOGITLESS_API Plan plan_set_distillation_loss(const Context& context, const Logits& logits, const SetTeacher& teacher,
                                              const Targets& targets = {}, const SetDistillationOptions& options = {},
                                              const LogitsGradient& dlogits = {});

/// Computes the loss and dL/dlogits of the student. The teacher's logits are finished too: one of hidden
/// states and a head is an InvalidInput. The logits of both are read twice.
LOGITLESS_API DistillationResult distillation_loss(const Context& context, const Logits& logits, const Teacher& teacher,
                                                   const Targets& targets = {}, const DistillationOptions& options = {},
                                                   const LogitsGradient& dlogits = {});
/// Runs the forward half.
LOGITLESS_API DistillationForward distillation_loss_forward(const Context& context, const Logits& logits,
                                                            const Teacher& teacher, const Targets& targets = {},
                                                            const DistillationOptions& options = {});
/// Runs the backward half, with ∂L/∂loss of the loss or under kNone of each token.
LOGITLESS_API Plan distillation_loss_backward(const Context& context, const Logits& logits, const Teacher& teacher,
                                              const Targets& targets, const DistillationOptions& options,
                                              const DistillationForward& forward, std::span<const double> upstream,
                                              const LogitsGradient& dlogits);
/// Does the same for one value; under kNone it is that of every token.
LOGITLESS_API Plan distillation_loss_backward(const Context& context, const Logits& logits, const Teacher& teacher,
                                              const Targets& targets, const DistillationOptions& options,
                                              const DistillationForward& forward, double upstream,
                                              const LogitsGradient& dlogits);
/// Returns the plan that distillation_loss() would run.
LOGITLESS_API Plan plan_distillation_loss(const Context& context, const Logits& logits, const Teacher& teacher,
                                          const Targets& targets = {}, const DistillationOptions& options = {},
                                          const LogitsGradient& dlogits = {});

/// Returns the entropy of every row, in nats, [N]; no row is left out. `upstream` is dL/dentropy, [N],
/// finite; with it dlogits gets
///
///     dL/dr_v = -upstream · p_v (log p_v + entropy) / temperature
///
/// and zeros where upstream is 0. To give only one of dlogits and upstream is an InvalidInput.
LOGITLESS_API std::vector<double> entropy_from_logits(const Context& context, const Logits& logits,
                                                      const TokenOptions& options = {},
                                                      std::span<const double> upstream = {},
                                                      const LogitsGradient& dlogits = {});

}  // namespace logitless
