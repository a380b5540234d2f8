// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The implementation of every public function: one call, for any task and either kind of logits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "api/digests_of_call.h"
#include "core/checks.h"
#include "core/store.h"
#include "core/tensors.h"
#include "logitless/context.h"
#include "logitless/divergence.h"
#include "logitless/logits.h"
#include "logitless/plan.h"
#include "logitless/token_stats.h"
#include "problem/hidden_problem.h"
#include "problem/logits_problem.h"
#include "ranks/meeting.h"
#include "ranks/shared.h"
#include "stream/pipeline.h"

namespace logitless::api {

/// The gradients of a call that computes none.
inline const Gradients kNoGradients = {};

/// The logits of a teacher, and the type that they are rounded to.
struct Teacher {
  const Logits& logits;
  std::optional<DType> round_logits_to;
};

/// A Call is constructed from tensors, given a task, and then run or planned any number of times. During its
/// lifetime, its thread's allocations from core/store.h come from the context's workspace. The constructor
/// checks the tensors and set_task() the task; every error is thrown before anything is written. The
/// arguments must outlive the Call.
///
/// If ranks share a call, the constructor and complete() report exceptions to the other ranks; all use of a
/// Call is inside complete().
class Call {
 public:
  /// Takes the logits, the teacher's logits (null: none), and the outputs of the gradients.
  Call(const Context& context, const Logits& logits, const Teacher* teacher, const Gradients& gradients);
  /// A part of `whole`, called `name` in messages; its exceptions end `whole`.
  Call(const Call& whole, const char* name, const Logits& logits);

  const problem::Shape& shape() const;
  /// Returns the problem. Call it after set_task().
  const problem::TokenProblem& problem() const;
  /// Returns the offsets of the sequences, [B + 1].
  const core::Array<int64_t>& sequence_offsets() const;
  /// Returns problem::resolve_targets() for the rows of this call.
  core::Array<int64_t> target_ids(const ConstTensor& targets, const TokenOptions& options) const;
  /// Sums over the whole batch, if ranks share it.
  ranks::Totals totals() const { return shared_.totals; }
  const Context& context() const { return context_; }

  /// Returns work(call), once it has ended on all ranks.
  template <class Work>
  auto complete(const Work& work) {
    return ranks::together(meeting_.get(), [&] {
      auto result = work(*this);
      if (meeting_) meeting_->barrier();
      return result;
    });
  }

  /// Adds the task and its options to the consistency check of ranks, if any share the call. Called before
  /// the options are checked, so that a rank that refuses its own options throws by itself.
  template <class... Options>
  void digest(const char* task, const Options&... options) const {
    if (!meeting_) return;
    meeting_->digest([&](ranks::Digests& digests) {
      digests.add("call", std::string(task));
      (digest_options(digests, options), ...);
    });
  }
  /// Adds per-token inputs to the consistency check of ranks with the same tokens. `visit` gets a Digests.
  template <class Visit>
  void digest_tokens(const Visit& visit) const {
    if (meeting_ && meeting_->vocab.is_shared()) visit(meeting_->vocab.digests());
  }

  /// Adds bytes that the call reads: no output may overlap them.
  void reads(const core::ByteRange& range) { reads_.push_back(range); }
  /// Gives the call its task. `reads` are inputs other than the tensors: no output may overlap them.
  void set_task(problem::Task task, core::Array<core::ByteRange> reads = {});

  /// Computes the statistics, the loss (null: none) and the requested gradients. `returned` lists the columns
  /// that will be moved out of the result, to a caller of the library.
  stream::Outcome run(TokenLoss* loss, stats::Returned returned = {}) const;
  /// Computes gradients from statistics and token gradients. Returns the plan that ran.
  Plan run_gradients(const TokenStats& stats, const TokenGrads& grads) const;
  /// The same for a loss whose gradient is multiplied by `upstream`.
  Plan run_gradients(const TokenStats& stats, const TokenGrads& grads, double upstream) const;
  /// Returns the statistics of this slice as ranks send them: slice_bytes() in all, zeros for ignored rows.
  std::vector<std::byte> fold_slice();
  /// Returns the plan of run().
  Plan plan(const TokenLoss* loss, stats::Returned returned = {}) const;

  /// Includes the plan of a part in the plans of this call. The two run one after the other in the same
  /// budget, so each figure becomes the maximum of the two.
  void count_part(const Plan& part);

 private:
  template <class Tensors, class Problem, class Outputs>
  struct Source {
    Tensors tensors;
    const Outputs& outputs;
    std::optional<Problem> problem = {};  // set by set_task(), after all checks
  };
  using FromHidden = Source<problem::HiddenTensors, problem::HiddenProblem, GradientMatrices>;
  using FromLogits = Source<problem::LogitsTensors, problem::LogitsProblem, LogitsGradient>;

  void digest_problem() const;
  void check_slice() const;
  size_t slice_bytes() const;
  void meet_data() const;
  void add_parts(Plan& plan) const;
  std::variant<FromHidden, FromLogits> source_of(const Logits& logits, const Teacher* teacher,
                                                 const Gradients& gradients);
  FromHidden from_hidden(const Logits& logits, const Teacher* teacher, const Gradients& gradients);
  FromLogits from_logits(const Logits& logits, const Teacher* teacher, const Gradients& gradients);

  core::StoreScope scope_;  // first, because the other members allocate from it
  const Context& context_;
  const char* part_ = "";                         // prefix of a part's names in messages
  std::shared_ptr<ranks::Meeting> meeting_;       // of the whole call and its parts; null without ranks
  std::optional<ranks::Meeting::Scope> digests_;  // removes a part's digests with it
  ranks::Shared shared_;
  core::Array<core::ByteRange> reads_;
  GradientMatrices outputs_;  // source_ refers to it
  std::variant<FromHidden, FromLogits> source_;
  size_t workspace_of_parts_ = 0, least_workspace_of_parts_ = 0, blas_bytes_of_parts_ = 0;
};

}  // namespace logitless::api
