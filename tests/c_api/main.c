/* Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0 */
/* Calls every function of c_api.h from C99, and compares cross-entropy with sums in double. keys_test.cc has
 * the keys, failures_test.cc the messages, and generator/c_calls_test.cc calls of all tasks. */
#include <logitless/c_api.h>
#include <math.h>
#include <stdio.h>
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
#define CHECK_NEAR(a, b) check(fabs((double)(a) - (double)(b)) <= 1e-6, #a " is near " #b, __LINE__)

static float hidden[kTokens * kHidden], weight[kVocab * kHidden], d_hidden[kTokens * kHidden], kept[kTokens * kHidden];
static float d_weight[kVocab * kHidden];
static int32_t ids[kTokens];

/* Fills the inputs, and returns their loss. */
static double fill(void) {
  double loss = 0;
  int i, v, h, counted = 0;
  for (i = 0; i < kTokens * kHidden; ++i) hidden[i] = (float)sin(i * i);
  for (i = 0; i < kVocab * kHidden; ++i) weight[i] = (float)sin(2.0 * i * i);
  for (i = 0; i < kTokens; ++i) {
    double total = 0, chosen = 0;
    ids[i] = i % 5 == 4 ? -100 : (i * 7) % kVocab;
    for (v = 0; v < kVocab; ++v) {
      double logit = 0;
      for (h = 0; h < kHidden; ++h) logit += (double)hidden[i * kHidden + h] * weight[v * kHidden + h];
      total += exp(logit);
      if (v == ids[i]) chosen = logit;
    }
    if (ids[i] < 0) continue;
    loss += log(total) - chosen;
    ++counted;
  }
  return loss / counted;
}

static double number(logitless_call* call, const char* name) {
  double value = NAN;
  CHECK_OK(logitless_get_number(call, name, &value));
  return value;
}

static logitless_call* call_of(const logitless_context* context, const char* task) {
  logitless_call* call = logitless_call_new(context, task);
  CHECK(call != NULL);
  CHECK_OK(logitless_set_3d(call, "hidden", hidden, LOGITLESS_FLOAT32, kBatch, kTime, kHidden));
  CHECK_OK(logitless_set_2d(call, "weight", weight, LOGITLESS_FLOAT32, kVocab, kHidden));
  CHECK_OK(logitless_set_1d(call, "targets", ids, LOGITLESS_INT32, kTokens));
  return call;
}

static void cross_entropy(double loss) {
  logitless_call* call = call_of(NULL, "cross_entropy");
  logitless_tensor tensor;
  const char* text = NULL;
  int64_t tokens = 0;
  CHECK_OK(logitless_set_2d(call, "d_hidden", d_hidden, LOGITLESS_FLOAT32, kTokens, kHidden));
  CHECK_OK(logitless_set_2d(call, "d_weight", d_weight, LOGITLESS_FLOAT32, kVocab, kHidden));
  CHECK_OK(logitless_run(call));
  CHECK_NEAR(number(call, "loss"), loss);
  CHECK(isnan(number(call, "mean_entropy")));
  CHECK_OK(logitless_get_integer(call, "tokens", &tokens));
  CHECK(tokens == 20);
  CHECK_OK(logitless_get_tensor(call, "per_token_logps", &tensor));
  CHECK(tensor.dtype == LOGITLESS_FLOAT64 && tensor.sizes[0] == kTokens && ((double*)tensor.data)[4] == 0);
  CHECK_OK(logitless_get_text(call, "plan", &text));
  CHECK(strstr(text, "24 rows") != NULL);
  memcpy(kept, d_hidden, sizeof kept);
  CHECK_OK(logitless_unset(call, "d_weight"));
  CHECK_OK(logitless_forward(call));
  CHECK_OK(logitless_set_number(call, "upstream", 2));
  CHECK_OK(logitless_backward(call));
  CHECK_NEAR(2 * kept[0], d_hidden[0]);
  CHECK_OK(logitless_plan(call));
  CHECK(number(call, "plan.workspace_bytes") >= number(call, "plan.least_workspace_bytes"));
  logitless_call_free(call);
}

