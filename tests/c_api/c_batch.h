// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls of the C API on the batch of option_cases.h, with the outcomes that C++ has there.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string_view>
#include <type_traits>
#include <vector>

#include "c_api/fields.h"
#include "support/option_cases.h"

namespace logitless::testing {

/// The arrays that a structure of C's points to.
struct Lent {
  std::vector<int32_t> losses;
  logitless_token_options token;

  // What a C program writes for the value of a member.
  template <class To, class From>
  requires std::is_arithmetic_v<To> && std::is_arithmetic_v<From>
  void put(To& to, const From& from) { to = static_cast<To>(from); }
  template <Named Enum>
  void put(int32_t& to, const Enum& from) {
    to = static_cast<int32_t>(from);
  }
  // What is none by default is NAN, what is a bound by default INFINITY.
  void put(double& to, const std::optional<double>& from) {
    if (from) {
      to = *from;
    } else {
      to = std::isnan(to) ? NAN : INFINITY;
    }
  }
  void put(int64_t& to, const std::optional<int64_t>& from) { to = from.value_or(0); }
  void put(int32_t& to, const std::optional<DType>& from) {
    to = from ? static_cast<int32_t>(*from) : LOGITLESS_NO_DTYPE;
  }
  template <class Data, class Count, class List>
  void put(const PointerAndCount<Data, Count>& to, const List& from) {
    if constexpr (std::is_same_v<List, std::vector<PairedLoss>>) {
      for (const PairedLoss loss : from) losses.push_back(static_cast<int32_t>(loss));
      to.data = losses.data();
    } else {
      to.data = from.data();
    }
    to.count = from.size();
  }
  void put(const logitless_token_options*& to, const TokenOptions& from) {
    LOGITLESS_INIT(token_options, &token);
    fill(token, from);
    to = &token;
  }
  template <class CStructure, class Structure>
  void fill(CStructure& out, const Structure& from) {
    visit_fields(
        FieldsOf<Structure>(), [this](const Field&, auto&& to, const auto& value) { this->put(to, value); }, out, from);
  }
};

inline void init(logitless_cross_entropy_options& options) { LOGITLESS_INIT(cross_entropy_options, &options); }
inline void init(logitless_soft_cross_entropy_options& options) {
  LOGITLESS_INIT(soft_cross_entropy_options, &options);
}
inline void init(logitless_id_logps_options& options) { LOGITLESS_INIT(id_logps_options, &options); }
inline void init(logitless_policy_options& options) { LOGITLESS_INIT(policy_options, &options); }
inline void init(logitless_preference_options& options) { LOGITLESS_INIT(preference_options, &options); }
inline void init(logitless_set_distillation_options& options) { LOGITLESS_INIT(set_distillation_options, &options); }
inline void init(logitless_distillation_options& options) { LOGITLESS_INIT(distillation_options, &options); }
inline void init(logitless_kto_options& options) { LOGITLESS_INIT(kto_options, &options); }

/// One batch, as C sees it.
struct CBatch {
  OptionBatch batch;
  logitless_context* context = nullptr;
  logitless_hidden_states states;
  logitless_lm_head head;
  logitless_source source;
  logitless_targets targets;
  logitless_gradients gradients;
  std::vector<double> a = std::vector<double>(kTokens), b = a, c = a;

  CBatch() {
    EXPECT_EQ(logitless_context_create(nullptr, &context), LOGITLESS_OK);
    LOGITLESS_INIT(hidden_states, &states);
    states.states = {batch.model.hidden.data(), LOGITLESS_FLOAT32, kTokens, kHidden, kHidden};
    states.sequences = kBatch;
    LOGITLESS_INIT(lm_head, &head);
    head.weight = {batch.model.weight.data(), LOGITLESS_FLOAT32, kVocab, kHidden, kHidden};
    head.bias = {batch.model.bias.data(), LOGITLESS_FLOAT32, kVocab};
    LOGITLESS_INIT(source, &source);
    source.hidden = &states;
    source.head = &head;
    LOGITLESS_INIT(targets, &targets);
    targets.data64 = batch.ids.data();
    targets.size = kTokens;
    targets.time = kTime;
  }
  ~CBatch() { logitless_context_free(context); }
  CBatch(const CBatch&) = delete;
  CBatch& operator=(const CBatch&) = delete;

  static logitless_const_vector vector_of(const ConstVector& from) {
    return {from.data, static_cast<int32_t>(from.dtype), from.size};
  }
  logitless_reference reference_of(const Reference& from) const {
    logitless_reference out;
    LOGITLESS_INIT(reference, &out);
    out.logps = vector_of(from.logps);
    return out;
  }

