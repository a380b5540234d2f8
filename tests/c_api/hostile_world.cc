// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "hostile_world.h"

namespace logitless::testing {
namespace {

// One rank hears itself, as often as its communicator says there are ranks. What is handed on as `user` may
// be spoilt.
const World* current = nullptr;
int copy_to_all(int32_t ranks, const void* mine, void* all, size_t bytes) {
  for (int32_t r = 0; r < ranks; ++r)
    std::memcpy(static_cast<char*>(all) + static_cast<size_t>(r) * bytes, mine, bytes);
  return 0;
}
int among_vocab(void*, const void* mine, void* all, size_t bytes) {
  return copy_to_all(current->vocab_ranks.size, mine, all, bytes);
}
int among_data(void*, const void* mine, void* all, size_t bytes) {
  return copy_to_all(current->data_ranks.size, mine, all, bytes);
}

int evaluate(void*, const int64_t* rows, size_t count, const logitless_token_stats* stats,
             logitless_token_grads* grads) {
  for (size_t i = 0; i < count; ++i) grads->logp[rows[i]] = 0.5 * stats->logp[rows[i]];
  return 0;
}

}  // namespace

World::World(Form form, const logitless_context* context) {
  current = this;
  visit_structures([](const char*, auto& structure) { std::memset(&structure, 0, sizeof structure); });
  std::memset(static_cast<void*>(&written), 0x5c, sizeof written);
  set_inputs(form);
  set_outputs(form);
  set_losses();
  given = {context,
           &source,
           &targets,
           &gradients,
           &token,
           &request,
           &stats,
           &grads,
           &token_loss,
           &logits,
           &cross_entropy,
           &sets,
           &id_logps,
           &soft_targets,
           &soft_cross_entropy,
           &policy_batch,
           &policy,
           &reference,
           &preference,
           &kto_batch,
           &kto,
           &teacher,
           &distillation,
           &set_teacher,
           &set_distillation,
           &context_options,
           &cross_entropy_result,
           &soft_cross_entropy_result,
           &policy_result,
           &preference_result,
           &kto_result,
           &distillation_result,
           &set_distillation_result,
           &plan,
           nullptr,
           &left,
           &made,
           upstream.data,
           written.entropy_of_logits,
           written.columns[28]};
}

void World::set_inputs(Form form) {
  LOGITLESS_INIT(hidden_states, &hidden);
  LOGITLESS_INIT(lm_head, &head);
  LOGITLESS_INIT(logits, &logits);
  LOGITLESS_INIT(source, &source);
  LOGITLESS_INIT(targets, &targets);
  LOGITLESS_INIT(token_options, &token);
  LOGITLESS_INIT(stats_request, &request);
  for (int64_t i = 0; i < kRoom; ++i) {
    hidden_data.data[i] = 0.125f * static_cast<float>(i % 7);
    weight_data.data[i] = 0.25f * static_cast<float>(i % 5) - 0.5f;
    logits_data.data[i] = 0.5f * static_cast<float>(i % 3);
    per_token.data[i] = per_sequence.data[i] = -1.5f;
    groups.data[i] = i / kTime;
    set_offsets.data[i] = i;
  }
  const auto tokens_of = [](int64_t batch, float* data) {
    return logitless_const_matrix{data, LOGITLESS_FLOAT32, batch * kTime, kHidden, kHidden};
  };
  hidden.states = tokens_of(kBatch, hidden_data.data);
  hidden.sequences = kBatch;
  if (form == Form::kStrided) hidden.batch_stride = (kTime + 1) * kHidden;
  if (form == Form::kPacked) {
    hidden.sequences = 1;
    for (int64_t s = 0; s <= kBatch; ++s) offsets.data[s] = s * kTime;
    hidden.offsets = offsets.data;
    hidden.offset_count = kBatch + 1;
  }
  head.weight = {weight_data.data, LOGITLESS_FLOAT32, kVocab, kHidden, kHidden};
  head.bias = {bias_data.data, LOGITLESS_FLOAT32, kVocab};
  head.softcap = 30;
  logits.data = logits_data.data;
  logits.batch = kBatch, logits.time = kTime, logits.vocab = kVocab;
  logits.batch_stride = kTime * kVocab, logits.row_stride = kVocab;
  // The teacher has the batch's rows, of another width.
  LOGITLESS_INIT(hidden_states, &teacher_hidden);
  LOGITLESS_INIT(lm_head, &teacher_head);
  teacher_hidden.states = {teacher_data.data, LOGITLESS_FLOAT32, kTokens, kTeacherHidden, kTeacherHidden};
  teacher_hidden.sequences = kBatch;
  if (form == Form::kPacked) {
    teacher_hidden.sequences = 1;
    teacher_hidden.offsets = offsets.data;
    teacher_hidden.offset_count = kBatch + 1;
  }
  teacher_head.weight = {weight_data.data, LOGITLESS_FLOAT32, kVocab, kTeacherHidden, kTeacherHidden};
  LOGITLESS_INIT(teacher, &teacher);
  teacher_logits = logits;
  teacher_logits.data = teacher_data.data;
  if (form == Form::kLogits) {
    source.logits = &logits;
    teacher.logits = &teacher_logits;
  } else {
    source.hidden = &hidden;
    source.head = &head;
    teacher.hidden = &teacher_hidden;
    teacher.head = &teacher_head;
  }
  targets.data64 = ids.data;
  targets.size = kTokens, targets.time = kTime, targets.stride = 1, targets.batch_stride = kTime;
  token.temperatures = temperatures.data;
  token.temperature_count = kTokens;
  request.entropy = request.cross = request.argmax = request.rank = request.outside = request.square_sum = 1;
  request.top_k = 2;
  request.cross_weights = class_weights.data;
  request.cross_weight_count = kVocab;
  LOGITLESS_INIT(communicator, &vocab_ranks);
  LOGITLESS_INIT(communicator, &data_ranks);
  for (logitless_communicator* ranks : {&vocab_ranks, &data_ranks}) {
    ranks->size = 1;
    ranks->all_gather = ranks->all_to_all = ranks == &vocab_ranks ? among_vocab : among_data;
  }
  LOGITLESS_INIT(context_options, &context_options);
  context_options.threads = 1;
  context_options.data_ranks = &data_ranks;
  context_options.sum_d_weight = form != Form::kLogits;
  if (form != Form::kLogits) {
    slices.data[0] = 2, slices.data[1] = 3;
    context_options.vocab_ranks = &vocab_ranks;
    context_options.slices = slices.data;
    context_options.slice_count = 2;
  }
}

void World::set_outputs(Form form) {
  LOGITLESS_INIT(gradients, &gradients);
  LOGITLESS_INIT(backward_options, &backward);
  gradients.backward = &backward;
  const auto matrix = [](float* data, int64_t rows) {
    return logitless_matrix{data, LOGITLESS_FLOAT32, rows, kHidden, kHidden};
  };
  if (form == Form::kLogits) {
    gradients.d_logits = written.d_logits + 64;
    gradients.d_logits_batch_stride = kTime * kVocab;
    gradients.d_logits_row_stride = kVocab;
  } else {
    gradients.d_hidden = matrix(written.d_hidden + 64, kTokens);
    if (form == Form::kStrided) gradients.d_hidden_batch_stride = (kTime + 1) * kHidden;
    gradients.d_weight = matrix(written.d_weight + 64, kVocab);
    gradients.d_bias = {written.d_bias + 64, LOGITLESS_FLOAT32, kVocab};
  }
  LOGITLESS_INIT(token_stats, &stats);
  LOGITLESS_INIT(token_grads, &grads);
  LOGITLESS_INIT(plan, &plan);
  LOGITLESS_INIT(cross_entropy_result, &cross_entropy_result);
  LOGITLESS_INIT(soft_cross_entropy_result, &soft_cross_entropy_result);
  LOGITLESS_INIT(policy_result, &policy_result);
  LOGITLESS_INIT(preference_result, &preference_result);
  LOGITLESS_INIT(kto_result, &kto_result);
  LOGITLESS_INIT(distillation_result, &distillation_result);
  LOGITLESS_INIT(set_distillation_result, &set_distillation_result);
  stats.tokens = grads.tokens = kTokens;
  double(*column)[kRoom] = written.columns;
  for (double** array : {&stats.logp,
                         &stats.lse,
                         &stats.entropy,
                         &stats.cross,
                         &stats.max_logit,
                         &stats.log_sum,
                         &stats.outside,
                         &stats.outside_max,
                         &stats.square_sum,
                         &cross_entropy_result.per_token_loss,
                         &cross_entropy_result.per_token_logps,
                         &policy_result.per_token_loss,
                         &policy_result.per_token_logps,
                         &preference_result.sequence_logps,
                         &preference_result.per_token_logps,
                         &kto_result.sequence_losses,
                         &kto_result.sequence_logps,
                         &kto_result.per_token_logps,
                         &soft_cross_entropy_result.per_token_loss,
                         &distillation_result.per_token_loss,
                         &distillation_result.per_token_logps,
                         &distillation_result.per_token_divergence,
                         &distillation_result.per_token_acceptance,
                         &distillation_result.per_token_agreement,
                         &distillation_result.per_token_entropy,
                         &distillation_result.per_token_teacher_entropy,
                         &set_distillation_result.per_token_loss,
                         &set_distillation_result.per_token_divergence}) {
    *array = *column++;
  }
  for (auto& values : written.columns) std::fill(values, values + kRoom, -1.0);
  std::fill(written.argmax, written.argmax + kRoom, 1);
  std::fill(written.rank, written.rank + kRoom, 1);
  stats.argmax = written.argmax, stats.rank = written.rank;
  stats.top_ids = written.top_ids, stats.top_logps = written.top_logps;
  grads.logp = columns[0].data, grads.lse = columns[1].data;
  grads.entropy = columns[2].data, grads.cross = columns[3].data;
  grads.outside = columns[4].data;
  soft_cross_entropy_result.tokens = cross_entropy_result.tokens = policy_result.tokens = preference_result.tokens =
      kto_result.tokens = distillation_result.tokens = set_distillation_result.tokens = kTokens;
  preference_result.sequences = kto_result.sequences = kBatch;
}

void World::set_losses() {
  LOGITLESS_INIT(token_loss, &token_loss);
  token_loss.needs = &request;
  token_loss.groups = groups.data;
  token_loss.group_count = kTokens;
  token_loss.evaluate = evaluate;
  LOGITLESS_INIT(cross_entropy_options, &cross_entropy);
  cross_entropy.token = &token;
  cross_entropy.label_smoothing = 0.125;
  cross_entropy.class_weights = class_weights.data;
  cross_entropy.class_weight_count = kVocab;
  cross_entropy.normaliser = 3;
  cross_entropy.want_accuracy = cross_entropy.want_entropy = 1;
  const auto vector = [](float* data, int64_t size) { return logitless_const_vector{data, LOGITLESS_FLOAT32, size}; };
  LOGITLESS_INIT(targets, &set_ids);
  set_ids.data64 = ids.data;
  set_ids.size = kTokens;
  LOGITLESS_INIT(id_sets, &sets);
  sets.ids = &set_ids;
  sets.offsets = set_offsets.data;
  sets.offset_count = kTokens + 1;
  LOGITLESS_INIT(id_logps_options, &id_logps);
  id_logps.token = &token;
  LOGITLESS_INIT(soft_targets, &soft_targets);
  soft_targets.sets = &sets;
  soft_targets.weights = vector(class_weights.data, kTokens);
  soft_targets.mask = mask.data;
  soft_targets.mask_count = kTokens;
  LOGITLESS_INIT(soft_cross_entropy_options, &soft_cross_entropy);
  soft_cross_entropy.token = &token;
  soft_cross_entropy.subtract_entropy = 1;
  soft_cross_entropy.normaliser = 3;
  LOGITLESS_INIT(policy_batch, &policy_batch);
  policy_batch.chosen_ids = &targets;
  policy_batch.advantages = vector(per_sequence.data, kBatch);
  policy_batch.old_logps = policy_batch.ref_logps = policy_batch.sampling_logps = policy_batch.teacher_logps =
      vector(per_token.data, kTokens);
  policy_batch.scores = vector(per_sequence.data, kBatch);
  policy_batch.mask = mask.data;
  policy_batch.mask_count = kTokens;
  LOGITLESS_INIT(policy_options, &policy);
  policy.token = &token;
  policy.beta = 0.25;
  policy.epsilon_low = policy.epsilon_high = 0.25;
  policy.delta = 4;
  policy.off_policy_mask_threshold = 8;
  policy.sampler_correction = LOGITLESS_TOKEN_TRUNCATE;
  policy.sampler_clip_min = 0.5;
  policy.teacher_weight = 0.5;
  policy.teacher_discount = 0.5;
  policy.trust_region = LOGITLESS_TRUST_REGION_KL;
  policy.m2_threshold = 2;
  policy.positive_nll_weight = 0.25;
  LOGITLESS_INIT(reference, &reference);
  reference.logps = vector(per_token.data, kTokens);
  LOGITLESS_INIT(preference_options, &preference);
  std::fill(losses.before, losses.behind + 4 * kRoom, LOGITLESS_SIGMOID);
  preference.losses = losses.data;
  preference.loss_weights = loss_weights.data;
  preference.loss_count = preference.loss_weight_count = 2;
  preference.nll_weight = 0.5;
  preference.use_weighting = 1;
  preference.token = &token;
  LOGITLESS_INIT(kto_batch, &kto_batch);
  kto_batch.targets = &targets;
  kto_batch.labels = labels.data;
  kto_batch.label_count = kBatch;
  kto_batch.reference = &reference;
  kto_batch.kl_logps = kto_batch.kl_ref_logps = vector(per_sequence.data, kBatch);
  kto_batch.sequence_weights = vector(class_weights.data, kBatch);
  LOGITLESS_INIT(kto_options, &kto);
  kto.token = &token;
  LOGITLESS_INIT(distillation_options, &distillation);
  distillation.token = &token;
  distillation.divergence = LOGITLESS_JSD;
  distillation.beta = 0.25;
  distillation.hard_weight = 0.5;
  distillation.hard_temperature = 2;
  distillation.normaliser = 3;
  distillation.want_entropy = distillation.want_agreement = 1;
  LOGITLESS_INIT(set_teacher, &set_teacher);
  set_teacher.sets = &sets;
  set_teacher.logps = vector(per_token.data, kTokens);
  set_teacher.outside_logps = vector(per_sequence.data, kTokens);
  LOGITLESS_INIT(set_distillation_options, &set_distillation);
  set_distillation.token = &token;
  set_distillation.divergence = LOGITLESS_MIXED_KL;
  set_distillation.forward_weight = 0.25;
  set_distillation.temperature_squared = 1;
  set_distillation.normaliser = 3;
}

}  // namespace logitless::testing
