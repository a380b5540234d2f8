/* Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * The whole library for C99, and for every language that can call C. A call is an object: its tensors and
 * options are set by name, and its results are read by name:
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
 * logitless_describe("cross_entropy") lists the keys and results of a task: types, defaults, ranges.
 *
 * - Tensors are views of your memory. Every run reads and writes it in place, so it must outlive the runs. In
 *   a loop, create the call once and set only what changes.
 * - A function that fails returns a status other than LOGITLESS_OK, and logitless_last_error() returns the
 *   reason in one line. No C++ exception reaches the caller.
 * - If a setter of a call, or of the context that it was made from, fails, the call's next run, forward,
 *   backward, plan or slice fails with the same message and computes nothing, so checking those is enough.
 *   Unsetting the call's name, or setting the context's again, clears the failure.
 * - Only one thread at a time may use a call or change a context. A call copies its context on creation.
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

/** The result of a function. */
typedef enum logitless_status {
  LOGITLESS_OK = 0,
  LOGITLESS_INVALID_INPUT = 1,   /**< a key, value or tensor was refused; no output was written */
  LOGITLESS_OUT_OF_MEMORY = 2,   /**< an allocation failed */
  LOGITLESS_CALLBACK_FAILED = 3, /**< a callback returned a nonzero value, or threw */
  LOGITLESS_INTERNAL_ERROR = 4,  /**< a bug in the library, or a callback broke its contract */
  LOGITLESS_RANK_FAILED = 5      /**< another rank failed; the message says which, and why */
} logitless_status;

/** Element types. */
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
  int64_t sizes[3];   /**< entries beyond `axes` are not read */
  int64_t strides[3]; /**< in elements; all 0: row-major and dense. A weight stored as [H, V] is [V, H] with strides {1,
                         V} */
} logitless_tensor;

/** Returns the message of this thread's last failure, or "". Valid until this thread's next failure. */
LOGITLESS_C_API const char* logitless_last_error(void);
/** Returns the version of the library at run time, e.g. "0.3.0". */
LOGITLESS_C_API const char* logitless_version(void);
/** Returns the keys and results of a task, one per line; for NULL, the tasks and the options of a context.
 * Returns NULL for an unknown task. Valid until this thread calls logitless_describe or logitless_info again. */
LOGITLESS_C_API const char* logitless_describe(const char* task);

/* ---- How calls run ---- */

/** The options for how calls run (threads, memory, plan, instruction set, ranks): see ContextOptions. */
typedef struct logitless_context logitless_context;

/** Creates a context with the defaults; returns NULL if out of memory. */
LOGITLESS_C_API logitless_context* logitless_context_new(void);
/** Frees a context. Calls created with it are not affected. */
LOGITLESS_C_API void logitless_context_free(logitless_context* context);
/** Sets an option from its text: ("threads", "4"), ("workspace_bytes", "64MiB"), ("plan", "two_pass"),
 * ("slices", "4096,4096"). Applies to calls created afterwards. */
LOGITLESS_C_API logitless_status logitless_context_set(logitless_context* context, const char* name, const char* text);

/** Carries bytes between ranks: see Communicator in ranks.h. The functions return 0; any other value ends the
 * call with LOGITLESS_CALLBACK_FAILED. They are called on the thread that made the call, possibly within an
 * OpenMP region. `user` must outlive the calls. */
typedef struct logitless_communicator {
  int32_t rank; /**< the index of this rank, in [0, size) */
  int32_t size; /**< the number of ranks */
  /** Sends `bytes` bytes at `mine` to every rank, and receives rank r's bytes at all + r * bytes. */
  int (*all_gather)(void* user, const void* mine, void* all, size_t bytes);
  /** Sends the `bytes` bytes at mine + r * bytes to rank r, and receives rank r's bytes at theirs + r * bytes. */
  int (*all_to_all)(void* user, const void* mine, void* theirs, size_t bytes);
  void* user; /**< passed to the functions */
} logitless_communicator;

/** Sets the ranks that share the vocabulary ("vocab") or the batch ("data"); NULL: none. */
LOGITLESS_C_API logitless_status logitless_context_set_ranks(logitless_context* context, const char* name,
                                                             const logitless_communicator* communicator);
/** Returns the CPU, instruction set, BLAS and threads that a context uses, one per line; NULL: the defaults.
 * For bug reports. Valid until this thread calls logitless_describe or logitless_info again. */
LOGITLESS_C_API const char* logitless_info(const logitless_context* context);

/* ---- A call ---- */

/** A call of one task: cross_entropy, policy_loss, preference_loss, kto_loss, soft_cross_entropy,
 * distillation_loss, set_distillation_loss, id_logps, token_stats, custom_loss. docs/losses.md has the
 * formulas. */
