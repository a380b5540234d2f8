// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Tests of preference_loss and kto_loss are sentences:
//
//   PreferenceTester().batch(6).loss(PreferenceLossType::kIpo).reference(ReferenceForm::kModel).matches_oracle();
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "logitless/preference.h"
#include "oracle/preference_oracle.h"
#include "support/calls.h"
#include "support/preference_cases.h"
#include "support/sequence_data.h"
#include "support/testers.h"

namespace logitless::testing {

/// What one run left.
template <class Result>
struct SequenceRun {
  Result result;
  Plan backward_plan;  ///< of the split form
  /// gradients, loss, log-probabilities, metrics: what must not depend on threads
  std::vector<std::byte> bytes;
};

/// What both testers can vary.
template <class Self>
class SequenceTester : public Tester<Self> {
 public:
  Self& reference(ReferenceForm form) {
    return this->input("reference", static_cast<int>(form), reference_form_, form);
  }
  /// The loss is that of finished logits: d_hidden is then dL/dlogits, and the only gradient.
  Self& from_logits(bool on = true) {
    return this->gradients(true, !on, !on).input("from_logits", on, this->spec_.finished_logits, on);
  }
  /// Sets the element type of the numbers of kSequences and kTokens.
  Self& reference_dtype(DType dtype) { return this->input("reference_dtype", name_of(dtype), reference_dtype_, dtype); }
  /// The sequences with these numbers have no target.
  Self& empty_sequences(std::vector<int64_t> sequences) {
    return this->input("empty_sequences", sequences.size(), empty_, std::move(sequences));
  }

 protected:
  void forget() override { data_.reset(); }
  /// `pairs` is as make_sequence_data() takes it.
  SequenceData& data(bool pairs) {
    if (data_) return *data_;
    const TokenOptions token = this->token_options(temperatures_);
    data_ = make_sequence_data(this->spec_, empty_, token, reference_form_, reference_dtype_, pairs, this->context());
    return *data_;
  }

  /// Adds ∂(upstream · loss)/∂logp to what is expected, from ∂loss/∂logp and its bounds.
  void add_token_gradients(const std::vector<double>& d_logp, const std::vector<double>& errors);
  template <class Result>
  void expect_plan(const SequenceRun<Result>& run) const;

  std::shared_ptr<SequenceData> data_;

 private:
  HostArray<double> temperatures_;
  ReferenceForm reference_form_ = ReferenceForm::kTokens;
  DType reference_dtype_ = DType::kFloat64;
  std::vector<int64_t> empty_;
};

/// By default there are 3 pairs of 7 tokens, some of them ignored.
class PreferenceTester : public SequenceTester<PreferenceTester> {
 public:
  PreferenceTester() { tokens(42).batch(6).ignored(0.2); }

  /// Sets the loss, with a reference where it needs one.
  PreferenceTester& loss(PreferenceLossType loss);
  /// Sets everything but what belongs to tokens.
  PreferenceTester& options(const std::string& name, const PreferenceLoss& options);
  const PreferenceLoss& preference_options() const { return options_; }

  void matches_oracle();
  SequenceRun<PreferenceResult> run_once();
  Plan planned();

 private:
  SequenceData& given();  // with the options of the call in place
  SequenceRun<PreferenceResult> call(SequenceData& data, GradientOutputs& outputs) const;

  PreferenceLoss options_;
};

/// By default there are 5 sequences of 8 tokens.
class KtoTester : public SequenceTester<KtoTester> {
 public:
  KtoTester() { tokens(40).batch(5).ignored(0.2); }

  KtoTester& options(const KtoCase& kto_case) { return input("case", kto_case.name, case_, kto_case); }

  void matches_oracle();
  SequenceRun<KtoResult> run_once();
  Plan planned();

 private:
  SequenceData& given();  // with the options of the call in place
  void with_batch(const SequenceData& data, const std::function<void(const KtoBatch&)>& call) const;
  SequenceRun<KtoResult> call(SequenceData& data, GradientOutputs& outputs) const;

  KtoCase case_ = kto_cases()[1];
};

}  // namespace logitless::testing
