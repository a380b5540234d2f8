// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Small problems for sets of token ids and soft targets: tensors, outputs, and how far these may be from the
// oracle.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "oracle/set_oracle.h"
#include "support/bounds.h"
#include "support/host_tensor.h"
#include "support/views.h"

namespace logitless::testing {

/// What a test varies.
struct SetCase {
  DType dtype = DType::kFloat32;
  HeadLayout layout = HeadLayout::kVocabHidden;
  bool finished_logits = false;
  bool bias = true;
  double softcap = 0;
  double temperature = 1;
  bool temperature_per_token = false;
  TemperatureMeaning meaning = TemperatureMeaning::kScaleLogits;
  std::optional<DType> round_logits_to = {};
  double scale = 1;   ///< of the logits
  double offset = 0;  ///< that all logits of a row share
  PlanKind plan = PlanKind::kAuto;
  int threads = 2;
  size_t workspace_bytes = size_t{64} << 20;
  std::vector<int64_t> slices = {};
  std::optional<DType> output = {};  ///< type of the gradients; unset: that of the sums
  WriteMode mode = WriteMode::kOverwrite;

  ContextOptions context() const;
  std::string name() const;
};

/// Outputs of one call, and what they held before.
struct SetOutputs {
  HostTensor d_hidden, d_weight, d_bias, d_logits;
  HostTensor before_hidden, before_weight, before_bias;
};

class SetProblem {
 public:
  static constexpr int64_t kTokens = 23, kHidden = 33, kVocab = 157;

  explicit SetProblem(const SetCase& given);
  SetProblem(const SetProblem&) = delete;

  const SetCase& given() const { return case_; }
  HiddenStates hidden() const { return HiddenStates(hidden_.view()); }
  LmHead head() const;
  FinishedLogits logits() const { return FinishedLogits(logits_.view().data, case_.dtype, 1, kTokens, kVocab); }
  TokenOptions token() const;
  oracle::SetLogits oracle_logits(const TokenOptions& options, bool over_set) const {
    return {products_, case_.finished_logits ? 0 : case_.softcap, options, over_set};
  }

  SetOutputs outputs() const;
  Gradients gradients(SetOutputs& out) const;
  LogitsGradient dlogits(SetOutputs& out) const;
  /// Calls call(source..., outputs) with the hidden states and head, or with the logits.
  template <class Call>
  auto on_source(SetOutputs& out, const Call& call) const {
    if (case_.finished_logits) return call(dlogits(out), logits());
    return call(gradients(out), hidden(), head());
  }

  /// Bounds the error of every log p of a row.
  double log_p_bound(const oracle::SetLogits& logits, int64_t row, const std::vector<int64_t>& ids,
                     const Context& context) const;
  /// Expects gradients of Σ_iv gamma_iv log p_iv.
  void expect_gradients(const oracle::SetLogits& logits, const oracle::RowIds& ids, const oracle::MatrixXd& gamma,
                        const SetOutputs& out, const Context& context) const;

 private:
  Arithmetic arithmetic(const Context& context) const;
  oracle::MatrixXd d_raw_bounds(const oracle::SetLogits& logits, const oracle::RowIds& ids,
                                const oracle::MatrixXd& gamma, const oracle::MatrixXd& d_raw,
                                const Context& context) const;
  double raw_bound(const oracle::SetLogits& logits, int64_t row, int64_t v, const Arithmetic& arithmetic) const;

  SetCase case_;
  HostTensor hidden_, weight_, bias_, logits_;
  std::vector<double> temperatures_;
  oracle::MatrixXd x_, w_, products_, absolute_;
};

}  // namespace logitless::testing