  logitless_status run(const logitless_cross_entropy_options& options, logitless_cross_entropy_result& result,
                       const CrossEntropy&) {
    LOGITLESS_INIT(cross_entropy_result, &result);
    result.tokens = kTokens;
    result.per_token_logps = a.data();
    result.per_token_loss = b.data();
    return logitless_cross_entropy(context, &source, &targets, &options, &gradients, &result, nullptr);
  }
  // The ids of sparse targets, and where each token's begin.
  logitless_id_sets sets_of(const logitless_targets& ids) const {
    logitless_id_sets sets;
    LOGITLESS_INIT(id_sets, &sets);
    sets.ids = &ids;
    sets.offsets = batch.set_offsets.data();
    sets.offset_count = batch.set_offsets.size();
    return sets;
  }
  logitless_targets set_ids() const {
    logitless_targets ids;
    LOGITLESS_INIT(targets, &ids);
    ids.data64 = batch.set_ids.data();
    ids.size = static_cast<int64_t>(batch.set_ids.size());
    return ids;
  }
  logitless_status run(const logitless_soft_cross_entropy_options& options, logitless_soft_cross_entropy_result& result,
                       const SoftCrossEntropy&) {
    LOGITLESS_INIT(soft_cross_entropy_result, &result);
    result.tokens = kTokens;
    result.per_token_loss = b.data();
    const logitless_targets ids = set_ids();
    const logitless_id_sets sets = sets_of(ids);
    logitless_soft_targets in;
    LOGITLESS_INIT(soft_targets, &in);
    in.sets = &sets;
    in.weights = vector_of(batch.sparse().weights);
    return logitless_soft_cross_entropy(context, &source, &in, &options, &gradients, &result, nullptr);
  }
  // As OptionBatch::outcome(), of sets of ids.
  Outcome outcome(const logitless_id_logps_options& options) const {
    const logitless_targets ids = set_ids();
    const logitless_id_sets sets = sets_of(ids);
    std::vector<double> logps(batch.set_ids.size());
    Outcome got;
    if (logitless_id_logps(context, &source, &sets, &options, logps.data(), logps.size(), nullptr, nullptr) !=
        LOGITLESS_OK) {
      got.refusal = logitless_last_error();
    } else {
      got.add(logps);
    }
    return got;
  }
  logitless_status run(const logitless_policy_options& options, logitless_policy_result& result,
                       const PolicyLoss& same) {
    LOGITLESS_INIT(policy_result, &result);
    result.tokens = kTokens;
    result.per_token_logps = a.data();
    result.per_token_loss = b.data();
    const PolicyBatch from = batch.policy_for(same);
    logitless_policy_batch in;
    LOGITLESS_INIT(policy_batch, &in);
    in.chosen_ids = &targets;
    in.advantages = vector_of(from.advantages);
    in.old_logps = vector_of(from.old_logps);
    in.ref_logps = vector_of(from.ref_logps);
    in.sampling_logps = vector_of(from.sampling_logps);
    in.teacher_logps = vector_of(from.teacher_logps);
    in.scores = vector_of(from.scores);
    in.mask = from.mask.data();
    in.mask_count = from.mask.size();
    return logitless_policy_loss(context, &source, &in, &options, &gradients, &result, nullptr);
  }
  logitless_status run(const logitless_preference_options& options, logitless_preference_result& result,
                       const PreferenceLoss& same) {
    LOGITLESS_INIT(preference_result, &result);
    result.tokens = kTokens;
    result.sequences = kBatch;
    result.per_token_logps = a.data();
    result.sequence_logps = b.data();
    const logitless_reference reference = reference_of(batch.reference_for(same));
    return logitless_preference_loss(context, &source, &targets, &reference, &options, &gradients, &result, nullptr);
  }
  logitless_status run(const logitless_kto_options& options, logitless_kto_result& result, const KtoLoss& same) {
    LOGITLESS_INIT(kto_result, &result);
    result.tokens = kTokens;
    result.sequences = kBatch;
    result.per_token_logps = a.data();
    result.sequence_logps = b.data();
    result.sequence_losses = c.data();
    const KtoBatch from = batch.kto_batch(same);
    const logitless_reference reference = reference_of(from.reference);
    logitless_kto_batch in;
    LOGITLESS_INIT(kto_batch, &in);
    in.targets = &targets;
    in.labels = from.labels.data();
    in.label_count = from.labels.size();
    in.reference = &reference;
    in.kl_logps = vector_of(from.kl_logps);
    in.kl_ref_logps = vector_of(from.kl_ref_logps);
    in.sequence_weights = vector_of(from.sequence_weights);
    in.reward_targets = vector_of(from.reward_targets);
    return logitless_kto_loss(context, &source, &in, &options, &gradients, &result, nullptr);
  }

