// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Checks a batch of sampled completions and its options, and copies the data that the loss needs.
#include <cmath>
#include <iterator>

#include "core/check_fields.h"
#include "core/store.h"
#include "core/tensors.h"
#include "loss/batch.h"
#include "loss/policy.h"
#include "problem/id_sets.h"

namespace logitless {
namespace loss {
namespace {

void check_meaning(bool given, bool used, std::string_view name, const PolicyLoss& options) {
  if (given && !used) core::fail(name, " is set but has no meaning for loss_type ", name_of(options.loss_type));
}

void check_aggregation(const PolicyLoss& o) {
  using enum PolicyAggregation;
  const PolicyAggregation aggregation = aggregation_of(o);
  const auto check = [&](bool given, bool used, std::string_view name) {
    if (!given || used) return;
    core::fail(name, " is set but has no meaning for aggregation ", name_of(aggregation), " (loss_type ",
               name_of(o.loss_type), ")");
  };
  const bool of_sequences = aggregation != kTokenMean && aggregation != kTokenSum;
  check(o.num_items_in_batch.has_value(), aggregation == kTokenMean, "num_items_in_batch");
  check(o.max_completion_length.has_value(), aggregation == kSeqMeanTokenSumNorm, "max_completion_length");
  check(o.num_sequences.has_value(), of_sequences, "num_sequences");
  check(!o.count_empty_sequences, of_sequences, "count_empty_sequences = false");
  if (!o.count_empty_sequences && o.num_sequences) {
    core::fail("count_empty_sequences = false is set beside num_sequences = ", *o.num_sequences,
               ", which stands in place of any count");
  }
  if (aggregation == kSeqMeanTokenSumNorm && !o.max_completion_length) {
    core::fail("max_completion_length is not set: aggregation ", name_of(aggregation), " (loss_type ",
               name_of(o.loss_type), ") divides by it");
  }
}

bool reads_scores(const PolicyLoss& options) {
  return row_of(options.loss_type).reads_scores || options.positive_nll_weight != 0;
}

void check_teacher(const PolicyLoss& o) {
  using core::fail;
  const bool given = o.teacher_logps.count() != 0;
  if (o.teacher_weight == 0) {
    if (given) fail("teacher_logps is given but teacher_weight = 0");
    if (o.teacher_against != PolicyLoss().teacher_against) {
      fail("teacher_against = ", name_of(o.teacher_against), " is set but teacher_weight = 0");
    }
    if (o.teacher_discount != 0) fail("teacher_discount = ", o.teacher_discount, " is set but teacher_weight = 0");
    return;
  }
  if (o.chosen_ids.count() == 0) return;
  if (!given) fail("teacher_weight = ", o.teacher_weight, " needs teacher_logps");
  if (o.teacher_against == TeacherAgainst::kSampling && o.sampling_logps.count() == 0) {
    fail("teacher_against = sampling needs sampling_logps");
  }
}

}  // namespace

static_assert(kLogRatio.high == kMostLogRatio);

void check_policy_options(const PolicyLoss& o) {
  using core::fail;
  const PolicyVariantRow& variant = row_of(o.loss_type);
  core::check_fields(o);
  if (o.sampler_clip_min && o.sampler_clip_max && *o.sampler_clip_min > *o.sampler_clip_max) {
    fail("sampler_clip_min = ", *o.sampler_clip_min, " is above sampler_clip_max = ", *o.sampler_clip_max);
  }
  check_aggregation(o);
  const bool clips_logs = variant.sequence_ratio == SequenceRatio::kClippedMean;
  if (o.epsilon_low && *o.epsilon_low > kShare.high && !clips_logs) {
    fail("epsilon_low = ", *o.epsilon_low, " must be ", kShare.text, " for ", name_of(o.loss_type));
  }
  check_meaning(o.importance_sampling_level == ImportanceLevel::kSequence,
                !variant.has_weight_of_sequence && variant.sequence_ratio == SequenceRatio::kNone,
                "importance_sampling_level = sequence", o);
  const bool has_bounds = variant.is_clipped_surrogate() || variant.is_truncated() || clips_logs;
  check_meaning(o.delta.has_value(), variant.is_clipped_surrogate(), "delta", o);
  check_meaning(o.epsilon_low.has_value(), has_bounds, "epsilon_low", o);
  check_meaning(o.epsilon_high.has_value(), has_bounds, "epsilon_high", o);
  if (variant.is_truncated() && least_ratio(o) > epsilon_high(o)) {
    fail("epsilon_high = ", epsilon_high(o), " is below 1 - epsilon_low = ", least_ratio(o));
  }
  check_meaning(o.top_entropy_quantile < 1, !clips_logs, "top_entropy_quantile", o);
  if (trust_region_of(o) == TrustRegion::kNone) {
    if (o.trust_region_low) fail("trust_region_low = ", *o.trust_region_low, " is set but there is no trust_region");
    if (o.trust_region_high) fail("trust_region_high = ", *o.trust_region_high, " is set but there is no trust_region");
  }
  if (o.cov_low >= o.cov_high) fail("cov_low = ", o.cov_low, " must be below cov_high = ", o.cov_high);
  if (o.token.shift != 0) {
    fail("token.shift = ", o.token.shift, ": chosen_ids stand at the positions that predict them");
  }
  if (o.token.ignore_index != TokenOptions().ignore_index) {
    fail("token.ignore_index = ", o.token.ignore_index,
         " has no meaning for a policy loss: the mask says who takes part");
  }
  if (o.use_bias_correction_kl && o.beta == 0) fail("use_bias_correction_kl is set but beta = 0");
  if (o.kl_estimator != PolicyLoss().kl_estimator && o.beta == 0) {
    fail("kl_estimator = ", name_of(o.kl_estimator), " is set but beta = 0");
  }
  if (o.beta != 0 && o.ref_logps.count() == 0 && o.chosen_ids.count() != 0) {
    fail("beta = ", o.beta, " needs ref_logps");
  }
  if (o.beta == 0 && o.ref_logps.count() != 0) fail("ref_logps is given but beta = 0");
  const bool corrects = o.sampler_correction != SamplerCorrection::kNone;
  if (corrects && o.sampling_logps.count() == 0 && o.chosen_ids.count() != 0) {
    fail("sampler_correction = ", name_of(o.sampler_correction), " needs sampling_logps");
  }
  const bool against_sampler = o.teacher_weight != 0 && o.teacher_against == TeacherAgainst::kSampling;
  const bool penalises = o.sampler_penalty != 0, drops = o.m2_threshold.has_value();
  if (o.sampling_logps.count() == 0 && o.chosen_ids.count() != 0) {
    if (penalises) fail("sampler_penalty = ", o.sampler_penalty, " needs sampling_logps");
    if (drops) fail("m2_threshold = ", *o.m2_threshold, " needs sampling_logps");
  }
  const bool is_used = corrects || o.off_policy_mask_threshold || against_sampler || penalises || drops;
  if (o.sampling_logps.count() != 0 && !is_used) {
    fail("sampling_logps is given but no sampler_correction, off_policy_mask_threshold, teacher_against, ",
         "sampler_penalty or m2_threshold uses it");
  }
  check_teacher(o);
  if (o.scores.count() != 0 && !reads_scores(o)) {
    fail("scores is given but loss_type ", name_of(o.loss_type), " does not read it and positive_nll_weight = 0");
  }
  if (has_kept(o) && (o.want_entropy || o.entropy_bonus != 0 || o.top_entropy_quantile < 1)) {
    fail(
        "kept is given, and no entropy is known over it: want_entropy, entropy_bonus and top_entropy_quantile must be ",
        "at their defaults");
  }
  if (!corrects && o.sampler_clip_min) fail("sampler_clip_min is set but sampler_correction = none");
  if (!corrects && o.sampler_clip_max != PolicyLoss().sampler_clip_max) {
    fail("sampler_clip_max is set but sampler_correction = none");
  }
  if (variant.has_weight_of_sequence && is_sequence_level(o.sampler_correction)) {
    fail("sampler_correction = ", name_of(o.sampler_correction), " has no meaning for loss_type ", name_of(o.loss_type),
         ": it takes token_truncate or token_mask");
  }
}

CompletionLoss::CompletionLoss(const PolicyLoss& options, std::span<const int64_t> offsets, int64_t vocab_size,
                               std::string_view rows_name, ranks::Totals totals)
    : options_(options), totals_(totals), batch_(static_cast<double>(offsets.size() - 1)) {
  using core::fail;
  check_policy_options(options);
  const int64_t n = offsets.back();
  const Targets ids = core::targets_of("chosen_ids", options.chosen_ids);
  core::check_targets("chosen_ids", ids, n, rows_name);
  problem::check_mask(options.mask, n, rows_name);
  const ConstVector advantages = core::vector_of("advantages", options.advantages);
  sequence_ = sequence_of_rows(offsets);
  const bool taught = options.teacher_weight != 0;
  const bool no_advantages = taught && advantages.size == 0;
  const bool one_a_token = !no_advantages && is_per_token("advantages", options.advantages_per, advantages.size,
                                                          sequence_, static_cast<int64_t>(offsets.size()) - 1);
  advantage_per_token_ = taught || one_a_token;
  const auto size = static_cast<size_t>(n);
  const auto take = [&](std::string_view name, const ConstTensor& given, core::Array<double>& to) {
    const ConstVector values = core::vector_of(name, given);
    if (values.size == 0) return values;
    if (values.size != n) fail(name, " ", core::HasEntries(values.size), " but ", rows_name, " has ", n, " rows");
    to.assign(size, 0);
    return values;
  };
  const ConstVector old = take("old_logps", options.old_logps, old_);
  const ConstVector ref = take("ref_logps", options.ref_logps, ref_);
  const ConstVector sampling = take("sampling_logps", options.sampling_logps, sampling_);
  const ConstVector teacher = take("teacher_logps", options.teacher_logps, teacher_);
  const auto sequences = static_cast<int64_t>(offsets.size()) - 1;
  const bool scored = reads_scores(options);
  const ConstVector scores = core::vector_of("scores", options.scores);
  if (scored) {
    if (scores.size != sequences) {
      fail("scores ", core::HasEntries(scores.size), " but ",
           options.positive_nll_weight != 0 ? "positive_nll_weight" : name_of(options.loss_type),
           " needs one per sequence (", sequences, ")");
    }
    good_.assign(static_cast<size_t>(sequences), 0);
  }

  targets_.assign(size, kNoTarget);
  advantage_.assign(size, 0);
  sequences_.resize(offsets.size() - 1);
  for (int64_t row = 0; row < n; ++row) {
    const auto i = static_cast<size_t>(row);
    if (!options.mask.empty() && !options.mask[i]) continue;
    if (ids[row] < 0 || ids[row] >= vocab_size) {
      fail("chosen_ids[", row, "] = ", ids[row], " is outside [0, ", vocab_size, ")");
    }
    targets_[i] = ids[row];
    if (!no_advantages) advantage_[i] = finite_entry("advantages", advantages, one_a_token ? row : sequence_[i]);
    if (!old_.empty()) old_[i] = finite_entry("old_logps", old, row);
    if (!ref_.empty()) ref_[i] = finite_entry("ref_logps", ref, row);
    if (!sampling_.empty()) sampling_[i] = finite_entry("sampling_logps", sampling, row, true);
    if (!teacher_.empty()) teacher_[i] = finite_entry("teacher_logps", teacher, row);
    Sequence& sequence = sequences_[static_cast<size_t>(sequence_[i])];
    sequence.tokens += 1;
    ++tokens_;
    if (!scored) continue;
    uint8_t& good = good_[static_cast<size_t>(sequence_[i])];
    if (sequence.tokens == 1) good = finite_entry("scores", scores, sequence_[i]) > 0;
    good_tokens_ += good;
  }
  if (!options.count_empty_sequences) {
    for (const Sequence& sequence : sequences_) batch_ -= sequence.tokens == 0;
  }

  const bool chooses = row_of(options.loss_type).covariance != CovarianceRule::kNone;
  if (chooses || options.m2_threshold) marks_.assign(size, 0);
  if (options.top_entropy_quantile < 1 || chooses || moments_need_policy()) {
    groups_.assign(size, 0);
  } else if (coupled_ratio() || row_of(options.loss_type).has_weight_of_sequence || options.off_policy_mask_threshold ||
             is_sequence_level(options.sampler_correction) ||
             (options.teacher_discount != 0 && teacher_is_against_policy())) {
    groups_ = sequence_;
  }
  if (totals.are_shared()) {
    const std::string coupling = coupling_of_batch();
    if (!coupling.empty()) fail(coupling, " is of a whole batch, and ranks.data splits it");
  }
  totals_.sum({&tokens_, &batch_, &good_tokens_});
  kept_tokens_ = tokens_;
  loss_.assign(size, 0);
  ratio_.assign(size, 0);
  clips_.assign(size, 0);
  if (options.beta != 0) kl_.assign(size, 0);
  if (!teacher_.empty()) teacher_kl_.assign(size, 0);
  const bool teaches = !teacher_.empty() && !teacher_is_against_policy();
  const bool drops = options.m2_threshold && !moments_need_policy();
  if (!teaches && !drops) return;
  core::Array<int64_t> rows;
  for (int64_t row = 0; row < n; ++row) {
    if (targets_[static_cast<size_t>(row)] != kNoTarget) rows.push_back(row);
  }
  if (teaches) add_teacher(rows, nullptr);
  if (drops) drop_large_moments(rows, nullptr);
}

core::Array<core::ByteRange> batch_ranges(const PolicyLoss& task) {
  core::Array<core::ByteRange> ranges = problem::ranges_of(task.kept);
  ranges.insert(
      ranges.end(),
      {core::range_of("chosen_ids", task.chosen_ids), core::range_of("advantages", task.advantages),
       core::range_of("old_logps", task.old_logps), core::range_of("ref_logps", task.ref_logps),
       core::range_of("sampling_logps", task.sampling_logps), core::range_of("teacher_logps", task.teacher_logps),
       core::range_of("scores", task.scores), core::range_of("mask", task.mask.data(), task.mask.size_bytes())});
  return ranges;
}

}  // namespace loss
}  // namespace logitless
