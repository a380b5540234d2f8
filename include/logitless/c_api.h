/* Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * The whole library for C99, and for every language that calls C. A call is an object whose tensors and
 * options are set by name, and whose results are read by name:
 *
 *     logitless_call* call = logitless_call_new(NULL, "cross_entropy");
 *     logitless_set_2d(call, "hidden", states, LOGITLESS_FLOAT32, N, H);
 *     logitless_set_2d(call, "weight", weight, LOGITLESS_FLOAT32, V, H);
 *     logitless_set_1d(call, "targets", ids, LOGITLESS_INT64, N);
 *     logitless_set_2d(call, "d_hidden", d_hidden, LOGITLESS_FLOAT32, N, H);
 *     logitless_set_number(call, "label_smoothing", 0.1);
 *     double loss;
 *     if (logitless_run(call) != LOGITLESS_OK || logitless_get_number(call, "loss", &loss) != LOGITLESS_OK)
 *       fprintf(stderr, "%s\n", logitless_last_error());
 *     logitless_call_free(call);
 *
 * logitless_describe("cross_entropy") returns a text that lists its keys and results: types, defaults, ranges.
 *
 * - Tensors are your memory. Every run reads and writes it in place, so it must outlive the runs. In a loop,
 *   make the call once, and set only what changes.
 * - A function that fails returns a status other than LOGITLESS_OK, and logitless_last_error() says in one
 *   line what was wrong. No C++ exception leaves a call.
 * - If a setter fails, the call's next run, forward, backward, plan or slice fails with the same message and
 *   computes nothing: it is enough to check those. Unsetting the same name withdraws the failure.
 * - One thread at a time may use a call, or change a context. A call copies its context when it is made.
 */
#ifndef LOGITLESS_C_API_H
#define LOGITLESS_C_API_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define LOGITLESS_C_API __attribute__((visibility("default")))
#else
#define LOGITLESS_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** The outcome of a function. */
typedef enum logitless_status {
  LOGITLESS_OK = 0,
  LOGITLESS_INVALID_INPUT = 1,   /**< a key, value or tensor is refused; no output was written */
  LOGITLESS_OUT_OF_MEMORY = 2,   /**< an allocation failed */
  LOGITLESS_CALLBACK_FAILED = 3, /**< a callback returned a value other than 0, or threw */
  LOGITLESS_INTERNAL_ERROR = 4,  /**< a defect of the library, or a callback that breaks its contract */
  LOGITLESS_RANK_FAILED = 5      /**< another rank has failed; the message says which, and why */
} logitless_status;

/** The types of elements. */
typedef enum logitless_dtype {
  LOGITLESS_FLOAT32 = 0,
  LOGITLESS_BFLOAT16 = 1,
  LOGITLESS_FLOAT64 = 2,
  LOGITLESS_FLOAT16 = 3,
  LOGITLESS_INT32 = 4,
  LOGITLESS_INT64 = 5,
  LOGITLESS_UINT8 = 6
} logitless_dtype;

/** A view of memory: element (i, j, k) is data[i strides[0] + j strides[1] + k strides[2]]. */
typedef struct logitless_tensor {
  void* data;         /**< element (0, 0, 0) */
  int32_t dtype;      /**< logitless_dtype */
  int32_t axes;       /**< 1 to 3 */
  int64_t sizes[3];   /**< those beyond `axes` are not read */
  int64_t strides[3]; /**< in elements; all 0: row-major and dense. A weight [H, V] is [V, H] with strides {1, V} */
} logitless_tensor;

/** Returns the message of this thread's last failure, or "". The text lives until its next failure. */
LOGITLESS_C_API const char* logitless_last_error(void);
/** Returns the version of the library that runs, e.g. "0.3.0". */
LOGITLESS_C_API const char* logitless_version(void);
/** Returns the keys and results of a task, a line each; for NULL the tasks, and the options of a context. The
 * text lives until this thread calls logitless_describe or logitless_info again. NULL: there is no such task. */
