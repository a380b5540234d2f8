// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Tests read like sentences: a test names only what it varies.
//
//   CrossEntropyTester().tokens(257).vocab(2049).hidden(33).label_smoothing(0.1).matches_oracle();
//
// A tester may run many times with other plans, tiles, threads or outputs; the oracle runs once for the same
// inputs.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
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

/// The results of one run of a CrossEntropyTester.
struct CrossEntropyRun {
  CrossEntropyResult result;
  Plan backward_plan;  ///< of the split form
  /// gradients, losses, loss, metrics: everything that must not depend on threads
  std::vector<std::byte> bytes;
};

class CrossEntropyTester {
  using Self = CrossEntropyTester;

 public:
  // Inputs. Each of these makes the oracle run again.
  Self& tokens(int64_t n) { return input("tokens", n, spec_.tokens); }
  Self& vocab(int64_t n) { return input("vocab", n, spec_.vocab); }
  Self& hidden(int64_t n) { return input("hidden", n, spec_.hidden); }
  /// The tokens are sequences of equal length, so their number must be a multiple of `sequences`.
  Self& batch(int64_t sequences) { return input("batch", sequences, spec_.sequences); }
  /// Sets cu_seqlens; its last entry is the number of tokens.
  Self& packed(const std::vector<int64_t>& offsets) {
    spec_.tokens = offsets.back();
    return input("packed", offsets, spec_.offsets);
  }
  /// Unless tokens() is set, uses more 16-bit tokens than count as few (Backend::for_rows()), as the default
  /// does for other types.
  Self& dtype(DType type) {
    if (size_of(type) == 2 && spec_.tokens == InputSpec().tokens && spec_.offsets.empty()) tokens(67);
    return input("dtype", type, spec_.dtype);
  }
  Self& layout(HeadLayout layout) { return input("layout", layout, spec_.layout); }
  /// Adds this many NaN elements after every row of every matrix.
  Self& padding(int64_t elements) { return input("padding", elements, spec_.padding); }
  /// The memory layout of hidden states, and (below) of their gradients.
  Self& hidden_rows(Rows places) { return input("hidden_rows", places, spec_.hidden_rows); }
  Self& d_hidden_rows(Rows places) { return run("d_hidden_rows", places, run_.d_hidden_rows); }
  Self& strided_targets(bool on = true) { return input("strided_targets", on, spec_.strided_targets); }
  /// Without a bias, no d_bias is computed.
  Self& bias(bool on) { return input("bias", on, spec_.bias); }
  Self& softcap(double cap) { return input("softcap", cap, spec_.softcap); }
  Self& ignored(double fraction) { return input("ignored", fraction, spec_.ignored); }
  Self& shift(int64_t by = 1) { return input("shift", by, spec_.shift); }
  /// Ignored rows hold no NaN, for a path that computes them.
  Self& finite_everywhere() { return input("poison", false, spec_.poison); }
  Self& seed(uint64_t value) { return input("seed", value, spec_.seed); }
  /// Each token has its own temperature, random from 0.3 to 5.
  Self& temperatures(bool on = true) { return input("temperatures", on, temperatures_on_); }
  Self& class_weights(bool on = true) { return input("class_weights", on, class_weights_on_); }
  Self& reduction(Reduction value) { return input("reduction", value, options_.reduction); }
  Self& label_smoothing(double value) { return input("label_smoothing", value, options_.label_smoothing); }
  Self& z_loss(double value) { return input("z_loss", value, options_.z_loss); }
  Self& metrics() {
    options_.want_entropy = true;
    return input("metrics", true, options_.want_accuracy);
  }
  /// Uses a random ∂L/∂loss in the split form, one value or (with kNone) one per token. Otherwise it is 1.
  Self& upstream(bool on = true) { return input("upstream", on, upstream_on_); }
  Self& gemm_backend(const std::string& name) { return input("gemm_backend", name, run_.context.gemm_backend); }
  Self& gradient_precision(GradientPrecision precision) {
    return input("gradient_precision", precision, run_.context.gradient_precision);
  }

  // The execution, and the outputs.
  Self& plan(PlanKind kind) { return run("plan", kind, run_.context.plan); }
  Self& workspace(size_t bytes) { return run("workspace", bytes, run_.context.workspace_bytes); }
  Self& tiles(int64_t rows, int64_t entries) {
    run("row_tile", rows, run_.context.row_tile);
    run("row_block", rows, run_.context.row_block);
    return run("vocab_tile", entries, run_.context.vocab_tile);
  }
  Self& threads(int count) { return run("threads", count, run_.context.threads); }
  Self& gradients(bool d_hidden, bool d_weight, bool d_bias) {
    run("d_hidden", d_hidden, run_.d_hidden);
    run("d_weight", d_weight, run_.d_weight);
    return run("d_bias", d_bias, run_.d_bias);
  }
  Self& form(Form value) { return run("form", value, form_); }
  Self& accumulate(bool on = true) { return run("accumulate", on, run_.accumulate); }
  Self& gradient_dtype(std::optional<DType> type) { return run("gradient_dtype", type, run_.gradient_dtype); }
  Self& sink(bool on = true) { return run("sink", on, run_.sink); }
  Self& sink_overwrites_weight(bool on = true) {
    sink(on);
    return run("sink_overwrites_weight", on, run_.sink_overwrites_weight);
  }
  /// Runs in this context, which others may use at the same time. The context's own options are used.
  Self& in(const Context& context) {
    run_.context = context.options();
    run_.shared_context = context;
    return *this;
  }

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

  template <class T>
  Self& input(const char* name, const std::type_identity_t<T>& value, T& member) {
    reference_.reset();
    return run(name, value, member);
  }
  template <class T>
  Self& run(const char* name, const std::type_identity_t<T>& value, T& member) {
    if constexpr (std::is_enum_v<T>) {
      settings_[name] = std::to_string(static_cast<int>(value));
    } else {
      settings_[name] = ::testing::PrintToString(value);
    }
    member = value;
    return *this;
  }
  Context context() const { return run_.shared_context ? *run_.shared_context : Context(run_.context); }
  Reference& reference();
  Reference& truth();
  CrossEntropyRun call(const Reference& reference, const Inputs& inputs, GradientOutputs& outputs) const;
  void expect_plan(const Reference& reference, const CrossEntropyRun& run) const;

  InputSpec spec_;
  RunSpec run_;
  Form form_ = Form::kFused;
  CrossEntropy options_;
  bool upstream_on_ = false, temperatures_on_ = false, class_weights_on_ = false;
  std::map<std::string, std::string> settings_;  ///< for messages
  std::shared_ptr<Reference> reference_;
};

}  // namespace logitless::testing
