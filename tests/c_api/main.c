/* Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0 */
/* This calls every function of c_api.h from C99. Cross-entropy is held against sums in double that are written
 * out here; of every other loss the one call is held against its two halves, and of refused calls the message is
 * looked at. c_api_test.cc holds the same calls against C++. */
#include <logitless/c_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBatch = 4, kTime = 6, kTokens = kBatch * kTime, kHidden = 8, kVocab = 50 };

static int failures = 0;

static void check(int good, const char* what, int line) {
  if (good) return;
  ++failures;
  fprintf(stderr, "main.c:%d: %s; the last error is \"%s\"\n", line, what, logitless_last_error());
}
#define CHECK(condition) check((condition) ? 1 : 0, #condition, __LINE__)
#define CHECK_OK(call) check((call) == LOGITLESS_OK, #call, __LINE__)
#define CHECK_NEAR(a, b, bound) check(fabs((double)(a) - (double)(b)) <= (bound), #a " is near " #b, __LINE__)
/* The call is refused, and the message has these words. */
#define CHECK_REFUSED(call, status, words) \
  check((call) == (status) && strstr(logitless_last_error(), (words)) != NULL, #call " says " words, __LINE__)

static float hidden[kTokens * kHidden], weight[kVocab * kHidden], bias[kVocab];
static int32_t targets32[kTokens];
static int64_t targets64[kTokens];
static float d_hidden[kTokens * kHidden], d_weight[kVocab * kHidden], d_bias[kVocab];
static float finished[kTokens * kVocab], d_logits[kTokens * kVocab];
static double per_token_loss[kTokens], per_token_logps[kTokens];

static logitless_context* context;
static logitless_hidden_states states;
static logitless_lm_head head;
static logitless_logits logits;
static logitless_source source, from_logits;
static logitless_targets targets, long_targets;
static logitless_gradients gradients, gradient_of_logits;

static double uniform(void) { return (double)rand() / RAND_MAX - 0.5; }

static void set_up(void) {
  int i, v, h;
  srand(7);
  for (i = 0; i < kTokens * kHidden; ++i) hidden[i] = (float)uniform();
  for (i = 0; i < kVocab * kHidden; ++i) weight[i] = (float)uniform();
  for (i = 0; i < kVocab; ++i) bias[i] = (float)uniform();
  for (i = 0; i < kTokens; ++i) targets64[i] = targets32[i] = i % 5 == 4 ? -100 : (i * 7) % kVocab;
  for (i = 0; i < kTokens; ++i) {
    for (v = 0; v < kVocab; ++v) {
      double sum = bias[v];
      for (h = 0; h < kHidden; ++h) sum += (double)hidden[i * kHidden + h] * weight[v * kHidden + h];
      finished[i * kVocab + v] = (float)sum;
    }
  }
  LOGITLESS_INIT(hidden_states, &states);
  states.states.data = hidden;
  states.states.rows = kTokens;
  states.states.cols = kHidden;
  states.sequences = kBatch;
  LOGITLESS_INIT(lm_head, &head);
  head.weight.data = weight;
  head.weight.rows = kVocab;
  head.weight.cols = kHidden;
  head.bias.data = bias;
  head.bias.size = kVocab;
  LOGITLESS_INIT(logits, &logits);
  logits.data = finished;
  logits.batch = kBatch;
  logits.time = kTime;
  logits.vocab = kVocab;
  LOGITLESS_INIT(source, &source);
  source.hidden = &states;
  source.head = &head;
  LOGITLESS_INIT(source, &from_logits);
  from_logits.logits = &logits;
  LOGITLESS_INIT(targets, &targets);
  targets.data32 = targets32;
  targets.size = kTokens;
  LOGITLESS_INIT(targets, &long_targets);
  long_targets.data64 = targets64;
  long_targets.size = kTokens;
  LOGITLESS_INIT(gradients, &gradients);
  gradients.d_hidden.data = d_hidden;
  gradients.d_hidden.rows = kTokens;
  gradients.d_hidden.cols = kHidden;
  gradients.d_weight.data = d_weight;
  gradients.d_weight.rows = kVocab;
  gradients.d_weight.cols = kHidden;
  gradients.d_bias.data = d_bias;
  gradients.d_bias.size = kVocab;
  LOGITLESS_INIT(gradients, &gradient_of_logits);
  gradient_of_logits.d_logits = d_logits;
}

static void names(void) {
  size_t backends = 0, simd = 0;
  CHECK(strcmp(logitless_version(), "") != 0);
  CHECK(strcmp(logitless_dtype_name(LOGITLESS_BFLOAT16), "bfloat16") == 0 && !logitless_dtype_name(4));
  CHECK(strcmp(logitless_plan_kind_name(LOGITLESS_PLAN_TWO_PASS), "two_pass") == 0 && !logitless_plan_kind_name(-1));
  CHECK(strcmp(logitless_gradient_precision_name(LOGITLESS_PRECISION_SPLIT), "split") == 0);
  CHECK(strcmp(logitless_backward_mode_name(LOGITLESS_BACKWARD_SAMPLED), "sampled") == 0);
  CHECK(!logitless_backward_mode_name(LOGITLESS_BACKWARD_CERTIFIED + 1));
  CHECK(strcmp(logitless_policy_variant_name(LOGITLESS_DR_GRPO), "dr_grpo") == 0);
  CHECK(!logitless_policy_variant_name(LOGITLESS_KL_COV + 1));
  CHECK(strcmp(logitless_kl_estimator_name(LOGITLESS_K3), "k3") == 0);
  CHECK(strcmp(logitless_importance_level_name(LOGITLESS_SEQUENCE_RATIO), "sequence") == 0);
  CHECK(strcmp(logitless_sampler_correction_name(LOGITLESS_TOKEN_MASK), "token_mask") == 0);
  CHECK(strcmp(logitless_policy_aggregation_name(LOGITLESS_SEQ_MEAN_TOKEN_SUM), "seq_mean_token_sum") == 0);
  CHECK(strcmp(logitless_trust_region_name(LOGITLESS_TRUST_REGION_TV_BOTH), "tv_both") == 0);
  CHECK(strcmp(logitless_f_divergence_name(LOGITLESS_F_JS), "js_divergence") == 0);
  CHECK(strcmp(logitless_unpaired_loss_name(LOGITLESS_A2PO), "a2po") == 0);
  CHECK(strcmp(logitless_preference_loss_name(LOGITLESS_APO_ZERO), "apo_zero") == 0);
  CHECK(!logitless_preference_loss_name(LOGITLESS_SIGMOID_NORM + 1));
  CHECK(logitless_needs_reference(LOGITLESS_SIGMOID) && !logitless_needs_reference(LOGITLESS_SIMPO));
  while (logitless_gemm_backend_name(backends)) ++backends;
  while (logitless_simd_target_name(simd)) ++simd;
  CHECK(backends >= 1 && simd >= 1);
}

static void contexts(void) {
  logitless_context_options options;
  logitless_context* other = NULL;
  logitless_environment* environment = NULL;
  logitless_workspace* workspace = NULL;
  CHECK_OK(logitless_context_create(NULL, &other));
  CHECK(logitless_context_threads(other) >= 1);
  logitless_context_free(other);
  CHECK_OK(logitless_workspace_create(&workspace));
  LOGITLESS_INIT(context_options, &options);
  CHECK(options.workspace_bytes == (size_t)256 << 20);
  options.threads = 2;
  options.workspace = workspace;
  options.gemm_backend = "openblas";
  options.plan = LOGITLESS_PLAN_TWO_PASS;
  CHECK_OK(logitless_context_create(&options, &other));
  CHECK(strcmp(logitless_context_gemm_backend(other), "openblas") == 0);
  CHECK(strlen(logitless_context_simd_target(other)) > 0);
  CHECK_OK(logitless_cross_entropy(other, &source, &targets, NULL, &gradients, NULL, NULL));
  CHECK(logitless_workspace_bytes(workspace) > 0);
  logitless_workspace_release(workspace);
  CHECK(logitless_workspace_bytes(workspace) == 0);
  CHECK_OK(logitless_environment_create(other, &environment));
  CHECK(environment->cores >= 1 && strlen(environment->cpu) > 0 && strlen(environment->blas_config) > 0);
  logitless_environment_free(environment);
  logitless_context_free(other);
  logitless_workspace_free(workspace);
  logitless_context_free(NULL);
  logitless_workspace_free(NULL);
  logitless_forward_free(NULL);
  logitless_environment_free(NULL);
  options.workspace = NULL;
  options.gemm_backend = "no such backend";
  CHECK_REFUSED(logitless_context_create(&options, &other), LOGITLESS_INVALID_INPUT, "no such backend");
}

static double expected_loss(void) {
  double sum = 0;
  int i, v, counted = 0;
  for (i = 0; i < kTokens; ++i) {
    double total = 0;
    if (targets32[i] < 0) continue;
    for (v = 0; v < kVocab; ++v) total += exp(finished[i * kVocab + v]);
    sum += log(total) - finished[i * kVocab + targets32[i]];
    ++counted;
  }
  return sum / counted;
}

static void cross_entropies(void) {
  logitless_cross_entropy_options options;
  logitless_cross_entropy_result result;
  logitless_forward* forward = NULL;
  logitless_plan plan;
  float kept[kTokens * kHidden];
  const double upstream = 1;
  LOGITLESS_INIT(plan, &plan);
  LOGITLESS_INIT(cross_entropy_options, &options);
  LOGITLESS_INIT(cross_entropy_result, &result);
  result.tokens = kTokens;
  result.per_token_loss = per_token_loss;
  result.per_token_logps = per_token_logps;
  options.want_accuracy = options.want_entropy = 1;
  CHECK_OK(logitless_cross_entropy(context, &source, &targets, &options, &gradients, &result, &plan));
  CHECK_NEAR(result.loss, expected_loss(), 1e-6);
  CHECK_NEAR(result.mean_nll, result.loss, 1e-12);
  CHECK(result.counted_tokens == 20 && per_token_logps[4] == 0 && per_token_loss[0] == -per_token_logps[0]);
  CHECK(result.accuracy >= 0 && result.mean_entropy > 0 && plan.tokens == kTokens && strlen(plan.description) > 0);
  CHECK_OK(logitless_plan_cross_entropy(context, &source, &long_targets, &options, &gradients, &plan));
  CHECK(plan.least_workspace_bytes > 0 && plan.workspace_bytes >= plan.least_workspace_bytes);
  memcpy(kept, d_hidden, sizeof kept);
  CHECK_OK(logitless_cross_entropy_forward(context, &source, &long_targets, &options, &result, NULL, &forward));
  CHECK_OK(logitless_cross_entropy_backward(context, &source, &long_targets, &options, forward, &upstream, 1,
                                            &gradients, &plan));
  CHECK_NEAR(kept[0], d_hidden[0], 1e-7);
  logitless_forward_free(forward);
  /* Of finished logits. */
  CHECK_OK(logitless_cross_entropy(context, &from_logits, &targets, &options, &gradient_of_logits, &result, &plan));
  CHECK_NEAR(result.loss, expected_loss(), 1e-6);
  CHECK(d_logits[targets32[0]] < 0);
}

/* All entries of so small a vocabulary stand in one segment, which is always taken. */
static void samples(void) {
  logitless_backward_options backward;
  logitless_gradients sampled = gradients;
  logitless_cross_entropy_result result;
  logitless_plan plan;
  float kept[kTokens * kHidden];
  int i;
  CHECK_OK(logitless_cross_entropy(context, &source, &targets, NULL, &gradients, NULL, NULL));
  memcpy(kept, d_hidden, sizeof kept);
  memset(d_hidden, 0, sizeof d_hidden);
  LOGITLESS_INIT(plan, &plan);
  LOGITLESS_INIT(cross_entropy_result, &result);
  LOGITLESS_INIT(backward_options, &backward);
  CHECK(backward.mode == LOGITLESS_BACKWARD_EXACT && backward.noise > 0 && backward.theta == 0 && backward.seed == 0);
  backward.mode = LOGITLESS_BACKWARD_SAMPLED;
  backward.seed = 3;
  sampled.backward = &backward;
  CHECK_OK(logitless_cross_entropy(context, &source, &targets, NULL, &sampled, &result, &plan));
  CHECK(plan.kind == LOGITLESS_PLAN_TWO_PASS && plan.kept_share == 1 && plan.d_hidden_bound == 0);
  CHECK_NEAR(result.loss, expected_loss(), 1e-6);
  for (i = 0; i < kTokens * kHidden; ++i) CHECK_NEAR(kept[i], d_hidden[i], 1e-6);
  backward.noise = 1;
  CHECK_REFUSED(logitless_cross_entropy(context, &source, &targets, NULL, &sampled, NULL, NULL),
                LOGITLESS_INVALID_INPUT, "backward.noise = 1 must be");
}

static void evaluate_negated(const int64_t* rows, size_t count, logitless_token_grads* grads) {
  size_t i;
  for (i = 0; i < count; ++i) grads->logp[rows[i]] = -0.05;
}

static int evaluate(void* user, const int64_t* rows, size_t count, const logitless_token_stats* stats,
                    logitless_token_grads* grads) {
  int* calls = (int*)user;
  ++*calls;
  if (!stats->logp || !stats->lse || stats->tokens != kTokens) return 1;
  evaluate_negated(rows, count, grads);
  return 0;
}

static int refuse(void* user, const int64_t* rows, size_t count, const logitless_token_stats* stats,
                  logitless_token_grads* grads) {
  (void)user, (void)rows, (void)count, (void)stats, (void)grads;
  return 42;
}

static int64_t words_received = 0;
static int receive(void* user, int64_t first, int64_t count, const logitless_const_matrix* tile) {
  if (first != words_received || tile->rows != count || tile->cols != kHidden) return 1;
  words_received += count;
  return user == (void*)&words_received ? 0 : 2;
}

static int refuse_tile(void* user, int64_t first, int64_t count, const logitless_const_matrix* tile) {
  (void)user, (void)first, (void)count, (void)tile;
  return 3;
}

static void statistics(void) {
  static double logp[kTokens], lse[kTokens], entropy[kTokens], cross[kTokens], max_logit[kTokens], log_sum[kTokens];
  static double g[kTokens];
  static int64_t argmax[kTokens], rank[kTokens], top_ids[2 * kTokens];
  static double top_logps[2 * kTokens];
  logitless_token_options options;
  logitless_stats_request request;
  logitless_token_stats stats;
  logitless_token_grads grads;
  logitless_token_loss loss;
  logitless_gradients sink;
  logitless_plan plan;
  float kept[kVocab * kHidden];
  int i, calls = 0;
  LOGITLESS_INIT(token_options, &options);
  CHECK(options.ignore_index == -100 && options.temperature == 1);
  LOGITLESS_INIT(stats_request, &request);
  request.entropy = request.cross = request.argmax = request.rank = 1;
  request.top_k = 2;
  LOGITLESS_INIT(token_stats, &stats);
  stats.tokens = kTokens;
  stats.logp = logp, stats.lse = lse, stats.entropy = entropy, stats.cross = cross;
  stats.argmax = argmax, stats.rank = rank, stats.max_logit = max_logit, stats.log_sum = log_sum;
  stats.top_ids = top_ids, stats.top_logps = top_logps;
  LOGITLESS_INIT(plan, &plan);
  CHECK_OK(logitless_compute_token_stats(context, &source, &targets, &options, &request, &stats, &plan));
  CHECK(plan.kind == LOGITLESS_PLAN_FORWARD_ONLY && rank[0] >= 1 && argmax[0] >= 0);
  CHECK(top_ids[0] == argmax[0] && top_ids[1] != argmax[0] && top_logps[1] <= top_logps[0]);
  CHECK_NEAR(top_logps[0], -log_sum[0], 1e-12);
  CHECK_NEAR(lse[0], max_logit[0] + log_sum[0], 1e-12);
  CHECK_NEAR(logp[0], finished[targets32[0]] - lse[0], 1e-6);
  CHECK_OK(logitless_plan_token_stats(context, &source, &targets, &options, &request, &plan));
  for (i = 0; i < kTokens; ++i) g[i] = -0.05;
  LOGITLESS_INIT(token_grads, &grads);
  grads.tokens = kTokens;
  grads.logp = g;
  CHECK_OK(logitless_backpropagate_token_grads(context, &source, &targets, &options, NULL, &stats, &grads, &gradients,
                                               NULL));
  memcpy(kept, d_weight, sizeof kept);
  LOGITLESS_INIT(token_loss, &loss);
  loss.evaluate = evaluate;
  loss.user = &calls;
  CHECK_OK(logitless_plan_token_loss(context, &source, &targets, &options, &loss, &gradients, &plan));
  CHECK_OK(logitless_run_token_loss(context, &source, &targets, &options, &loss, &gradients, NULL, &plan));
  CHECK(calls >= 1);
  CHECK_NEAR(kept[3], d_weight[3], 1e-6);
  loss.evaluate = refuse;
  CHECK_REFUSED(logitless_run_token_loss(context, &source, &targets, &options, &loss, &gradients, NULL, NULL),
                LOGITLESS_CALLBACK_FAILED, "42");
  sink = gradients;
  sink.d_weight.data = NULL;
  sink.weight_sink = receive;
  sink.weight_sink_user = &words_received;
  loss.evaluate = evaluate;
  CHECK_OK(logitless_run_token_loss(context, &source, &targets, &options, &loss, &sink, NULL, NULL));
  CHECK(words_received == kVocab);
  sink.weight_sink = refuse_tile;
  CHECK_REFUSED(logitless_cross_entropy(context, &source, &targets, NULL, &sink, NULL, NULL), LOGITLESS_CALLBACK_FAILED,
                "weight_sink returned 3");
  CHECK_OK(logitless_entropy_from_logits(context, &logits, NULL, g, &gradient_of_logits, lse));
  CHECK_NEAR(lse[0], entropy[0], 1e-6);
  CHECK_REFUSED(logitless_entropy_from_logits(context, &logits, NULL, g, &gradients, lse), LOGITLESS_INVALID_INPUT,
                "source has logits");
}

static void policies(void) {
  static float advantages[kBatch] = {1, -1, 0.5f, -0.5f}, old_logps[kTokens];
  static uint8_t mask[kTokens];
  logitless_policy_batch batch;
  logitless_policy_options options;
  logitless_policy_result result;
  logitless_forward* forward = NULL;
  const double one = 1;
  logitless_plan plan;
  double loss;
  float kept;
  int i;
  for (i = 0; i < kTokens; ++i) {
    mask[i] = targets32[i] >= 0;
    old_logps[i] = (float)(per_token_logps[i] + 0.1);
    targets32[i] = targets32[i] < 0 ? 0 : targets32[i];
  }
  LOGITLESS_INIT(plan, &plan);
  LOGITLESS_INIT(policy_batch, &batch);
  batch.chosen_ids = &targets;
  batch.advantages.data = advantages;
  batch.advantages.size = kBatch;
  batch.old_logps.data = old_logps;
  batch.old_logps.size = kTokens;
  batch.mask = mask;
  batch.mask_count = kTokens;
  LOGITLESS_INIT(policy_options, &options);
  options.variant = LOGITLESS_DAPO;
  options.entropy_bonus = 0.01;
  LOGITLESS_INIT(policy_result, &result);
  result.tokens = kTokens;
  result.per_token_loss = per_token_loss;
  result.per_token_logps = per_token_logps;
  CHECK_OK(logitless_policy_loss(context, &source, &batch, &options, &gradients, &result, &plan));
  CHECK(result.counted_tokens == 20 && isfinite(result.loss) && result.mean_ratio > 0.8 && result.mean_ratio < 1);
  loss = result.loss;
  kept = d_hidden[0];
  CHECK_OK(logitless_plan_policy_loss(context, &source, &batch, &options, &gradients, &plan));
  CHECK_OK(logitless_policy_loss_forward(context, &source, &batch, &options, &result, &plan, &forward));
  CHECK_NEAR(loss, result.loss, 1e-12);
  CHECK_OK(logitless_policy_loss_backward(context, &source, &batch, &options, forward, 1, &gradients, &plan));
  CHECK_NEAR(kept, d_hidden[0], 1e-7);
  CHECK_REFUSED(logitless_cross_entropy_backward(context, &source, &targets, NULL, forward, &one, 1, &gradients, NULL),
                LOGITLESS_INVALID_INPUT, "another loss");
  logitless_forward_free(forward);
  CHECK_OK(logitless_policy_loss(context, &from_logits, &batch, &options, &gradient_of_logits, &result, &plan));
  CHECK_NEAR(loss, result.loss, 1e-6);
  options.delta = -1;
  CHECK_REFUSED(logitless_policy_loss(context, &source, &batch, &options, NULL, NULL, NULL), LOGITLESS_INVALID_INPUT,
                "delta");
}

static void preferences(void) {
  static float reference_logps[kBatch] = {-20, -21, -22, -23};
  static double sequence_logps[kBatch];
  const int32_t losses[2] = {LOGITLESS_SIGMOID, LOGITLESS_SFT};
  const double weights[2] = {1, 0.5};
  logitless_reference reference;
  logitless_preference_options options;
  logitless_preference_result result;
  logitless_forward* forward = NULL;
  logitless_plan plan;
  double loss;
  float kept;
  LOGITLESS_INIT(plan, &plan);
  LOGITLESS_INIT(reference, &reference);
  reference.logps.data = reference_logps;
  reference.logps.size = kBatch;
  LOGITLESS_INIT(preference_options, &options);
  options.losses = losses;
  options.loss_count = 2;
  options.loss_weights = weights;
  options.loss_weight_count = 2;
  LOGITLESS_INIT(preference_result, &result);
  result.tokens = kTokens;
  result.sequences = kBatch;
  result.sequence_logps = sequence_logps;
  result.per_token_logps = per_token_logps;
  CHECK_OK(logitless_preference_loss(context, &source, &targets, &reference, &options, &gradients, &result, &plan));
  CHECK(result.pairs == 2 && isfinite(result.loss) && sequence_logps[3] < 0);
  loss = result.loss;
  kept = d_weight[0];
  CHECK_OK(logitless_plan_preference_loss(context, &source, &targets, &reference, &options, &gradients, &plan));
  CHECK_OK(
      logitless_preference_loss_forward(context, &source, &targets, &reference, &options, &result, &plan, &forward));
  CHECK_OK(logitless_preference_loss_backward(context, &source, &targets, &reference, &options, forward, 1, &gradients,
                                              &plan));
  logitless_forward_free(forward);
  CHECK_NEAR(loss, result.loss, 1e-12);
  CHECK_NEAR(kept, d_weight[0], 1e-6);
  /* The reference's own states and head say what its sums say: here it is the policy, and every margin is 0. */
  LOGITLESS_INIT(reference, &reference);
  reference.hidden = &states;
  reference.head = &head;
  CHECK_OK(logitless_preference_loss(context, &source, &targets, &reference, NULL, NULL, &result, NULL));
  CHECK_NEAR(result.loss, log(2.0), 1e-9);
  CHECK_REFUSED(logitless_preference_loss(context, &source, &targets, NULL, NULL, NULL, &result, NULL),
                LOGITLESS_INVALID_INPUT, "reference");
}

static void ktos(void) {
  static float reference_logps[kBatch] = {-20, -21, -22, -23};
  static double losses[kBatch], sums[kBatch];
  const uint8_t labels[kBatch] = {1, 0, 1, 0};
  logitless_reference reference;
  logitless_kto_batch batch;
  logitless_kto_options options;
  logitless_kto_result result;
  logitless_forward* forward = NULL;
  logitless_plan plan;
  double loss;
  LOGITLESS_INIT(plan, &plan);
  LOGITLESS_INIT(reference, &reference);
  reference.logps.data = reference_logps;
  reference.logps.size = kBatch;
  LOGITLESS_INIT(kto_batch, &batch);
  batch.targets = &targets;
  batch.labels = labels;
  batch.label_count = kBatch;
  batch.reference = &reference;
  LOGITLESS_INIT(kto_options, &options);
  LOGITLESS_INIT(kto_result, &result);
  result.sequences = kBatch;
  result.sequence_losses = losses;
  result.sequence_logps = sums;
  CHECK_OK(logitless_kto_loss(context, &source, &batch, &options, &gradients, &result, &plan));
  CHECK(result.desirable == 2 && result.undesirable == 2 && isfinite(result.loss) && losses[0] > 0 && sums[0] < 0);
  loss = result.loss;
  CHECK_OK(logitless_plan_kto_loss(context, &source, &batch, &options, &gradients, &plan));
  CHECK_OK(logitless_kto_loss_forward(context, &source, &batch, &options, &result, &plan, &forward));
  CHECK_NEAR(loss, result.loss, 1e-12);
  CHECK_OK(logitless_kto_loss_backward(context, &source, &batch, &options, forward, 2, &gradients, &plan));
  logitless_forward_free(forward);
  result.sequences = kBatch + 1;
  CHECK_REFUSED(logitless_kto_loss(context, &source, &batch, &options, NULL, &result, NULL), LOGITLESS_INVALID_INPUT,
                "result.sequences = 5");
}

static void distillations(void) {
  static float other[kTokens * kHidden];
  static double divergences[kTokens], acceptances[kTokens];
  const double upstream = 2;
  logitless_hidden_states teacher_states = states;
  logitless_teacher teacher;
  logitless_distillation_options options;
  logitless_distillation_result result;
  logitless_forward* forward = NULL;
  logitless_plan plan;
  double loss;
  int i;
  for (i = 0; i < kTokens * kHidden; ++i) other[i] = hidden[kTokens * kHidden - 1 - i];
  teacher_states.states.data = other;
  LOGITLESS_INIT(plan, &plan);
  LOGITLESS_INIT(teacher, &teacher);
  teacher.hidden = &teacher_states;
  teacher.head = &head;
  LOGITLESS_INIT(distillation_options, &options);
  CHECK(options.beta == 0.5 && isnan(options.teacher_temperature) && teacher.round_logits_to == LOGITLESS_NO_DTYPE);
  options.divergence = LOGITLESS_JSD;
  options.hard_weight = 0.5;
  options.want_agreement = 1;
  LOGITLESS_INIT(distillation_result, &result);
  result.tokens = kTokens;
  result.per_token_divergence = divergences;
  result.per_token_acceptance = acceptances;
  CHECK_OK(
      logitless_distillation_loss(context, &source, &teacher, &long_targets, &options, &gradients, &result, &plan));
  CHECK(isfinite(result.loss) && divergences[0] > 0 && acceptances[0] > 0 && acceptances[0] < 1);
  CHECK(divergences[4] == 0);
  CHECK(result.agreement >= 0 && isnan(result.mean_entropy));
  loss = result.loss;
  CHECK_OK(logitless_plan_distillation_loss(context, &source, &teacher, &long_targets, &options, &gradients, &plan));
  CHECK_OK(logitless_distillation_loss_forward(context, &source, &teacher, &long_targets, &options, &result, &plan,
                                               &forward));
  CHECK_NEAR(loss, result.loss, 1e-12);
  CHECK_OK(logitless_distillation_loss_backward(context, &source, &teacher, &long_targets, &options, forward, &upstream,
                                                1, &gradients, &plan));
  CHECK_REFUSED(logitless_distillation_loss_backward(context, &source, &teacher, &long_targets, &options, forward, NULL,
                                                     0, &gradients, &plan),
                LOGITLESS_INVALID_INPUT, "upstream has 0 entries");
  logitless_forward_free(forward);
  /* A student that is its teacher, and all rows without targets. */
  teacher.hidden = &states;
  options.hard_weight = 0;
  CHECK_OK(logitless_distillation_loss(context, &source, &teacher, NULL, &options, NULL, &result, NULL));
  CHECK(result.loss == 0 && result.counted_tokens == kTokens && result.agreement == 1);
  CHECK_REFUSED(logitless_distillation_loss(context, &source, NULL, NULL, &options, NULL, &result, NULL),
                LOGITLESS_INVALID_INPUT, "teacher");
  CHECK_REFUSED(logitless_distillation_loss(context, &from_logits, &teacher, NULL, &options, NULL, &result, NULL),
                LOGITLESS_INVALID_INPUT, "teacher has no logits");
  options.beta = 2;
  CHECK_REFUSED(logitless_distillation_loss(context, &source, &teacher, NULL, &options, NULL, &result, NULL),
                LOGITLESS_INVALID_INPUT, "beta = 2 must be a number from 0 to 1");
  CHECK(strcmp(logitless_divergence_name(LOGITLESS_SKEW_KL), "skew_kl") == 0);
}

/* A policy whose sampler has kept two ids of each position, 0 and 1. */
static void kept_sets(const logitless_id_sets* sets, const int64_t* ids_of_sets) {
  static int64_t chosen_data[kTokens];
  static float advantage_data[kTokens];
  static double logps[kTokens];
  logitless_targets chosen;
  logitless_policy_batch batch;
  logitless_policy_options options;
  logitless_policy_result result;
  int i;
  for (i = 0; i < kTokens; ++i) chosen_data[i] = ids_of_sets[2 * i + i % 2], advantage_data[i] = 0.5f;
  LOGITLESS_INIT(targets, &chosen);
  chosen.data64 = chosen_data;
  chosen.size = kTokens;
  LOGITLESS_INIT(policy_batch, &batch);
  batch.chosen_ids = &chosen;
  batch.advantages.data = advantage_data;
  batch.advantages.dtype = LOGITLESS_FLOAT32;
  batch.advantages.size = kTokens;
  batch.kept = sets;
  LOGITLESS_INIT(policy_options, &options);
  LOGITLESS_INIT(policy_result, &result);
  result.tokens = kTokens;
  result.per_token_logps = logps;
  CHECK_OK(logitless_policy_loss(context, &source, &batch, &options, &gradients, &result, NULL));
  CHECK(logps[0] < 0 && logps[0] > -30 && result.mean_ratio == 1);
  chosen_data[2] = 2;
  CHECK_REFUSED(logitless_policy_loss(context, &source, &batch, &options, NULL, &result, NULL), LOGITLESS_INVALID_INPUT,
                "kept of row 2 does not have chosen_ids[2] = 2");
}

static void set_distillations(void) {
  static int64_t ids_of_sets[2 * kTokens];
  static double logps[2 * kTokens], outside[kTokens], divergences[kTokens];
  const double upstream = 2;
  logitless_targets ids;
  logitless_id_sets sets;
  logitless_set_teacher teacher;
  logitless_set_distillation_options options;
  logitless_set_distillation_result result;
  logitless_forward* forward = NULL;
  logitless_plan plan;
  double loss;
  int i;
  for (i = 0; i < kTokens; ++i) {
    ids_of_sets[2 * i] = 0, ids_of_sets[2 * i + 1] = 1;
    logps[2 * i] = log(0.5), logps[2 * i + 1] = log(0.25);
    outside[i] = log(0.25);
  }
  LOGITLESS_INIT(plan, &plan);
  LOGITLESS_INIT(targets, &ids);
  ids.data64 = ids_of_sets;
  ids.size = 2 * kTokens;
  ids.time = ids.batch_stride = 2;
  LOGITLESS_INIT(id_sets, &sets);
  sets.ids = &ids;
  LOGITLESS_INIT(set_teacher, &teacher);
  teacher.sets = &sets;
  teacher.logps.data = logps;
  teacher.logps.dtype = LOGITLESS_FLOAT64;
  teacher.logps.size = 2 * kTokens;
  LOGITLESS_INIT(set_distillation_options, &options);
  CHECK(options.outside == LOGITLESS_OUTSIDE_TAIL && isnan(options.normaliser) && options.loss_scale == 1);
  LOGITLESS_INIT(set_distillation_result, &result);
  result.tokens = kTokens;
  result.per_token_divergence = divergences;
  CHECK_OK(
      logitless_set_distillation_loss(context, &source, &teacher, &long_targets, &options, &gradients, &result, &plan));
  CHECK(isfinite(result.loss) && divergences[0] > 0 && divergences[4] == 0);
  CHECK_NEAR(result.mean_teacher_mass, 0.75, 1e-12);
  loss = result.loss;
  teacher.outside_logps.data = outside;
  teacher.outside_logps.dtype = LOGITLESS_FLOAT64;
  teacher.outside_logps.size = kTokens;
  CHECK_OK(
      logitless_plan_set_distillation_loss(context, &source, &teacher, &long_targets, &options, &gradients, &plan));
  CHECK_OK(logitless_set_distillation_loss_forward(context, &source, &teacher, &long_targets, &options, &result, &plan,
                                                   &forward));
  CHECK_NEAR(loss, result.loss, 1e-12);
  CHECK_OK(logitless_set_distillation_loss_backward(context, &source, &teacher, &long_targets, &options, forward,
                                                    &upstream, 1, &gradients, &plan));
  CHECK_REFUSED(logitless_set_distillation_loss_backward(context, &source, &teacher, &long_targets, &options, forward,
                                                         NULL, 0, &gradients, &plan),
                LOGITLESS_INVALID_INPUT, "upstream has 0 entries");
  logitless_forward_free(forward);
  CHECK_OK(logitless_set_distillation_loss(context, &from_logits, &teacher, NULL, &options, NULL, &result, NULL));
  CHECK(result.counted_tokens == kTokens);
  CHECK_REFUSED(logitless_set_distillation_loss(context, &source, NULL, NULL, &options, NULL, &result, NULL),
                LOGITLESS_INVALID_INPUT, "teacher");
  options.outside = LOGITLESS_OUTSIDE_TRUNCATED;
  CHECK_REFUSED(logitless_set_distillation_loss(context, &source, &teacher, NULL, &options, NULL, &result, NULL),
                LOGITLESS_INVALID_INPUT, "outside_logps");
  options.outside = 5;
  CHECK_REFUSED(logitless_set_distillation_loss(context, &source, &teacher, NULL, &options, NULL, &result, NULL),
                LOGITLESS_INVALID_INPUT, "outside");
  options.outside = LOGITLESS_OUTSIDE_TAIL;
  logps[3] = 0.5;
  CHECK_REFUSED(logitless_set_distillation_loss(context, &source, &teacher, NULL, &options, NULL, &result, NULL),
                LOGITLESS_INVALID_INPUT, "logps");
  kept_sets(&sets, ids_of_sets);
  CHECK(strcmp(logitless_outside_set_name(LOGITLESS_OUTSIDE_GENERALISED), "generalised") == 0);
  CHECK(!logitless_outside_set_name(5));
}

/* A group of one rank: what is sent comes back. */
static int exchanges = 0;
static int send_back(void* user, const void* mine, void* theirs, size_t bytes) {
  ++*(int*)user;
  memcpy(theirs, mine, bytes);
  return 0;
}
static int lose(void* user, const void* mine, void* theirs, size_t bytes) {
  (void)user, (void)mine, (void)theirs, (void)bytes;
  return 7;
}

static void ranks(void) {
  const int64_t slices[] = {20, 0, 30};
  logitless_communicator communicator;
  logitless_context_options options;
  logitless_context* of_ranks = NULL;
  logitless_cross_entropy_result result;
  double loss;
  LOGITLESS_INIT(cross_entropy_result, &result);
  CHECK_OK(logitless_cross_entropy(context, &source, &targets, NULL, &gradients, &result, NULL));
  loss = result.loss;
  LOGITLESS_INIT(communicator, &communicator);
  communicator.size = 1;
  communicator.user = &exchanges;
  LOGITLESS_INIT(context_options, &options);
  options.vocab_ranks = &communicator;
  CHECK_REFUSED(logitless_context_create(&options, &of_ranks), LOGITLESS_INVALID_INPUT, "no all_gather");
  communicator.all_gather = send_back;
  communicator.all_to_all = send_back;
  options.slices = slices;
  options.slice_count = 3;
  CHECK_OK(logitless_context_create(&options, &of_ranks));
  CHECK_OK(logitless_cross_entropy(of_ranks, &source, &targets, NULL, &gradients, &result, NULL));
  CHECK_NEAR(result.loss, loss, 1e-6);
  CHECK(exchanges > 5);
  logitless_context_free(of_ranks);

  options.slice_count = 2;
  CHECK_OK(logitless_context_create(&options, &of_ranks));
  CHECK_REFUSED(logitless_cross_entropy(of_ranks, &source, &targets, NULL, &gradients, &result, NULL),
                LOGITLESS_INVALID_INPUT, "ranks.slices has 20 vocabulary entries but lm_head has 50");
  logitless_context_free(of_ranks);

  options.slice_count = 0;
  communicator.all_gather = lose;
  CHECK_OK(logitless_context_create(&options, &of_ranks));
  CHECK_REFUSED(logitless_cross_entropy(of_ranks, &source, &targets, NULL, &gradients, &result, NULL),
                LOGITLESS_CALLBACK_FAILED, "all_gather returned 7");
  logitless_context_free(of_ranks);
}

/* A slice that meets nobody: it is the whole vocabulary here, and leaves and gets the same bytes. */
static void slices(void) {
  unsigned char left[40 * kTokens];
  logitless_context_options options;
  logitless_context* of_slice = NULL;
  logitless_cross_entropy_options loss_options;
  logitless_cross_entropy_result result, of_one;
  LOGITLESS_INIT(cross_entropy_options, &loss_options);
  loss_options.label_smoothing = 0.1;
  loss_options.want_accuracy = 1;
  LOGITLESS_INIT(cross_entropy_result, &result);
  LOGITLESS_INIT(cross_entropy_result, &of_one);
  CHECK_OK(logitless_cross_entropy(context, &source, &targets, &loss_options, &gradients, &of_one, NULL));
  CHECK(logitless_cross_entropy_slice_bytes(LOGITLESS_FLOAT32, &loss_options) == 40);
  CHECK(logitless_token_stats_slice_bytes(LOGITLESS_FLOAT32, NULL) == 16);
  CHECK(logitless_token_stats_slice_bytes(9, NULL) == 0);
  LOGITLESS_INIT(context_options, &options);
  options.slice_vocab_size = kVocab;
  CHECK_OK(logitless_context_create(&options, &of_slice));
  CHECK_OK(logitless_cross_entropy_slice(of_slice, &source, &targets, &loss_options, left, sizeof left));
  CHECK_REFUSED(logitless_cross_entropy_slice(of_slice, &source, &targets, &loss_options, left, 1),
                LOGITLESS_INVALID_INPUT, "slice_bytes = 1, but the slice leaves");
  CHECK_REFUSED(logitless_cross_entropy(of_slice, &source, &targets, &loss_options, NULL, &result, NULL),
                LOGITLESS_INVALID_INPUT, "ranks.slice.gathered is empty");
  CHECK_OK(logitless_token_stats_slice(of_slice, &source, &targets, NULL, NULL, left + 24 * kTokens, 16 * kTokens));
  CHECK_OK(logitless_cross_entropy_slice(of_slice, &source, &targets, &loss_options, left, sizeof left));
  logitless_context_free(of_slice);
  options.gathered = left;
  options.gathered_bytes = sizeof left;
  CHECK_OK(logitless_context_create(&options, &of_slice));
  CHECK_OK(logitless_cross_entropy(of_slice, &source, &targets, &loss_options, &gradients, &result, NULL));
  CHECK_NEAR(result.loss, of_one.loss, 1e-6);
  CHECK(result.accuracy == of_one.accuracy);
  logitless_context_free(of_slice);
  options.slice_first = 1;
  CHECK_OK(logitless_context_create(&options, &of_slice));
  CHECK_REFUSED(logitless_cross_entropy(of_slice, &source, &targets, &loss_options, NULL, &result, NULL),
                LOGITLESS_INVALID_INPUT, "this is no part of a vocabulary");
  logitless_context_free(of_slice);
}

static void refusals(void) {
  logitless_cross_entropy_options options;
  logitless_source both = source;
  logitless_targets bad = targets;
  logitless_cross_entropy_result result;
  LOGITLESS_INIT(cross_entropy_options, &options);
  CHECK_REFUSED(logitless_cross_entropy(NULL, &source, &targets, NULL, NULL, NULL, NULL), LOGITLESS_INVALID_INPUT,
                "context is NULL");
  CHECK_REFUSED(logitless_cross_entropy(context, NULL, &targets, NULL, NULL, NULL, NULL), LOGITLESS_INVALID_INPUT,
                "source is NULL");
  CHECK_REFUSED(logitless_cross_entropy(context, &source, NULL, NULL, NULL, NULL, NULL), LOGITLESS_INVALID_INPUT,
                "targets is NULL");
  both.logits = &logits;
  CHECK_REFUSED(logitless_cross_entropy(context, &both, &targets, NULL, NULL, NULL, NULL), LOGITLESS_INVALID_INPUT,
                "beside them");
  bad.data64 = targets64;
  CHECK_REFUSED(logitless_cross_entropy(context, &source, &bad, NULL, NULL, NULL, NULL), LOGITLESS_INVALID_INPUT,
                "both set");
  CHECK_REFUSED(logitless_cross_entropy(context, &source, &targets, NULL, &gradient_of_logits, NULL, NULL),
                LOGITLESS_INVALID_INPUT, "d_logits");
  CHECK_REFUSED(logitless_cross_entropy(context, &from_logits, &targets, NULL, &gradients, NULL, NULL),
                LOGITLESS_INVALID_INPUT, "source has logits");
  options.reduction = 9;
  CHECK_REFUSED(logitless_cross_entropy(context, &source, &targets, &options, NULL, NULL, NULL),
                LOGITLESS_INVALID_INPUT, "reduction = 9");
  memset(&options, 0, sizeof options);
  CHECK_REFUSED(logitless_cross_entropy(context, &source, &targets, &options, NULL, NULL, NULL),
                LOGITLESS_INVALID_INPUT, "LOGITLESS_INIT");
  LOGITLESS_INIT(cross_entropy_options, &options);
  options.struct_size += 8;
  CHECK_REFUSED(logitless_cross_entropy(context, &source, &targets, &options, NULL, NULL, NULL),
                LOGITLESS_INVALID_INPUT, "newer header");
  LOGITLESS_INIT(cross_entropy_result, &result);
  result.tokens = 3;
  result.per_token_loss = per_token_loss;
  CHECK_REFUSED(logitless_cross_entropy(context, &source, &targets, NULL, NULL, &result, NULL), LOGITLESS_INVALID_INPUT,
                "result.tokens = 3");
  targets32[2] = kVocab;
  CHECK_REFUSED(logitless_cross_entropy(context, &source, &targets, NULL, &gradients, NULL, NULL),
                LOGITLESS_INVALID_INPUT, "50");
}

int main(void) {
  set_up();
  names();
  CHECK_OK(logitless_context_create(NULL, &context));
  contexts();
  cross_entropies();
  samples();
  statistics();
  policies();
  preferences();
  ktos();
  distillations();
  set_distillations();
  ranks();
  slices();
  refusals();
  logitless_context_free(context);
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
