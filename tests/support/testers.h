// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Tests read like sentences: a test names only what it varies.
//
//   CrossEntropyTester().tokens(257).vocab(2049).hidden(33).label_smoothing(0.1).matches_oracle();
//
// A tester may run many times with other plans, tiles, threads or outputs; the oracle runs once for the same
// inputs.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/compare.h"
#include "support/inputs.h"
#include "support/views.h"

namespace logitless::testing {

/// The calls that compute a loss.
enum class Form {
  kFused,  ///< one call
  kSplit,  ///< forward(), then backward()
};

/// The settings of all testers. Self is the tester, so that calls chain.
template <class Self>
class Tester {
 public:
  // Inputs. Each of these makes the oracle run again.
  Self& tokens(int64_t n) { return input("tokens", n, spec_.tokens, n); }
  Self& vocab(int64_t n) { return input("vocab", n, spec_.vocab, n); }
  Self& hidden(int64_t n) { return input("hidden", n, spec_.hidden, n); }
  /// The tokens are sequences of equal length, so their number must be a multiple of `sequences`.
  Self& batch(int64_t sequences) { return input("batch", sequences, spec_.sequences, sequences); }
  /// Sets cu_seqlens; its last entry is the number of tokens.
  Self& packed(std::vector<int64_t> offsets) {
    spec_.tokens = offsets.back();
    return input("packed", spec_.tokens, spec_.offsets, std::move(offsets));
  }
  /// Unless tokens() is set, uses more 16-bit tokens than count as few (Backend::for_rows()), as the default
  /// does for other types.
  Self& dtype(DType type) {
    if (size_of(type) == 2 && spec_.tokens == InputSpec().tokens && spec_.offsets.empty()) tokens(67);
    return input("dtype", name_of(type), spec_.dtype, type);
  }
  Self& layout(HeadLayout layout) {
    return input("layout", layout == HeadLayout::kHiddenVocab ? "hidden_vocab" : "vocab_hidden", spec_.layout, layout);
  }
  /// Adds this many NaN elements after every row of every matrix.
  Self& padding(int64_t elements) { return input("padding", elements, spec_.padding, elements); }
  /// The memory layout of hidden states, and (below) of their gradients.
  Self& hidden_rows(Rows places) { return input("hidden_rows", static_cast<int>(places), spec_.hidden_rows, places); }
  Self& d_hidden_rows(Rows places) {
    return run("d_hidden_rows", static_cast<int>(places), run_.d_hidden_rows, places);
  }
  Self& strided_targets(bool on = true) { return input("strided_targets", on, spec_.strided_targets, on); }
  /// Without a bias there is no d_bias.
  Self& bias(bool on) { return input("bias", on, spec_.bias, on); }
  Self& softcap(double cap) { return input("softcap", cap, spec_.softcap, cap); }
  Self& ignored(double fraction) { return input("ignored", fraction, spec_.ignored, fraction); }
  Self& shift(int64_t by = 1) { return input("shift", by, spec_.shift, by); }
  /// Sets token ids, which are repeated if there are more tokens.
  Self& targets(std::vector<int64_t> ids) { return input("targets", ids.size(), spec_.targets, std::move(ids)); }
  /// Ignored rows hold no NaN, for a path that computes them.
  Self& finite_everywhere() { return input("finite_everywhere", true, spec_.poison, false); }
  Self& seed(uint64_t value) { return input("seed", value, spec_.seed, value); }

  // The rest of TokenOptions.
  Self& temperature(double value) { return input("temperature", value, token_.temperature, value); }
  /// Each token has its own temperature, random from 0.3 to 5.
  Self& temperatures(bool on = true) { return input("temperatures", on, temperatures_on_, on); }

