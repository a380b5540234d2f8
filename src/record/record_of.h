// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The record of a task, a template over its structure.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/checks.h"
#include "core/views.h"
#include "record/record.h"
#include "record/results.h"
#include "record/tasks.h"

namespace logitless::record {

/// A TokenLoss that calls a function, which reads and writes the columns through the record.
struct CallbackLoss final : TokenLoss {
  StatsRequest request;
  bool fills_lse = false, fills_entropy = false, fills_cross = false, fills_outside = false, fills_square_sum = false;
  bool drops_rows = true;
  std::span<const int64_t> group_ids;
  const Evaluate* call = nullptr;
  const TokenStats* stats = nullptr;  ///< only while it evaluates
  TokenGrads* grads = nullptr;

  StatsRequest needs() const override { return request; }
  GradsFilled gradients() const override {
    return {.lse = fills_lse,
            .entropy = fills_entropy,
            .cross = fills_cross,
            .outside = fills_outside,
            .square_sum = fills_square_sum};
  }
  bool may_drop_rows() const override { return drops_rows; }
  std::span<const int64_t> groups() const override { return group_ids; }
  void evaluate(std::span<const int64_t> rows, const TokenStats& now, TokenGrads& out) override {
    const Columns columns(*this, now, out);
    (*call)(rows);
  }

 private:
  struct Columns {
    Columns(CallbackLoss& of, const TokenStats& now, TokenGrads& out) : loss(of) {
      loss.stats = &now, loss.grads = &out;
    }
    ~Columns() { loss.stats = nullptr, loss.grads = nullptr; }
    CallbackLoss& loss;
  };
};

/// ∂L/∂statistic, from the keys d_logp, d_lse, ...
struct StatisticsGradients {
  ConstTensor logp, lse, entropy, cross, outside, square_sum;
};

template <Task T>
class RecordOf final : public Record {
 public:
  explicit RecordOf(const Context& context) : Record(T::kName, context) {
    static const T kTask;
    keys_.add_all(task_, kTask);
    add_upstream();
    if constexpr (SlicedTask<T>) add_slices();
    if constexpr (kCustom) add_callback();
    add_common(needs_of<T>());
  }

  const T& task() const { return task_; }

 private:
  static constexpr bool kCustom = std::is_same_v<T, CustomLoss>;
  static constexpr bool kStatistics = std::is_same_v<T, TokenStatistics>;

  void add_upstream() {
    if constexpr (kStatistics) {
      static const ConstTensor kNone;
      const auto add = [&](const Field& field, ConstTensor& member) {
        keys_.add(std::string("d_") + field.name, member, kNone, field);
      };
      visit_fields(FieldsOf<TokenGrads>(), add, given_);
    } else {
      static const OneOrEach kOne;
      keys_.add("upstream", upstream_, kOne, Field("", "∂L/∂loss", Role{"[N]", only(DType::kFloat64)}));
    }
  }
  void add_callback() {
    static const CallbackLoss kLoss;
    keys_.add_all(loss_.request, kLoss.request);
    const Field fills("", "the loss writes the gradient of this statistic");
    keys_.add("fills_lse", loss_.fills_lse, kLoss.fills_lse, fills);
    keys_.add("fills_entropy", loss_.fills_entropy, kLoss.fills_entropy, fills);
    keys_.add("fills_cross", loss_.fills_cross, kLoss.fills_cross, fills);
    keys_.add("fills_outside", loss_.fills_outside, kLoss.fills_outside, fills);
    keys_.add("fills_square_sum", loss_.fills_square_sum, kLoss.fills_square_sum, fills);
    keys_.add("may_drop_rows", loss_.drops_rows, kLoss.drops_rows, Field("", "some rows may have gradient 0"));
    keys_.add("groups", loss_.group_ids, kLoss.group_ids,
              Field("", "rows of a group are evaluated together", places("[N]")));
  }

  bool takes_loss() const override { return kCustom; }
  bool evaluates() const override { return loss_.stats != nullptr; }
  void take_loss() override {
    if constexpr (kCustom) {
      if (!evaluate_) core::fail("custom_loss needs a loss, which is not set");
      loss_.call = &evaluate_;
      task_.loss = &loss_;
    }
  }

  void do_run(const Context& context, const Logits& from, const Gradients& to) override {
    results_.result = logitless::run(context, from, task_, to);
  }
  void do_forward(const Context& context, const Logits& from) override {
    results_ = logitless::forward(context, from, task_);
  }
  Plan do_backward(const Context& context, const Logits& from, const Gradients& to) override {
    if constexpr (kStatistics) return logitless::backward(context, from, task_, results_, grads(), to);
    const Upstream upstream = upstream_.each.data() ? Upstream(upstream_.each) : Upstream(upstream_.value);
    return logitless::backward(context, from, task_, results_, upstream, to);
  }
  Plan do_plan(const Context& context, const Logits& from, const Gradients& to) override {
    return logitless::plan(context, from, task_, to);
  }
  std::vector<std::byte> do_slice(const Context& context, const Logits& from) override {
    if constexpr (SlicedTask<T>) {
      return fold_slice(context, from, task_);
    } else {
      core::fail(T::kName, " does not support slices: only cross_entropy and token_stats do");
    }
  }
  const Plan& plan_of_result() const override { return results_.result.plan; }
  void visit_results(const Visit& visit) const override {
    if constexpr (kCustom) {
      if (loss_.stats) {
        visit_values(*loss_.stats, "", visit);
        visit_values(*loss_.grads, "d_", visit);
        return;
      }
    }
    visit_values(results_.result, "", visit);
  }

  // Copies the tensors of the keys d_logp, d_lse, ...
  TokenGrads grads() const {
    TokenGrads out;
    const int64_t tokens = plan_of_result().tokens;
    const auto take = [&](const Field& field, const ConstTensor& given, std::vector<double>& to) {
      const ConstVector from = core::vector_of(field.name, given);
      if (!given.given()) return;
      if (from.size != tokens) core::fail("d_", field.name, " has ", from.size, " entries, not ", tokens);
      for (int64_t i = 0; i < from.size; ++i) to.push_back(core::read(from, i));
    };
    visit_fields(FieldsOf<TokenGrads>(), take, given_, out);
    return out;
  }
  T task_;
  Forward<T> results_;
  CallbackLoss loss_;
  StatisticsGradients given_;
  OneOrEach upstream_;
};

}  // namespace logitless::record