typedef struct logitless_call logitless_call;

/** Creates a call of a task; `context` may be NULL, for the defaults. Returns NULL on error. */
LOGITLESS_C_API logitless_call* logitless_call_new(const logitless_context* context, const char* task);
/** Frees a call and its results. */
LOGITLESS_C_API void logitless_call_free(logitless_call* call);

/** Sets a tensor. The structure is copied, but not the memory that it points to. NULL unsets it. */
LOGITLESS_C_API logitless_status logitless_set_tensor(logitless_call* call, const char* name,
                                                      const logitless_tensor* tensor);
/** Sets a number. */
LOGITLESS_C_API logitless_status logitless_set_number(logitless_call* call, const char* name, double value);
/** Sets an integer, a number, or an option to on (1) or off (0). */
LOGITLESS_C_API logitless_status logitless_set_integer(logitless_call* call, const char* name, int64_t value);
/** Sets an option from text: a name, or a list of names ("loss_type", "dapo"; "loss_type", "sigmoid,sft"), a
 * number, or "none" for an optional one. */
LOGITLESS_C_API logitless_status logitless_set_text(logitless_call* call, const char* name, const char* text);
/** Resets a key to its default. */
LOGITLESS_C_API logitless_status logitless_unset(logitless_call* call, const char* name);

/** The loss of a custom_loss: computes the gradients of the tokens `rows` from their statistics. It calls
 * logitless_get_tensor() to read "logp", "lse" and other requested statistics, float64 [N], and to get the
 * tensors to write: "d_logp", and "d_lse", "d_entropy", ... if the key fills_lse, ... is 1. The task has no
 * result "loss": sum it here. The calls of a run do not overlap, but may come from different threads. A nonzero
 * return value ends the call with LOGITLESS_CALLBACK_FAILED. */
typedef int (*logitless_evaluate)(void* user, logitless_call* call, const int64_t* rows, int64_t row_count);
/** Sets the loss of a custom_loss; `user` is passed to it. NULL: none. */
LOGITLESS_C_API logitless_status logitless_set_loss(logitless_call* call, logitless_evaluate evaluate, void* user);

/** Receives the finished tiles of d_weight, [count, H] each, in place of d_weight: see WeightGradientSink in
 * gradients.h. The tile is valid until the callback returns. */
typedef int (*logitless_weight_sink)(void* user, int64_t first, int64_t count, const logitless_tensor* tile);
/** Sets the sink; `user` is passed to it. NULL: none. */
LOGITLESS_C_API logitless_status logitless_set_weight_sink(logitless_call* call, logitless_weight_sink sink,
                                                           void* user);

/** Computes the results, and the gradients whose tensors (d_hidden, d_weight, ...) are set. */
LOGITLESS_C_API logitless_status logitless_run(logitless_call* call);
/** Computes the results, and stores the statistics that logitless_backward() needs. */
LOGITLESS_C_API logitless_status logitless_forward(logitless_call* call);
/** Computes the gradients times the key "upstream" (∂L/∂loss, 1 by default); for token_stats, the gradients
 * given d_logp, d_lse, d_entropy, d_cross, d_outside and d_square_sum. Tensors and options must be the same as in
 * logitless_forward(). */
LOGITLESS_C_API logitless_status logitless_backward(logitless_call* call);
/** Plans logitless_run(): sets the results "plan", "plan.workspace_bytes", ... and writes no output. */
LOGITLESS_C_API logitless_status logitless_plan(logitless_call* call);
/** Folds this rank's slice of the vocabulary (fold_slice() in run.h; keys slice_first and slice_vocab_size)
 * into the result "slice", uint8 [N, bytes]. Then set the bytes of all slices as "gathered", and run. */
LOGITLESS_C_API logitless_status logitless_slice(logitless_call* call);

/** Reads a number: "loss", or a metric; NaN if undefined or not requested. */
LOGITLESS_C_API logitless_status logitless_get_number(logitless_call* call, const char* name, double* value);
/** Reads an integer: a count, or a member of a plan. */
LOGITLESS_C_API logitless_status logitless_get_integer(logitless_call* call, const char* name, int64_t* value);
/** Reads any number or text, such as "plan", as text. Valid until the call is used again. */
LOGITLESS_C_API logitless_status logitless_get_text(logitless_call* call, const char* name, const char** text);
/** Reads a tensor: a view of the call's memory, valid until its next run, forward, backward or slice. */
LOGITLESS_C_API logitless_status logitless_get_tensor(logitless_call* call, const char* name, logitless_tensor* tensor);

/** Sets a dense tensor with one, two or three axes. Inputs may be const. */
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