LOGITLESS_C_API const char* logitless_describe(const char* task);

/* ---- How calls run ---- */

/** Threads, memory, plan, instruction set, ranks: ContextOptions of context.h. */
typedef struct logitless_context logitless_context;

/** Makes a context with the defaults; NULL if out of memory. */
LOGITLESS_C_API logitless_context* logitless_context_new(void);
/** Frees it. Calls that were made with it are not affected. */
LOGITLESS_C_API void logitless_context_free(logitless_context* context);
/** Sets an option from its text: ("threads", "4"), ("workspace_bytes", "64MiB"), ("plan", "two_pass"),
 * ("slices", "4096,4096"). It applies to calls that are made afterwards. */
LOGITLESS_C_API logitless_status logitless_context_set(logitless_context* context, const char* name, const char* text);

/** Carries bytes between ranks: see Communicator of ranks.h. The functions return 0; any other value ends the
 * call with LOGITLESS_CALLBACK_FAILED. They are called on the thread that made the call, also from within an
 * OpenMP region. What `user` points to must outlive the calls. */
typedef struct logitless_communicator {
  int32_t rank; /**< the place of this rank, in [0, size) */
  int32_t size; /**< the number of ranks */
  /** Every rank gets the `bytes` bytes of rank r at all + r * bytes. */
  int (*all_gather)(void* user, const void* mine, void* all, size_t bytes);
  /** Sends the bytes at mine + r * bytes to rank r, and gets those of rank r at theirs + r * bytes. */
  int (*all_to_all)(void* user, const void* mine, void* theirs, size_t bytes);
  void* user; /**< handed to the functions */
} logitless_communicator;

/** Names the ranks that share the vocabulary ("vocab") or have parts of the batch ("data"); NULL: none. */
LOGITLESS_C_API logitless_status logitless_context_set_ranks(logitless_context* context, const char* name,
                                                             const logitless_communicator* communicator);
/** Returns the CPU, instruction set, BLAS and threads that a context runs on, a line each; NULL: of the
 * defaults. For bug reports. The text lives as logitless_describe's does. */
LOGITLESS_C_API const char* logitless_info(const logitless_context* context);

/* ---- A call ---- */

/** One of the tasks: cross_entropy, policy_loss, preference_loss, kto_loss, soft_cross_entropy,
 * distillation_loss, set_distillation_loss, id_logps, token_stats, custom_loss. docs/losses.md has the
 * formulas. */
typedef struct logitless_call logitless_call;

/** Makes a call of a task; `context` may be NULL, for the defaults. Returns NULL on an error. */
LOGITLESS_C_API logitless_call* logitless_call_new(const logitless_context* context, const char* task);
/** Frees it, and its results. */
LOGITLESS_C_API void logitless_call_free(logitless_call* call);

/** Sets a tensor. The structure is copied, the memory that it points to is not. NULL unsets it. */
LOGITLESS_C_API logitless_status logitless_set_tensor(logitless_call* call, const char* name,
                                                      const logitless_tensor* tensor);
/** Sets a number. */
LOGITLESS_C_API logitless_status logitless_set_number(logitless_call* call, const char* name, double value);
/** Sets an integer, a number, or an option that is on (1) or off (0). */
LOGITLESS_C_API logitless_status logitless_set_integer(logitless_call* call, const char* name, int64_t value);
/** Sets an option from a text: a name, or a list of them ("loss_type", "dapo"; "loss_type", "sigmoid,sft"), a
 * number, or "none" for an optional one. */
LOGITLESS_C_API logitless_status logitless_set_text(logitless_call* call, const char* name, const char* text);
/** Gives the key its default again. */
LOGITLESS_C_API logitless_status logitless_unset(logitless_call* call, const char* name);

/** The loss of a custom_loss: computes the gradients of the tokens `rows` from their statistics. With
 * logitless_get_tensor() it reads "logp", "lse" and other statistics that were asked for, float64 [N], and gets
 * "d_logp" to write into, and "d_lse", "d_entropy", ... if the key fills_lse, ... is 1. A return value other
 * than 0 ends the call with LOGITLESS_CALLBACK_FAILED. */