  // The execution, and the outputs.
  Self& plan(PlanKind kind) { return run("plan", name_of(kind), run_.context.plan, kind); }
  Self& workspace(size_t bytes) { return run("workspace", bytes, run_.context.workspace_bytes, bytes); }
  Self& tiles(int64_t rows, int64_t entries) {
    run_.context.vocab_tile = entries;
    run_.context.row_block = rows;
    return run("tiles", std::to_string(rows) + "x" + std::to_string(entries), run_.context.row_tile, rows);
  }
  Self& threads(int count) { return run("threads", count, run_.context.threads, count); }
  Self& gemm_backend(const std::string& name) { return input("gemm_backend", name, run_.context.gemm_backend, name); }
  Self& gradient_precision(GradientPrecision precision) {
    return input("gradient_precision", name_of(precision), run_.context.gradient_precision, precision);
  }
  Self& simd_target(const std::string& name) { return run("simd_target", name, run_.context.simd_target, name); }
  Self& gradients(bool d_hidden, bool d_weight, bool d_bias) {
    run_.d_hidden = d_hidden;
    run_.d_weight = d_weight;
    const std::string asked = std::string(d_hidden ? "H" : "-") + (d_weight ? "W" : "-") + (d_bias ? "B" : "-");
    return run("gradients", asked, run_.d_bias, d_bias);
  }
  Self& form(Form value) { return run("form", static_cast<int>(value), form_, value); }
  /// Uses a random ∂L/∂loss in the split form, one value or (with kNone) one per token. Otherwise it is 1.
  Self& upstream(bool on = true) { return input("upstream", on, upstream_on_, on); }
  Self& accumulate(bool on = true) { return run("accumulate", on, run_.accumulate, on); }
  Self& gradient_dtype(std::optional<DType> type) {
    return run("gradient_dtype", type ? name_of(*type) : "default", run_.gradient_dtype, type);
  }
  Self& sink(bool on = true) { return run("sink", on, run_.sink, on); }
  Self& sink_overwrites_weight(bool on = true) {
    sink(on);
    return run("sink_overwrites_weight", on, run_.sink_overwrites_weight, on);
  }

  /// Runs in this context, which others may use at the same time. The context's own options are used.
  Self& in(const Context& context) {
    run_.context = context.options();
    return run("in", "a shared context", run_.shared_context, context);
  }
  Context context() const { return run_.shared_context ? *run_.shared_context : Context(run_.context); }
  const InputSpec& spec() const { return spec_; }

 protected:
  template <class Shown, class Member, class Value>
  Self& input(const char* name, const Shown& shown, Member& member, Value&& value) {
    forget();
    return run(name, shown, member, std::forward<Value>(value));
  }
  template <class Shown, class Member, class Value>
  Self& run(const char* name, const Shown& shown, Member& member, Value&& value) {
    if constexpr (std::is_convertible_v<Shown, std::string>) {
      settings_[name] = shown;
    } else {
      settings_[name] = ::testing::PrintToString(shown);
    }
    member = std::forward<Value>(value);
    return static_cast<Self&>(*this);
  }
  /// Returns all settings, for messages.
  std::string describe() const {
    std::string text;
    for (const auto& [name, value] : settings_) text += " " + name + "=" + value;
    return text;
  }

  /// Returns all token options. `temperatures` keeps the numbers of temperatures().
  TokenOptions token_options(HostArray<double>& temperatures) const {
    TokenOptions options = token_;
    options.ignore_index = spec_.ignore_index;
    options.shift = spec_.shift;
    if (temperatures_on_) {
      temperatures = {random_temperatures(spec_.tokens, spec_.seed), spec_.allocate};
      options.temperatures = temperatures.span();
    }
    return options;
  }

  virtual ~Tester() = default;
  virtual void forget() = 0;

  /// Returns ∂L/∂loss of a single value.
  double upstream_value() const { return upstream_on_ ? -1.75 : 1.0; }
  /// Expects the plan kind of a loss with gradients. backward() runs two pass, unless forward() returned
  /// expected rows.
  void expect_kind(const Plan& plan) const {
    if (form_ == Form::kSplit) {
      EXPECT_EQ(plan.kind, leaves_expected_rows() ? PlanKind::kExpectedRow : PlanKind::kTwoPass);
    } else if (run_.context.plan != PlanKind::kAuto) {
      EXPECT_EQ(plan.kind, run_.context.plan);
    }
  }

