// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The options and the tensors of a policy loss, checked; and the advantages of its tokens.
#include <utility>

#include "core/check_fields.h"
#include "core/tensors.h"
#include "loss/policy_stages.h"
#include "problem/id_sets.h"

namespace logitless::loss {
namespace {

using core::fail_if;

static_assert(kLogRatio.high == kMostLogRatio);

bool reads_scores(const PolicyLoss& options) {
  return row_of(options.loss_type).reads_scores || options.positive_nll_weight != 0;
}

void check_meaning(bool given, bool used, std::string_view name, const PolicyLoss& options) {
  fail_if(given && !used, name, " is set but has no meaning for loss_type ", name_of(options.loss_type));
}

// Throws if an option needs a tensor that is not given. A batch without ids has no tensors.
template <class... Parts>
void check_needs(const PolicyLoss& o, bool needed, const ConstTensor& tensor, const Parts&... message) {
  fail_if(needed && tensor.count() == 0 && o.chosen_ids.count() != 0, message...);
}

void check_tokens(const PolicyLoss& o) {
  fail_if(o.token.shift != 0, "token.shift = ", o.token.shift,
          " must be 0: chosen_ids belong to the positions that predict them");
  fail_if(o.token.ignore_index != TokenOptions().ignore_index, "token.ignore_index = ", o.token.ignore_index,
          " has no meaning for a policy loss: the mask selects the tokens");
  fail_if(problem::is_given(o.kept) && (o.want_entropy || o.entropy_bonus != 0 || o.top_entropy_quantile < 1),
          "kept is given, which does not support entropies: want_entropy, entropy_bonus and top_entropy_quantile must ",
          "be at their defaults");
  fail_if(o.scores.count() != 0 && !reads_scores(o), "scores is given but loss_type ", name_of(o.loss_type),
          " does not read it and positive_nll_weight = 0");
}

void check_teacher(const PolicyLoss& o) {
  const bool taught = o.teacher_weight != 0;
  check_needs(o, taught, o.teacher_logps, "teacher_weight = ", o.teacher_weight, " needs teacher_logps");
  check_needs(o, taught && o.teacher_against == TeacherAgainst::kSampling, o.sampling_logps,
              "teacher_against = sampling needs sampling_logps");
  fail_if(!taught && o.teacher_logps.count() != 0, "teacher_logps is given but teacher_weight = 0");
  fail_if(!taught && o.teacher_against != PolicyLoss().teacher_against,
          "teacher_against = ", name_of(o.teacher_against), " is set but teacher_weight = 0");
  fail_if(!taught && o.teacher_discount != 0, "teacher_discount = ", o.teacher_discount,
          " is set but teacher_weight = 0");
}

void check_ratio_and_bounds(const PolicyLoss& o) {
  const PolicyVariantRow& variant = row_of(o.loss_type);
  const bool clips_logs = variant.sequence_sum == SequenceSum::kClippedMean;
  fail_if(o.epsilon_low.value_or(0) > kShare.high && !clips_logs, "epsilon_low = ", o.epsilon_low.value_or(0),
          " must be ", kShare.text, " for ", name_of(o.loss_type));
  check_meaning(o.importance_sampling_level == ImportanceLevel::kSequence, variant.sequence_sum == SequenceSum::kNone,
                "importance_sampling_level = sequence", o);
  const bool has_bounds = variant.is_clipped_surrogate() || variant.is_truncated() || clips_logs;
  check_meaning(o.delta.has_value(), variant.is_clipped_surrogate(), "delta", o);
  check_meaning(o.epsilon_low.has_value(), has_bounds, "epsilon_low", o);
  check_meaning(o.epsilon_high.has_value(), has_bounds, "epsilon_high", o);
  fail_if(variant.is_truncated() && least_ratio(o) > epsilon_high(o), "epsilon_high = ", epsilon_high(o),
          " is below 1 - epsilon_low = ", least_ratio(o));
  fail_if(o.cov_low >= o.cov_high, "cov_low = ", o.cov_low, " must be below cov_high = ", o.cov_high);
}

void check_weights(const PolicyLoss& o) {
  const SequenceSum sum = row_of(o.loss_type).sequence_sum;
  check_meaning(o.top_entropy_quantile < 1, sum != SequenceSum::kClippedMean, "top_entropy_quantile", o);
  const double low = o.trust_region_low.value_or(0), high = o.trust_region_high.value_or(0);
  const bool has_region = trust_region_of(o) != TrustRegion::kNone;
  fail_if(o.trust_region_low && !has_region, "trust_region_low = ", low, " is set but there is no trust_region");
  fail_if(o.trust_region_high && !has_region, "trust_region_high = ", high, " is set but there is no trust_region");

  const bool corrects = o.sampler_correction != SamplerCorrection::kNone;
  const double least = o.sampler_clip_min.value_or(0), most = o.sampler_clip_max.value_or(kInfinity);
  fail_if(!corrects && o.sampler_clip_min, "sampler_clip_min is set but sampler_correction = none");
  fail_if(!corrects && o.sampler_clip_max != PolicyLoss().sampler_clip_max,
          "sampler_clip_max is set but sampler_correction = none");
  fail_if(least > most, "sampler_clip_min = ", least, " is above sampler_clip_max = ", most);
  fail_if(sum == SequenceSum::kWeight && is_sequence_level(o.sampler_correction),
          "sampler_correction = ", name_of(o.sampler_correction), " has no meaning for loss_type ",
          name_of(o.loss_type), ": it takes token_truncate or token_mask");
  check_needs(o, corrects, o.sampling_logps, "sampler_correction = ", name_of(o.sampler_correction),
              " needs sampling_logps");
  check_needs(o, o.m2_threshold.has_value(), o.sampling_logps, "m2_threshold = ", o.m2_threshold.value_or(0),
              " needs sampling_logps");
  const bool teacher_uses_sampling = o.teacher_weight != 0 && o.teacher_against == TeacherAgainst::kSampling;
  const bool uses =
      corrects || o.off_policy_mask_threshold || teacher_uses_sampling || o.sampler_penalty != 0 || o.m2_threshold;
  fail_if(o.sampling_logps.count() != 0 && !uses,
          "sampling_logps is given but no sampler_correction, off_policy_mask_threshold, teacher_against, ",
          "sampler_penalty or m2_threshold uses it");
}

void check_penalties(const PolicyLoss& o) {
  check_needs(o, o.beta != 0, o.ref_logps, "beta = ", o.beta, " needs ref_logps");
  check_needs(o, o.sampler_penalty != 0, o.sampling_logps, "sampler_penalty = ", o.sampler_penalty,
              " needs sampling_logps");
  fail_if(o.beta == 0 && o.use_bias_correction_kl, "use_bias_correction_kl is set but beta = 0");
  fail_if(o.beta == 0 && o.kl_estimator != PolicyLoss().kl_estimator, "kl_estimator = ", name_of(o.kl_estimator),
          " is set but beta = 0");
  fail_if(o.beta == 0 && o.ref_logps.count() != 0, "ref_logps is given but beta = 0");
}

void check_aggregation(const PolicyLoss& o) {
  using enum PolicyAggregation;
  const PolicyAggregation aggregation = aggregation_of(o);
  const auto check = [&](bool given, bool used, std::string_view name) {
    fail_if(given && !used, name, " is set but has no meaning for aggregation ", name_of(aggregation), " (loss_type ",
            name_of(o.loss_type), ")");
  };
  const bool of_sequences = aggregation != kTokenMean && aggregation != kTokenSum;
  check(o.num_items_in_batch.has_value(), aggregation == kTokenMean, "num_items_in_batch");
  check(o.max_completion_length.has_value(), aggregation == kSeqMeanTokenSumNorm, "max_completion_length");
  check(o.num_sequences.has_value(), of_sequences, "num_sequences");
  check(!o.count_empty_sequences, of_sequences, "count_empty_sequences = false");
  fail_if(!o.count_empty_sequences && o.num_sequences,
          "count_empty_sequences = false and num_sequences = ", o.num_sequences.value_or(0),
          " are both set: num_sequences replaces the count");
  fail_if(aggregation == kSeqMeanTokenSumNorm && !o.max_completion_length,
          "max_completion_length is not set: aggregation ", name_of(aggregation), " (loss_type ", name_of(o.loss_type),
          ") divides by it");
}

// Throws InvalidInput for an option that is out of range, or that has no meaning with the other options or
// the tensors. Checks follow the order of the stages.
void check_options(const PolicyLoss& options) {
  core::check_fields(options);
  check_tokens(options);
  check_teacher(options);
  check_ratio_and_bounds(options);
  check_weights(options);
  check_penalties(options);
  check_aggregation(options);
}

}  // namespace

PolicyBatch::PolicyBatch(const PolicyLoss& options, std::span<const int64_t> offsets, int64_t vocab_size,
                         std::string_view rows_name) {
  check_options(options);
  const int64_t n = offsets.back();
  const Targets given_ids = core::targets_of("chosen_ids", options.chosen_ids);
  core::check_targets("chosen_ids", given_ids, n, rows_name);
  problem::check_mask(options.mask, n, rows_name);
  core::Array<int64_t> ids(static_cast<size_t>(n), kNoTarget);
  for (int64_t row = 0; row < n; ++row) {
    if (!options.mask.empty() && !options.mask[static_cast<size_t>(row)]) continue;
    const int64_t id = given_ids[row];
    fail_if(id < 0 || id >= vocab_size, "chosen_ids[", row, "] = ", id, " is outside [0, ", vocab_size, ")");
    ids[static_cast<size_t>(row)] = id;
  }
  tokens = read_sequences(offsets, std::move(ids));

  const ConstVector given = core::vector_of("advantages", options.advantages);
  const bool taught = options.teacher_weight != 0, has_advantages = !taught || given.size != 0;
  const bool per_token = has_advantages && is_per_token("advantages", options.advantages_per, given.size, tokens);
  advantage_per_token = taught || per_token;
  advantages.assign(tokens.targets.size(), 0);
  for (size_t i = 0; has_advantages && i < advantages.size(); ++i) {
    const int64_t entry = per_token ? static_cast<int64_t>(i) : tokens.sequence[i];
    if (tokens.is_active(i)) advantages[i] = finite_entry("advantages", given, entry);
  }
  old = token_values("old_logps", options.old_logps, tokens, rows_name);
  ref = token_values("ref_logps", options.ref_logps, tokens, rows_name);
  sampling = token_values("sampling_logps", options.sampling_logps, tokens, rows_name, true);
  teacher = token_values("teacher_logps", options.teacher_logps, tokens, rows_name);
  teacher_kl.assign(teacher.size(), 0);
  if (!teacher.empty() && !teacher_reads_policy(options)) add_teacher(options, rows(), nullptr);
  if (!reads_scores(options)) return;
  const char* reader = options.positive_nll_weight != 0 ? "positive_nll_weight" : name_of(options.loss_type);
  for (const double score : sequence_values("scores", options.scores, tokens, reader)) good.push_back(score > 0);
}

bool teacher_reads_policy(const PolicyLoss& options) {
  return options.teacher_against == TeacherAgainst::kCurrent ||
         (options.teacher_against == TeacherAgainst::kOld && options.old_logps.count() == 0);
}

void PolicyBatch::add_teacher(const PolicyLoss& options, std::span<const int64_t> rows, const TokenStats* stats) {
  const core::Array<double>& given = options.teacher_against == TeacherAgainst::kOld ? old : sampling;
  double ahead = 0;  // Σ_{t >= i} γ^(t − i) ratio_t over the sequence of i, the row visited last
  int64_t before = -1;
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    const auto i = static_cast<size_t>(*row);
    const double against = stats ? stats->logp[pick(i)] : given[i];
    const double ratio = !stats && std::isnan(against) ? 0 : teacher[i] - against;
    teacher_kl[i] = -ratio;
    const bool follows = before >= 0 && tokens.sequence[static_cast<size_t>(before)] == tokens.sequence[i];
    if (!follows || options.teacher_discount == 0) ahead = 0;
    if (ahead != 0) ahead *= std::pow(options.teacher_discount, static_cast<double>(before - *row));
    ahead += ratio;
    advantages[i] += options.teacher_weight * ahead;
    before = *row;
  }
}

core::Array<int64_t> PolicyBatch::rows() const { return problem::target_picks(tokens.targets).rows; }

PolicyToken PolicyBatch::token(int64_t row, const TokenStats* stats) const {
  PolicyToken out;
  const auto i = out.row = static_cast<size_t>(row);
  out.sequence = static_cast<size_t>(tokens.sequence[i]);
  out.sequence_tokens = tokens.count(out.sequence);
  out.advantage = advantages[i];
  if (stats) out.logp = stats->logp[pick(i)];
  if (stats && !stats->entropy.empty()) out.entropy = stats->entropy[i];
  out.old_logp = old.empty() ? out.logp : old[i];
  if (!ref.empty()) out.ref_logp = ref[i];
  out.sampling_logp = sampling.empty() ? kNan : sampling[i];
  // On-policy δ is exactly 0, even if logp is −∞, but NaN for NaN.
  out.log_ratio = old.empty() && !std::isnan(out.logp) ? 0 : out.logp - out.old_logp;
  out.sampler_log_ratio = std::isnan(out.sampling_logp) ? 0 : out.old_logp - out.sampling_logp;
  out.is_good = is_good(i);
  return out;
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

}  // namespace logitless::loss
