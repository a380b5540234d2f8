// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/sequence_data.h"
#include "support/views.h"

#include <algorithm>
#include <cmath>

namespace logitless::testing {
namespace {

bool is_in(const std::vector<int64_t>& values, int64_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Returns the spec with the targets that really hold: those of `empty` sequences are ignored.
InputSpec with_targets(InputSpec spec, const std::vector<int64_t>& empty) {
  if (empty.empty()) return spec;
  const Inputs draft(spec);
  const std::vector<int64_t> offsets = oracle::sequence_offsets(draft.hidden_view());
  spec.targets.clear();
  for (int64_t s = 0; s + 1 < static_cast<int64_t>(offsets.size()); ++s) {
    for (int64_t i = offsets[s]; i < offsets[s + 1]; ++i) {
      spec.targets.push_back(is_in(empty, s) ? spec.ignore_index : draft.targets_view()[i]);
    }
  }
  spec.ignored = 0;
  return spec;
}

// Its reference has another width, near-uniform vocabulary entries, and the same rows without a part.
InputSpec reference_spec_of(const InputSpec& policy) {
  const Inputs draft(policy);
  InputSpec spec = policy;
  spec.hidden = policy.hidden / 2 + 3;
  spec.finished_logits = false;
  spec.layout = policy.layout == HeadLayout::kHiddenVocab ? HeadLayout::kVocabHidden : HeadLayout::kHiddenVocab;
  spec.seed = policy.seed + 1000;
  spec.peaked = false;
  spec.ignored = 0;
  spec.targets.clear();
  for (int64_t i = 0; i < policy.tokens; ++i) spec.targets.push_back(draft.targets_view()[i]);
  return spec;
}

oracle::Problem read_problem(const Inputs& inputs, const Targets& targets, const TokenOptions& token) {
  const HiddenStates hidden = inputs.hidden_view();
  const LmHead head = inputs.head_view();
  return oracle::read_problem(hidden, head,
                              oracle::read_tokens(oracle::sequence_offsets(hidden), head.vocab_size(), targets, token));
}

std::vector<double> sums_of(const oracle::SequenceBatch& batch, const oracle::VectorXd& column) {
  std::vector<double> sums;
  const std::vector<double> values(column.data(), column.data() + column.size());
  for (int64_t s = 0; s < batch.sequences(); ++s) sums.push_back(batch.sum(values, s));
  return sums;
}

void add_arithmetic(const std::vector<double>& sums, std::vector<double>& errors) {
  for (size_t s = 0; s < sums.size(); ++s) errors[s] += kArithmeticUnits * kFloat64Unit * std::abs(sums[s]);
}

// Adds the reference's log-probabilities by the oracle, in the form that the call wants.
void add_reference(SequenceData& data, ReferenceForm form, DType dtype, const Arithmetic& arithmetic) {
  oracle::SequenceBatch& batch = data.batch;
  data.reference_errors.assign(batch.sequences(), 0.0);
  if (form == ReferenceForm::kNone) return;
  const Inputs& model = data.reference_model;
  oracle::Problem problem = read_problem(model, data.inputs.targets_view(), data.token);
  problem.labels = data.expected.problem.labels;
  const Expected reference = expect_statistics(problem, arithmetic);
  batch.reference = sums_of(batch, reference.stats.logp);
  batch.reference_tokens.assign(reference.stats.logp.begin(), reference.stats.logp.end());
  if (form == ReferenceForm::kModel) {
    data.reference.hidden = model.hidden_view();
    data.reference.head = model.head_view();
    data.reference_errors = sums_of(batch, reference.stat_bounds.logp);
  } else if (form == ReferenceForm::kSequences || form == ReferenceForm::kAverages) {
    if (form == ReferenceForm::kAverages) data.ref_logps_are = SequenceLogps::kAverages;
    data.reference_logps = HostTensor(dtype, 1, batch.sequences(), 0, data.inputs.spec.allocate);
    for (int64_t s = 0; s < batch.sequences(); ++s) {
      if (batch.count(s) == 0) continue;
      const double tokens = form == ReferenceForm::kAverages ? static_cast<double>(batch.count(s)) : 1;
      data.reference_logps.set(0, s, batch.reference[s] / tokens);
      batch.reference[s] = tokens * data.reference_logps.get(0, s);
    }
  } else {
    data.reference_logps = HostTensor(dtype, 1, batch.tokens(), 0, data.inputs.spec.allocate);
    oracle::VectorXd rounded = oracle::VectorXd::Zero(batch.tokens());
    for (int64_t i = 0; i < batch.tokens(); ++i) {
      if (!problem.takes_part(i)) continue;
      data.reference_logps.set(0, i, reference.stats.logp[i]);
      rounded[i] = data.reference_logps.get(0, i);
    }
    batch.reference = sums_of(batch, rounded);
    batch.reference_tokens.assign(rounded.begin(), rounded.end());
  }
  if (form != ReferenceForm::kModel) data.reference.logps = data.reference_logps.vector_view();
  add_arithmetic(batch.reference, data.reference_errors);
}

}  // namespace

std::shared_ptr<SequenceData> make_sequence_data(const InputSpec& given, const std::vector<int64_t>& empty,
                                                 const TokenOptions& token, ReferenceForm form, DType reference_dtype,
                                                 bool pairs, const Context& context) {
  const InputSpec spec = with_targets(given, empty);
  auto data = std::make_shared<SequenceData>(spec, reference_spec_of(spec));
  data->token = token;
  const Inputs& inputs = data->inputs;
  const Arithmetic of_products = arithmetic_for(spec.dtype, context);
  const Arithmetic arithmetic = spec.finished_logits ? arithmetic_of_logits(spec.dtype) : of_products;
  oracle::Problem problem = read_problem(inputs, inputs.targets_view(), token);
  const std::vector<int64_t> offsets = oracle::sequence_offsets(inputs.hidden_view());
  if (pairs) oracle::drop_half_pairs(offsets, problem);
  data->expected = expect_statistics(std::move(problem), arithmetic);
  data->batch = oracle::read_batch(data->expected.problem, data->expected.stats, offsets);
  data->errors = sums_of(data->batch, data->expected.stat_bounds.logp);
  add_arithmetic(sums_of(data->batch, data->expected.stats.logp), data->errors);
  add_reference(*data, form, reference_dtype, of_products);
  return data;
}

}  // namespace logitless::testing
