/* Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0 */
/* The same loss from C. docs/c.md quotes the code between [program] and [/program]. */
// [program]
#include <logitless/c_api.h>
#include <math.h>
#include <stdio.h>

enum { N = 3, H = 2, V = 5 }; /* tokens, hidden size, vocabulary */

static float states[N * H] = {1, 1, 1, 1, 1, 1};
static float weight[V * H];        /* [V, H], as in PyTorch's nn.Linear */
static int64_t ids[N] = {1, 1, 1}; /* -100 is ignored */
static float d_hidden[N * H], d_weight[V * H];

int main(void) {
  double loss = 0;
  int step;
  logitless_call* call = logitless_call_new(NULL, "cross_entropy");
  logitless_set_2d(call, "hidden", states, LOGITLESS_FLOAT32, N, H);
  logitless_set_2d(call, "weight", weight, LOGITLESS_FLOAT32, V, H);
  logitless_set_1d(call, "targets", ids, LOGITLESS_INT64, N);
  logitless_set_2d(call, "d_hidden", d_hidden, LOGITLESS_FLOAT32, N, H); /* leave out what you do not need */
  logitless_set_2d(call, "d_weight", d_weight, LOGITLESS_FLOAT32, V, H);
  logitless_set_number(call, "label_smoothing", 0.1);
  for (step = 0; step < 10; ++step) { /* the tensors are your memory: fill them, and run again */
    if (logitless_run(call) != LOGITLESS_OK || logitless_get_number(call, "loss", &loss) != LOGITLESS_OK) {
      fprintf(stderr, "%s\n", logitless_last_error()); /* names the key, the value and the rule */
      return 1;
    }
  }
  logitless_call_free(call);
  return fabs(loss - log(V)) < 1e-6 ? 0 : 1; /* all logits are 0 */
}
// [/program]
