// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares policy_loss, of hidden states and of finished logits, with the oracle, as a sentence:
//
//   PolicyTester().loss_type(PolicyLossType::kCispo).packed({0, 7, 7, 23}).beta(0.1).matches_oracle();
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/policy_cases.h"
#include "support/testers.h"
#include "support/views.h"

namespace logitless::testing {

/// What one run of a PolicyTester left.
struct PolicyRun {
  PolicyResult result;
  Plan backward_plan;  ///< of the split form
  /// gradients, loss, losses, metrics: everything that must not depend on threads
  std::vector<std::byte> bytes;
};

/// Sequences are as batch() or packed() say; a masked token is an ignored target. Tokens under a false mask
/// hold garbage everywhere: hidden states, ids, log-probabilities, advantages.
class PolicyTester : public Tester<PolicyTester> {
 public:
  PolicyTester() { packed({0, 9, 9, 13, 23}).ignored(0.25); }

  /// The sequences are [B, T, H] instead of packed ones.
  PolicyTester& padded(int64_t sequences, int64_t length) {
    spec_.offsets.clear();
    return tokens(sequences * length).batch(sequences);
  }
  /// The loss is that of finished logits, of padded sequences: d_hidden is then dL/dlogits, and the only
  /// gradient.
  PolicyTester& from_logits(bool on = true) {
    return gradients(true, !on, !on).input("from_logits", on, spec_.finished_logits, on);
  }
  /// Sets options, and what the batch has to look like for them.
  PolicyTester& policy(const PolicyCase& value) { return input("policy", value.name, case_, value); }
  PolicyTester& loss_type(PolicyLossType value) { return policy(plain_case(value)); }
  PolicyTester& twist(const std::string& name);
  /// Sets the element type of the vectors of the batch.
  PolicyTester& batch_dtype(DType type) { return input("batch_dtype", name_of(type), batch_dtype_, type); }

  /// Returns the plan that the call would run.
  Plan planned();

  /// Runs, and compares everything with the oracle. Fails where the data are nearer to a kink of the loss
  /// than errors of the statistics reach.
  PolicyRun matches_oracle();
  /// Runs, and compares nothing.
  PolicyRun run_once();

 private:
  struct Reference;

  void forget() override { reference_.reset(); }
  Reference& reference();
  Reference& truth();
  void make_batch(Reference& reference) const;
  PolicyRun call(const Reference& reference, GradientOutputs& outputs) const;
  void expect_plan(const PolicyRun& run, int64_t tokens);

  PolicyCase case_ = plain_case(PolicyLossType::kGrpo);
  DType batch_dtype_ = DType::kFloat64;
  std::shared_ptr<Reference> reference_;
};

}  // namespace logitless::testing