  bool leaves_expected_rows() const {
    const ContextOptions& options = run_.context;
    return options.plan == PlanKind::kExpectedRow && run_.d_hidden && !options.ranks.cuts_vocab();
  }

  InputSpec spec_;
  RunSpec run_;
  Form form_ = Form::kFused;
  bool upstream_on_ = false;

 private:
  TokenOptions token_;
  bool temperatures_on_ = false;
  std::map<std::string, std::string> settings_;
};

/// The additional settings of cross-entropy testers, for any kind of logits.
template <class Self>
class CrossEntropyOptionsTester : public Tester<Self> {
 public:
  Self& reduction(Reduction value) {
    return this->input("reduction", static_cast<int>(value), options_.reduction, value);
  }
  Self& class_weights(bool on = true) { return this->input("class_weights", on, class_weights_on_, on); }
  Self& label_smoothing(double value) { return this->input("label_smoothing", value, options_.label_smoothing, value); }
  Self& z_loss(double value) { return this->input("z_loss", value, options_.z_loss, value); }
  Self& loss_scale(double value) { return this->input("loss_scale", value, options_.loss_scale, value); }
  Self& metrics() {
    options_.want_entropy = true;
    return this->input("metrics", true, options_.want_accuracy, true);
  }

 protected:
  /// `class_weights` keeps the numbers of class_weights().
  CrossEntropy cross_entropy_options(const TokenOptions& token, HostArray<float>& class_weights) const {
    CrossEntropy options = options_;
    options.token = token;
    if (class_weights_on_) {
      class_weights = {random_class_weights(this->spec_.vocab, this->spec_.seed), this->spec_.allocate};
      options.class_weights = class_weights.span();
    }
    return options;
  }

  /// Returns ∂L/∂loss: one value, or with kNone one per token.
  std::vector<double> upstream_values() const {
    if (options_.reduction != Reduction::kNone) return {this->upstream_value()};
    if (this->upstream_on_) return random_token_gradients(this->spec_.tokens, this->spec_.seed);
    return std::vector<double>(static_cast<size_t>(this->spec_.tokens), 1.0);
  }
  /// Runs forward() and backward(). `plan` receives the second one's plan.
  template <class Outputs, class... Source>
  CrossEntropyResult run_halves(const Context& context, const Targets& targets, const CrossEntropy& options,
                                const Outputs& outputs, Plan& plan, const Source&... source) const {
    const Forward<CrossEntropy> forward = cross_entropy.forward(context, source..., targets, options);
    const std::vector<double> upstream = upstream_values();
    if (options.reduction == Reduction::kNone) {
      plan = cross_entropy.backward(context, source..., targets, options, forward, std::span(upstream), outputs);
    } else {
      plan = cross_entropy.backward(context, source..., targets, options, forward, upstream[0], outputs);
    }
    return forward.result;
  }

  CrossEntropy options_;  ///< set by the functions above

 private:
  bool class_weights_on_ = false;
};

/// The results of one run of a CrossEntropyTester.
struct CrossEntropyRun {
  CrossEntropyResult result;
  Plan backward_plan;  ///< of the split form
  /// gradients, losses, loss, metrics: everything that must not depend on threads
  std::vector<std::byte> bytes;
};

class CrossEntropyTester : public CrossEntropyOptionsTester<CrossEntropyTester> {
 public:
  /// Returns the plan that the call would run.
  Plan planned();
  /// Returns whether a loss with these options can run this plan.
  bool can_run(PlanKind plan) const {
    if (plan != PlanKind::kExpectedRow) return true;
    return run_.d_hidden && (!(spec_.softcap > 0) || !(options_.label_smoothing > 0));
  }

  /// Runs, and compares everything with the oracle.
  void matches_oracle();
  /// Runs without comparing.
  CrossEntropyRun run_once();

 private:
  struct Reference;

  void forget() override { reference_.reset(); }
  Reference& reference();
  Reference& truth();
  CrossEntropyRun call(const Reference& reference, const Inputs& inputs, GradientOutputs& outputs) const;
  void expect_plan(const Reference& reference, const CrossEntropyRun& run) const;

  std::shared_ptr<Reference> reference_;
};

}  // namespace logitless::testing