// [evaluate]
struct mean {
  double tokens, loss; /* set loss to 0 before each run */
};

/* Adds up the mean of -log p over `tokens`, and writes its gradients. `user` points to a struct mean. */
static int evaluate(void* user, logitless_call* call, const int64_t* rows, int64_t count) {
  struct mean* mean = (struct mean*)user;
  logitless_tensor logp, d_logp; /* float64 [N], as "lse" and other statistics */
  int64_t i;
  if (logitless_get_tensor(call, "logp", &logp) != LOGITLESS_OK) return 1; /* ends the call */
  if (logitless_get_tensor(call, "d_logp", &d_logp) != LOGITLESS_OK) return 1;
  for (i = 0; i < count; ++i) {
    mean->loss -= ((const double*)logp.data)[rows[i]] / mean->tokens;
    ((double*)d_logp.data)[rows[i]] = -1.0 / mean->tokens;
  }
  return 0;
}
// [/evaluate]

static int receive(void* user, int64_t first, int64_t count, const logitless_tensor* tile) {
  int64_t* words = (int64_t*)user;
  if (first != *words || tile->sizes[0] != count || tile->sizes[1] != kHidden) return 1;
  *words += count;
  return 0;
}

/* Runs after cross_entropy(), and compares with its gradients. */
static void callbacks(double loss) {
  logitless_call* call = call_of(NULL, "custom_loss");
  struct mean mean = {20, 0};
  int64_t words = 0;
  int i;
  CHECK_OK(logitless_set_2d(call, "d_hidden", d_hidden, LOGITLESS_FLOAT32, kTokens, kHidden));
  CHECK_OK(logitless_set_loss(call, evaluate, &mean));
  CHECK_OK(logitless_set_weight_sink(call, receive, &words));
  CHECK_OK(logitless_run(call));
  CHECK(words == kVocab);
  CHECK_NEAR(mean.loss, loss);
  for (i = 0; i < kTokens * kHidden; ++i) CHECK_NEAR(kept[i], d_hidden[i]);
  logitless_call_free(call);
}

static int gather(void* user, const void* mine, void* all, size_t bytes) {
  (void)user;
  memcpy(all, mine, bytes);
  return 0;
}

static void contexts(void) {
  const logitless_communicator alone = {0, 1, gather, gather, NULL};
  logitless_context* context = logitless_context_new();
  logitless_call* call;
  CHECK_OK(logitless_context_set(context, "threads", "2"));
  CHECK_OK(logitless_context_set_ranks(context, "vocab", &alone));
  CHECK(strstr(logitless_info(context), "threads: ") != NULL && logitless_info(NULL) != NULL);
  call = call_of(context, "token_stats");
  logitless_context_free(context);
  CHECK_OK(logitless_set_integer(call, "top_k", 2));
  CHECK_OK(logitless_run(call));
  logitless_call_free(call);
  call = call_of(NULL, "token_stats");
  CHECK_OK(logitless_set_integer(call, "slice_vocab_size", kVocab));
  CHECK_OK(logitless_slice(call));
  logitless_call_free(call);
}

int main(void) {
  logitless_call* call;
  const double loss = fill();
  CHECK(strcmp(logitless_version(), "") != 0);
  CHECK(strstr(logitless_describe(NULL), "policy_loss") != NULL);
  CHECK(strstr(logitless_describe("policy_loss"),
               "beta: a finite number of at least 0; 0 by default — the weight of") != NULL);
  contexts();
  cross_entropy(loss);
  callbacks(loss);
  call = logitless_call_new(NULL, "policy_loss");
  CHECK(logitless_set_text(call, "loss_typo", "dapo") == LOGITLESS_INVALID_INPUT);
  CHECK(strstr(logitless_last_error(), "did you mean loss_type?") != NULL);
  logitless_call_free(call);
  if (failures == 0) puts("c_api: every function was called from C99");
  return failures == 0 ? 0 : 1;
}
