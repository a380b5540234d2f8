// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every public function is made of one call, whatever its task and wherever its logits come from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "api/stated.h"
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

/// What a caller gets of a call of statistics.
inline constexpr stats::Returned kStatistics = {.stats = true, .expected = true};

/// What a call without gradients hands over.
inline const Gradients kNoGradients = {};

/// The logits of a teacher, and what they are rounded to.
struct Teacher {
  const Logits& logits;
  std::optional<DType> round_logits_to;
};

/// A Call is made of tensors, given a task, then run or planned as often as is wanted. While it lives, what
/// its thread takes from core/store.h comes from the context's workspace. Tensors are checked by the
/// constructor and the task by set_task(); whatever is wrong with a call is thrown before anything is
/// written. What is given must outlive the Call.
///
/// Where ranks share a call, its constructor and complete() tell them of what is thrown here; all that is
/// done with a Call stands in complete().
class Call {
 public:
  /// Takes logits, those of a teacher beside them (null: none), and where their gradients go.
  Call(const Context& context, const Logits& logits, const Teacher* teacher, const Gradients& gradients);
  /// Is a part of `whole`, which messages call `name`: what it throws ends that one.
  Call(const Call& whole, const char* name, const Logits& logits);

  const problem::Shape& shape() const;
  /// Returns the whole problem, which there is after set_task().
  const problem::TokenProblem& problem() const;
  /// Returns the offsets of the sequences of the rows, [B + 1].
  const core::Array<int64_t>& sequence_offsets() const;
  /// Returns problem::resolve_targets() of these rows.
  core::Array<int64_t> target_ids(const ConstTensor& targets, const TokenOptions& options) const;
  /// Sums over the whole batch, of which this call has a part where ranks share it.
  ranks::Totals totals() const { return shared_.totals; }
  const Context& context() const { return context_; }

  /// Returns what work(call) returns, once it has ended on all ranks.
  template <class Work>
  auto complete(const Work& work) {
    return ranks::together(meeting_.get(), [&] {
      auto result = work(*this);
      if (meeting_) meeting_->agree();
      return result;
    });
  }

  /// States the task and its options to the ranks that share the call, if there are any. It is called before
  /// the options are checked: a rank that refuses its own throws by itself.
  template <class... Options>
  void state(const char* task, const Options&... options) const {
    if (!meeting_) return;
    meeting_->state([&](ranks::Statement& statement) {
      statement.say("call", std::string(task));
      (state_options(statement, options), ...);
    });
  }
  /// States what ranks with the same tokens were given of them besides. `visit` gets a Statement.
  template <class Visit>
  void state_tokens(const Visit& visit) const {
    if (meeting_ && meeting_->vocab.is_shared()) visit(meeting_->vocab.statement());
  }

  /// Says that the call reads these bytes besides what set_task() is told: no output may overlap them.
  void reads(const core::ByteRange& range) { reads_.push_back(range); }
  /// Gives the call its task. `reads` are inputs beyond the tensors: no output may overlap them.
  void set_task(problem::Task task, core::Array<core::ByteRange> reads = {});

  /// Computes the statistics, the loss (null: none) and the gradients that are wanted. `returned` says which
  /// columns will be moved out of the result, to a caller of the library.
  stream::Ran run(TokenLoss* loss, stats::Returned returned = {}) const;
  /// Computes gradients from statistics and token gradients. Returns what ran.
  Plan run_gradients(const TokenStats& stats, const TokenGrads& grads) const;
  /// Does the same for a loss whose gradient is multiplied with `upstream`.
  Plan run_gradients(const TokenStats& stats, const TokenGrads& grads, double upstream) const;
  /// Returns the statistics of this slice, as ranks send them: of each row so many bytes. Those of rows that
  /// take no part are zeros.
  std::vector<std::byte> fold_slice();
  /// Returns the plan of run().
  Plan plan(const TokenLoss* loss, stats::Returned returned = {}) const;

  /// Counts a part in the plans of this call. The two run one after the other in the same budget, so each
  /// figure becomes the larger of the two.
  void count_part(const Plan& part);

 private:
  template <class Tensors, class Problem, class Outputs>
  struct Source {
    Tensors tensors;
    const Outputs& outputs;
    std::optional<Problem> problem = {};  // once there is a task, and all is checked
  };
  using FromHidden = Source<problem::HiddenTensors, problem::HiddenProblem, GradientMatrices>;
  using FromLogits = Source<problem::LogitsTensors, problem::LogitsProblem, LogitsGradient>;

  void state_problem() const;
  void check_slice() const;
  size_t slice_bytes() const;
  void meet_data() const;
  void add_parts(Plan& plan) const;
  std::variant<FromHidden, FromLogits> source_of(const Logits& logits, const Teacher* teacher,
                                                 const Gradients& gradients);
  FromHidden from_hidden(const Logits& logits, const Teacher* teacher, const Gradients& gradients);
  FromLogits from_logits(const Logits& logits, const Teacher* teacher, const Gradients& gradients);

  core::StoreScope scope_;  // It comes first, because the others take their memory from it.
  const Context& context_;
  const char* part_ = "";                        // what messages put before the names of a part
  std::shared_ptr<ranks::Meeting> meeting_;      // of the whole call and its parts; null: there are no ranks
  std::optional<ranks::Meeting::Scope> stated_;  // what a part states is forgotten with it
  ranks::Shared shared_;
  core::Array<core::ByteRange> reads_;
  GradientMatrices outputs_;  // to which the source refers
  std::variant<FromHidden, FromLogits> source_;
  size_t workspace_of_parts_ = 0, least_workspace_of_parts_ = 0, blas_bytes_of_parts_ = 0;
};

}  // namespace logitless::api
