// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A small batch, and the list of all tasks on it, from both kinds of logits, for tests that run every task.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/result_columns.h"
#include "support/views.h"

namespace logitless::testing {

inline constexpr int64_t kBatch = 4, kTime = 5, kTokens = kBatch * kTime, kHidden = 7, kVocab = 101;

inline std::vector<float> normal(size_t count, uint64_t seed, double scale = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> draw(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(draw(random));
  return values;
}

/// Calls a function with its tensors, followed by the task's arguments. Outputs hold the gradients.
struct FromHidden {
  static constexpr bool kFinishedLogits = false;
  using Views = Gradients;
  std::vector<float> hidden = normal(kTokens * kHidden, 1), weight = normal(kVocab * kHidden, 2),
                     bias = normal(kVocab, 3);
  /// The vocabulary entries of the given head.
  int64_t first_entry = 0, entries = kVocab;
  double softcap = 0;

  HiddenStates states() const { return {hidden.data(), kBatch, kTime, kHidden}; }
  LmHead head() const {
    LmHead result(ConstMatrix(weight.data() + first_entry * kHidden, entries, kHidden));
    result.bias = {bias.data() + first_entry, entries};
    result.softcap = softcap;
    return result;
  }
  template <class Function, class... Arguments>
  auto call(Function&& function, const Context& context, Arguments&&... arguments) const {
    return function(context, states(), head(), arguments...);
  }
  class Outputs {
   public:
    Gradients views(int64_t first_entry = 0, int64_t entries = kVocab) {
      Gradients result;
      result.d_hidden = {values_.data(), kTokens, kHidden};
      result.d_weight = {values_.data() + (kTokens + first_entry) * kHidden, entries, kHidden};
      result.d_bias = {values_.data() + (kTokens + kVocab) * kHidden + first_entry, entries};
      return result;
    }
    /// Returns all gradients: d_hidden, d_weight and d_bias.
    const std::vector<float>& values() const { return values_; }
    /// Copies d_weight and d_bias of these vocabulary entries from `other`.
    void take_entries(const Outputs& other, int64_t first_entry, int64_t entries) {
      const auto copy = [&](int64_t begin, int64_t count) {
        std::copy_n(other.values_.begin() + begin, count, values_.begin() + begin);
      };
      copy((kTokens + first_entry) * kHidden, entries * kHidden);
      copy((kTokens + kVocab) * kHidden + first_entry, entries);
    }

   private:
    std::vector<float> values_ = std::vector<float>((kTokens + kVocab) * kHidden + kVocab, 99.0F);
  };
};

/// The plans that compute gradients from tiles.
inline constexpr PlanKind kPlansOfGradients[] = {PlanKind::kOnePass, PlanKind::kTwoPass};
/// Options with tiles so small that this batch has several.
inline ContextOptions small_tiles(PlanKind plan, int threads = 2) {
  ContextOptions options;
  options.plan = plan;
  options.threads = threads;
  options.row_tile = 8;
  options.vocab_tile = 32;
  return options;
}

/// The same with finished logits.
struct FromLogits {
  static constexpr bool kFinishedLogits = true;
  using Views = LogitsGradient;
  std::vector<float> data = normal(kTokens * kVocab, 4, 3);

  template <class Function, class... Arguments>
  auto call(Function&& function, const Context& context, Arguments&&... arguments) const {
    return function(context, FinishedLogits(data.data(), kBatch, kTime, kVocab), arguments...);
  }
  class Outputs {
   public:
    LogitsGradient views() { return {values_.data(), kBatch, kTime, kVocab}; }
    const std::vector<float>& values() const { return values_; }

   private:
    std::vector<float> values_ = std::vector<float>(kTokens * kVocab, 99.0F);
  };
};

/// The tensors that every task reads, in addition to the logits.
struct Batch {
  /// Every sixth token is ignored, unless `all_take_part`.
  explicit Batch(bool all_take_part = false) {
    std::vector<double>* const terms[] = {&grads.logp, &grads.lse, &grads.entropy, &grads.cross};
    for (int64_t i = 0; i < kTokens; ++i) {
      for (int64_t k = 0; k < 4; ++k) terms[k]->push_back(static_cast<double>((i * 7 + k * 5) % 11 - 5) / 8);
      const bool takes_part = all_take_part || i % 6 != 5;
      ids.push_back(takes_part ? (i * 37) % kVocab : -100);
      mask.push_back(takes_part ? 1 : 0);
      for (int64_t k = 0; takes_part && k < 1 + i % 3; ++k) {
        set_ids.push_back((i * 29 + k * 53) % kVocab);
        set_weights.push_back(0.25F * static_cast<float>(k + 1));
        set_logps.push_back(std::log(0.125F * static_cast<float>(k + 1)));
      }
      set_offsets.push_back(static_cast<int64_t>(set_ids.size()));
      for (int64_t v = 0; v < kVocab; ++v) {
        distributions[static_cast<size_t>(i * kVocab + v)] = static_cast<float>((i + v) % 5) / 200;
      }
    }
  }

  Targets targets() const { return {ids.data(), kBatch, kTime}; }
  PolicyBatch policy() const {
    PolicyBatch batch;
    batch.chosen_ids = targets();
    batch.advantages = {advantages.data(), kBatch};
    batch.old_logps = {old_logps.data(), kTokens};
    batch.mask = mask;
    return batch;
  }
  PolicyBatch policy_with_reference() const {
    PolicyBatch batch = policy();
    batch.ref_logps = {ref_logps.data(), kTokens};
    return batch;
  }
  Reference reference() const {
    Reference result;
    result.logps = {sums.data(), kBatch};
    return result;
  }
  Reference reference_model() const {
    Reference result;
    result.hidden = model.states();
    result.head = model.head();
    return result;
  }
  Teacher teacher() const { return {model.states(), model.head(), {}}; }
  KtoBatch kto(const Reference& reference) const {
    KtoBatch batch;
    batch.targets = targets();
    batch.labels = labels;
    batch.reference = reference;
    return batch;
  }

  SoftTargets sparse() const {
    return {IdSets(Targets(std::span<const int64_t>(set_ids)), set_offsets),
            ConstVector(set_weights.data(), static_cast<int64_t>(set_weights.size()))};
  }
  SetTeacher set_teacher() const {
    SetTeacher result;
    result.sets = sparse().sets;
    result.logps = ConstVector(set_logps.data(), static_cast<int64_t>(set_logps.size()));
    return result;
  }
  SoftTargets dense() const {
    SoftTargets result(ConstMatrix(distributions.data(), kTokens, kVocab));
    result.mask = mask;
    return result;
  }

  std::vector<int64_t> ids;
  std::vector<uint8_t> mask;
  std::vector<uint8_t> labels = {1, 0, 0, 1};
  std::vector<float> advantages = {1.5F, -0.5F, 2, -1};
  std::vector<float> old_logps = std::vector<float>(kTokens, -4.6F);
  std::vector<float> ref_logps = std::vector<float>(kTokens, -4.2F);
  std::vector<float> sums = {-18, -20, -19, -17};
  std::vector<int64_t> set_ids, set_offsets = {0};  ///< empty for ignored rows
  std::vector<float> set_weights, set_logps;
  std::vector<float> distributions = std::vector<float>(kTokens * kVocab);
  TokenGrads grads;  ///< of a caller's own loss
  FromHidden model;
};

/// Wraps an overload set in a function object.
#define LOGITLESS_TEST_CALL(name) [](auto&&... arguments) { return name(arguments...); }
/// A task on one kind of logits: one call, forward() and backward(), and its plan.
template <class Source, class Task>
struct TaskVerbs {
  using Outputs = typename Source::Outputs;
  using Views = typename Source::Views;
  static constexpr bool kFinishedLogits = Source::kFinishedLogits;
  static constexpr Verbs<Task> kVerbs = {};

  const char* name;
  bool couples_rows;  ///< finished logits then cannot run in one sweep
  const Source& source;
  Task options;  ///< with its tensors

  auto run(const Context& context, const Views& views = {}) const {
    return source.call(kVerbs, context, options, views);
  }
  auto forward(const Context& context) const {
    return source.call(LOGITLESS_TEST_CALL(kVerbs.forward), context, options);
  }
  template <class Left>
  Plan backward(const Context& context, const Left& left, double upstream, const Views& views) const {
    return source.call(LOGITLESS_TEST_CALL(kVerbs.backward), context, options, left, upstream, views);
  }
};

/// A loss with given token gradients, which allocates nothing.
class FixedLoss final : public TokenLoss {
 public:
  FixedLoss(const TokenGrads& grads, const StatsRequest& request) : grads_(grads), request_(request) {}
  StatsRequest needs() const override { return request_; }
  GradsFilled gradients() const override { return {.lse = true, .entropy = true, .cross = true}; }
  void evaluate(std::span<const int64_t> rows, const TokenStats&, TokenGrads& grads) override {
    for (const int64_t row : rows) {
      const auto i = static_cast<size_t>(row);
      grads.logp[i] = grads_.logp[i];
      grads.lse[i] = grads_.lse[i];
      grads.entropy[i] = grads_.entropy[i];
      grads.cross[i] = grads_.cross[i];
    }
  }

 private:
  const TokenGrads& grads_;
  StatsRequest request_;
};

/// The same for a caller's own loss: its halves are the statistics and backpropagate_token_grads().
template <class Source>
struct FixedLossCalls {
  using Outputs = typename Source::Outputs;
  using Views = typename Source::Views;
  static constexpr bool kFinishedLogits = Source::kFinishedLogits;

  const char* name;
  bool couples_rows;
  const Source& source;
  Targets targets;
  const TokenGrads& grads;
  TokenOptions options = {};
  // In tests of ranks a slice has fewer entries than top_k.
  StatsRequest request = {
      .entropy = true, .cross = true, .argmax = true, .rank = true, .top_k = 30, .cross_weights = {}};

  /// `ran`, if given, receives the plan.
  TokenStats run(const Context& context, const Views& views = {}, Plan* ran = nullptr) const {
    FixedLoss loss(grads, request);
    return source.call(LOGITLESS_TEST_CALL(run_token_loss), context, targets, options, loss, views, ran);
  }
  StatsForward forward(const Context& context) const {
    return {source.call(LOGITLESS_TEST_CALL(compute_token_stats), context, targets, options, request)};
  }
  Plan backward(const Context& context, const StatsForward& left, double upstream, const Views& views) const {
    Plan plan;
    const auto run = [&](const TokenGrads& given) {
      source.call(LOGITLESS_TEST_CALL(backpropagate_token_grads), context, targets, options, request, left.result,
                  given, views, &plan);
    };
    if (upstream == 1) {
      run(grads);
    } else {
      TokenGrads scaled = grads;
      for (auto* term : {&scaled.logp, &scaled.lse, &scaled.entropy, &scaled.cross}) {
        for (double& value : *term) value *= upstream;
      }
      run(scaled);
    }
    return plan;
  }
};

/// Returns whether this would run coupled rows of finished logits in one sweep.
template <class Task>
bool cannot_run(const Task& task, PlanKind plan) {
  return plan == PlanKind::kOnePass && task.couples_rows && Task::kFinishedLogits;
}

/// Calls `visit` with every task on this kind of logits. This is the only list of tasks for the tests.
template <class Source, class Visit>
void visit_every_task(const Source& source, const Batch& batch, const Visit& visit) {
  const auto task = [&](const char* name, bool couples_rows, const auto& options, const auto&... inputs) {
    using Task = std::remove_cvref_t<decltype(options)>;
    visit(TaskVerbs<Source, Task>{name, couples_rows, source, with(options, inputs...)});
  };
  CrossEntropy mean;
  mean.label_smoothing = 0.1;
  mean.z_loss = 0.01;
  mean.want_accuracy = mean.want_entropy = true;
  task("cross_entropy", false, mean, batch.targets());
  CrossEntropy none;
  none.reduction = Reduction::kNone;
  none.token.temperature = 0.7;
  none.dft = true;
  task("cross_entropy of each token", false, none, batch.targets());

  PolicyLoss local;
  local.beta = 0.04;
  local.entropy_bonus = 0.01;
  task("policy_loss", false, local, batch.policy_with_reference());
  PolicyLoss coupled;
  coupled.top_entropy_quantile = 0.5;
  task("policy_loss of the batch", true, coupled, batch.policy());

  PreferenceLoss pair;
  pair.want_entropy = pair.use_weighting = true;
  task("preference_loss of pairs", true, pair, batch.targets(), batch.reference());
  PreferenceLoss sorted;
  sorted.loss_type = {PreferenceLossType::kAotUnpaired, PreferenceLossType::kSigmoid};
  sorted.loss_weights = {1, 0.5};
  task("preference_loss of the batch", true, sorted, batch.targets(), batch.reference_model());
  PreferenceLoss likelihood;
  likelihood.loss_type = {PreferenceLossType::kSft};
  task("preference_loss of tokens", false, likelihood, batch.targets(), Reference());

  task("kto_loss", true, KtoLoss(), batch.kto(batch.reference()));
  task("kto_loss with a reference model", true, KtoLoss(), batch.kto(batch.reference_model()));

  SoftCrossEntropy divergence;
  divergence.subtract_entropy = true;
  task("soft_cross_entropy, sparse", false, divergence, batch.sparse());
  task("soft_cross_entropy, dense", false, SoftCrossEntropy(), batch.dense());
  if constexpr (!Source::kFinishedLogits) {
    Distillation distilled;
    distilled.loss_type = Divergence::kJsd;
    distilled.want_entropy = distilled.want_agreement = true;
    distilled.hard_weight = 0.5;
    distilled.hard_temperature = 2;
    task("distillation_loss", false, distilled, batch.teacher(), batch.targets());
  }

  visit(FixedLossCalls<Source>{"run_token_loss", false, source, batch.targets(), batch.grads});
}

}  // namespace logitless::testing