typedef int (*logitless_evaluate)(void* user, logitless_call* call, const int64_t* rows, int64_t row_count);
/** Sets the loss of a custom_loss; `user` is handed to it. NULL: none. */
LOGITLESS_C_API logitless_status logitless_set_loss(logitless_call* call, logitless_evaluate evaluate, void* user);

/** Receives the finished tiles of d_weight, [count, H] each, in place of d_weight: see WeightGradientSink of
 * gradients.h. The tile lives until it returns. */
typedef int (*logitless_weight_sink)(void* user, int64_t first, int64_t count, const logitless_tensor* tile);
/** Sets the sink; `user` is handed to it. NULL: none. */
LOGITLESS_C_API logitless_status logitless_set_weight_sink(logitless_call* call, logitless_weight_sink sink,
                                                           void* user);

/** Computes the results, and the gradients whose tensors (d_hidden, d_weight, ...) are set. */
LOGITLESS_C_API logitless_status logitless_run(logitless_call* call);
/** Computes the results, and keeps the statistics that logitless_backward() needs. */
LOGITLESS_C_API logitless_status logitless_forward(logitless_call* call);
/** Computes the gradients times the key "upstream": ∂L/∂loss, 1 by default, or of token_stats from d_logp,
 * d_lse, d_entropy, d_cross and d_outside. Tensors and options must be the same as in logitless_forward(). */
LOGITLESS_C_API logitless_status logitless_backward(logitless_call* call);
/** Plans logitless_run(): the results "plan" and "plan.workspace_bytes", ... It writes no output. */
LOGITLESS_C_API logitless_status logitless_plan(logitless_call* call);
/** Folds this rank's slice of the vocabulary (slices.h, keys slice_first and slice_vocab_size) into the result
 * "slice", uint8 [N, bytes]. Set the bytes of all slices as "gathered", then run. */
LOGITLESS_C_API logitless_status logitless_slice(logitless_call* call);

/** Reads a number: "loss", a metric; NaN if it has no meaning or no option asked for it. */
LOGITLESS_C_API logitless_status logitless_get_number(logitless_call* call, const char* name, double* value);
/** Reads an integer: a count, a member of a plan. */
LOGITLESS_C_API logitless_status logitless_get_integer(logitless_call* call, const char* name, int64_t* value);
/** Reads any number or text, such as "plan", as text, which lives until the call is used again. */
LOGITLESS_C_API logitless_status logitless_get_text(logitless_call* call, const char* name, const char** text);
/** Reads a tensor: a view of the call's memory, until its next run, forward, backward or slice. */
LOGITLESS_C_API logitless_status logitless_get_tensor(logitless_call* call, const char* name, logitless_tensor* tensor);

/** These set dense tensors of one, two and three axes. Inputs may be const. */
static inline logitless_status logitless_set_1d(logitless_call* call, const char* name, const void* data, int32_t dtype,
                                                int64_t a) {
  const logitless_tensor tensor = {(void*)data, dtype, 1, {a, 0, 0}, {0, 0, 0}};
  return logitless_set_tensor(call, name, &tensor);
}
static inline logitless_status logitless_set_2d(logitless_call* call, const char* name, const void* data, int32_t dtype,
                                                int64_t a, int64_t b) {
  const logitless_tensor tensor = {(void*)data, dtype, 2, {a, b, 0}, {0, 0, 0}};
  return logitless_set_tensor(call, name, &tensor);
}
static inline logitless_status logitless_set_3d(logitless_call* call, const char* name, const void* data, int32_t dtype,
                                                int64_t a, int64_t b, int64_t c) {
  const logitless_tensor tensor = {(void*)data, dtype, 3, {a, b, c}, {0, 0, 0}};
  return logitless_set_tensor(call, name, &tensor);
}

#ifdef __cplusplus
}
#endif

#endif /* LOGITLESS_C_API_H */
