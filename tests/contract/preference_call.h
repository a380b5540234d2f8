// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A good call of preference_loss and kto_loss, and how both refuse it once a case has spoiled it.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/preference_cases.h"
#include "support/refusal.h"
#include "support/testers.h"
#include "support/views.h"

namespace logitless::testing {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A good call of both functions, for a case to spoil: 4 sequences of 3 tokens, 5 vocabulary entries, H = 4;
/// the reference's H is 12, so that a d_hidden that is put over its head ends within it.
struct PreferenceCall {
  static InputSpec spec(int64_t hidden_size, uint64_t seed) {
    InputSpec spec;
    spec.tokens = 12;
    spec.sequences = 4;
    spec.vocab = 5;
    spec.hidden = hidden_size;
    spec.seed = seed;
    return spec;
  }
  PreferenceCall() : inputs(spec(4, 1)), model(spec(12, 2)), outputs(inputs, {}), before(outputs.bytes()) {
    hidden = inputs.hidden_view();
    head = inputs.head_view();
    targets = inputs.targets_view();
    gradients = outputs.gradients();
    reference.logps = ConstVector(sums.data(), 4);
  }
  /// Gives the reference as hidden states and a head.
  void use_model() {
    reference = {};
    reference.hidden = model.hidden_view();
    reference.head = model.head_view();
  }
  void write_over(const void* data) { gradients.d_hidden.data = const_cast<void*>(data); }
  void use_loss(PreferenceLossType loss, double smoothing) {
    options.loss_type = {loss};
    options.label_smoothing = smoothing;
    if (!oracle::compares_with_reference(loss)) reference = {};
  }
  KtoBatch kto_batch() const {
    KtoBatch batch;
    batch.targets = targets;
    batch.labels = labels;
    batch.reference = reference;
    batch.kl_logps = kl_logps;
    batch.kl_ref_logps = kl_ref_logps;
    return batch;
  }

  Inputs inputs, model;
  GradientOutputs outputs;
  std::vector<std::byte> before;
  HiddenStates hidden;
  LmHead head;
  Targets targets;
  Gradients gradients;
  Reference reference;
  PreferenceLoss options;
  KtoLoss kto;
  ContextOptions context;
  std::vector<double> sums = {-3, -4, -5, -6};
  std::vector<uint8_t> labels = {1, 0, 1, 0};
  ConstVector kl_logps, kl_ref_logps;
  /// What views of a case point to.
  std::vector<double> doubles = std::vector<double>(64, -1.0);
  std::vector<int64_t> integers;
};

/// `function` refuses the call with all parts in one line, and leaves the outputs as they were.
inline void expect_refused(const PreferenceCall& call, const std::vector<std::string>& parts,
                           const std::function<void()>& function) {
  expect_invalid_input(parts, function);
  EXPECT_TRUE(call.outputs.bytes() == call.before) << "an output was written";
}

inline void run_preference(const PreferenceCall& call) {
  preference_loss(Context(call.context), call.hidden, call.head, call.targets, call.reference, call.options,
                  call.gradients);
}
inline void run_kto(const PreferenceCall& call) {
  kto_loss(Context(call.context), call.hidden, call.head, call.kto_batch(), call.kto, call.gradients);
}

using Functions = std::vector<std::function<void(const PreferenceCall&)>>;

inline void expect_refused_by(const Functions& functions, const std::vector<BadCase<PreferenceCall>>& cases) {
  for (const BadCase<PreferenceCall>& bad : cases) {
    SCOPED_TRACE(bad.name);
    for (const auto& function : functions) {
      PreferenceCall call;
      bad.spoil(call);
      expect_refused(call, bad.parts, [&] { function(call); });
    }
  }
}

/// Sets an option to each of these values.
inline void expect_values_refused_by(const Functions& functions, const std::string& name,
                                     const std::vector<double>& values,
                                     const std::function<void(PreferenceCall&, double)>& set) {
  for (const double value : values) {
    const auto spoil = [&](PreferenceCall& c) { set(c, value); };
    expect_refused_by(functions, {{name + " " + std::to_string(value), spoil, {name + " = "}}});
  }
}

}  // namespace logitless::testing