  logitless_status run(const logitless_distillation_options& options, logitless_distillation_result& result,
                       const Distillation&) {
    LOGITLESS_INIT(distillation_result, &result);
    result.tokens = kTokens;
    result.per_token_logps = a.data();
    result.per_token_loss = b.data();
    logitless_hidden_states of_teacher = states;
    of_teacher.states.data = batch.other.hidden.data();
    logitless_teacher teacher;
    LOGITLESS_INIT(teacher, &teacher);
    teacher.hidden = &of_teacher;
    teacher.head = &head;
    return logitless_distillation_loss(context, &source, &teacher, &targets, &options, &gradients, &result, nullptr);
  }

  logitless_status run(const logitless_set_distillation_options& options, logitless_set_distillation_result& result,
                       const SetDistillation&) {
    LOGITLESS_INIT(set_distillation_result, &result);
    result.tokens = kTokens;
    result.per_token_loss = b.data();
    const logitless_targets ids = set_ids();
    const logitless_id_sets sets = sets_of(ids);
    logitless_set_teacher teacher;
    LOGITLESS_INIT(set_teacher, &teacher);
    teacher.sets = &sets;
    teacher.logps = vector_of(batch.set_teacher().logps);
    return logitless_set_distillation_loss(context, &source, &teacher, &targets, &options, &gradients, &result,
                                           nullptr);
  }

  // As OptionBatch::outcome(), of statistics.
  Outcome outcome(const logitless_token_options& options, const logitless_stats_request& request) {
    logitless_token_stats stats;
    LOGITLESS_INIT(token_stats, &stats);
    stats.tokens = kTokens;
    TokenStats columns;
    const bool outside = request.outside != 0, top = request.top_k != 0;
    const bool wanted[] = {true,
                           true,
                           request.entropy != 0,
                           request.cross != 0,
                           request.argmax != 0,
                           request.rank != 0,
                           outside,
                           outside,
                           true,
                           true,
                           top,
                           top,
                           request.square_sum != 0};
    const bool* is_wanted = wanted;
    const auto lend = [&](const Field& field, auto*& to, auto& column) {
      const bool top = std::string_view(field.name).starts_with("top_");
      if (*is_wanted++) column.resize(static_cast<size_t>(kTokens * (top ? request.top_k : 1)));
      to = column.empty() ? nullptr : column.data();
    };
    visit_fields(FieldsOf<TokenStats>(), lend, stats, columns);
    EXPECT_EQ(logitless_compute_token_stats(context, &source, &targets, &options, &request, &stats, nullptr),
              LOGITLESS_OK)
        << logitless_last_error();
    Outcome got;
    visit_fields(
        FieldsOf<TokenStats>(), [&](const Field&, const auto& column) { got.add(column); }, columns);
    return got;
  }
  // As OptionBatch::outcome(), of a loss.
  template <class CResult, class Metrics, class COptions, class Options>
  Outcome outcome(const COptions& options, const Options& same) {
    FromHidden::Outputs outputs;
    const Gradients out = outputs.views();
    LOGITLESS_INIT(gradients, &gradients);
    gradients.d_hidden = {out.d_hidden.data, LOGITLESS_FLOAT32, kTokens, kHidden, kHidden};
    gradients.d_weight = {out.d_weight.data, LOGITLESS_FLOAT32, kVocab, kHidden, kHidden};
    gradients.d_bias = {out.d_bias.data, LOGITLESS_FLOAT32, kVocab};
    CResult result;
    Outcome got;
    if (run(options, result, same) != LOGITLESS_OK) {
      got.refusal = logitless_last_error();
      return got;
    }
    const auto add = [&](const std::vector<double>& column, int64_t entries) {
      got.add(std::vector<double>(column.begin(), column.begin() + entries));
    };
    got.add(result.loss);
    // Without a cross-entropy a distillation has no log-probabilities.
    bool has_logps = true;
    if constexpr (requires { same.hard_weight; }) has_logps = same.hard_weight != 0;
    if constexpr (requires { result.per_token_logps; }) {
      if (has_logps) add(a, kTokens);
    }
    if constexpr (requires { result.per_token_loss; }) add(b, kTokens);
    if constexpr (requires { result.sequence_logps; }) add(b, kBatch);
    if constexpr (requires { result.sequence_losses; }) add(c, kBatch);
    visit_fields(
        FieldsOf<Metrics>(), [&](const Field&, const auto& value) { got.add(static_cast<double>(value)); }, result);
    got.add(outputs.values());
    return got;
  }
};

}  // namespace logitless::testing
