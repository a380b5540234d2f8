/* Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0 */
/* The same loss from C: all logits are 0, so that it is log V. docs/c.md quotes what is between [head] and
 * [/head]. */
// [head]
#include <logitless/c_api.h>
#include <stdio.h>

/* Returns the loss, and writes both gradients. Everything is a view of your memory: nothing is copied. */
double fused_head(const logitless_context* context, int64_t N, int64_t H, int64_t V, const float* states, /* [N, H] */
                  const float* weight, /* [V, H], as in PyTorch's nn.Linear */
                  const int64_t* ids,  /* [N]; -100: takes no part */
                  float* d_hidden, float* d_weight) {
  logitless_hidden_states hidden;
  logitless_lm_head head;
  logitless_source source;
  logitless_targets targets;
  logitless_gradients gradients;
  logitless_cross_entropy_result result;
  LOGITLESS_INIT(hidden_states, &hidden); /* the defaults; then what differs from them */
  hidden.states.data = states, hidden.states.rows = N, hidden.states.cols = H;
  LOGITLESS_INIT(lm_head, &head);
  head.weight.data = weight, head.weight.rows = V, head.weight.cols = H;
  LOGITLESS_INIT(source, &source);
  source.hidden = &hidden, source.head = &head;
  LOGITLESS_INIT(targets, &targets);
  targets.data64 = ids, targets.size = N;
  LOGITLESS_INIT(gradients, &gradients); /* leave out what you do not need */
  gradients.d_hidden.data = d_hidden, gradients.d_hidden.rows = N, gradients.d_hidden.cols = H;
  gradients.d_weight.data = d_weight, gradients.d_weight.rows = V, gradients.d_weight.cols = H;
  LOGITLESS_INIT(cross_entropy_result, &result);
  if (logitless_cross_entropy(context, &source, &targets, NULL, &gradients, &result, NULL) != LOGITLESS_OK) {
    fprintf(stderr, "%s\n", logitless_last_error()); /* names the argument, the value and the rule */
    return -1;
  }
  return result.loss;
}
// [/head]

#include <math.h>

int main(void) {
  static const float states[3 * 2] = {1, 1, 1, 1, 1, 1}, weight[5 * 2];
  static const int64_t ids[3] = {1, 1, 1};
  float d_hidden[3 * 2], d_weight[5 * 2];
  logitless_context* context = NULL;
  double loss;
  if (logitless_context_create(NULL, &context) != LOGITLESS_OK) return 1;
  loss = fused_head(context, 3, 2, 5, states, weight, ids, d_hidden, d_weight);
  logitless_context_free(context);
  return fabs(loss - log(5.0)) < 1e-6 && fabs(d_weight[0] - 0.2) < 1e-6 ? 0 : 1;
}
