/* Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * The whole library for C99, and for every language that calls C. What a call computes, and what it
 * asks of its input, stands in the C++ header of the same name (cross_entropy.h, policy.h, preference.h,
 * token_stats.h, logits.h); here stands how C says it.
 *
 * - Every function that can fail returns a logitless_status. logitless_last_error() then tells the calling
 *   thread in one line what was wrong. No C++ exception leaves a call, and a call that is refused has written
 *   nothing.
 * - A structure that may grow begins with struct_size. LOGITLESS_INIT(name, pointer) sets it, and every other
 *   member to its default: call it before you set members. A program that was compiled with an older header
 *   goes on working with a newer library of the same SONAME; the other way round it is told so.
 * - Tensors are the caller's, and are read and written where they stand. So are the arrays of results: a
 *   null pointer stands for one that is not wanted.
 * - An optional number is NAN where it is not set.
 * - Handles (context, workspace, forward, environment) are freed by the function of that name;
 *   freeing a null pointer does nothing. A context may serve several threads at once.
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

/** What became of a call. */
typedef enum logitless_status {
  LOGITLESS_OK = 0,
  LOGITLESS_INVALID_INPUT = 1,   /**< an argument breaks its contract; nothing was written */
  LOGITLESS_OUT_OF_MEMORY = 2,   /**< an allocation failed */
  LOGITLESS_CALLBACK_FAILED = 3, /**< a callback returned something else than 0, or threw: the text has what() */
  LOGITLESS_INTERNAL_ERROR = 4,  /**< a defect of the library, or a callback that breaks its contract */
  LOGITLESS_RANK_FAILED = 5      /**< another rank has failed; the text says which, and with what */
} logitless_status;

/** Returns what the last call of this thread that failed said, or "" where none has. The text lives until this
 * thread calls again. */
LOGITLESS_C_API const char* logitless_last_error(void);
/** Returns the version of the library that runs, e.g. "0.3.0". */
LOGITLESS_C_API const char* logitless_version(void);

/** Makes the structure that `pointer` points to one of the defaults; `name` is its type's, without logitless_. */
#define LOGITLESS_INIT(name, pointer) logitless_##name##_init((pointer), sizeof *(pointer))

/* ---- Names. A function returns NULL beyond the last value, so that it lists all of them. ---- */

/** The types of elements. Members that hold one are int32_t, as are those of every enumeration. */
typedef enum logitless_dtype {
  LOGITLESS_NO_DTYPE = -1,
  LOGITLESS_FLOAT32 = 0,
  LOGITLESS_BFLOAT16 = 1,
  LOGITLESS_FLOAT64 = 2,
  LOGITLESS_FLOAT16 = 3
} logitless_dtype;

/** See PlanKind. */
typedef enum logitless_plan_kind {
  LOGITLESS_PLAN_AUTO = 0,
  LOGITLESS_PLAN_FORWARD_ONLY = 1,
  LOGITLESS_PLAN_ONE_PASS = 2,
  LOGITLESS_PLAN_TWO_PASS = 3,
  LOGITLESS_PLAN_DENSE = 4,
  LOGITLESS_PLAN_EXPECTED_ROW = 5
} logitless_plan_kind;

/** See GradientPrecision. */
typedef enum logitless_gradient_precision {
  LOGITLESS_PRECISION_NATIVE = 0,
  LOGITLESS_PRECISION_SPLIT = 1,
  LOGITLESS_PRECISION_FLOAT32 = 2
} logitless_gradient_precision;

/** See Packing. */
typedef enum logitless_packing {
  LOGITLESS_INT8 = 0,
  LOGITLESS_Q8_0 = 1,
  LOGITLESS_Q4_0 = 2,
  LOGITLESS_Q4_K = 3,
  LOGITLESS_Q5_K = 4,
  LOGITLESS_Q6_K = 5,
  LOGITLESS_NF4 = 6
} logitless_packing;

/** See HeadLayout. */
typedef enum logitless_head_layout { LOGITLESS_HIDDEN_VOCAB = 0, LOGITLESS_VOCAB_HIDDEN = 1 } logitless_head_layout;

/** See WriteMode. */
typedef enum logitless_write_mode { LOGITLESS_OVERWRITE = 0, LOGITLESS_ACCUMULATE = 1 } logitless_write_mode;

/** See EntriesPer. */
typedef enum logitless_entries_per {
  LOGITLESS_BY_SIZE = 0,
  LOGITLESS_PER_SEQUENCE = 1,
  LOGITLESS_PER_TOKEN = 2
} logitless_entries_per;

/** See TemperatureMeaning. */
typedef enum logitless_temperature_meaning {
  LOGITLESS_SCALE_LOGITS = 0,
  LOGITLESS_SCALE_LOGP = 1
} logitless_temperature_meaning;

/** See NormaliseOver. */
typedef enum logitless_normalise_over {
  LOGITLESS_OVER_VOCABULARY = 0,
  LOGITLESS_OVER_SET = 1
} logitless_normalise_over;

/** See Reduction. */
typedef enum logitless_reduction {
  LOGITLESS_MEAN = 0,
  LOGITLESS_SUM = 1,
  LOGITLESS_NO_REDUCTION = 2
} logitless_reduction;

/** See PolicyVariant. */
typedef enum logitless_policy_variant {
  LOGITLESS_GRPO = 0,
  LOGITLESS_BNPO = 1,
  LOGITLESS_DR_GRPO = 2,
  LOGITLESS_DAPO = 3,
  LOGITLESS_CISPO = 4,
  LOGITLESS_SAPO = 5,
  LOGITLESS_LUSPO = 6,
  LOGITLESS_VESPO = 7,
  LOGITLESS_REINFORCE = 8,
  LOGITLESS_RLOO = 9,
  LOGITLESS_PPO = 10,
  LOGITLESS_IMPORTANCE_SAMPLING = 11,
  LOGITLESS_DPPO = 12,
  LOGITLESS_GMPO = 13,
  LOGITLESS_DRO = 14,
  LOGITLESS_TOPR = 15,
  LOGITLESS_CLIP_COV = 16,
  LOGITLESS_KL_COV = 17
} logitless_policy_variant;

/** See PolicyAggregation. */
typedef enum logitless_policy_aggregation {
  LOGITLESS_DEFAULT_AGGREGATION = 0,
  LOGITLESS_TOKEN_MEAN = 1,
  LOGITLESS_TOKEN_SUM = 2,
  LOGITLESS_SEQ_MEAN_TOKEN_SUM = 3,
  LOGITLESS_SEQ_MEAN_TOKEN_MEAN = 4,
  LOGITLESS_SEQ_MEAN_TOKEN_SUM_NORM = 5
} logitless_policy_aggregation;

/** See TrustRegion. */
typedef enum logitless_trust_region {
  LOGITLESS_DEFAULT_TRUST_REGION = 0,
  LOGITLESS_NO_TRUST_REGION = 1,
  LOGITLESS_TRUST_REGION_TV = 2,
  LOGITLESS_TRUST_REGION_TV_BOTH = 3,
  LOGITLESS_TRUST_REGION_KL = 4
} logitless_trust_region;

/** See KlEstimator. */
typedef enum logitless_kl_estimator {
  LOGITLESS_K1 = 0,
  LOGITLESS_K2 = 1,
  LOGITLESS_K3 = 2,
  LOGITLESS_KL_ABS = 3,
  LOGITLESS_K1_PLUS = 4,
  LOGITLESS_K3_PLUS = 5
} logitless_kl_estimator;

/** See ImportanceLevel. */
typedef enum logitless_importance_level {
  LOGITLESS_TOKEN_RATIO = 0,
  LOGITLESS_SEQUENCE_RATIO = 1
} logitless_importance_level;

/** See SamplerCorrection. */
typedef enum logitless_sampler_correction {
  LOGITLESS_NO_CORRECTION = 0,
  LOGITLESS_TOKEN_TRUNCATE = 1,
  LOGITLESS_TOKEN_MASK = 2,
  LOGITLESS_SEQUENCE_TRUNCATE = 3,
  LOGITLESS_SEQUENCE_MASK = 4,
  LOGITLESS_GEOMETRIC_MASK = 5
} logitless_sampler_correction;

/** See TeacherAgainst. */
typedef enum logitless_teacher_against {
  LOGITLESS_AGAINST_CURRENT = 0,
  LOGITLESS_AGAINST_OLD = 1,
  LOGITLESS_AGAINST_SAMPLING = 2
} logitless_teacher_against;

/** See PreferenceLoss. */
typedef enum logitless_preference_loss_kind {
  LOGITLESS_SIGMOID = 0,
  LOGITLESS_HINGE = 1,
  LOGITLESS_IPO = 2,
  LOGITLESS_EXO_PAIR = 3,
  LOGITLESS_NCA_PAIR = 4,
  LOGITLESS_ROBUST = 5,
  LOGITLESS_BCO_PAIR = 6,
  LOGITLESS_SPPO_HARD = 7,
  LOGITLESS_APO_ZERO = 8,
  LOGITLESS_APO_DOWN = 9,
  LOGITLESS_AOT = 10,
  LOGITLESS_AOT_UNPAIRED = 11,
  LOGITLESS_DISCOPOP = 12,
  LOGITLESS_SFT = 13,
  LOGITLESS_ORPO = 14,
  LOGITLESS_SIMPO = 15,
  LOGITLESS_CPO = 16,
  LOGITLESS_SIGMOID_NORM = 17
} logitless_preference_loss_kind;

/** See FDivergence. */
typedef enum logitless_f_divergence {
  LOGITLESS_F_REVERSE_KL = 0,
  LOGITLESS_F_FORWARD_KL = 1,
  LOGITLESS_F_JS = 2,
  LOGITLESS_F_ALPHA = 3
} logitless_f_divergence;

/** See UnpairedLoss. */
typedef enum logitless_unpaired_loss {
  LOGITLESS_KTO = 0,
  LOGITLESS_APO_ZERO_UNPAIRED = 1,
  LOGITLESS_BCO = 2,
  LOGITLESS_A2PO = 3
} logitless_unpaired_loss;

/** See Divergence. */
typedef enum logitless_divergence {
  LOGITLESS_FORWARD_KL = 0,
  LOGITLESS_REVERSE_KL = 1,
  LOGITLESS_JSD = 2,
  LOGITLESS_SKEW_KL = 3,
  LOGITLESS_SKEW_REVERSE_KL = 4,
  LOGITLESS_TOTAL_VARIATION = 5,
  LOGITLESS_MIXED_KL = 6,
  LOGITLESS_ACCEPTANCE = 7,
  LOGITLESS_LK_HYBRID = 8
} logitless_divergence;

/** See BackwardMode. */
typedef enum logitless_backward_mode {
  LOGITLESS_BACKWARD_EXACT = 0,
  LOGITLESS_BACKWARD_SAMPLED = 1,
  LOGITLESS_BACKWARD_CERTIFIED = 2
} logitless_backward_mode;

/** See MeanOver. */
typedef enum logitless_mean_over {
  LOGITLESS_OVER_TOKENS = 0,
  LOGITLESS_OVER_SEQUENCES = 1,
  LOGITLESS_OVER_SEQUENCE_MEANS = 2
} logitless_mean_over;

/** See SequenceLogps. */
typedef enum logitless_sequence_logps {
  LOGITLESS_LOGPS_ARE_SUMS = 0,
  LOGITLESS_LOGPS_ARE_AVERAGES = 1
} logitless_sequence_logps;

/** See OutsideSet. */
typedef enum logitless_outside_set {
  LOGITLESS_OUTSIDE_TAIL = 0,
  LOGITLESS_OUTSIDE_TRUNCATED = 1,
  LOGITLESS_OUTSIDE_RENORMALISED = 2,
  LOGITLESS_OUTSIDE_TEACHER_RENORMALISED = 3,
  LOGITLESS_OUTSIDE_GENERALISED = 4
} logitless_outside_set;

LOGITLESS_C_API const char* logitless_dtype_name(int32_t dtype);                    /**< e.g. "bfloat16" */
LOGITLESS_C_API const char* logitless_plan_kind_name(int32_t kind);                 /**< e.g. "two_pass" */
LOGITLESS_C_API const char* logitless_gradient_precision_name(int32_t precision);   /**< e.g. "split" */
LOGITLESS_C_API const char* logitless_backward_mode_name(int32_t mode);             /**< e.g. "sampled" */
LOGITLESS_C_API const char* logitless_packing_name(int32_t packing);                /**< e.g. "q6_k" */
LOGITLESS_C_API const char* logitless_policy_variant_name(int32_t variant);         /**< e.g. "dr_grpo" */
LOGITLESS_C_API const char* logitless_kl_estimator_name(int32_t estimator);         /**< e.g. "k3" */
LOGITLESS_C_API const char* logitless_policy_aggregation_name(int32_t aggregation); /**< e.g. "token_mean" */
LOGITLESS_C_API const char* logitless_trust_region_name(int32_t region);            /**< e.g. "tv" */
LOGITLESS_C_API const char* logitless_importance_level_name(int32_t level);         /**< e.g. "sequence" */
LOGITLESS_C_API const char* logitless_sampler_correction_name(int32_t correction);  /**< e.g. "token_mask" */
LOGITLESS_C_API const char* logitless_teacher_against_name(int32_t against);        /**< e.g. "sampling" */
LOGITLESS_C_API const char* logitless_preference_loss_name(int32_t loss);           /**< e.g. "apo_zero" */
LOGITLESS_C_API const char* logitless_f_divergence_name(int32_t divergence);        /**< e.g. "forward_kl" */
LOGITLESS_C_API const char* logitless_unpaired_loss_name(int32_t loss);             /**< e.g. "bco" */
LOGITLESS_C_API const char* logitless_divergence_name(int32_t divergence);          /**< e.g. "reverse_kl" */
LOGITLESS_C_API const char* logitless_outside_set_name(int32_t outside);            /**< e.g. "tail" */
LOGITLESS_C_API const char* logitless_gemm_backend_name(size_t index);              /**< best first */
LOGITLESS_C_API const char* logitless_simd_target_name(size_t index);               /**< best first */
/** Tells whether the loss compares with a reference model; 0 for what is no loss. */
LOGITLESS_C_API int logitless_needs_reference(int32_t loss);

/* ---- Tensors (tensors.h). A stride of 0 means that rows, or sequences, follow one another. ---- */

/** A row-major matrix that is read. */
typedef struct logitless_const_matrix {
  const void* data; /**< element (0, 0); NULL: there is none */
  int32_t dtype;
  int64_t rows, cols, stride; /**< in elements */
} logitless_const_matrix;

/** See PackedMatrix. */
typedef struct logitless_packed_matrix {
  const void* data; /**< row 0; NULL, with 0 rows and columns: there is none */
  int32_t packing;  /**< logitless_packing */
  int64_t rows, cols;
  int64_t row_bytes;   /**< from one row to the next, in bytes; 0: they follow one another */
  const float* scales; /**< of int8 and nf4: [rows, cols / group] */
  int64_t group;       /**< of int8 and nf4, even for nf4; 0: all numbers of a row */
} logitless_packed_matrix;

/** A row-major matrix that is written. */
typedef struct logitless_matrix {
  void* data; /**< element (0, 0); NULL: it is not wanted */
  int32_t dtype;
  int64_t rows, cols, stride; /**< in elements */
} logitless_matrix;

/** A vector that is read. */
typedef struct logitless_const_vector {
  const void* data; /**< element 0; NULL: there is none */
  int32_t dtype;
  int64_t size;
} logitless_const_vector;

/** A vector that is written. */
typedef struct logitless_vector {
  void* data; /**< element 0; NULL: it is not wanted */
  int32_t dtype;
  int64_t size;
} logitless_vector;

/** See HiddenStates. */
typedef struct logitless_hidden_states {
  size_t struct_size;
  logitless_const_matrix states; /**< [N, H] */
  int64_t sequences;             /**< of equal length; 1 by default */
  const int64_t* offsets;        /**< packed sequences, or NULL */
  size_t offset_count;           /**< sequences + 1 */
  int64_t batch_stride;          /**< from one sequence to the next */
} logitless_hidden_states;

/** See LmHead. */
typedef struct logitless_lm_head {
  size_t struct_size;
  logitless_const_matrix weight;
  int32_t layout; /**< LOGITLESS_VOCAB_HIDDEN by default */
  logitless_const_vector bias;
  double softcap;                 /**< 0: none */
  logitless_packed_matrix packed; /**< in place of weight: frozen */
  const int64_t* ids;             /**< which entries of the weight the call is over, or NULL: all */
  size_t id_count;
  logitless_const_matrix lora_a;      /**< [r, H]: logits += lora_scale (x aᵀ) bᵀ; data NULL: none */
  logitless_const_matrix lora_b;      /**< [V, r] */
  double lora_scale;                  /**< 1 by default */
  logitless_const_matrix lora_states; /**< [N, r], in place of lora_scale x aᵀ */
} logitless_lm_head;

/** See Logits: finished ones, [B, T, V]. */
typedef struct logitless_logits {
  size_t struct_size;
  const void* data;
  int32_t dtype;
  int64_t batch, time, vocab;
  int64_t batch_stride, row_stride;
} logitless_logits;

/** What a loss is taken of: hidden states and a head, or finished logits. */
typedef struct logitless_source {
  size_t struct_size;
  const logitless_hidden_states* hidden; /**< with `head` */
  const logitless_lm_head* head;
  const logitless_logits* logits; /**< instead of the two */
} logitless_source;

/** See Targets. */
typedef struct logitless_targets {
  size_t struct_size;
  const int32_t* data32; /**< id 0, or NULL */
  const int64_t* data64; /**< id 0, where data32 is NULL */
  int64_t size;          /**< N */
  int64_t stride;        /**< from one id to the next of its sequence; 0: they follow one another */
  int64_t time;          /**< ids of a sequence; 0: one sequence holds all */
  int64_t batch_stride;  /**< from one sequence to the next; 0: they follow one another */
} logitless_targets;

/** Receives a finished tile of d_weight: see WeightGradientSink. What is not 0 ends the call with
 * LOGITLESS_CALLBACK_FAILED. `tile` lives until it returns. */
typedef int (*logitless_weight_sink)(void* user, int64_t first, int64_t count, const logitless_const_matrix* tile);

/** See BackwardOptions. */
typedef struct logitless_backward_options {
  size_t struct_size;
  int32_t mode; /**< LOGITLESS_BACKWARD_EXACT by default */
  double noise, theta, tolerance;
  int64_t seed;
} logitless_backward_options;

/** See Gradients and LogitsGradient. Left at its defaults it asks for none. */
typedef struct logitless_gradients {
  size_t struct_size;
  logitless_matrix d_hidden, d_weight;
  logitless_vector d_bias;
  int32_t d_hidden_mode, d_weight_mode, d_bias_mode; /**< LOGITLESS_OVERWRITE by default */
  logitless_weight_sink weight_sink;                 /**< takes the place of d_weight.data */
  void* weight_sink_user;                            /**< handed to it */
  int64_t d_hidden_batch_stride;
  void* d_logits; /**< [B, T, V], of finished logits */
  int32_t d_logits_dtype;
  int64_t d_logits_batch_stride, d_logits_row_stride;
  const logitless_backward_options* backward;         /**< NULL: exact */
  logitless_matrix d_lora_a, d_lora_b, d_lora_states; /**< [r, H], [V, r] and [N, r] */
  int32_t d_lora_mode;                                /**< of these; LOGITLESS_OVERWRITE by default */
} logitless_gradients;

LOGITLESS_C_API void logitless_hidden_states_init(logitless_hidden_states* hidden, size_t size);
LOGITLESS_C_API void logitless_lm_head_init(logitless_lm_head* head, size_t size);
LOGITLESS_C_API void logitless_logits_init(logitless_logits* logits, size_t size);
LOGITLESS_C_API void logitless_source_init(logitless_source* source, size_t size);
LOGITLESS_C_API void logitless_targets_init(logitless_targets* targets, size_t size);
LOGITLESS_C_API void logitless_backward_options_init(logitless_backward_options* options, size_t size);
LOGITLESS_C_API void logitless_gradients_init(logitless_gradients* gradients, size_t size);

/* ---- Context, workspace, environment (context.h, workspace.h, environment.h) ---- */

/** Memory that calls use again. */
typedef struct logitless_workspace logitless_workspace;
/** How calls run. */
typedef struct logitless_context logitless_context;

/** See Communicator: it carries bytes between ranks. The functions get `user`, return 0, and anything else ends
 * the call with LOGITLESS_CALLBACK_FAILED. They are called on the thread that made the call, also from within an
 * OpenMP region of it. It, and what `user` points to, must outlive the contexts that name it. */
typedef struct logitless_communicator {
  size_t struct_size;
  int32_t rank, size;
  int (*all_gather)(void* user, const void* mine, void* all, size_t bytes);
  int (*all_to_all)(void* user, const void* mine, void* theirs, size_t bytes);
  void* user;
} logitless_communicator;
LOGITLESS_C_API void logitless_communicator_init(logitless_communicator* communicator, size_t size);

/** See ContextOptions. */
typedef struct logitless_context_options {
  size_t struct_size;
  int32_t threads;
  size_t workspace_bytes;
  logitless_workspace* workspace; /**< must outlive the calls of the context */
  int32_t plan;
  int64_t row_tile, vocab_tile, row_block;
  const char* gemm_backend; /**< NULL: "auto" */
  int32_t gradient_precision;
  const char* simd_target;                   /**< NULL: "auto" */
  const logitless_communicator* vocab_ranks; /**< ranks that share the vocabulary, or NULL; see Ranks */
  const int64_t* slices;                     /**< the vocabulary entries of each of this rank's slices, or NULL */
  size_t slice_count;
  int32_t own_d_hidden;                     /**< not 0: d_hidden is the sum over this rank's own vocabulary entries */
  const logitless_communicator* data_ranks; /**< ranks that have parts of the batch, or NULL */
  int32_t sum_d_weight;                     /**< not 0: gradients of the head are summed over data_ranks, see Ranks */
  /** A slice of a vocabulary that meets nobody (VocabSlice): where it begins, the size of the whole, which is 0 where
   * there is no such slice, and the bytes of all slices, or NULL, which must outlive the calls of the context. */
  int64_t slice_first, slice_vocab_size;
  const void* gathered;
  size_t gathered_bytes;
} logitless_context_options;

LOGITLESS_C_API void logitless_context_options_init(logitless_context_options* options, size_t size);
/** Makes a context; `options` may be NULL. */
LOGITLESS_C_API logitless_status logitless_context_create(const logitless_context_options* options,
                                                          logitless_context** context);
LOGITLESS_C_API void logitless_context_free(logitless_context* context);
/** See Context. The texts live as long as the context. */
LOGITLESS_C_API int logitless_context_threads(const logitless_context* context);
LOGITLESS_C_API const char* logitless_context_simd_target(const logitless_context* context);
LOGITLESS_C_API const char* logitless_context_gemm_backend(const logitless_context* context);

LOGITLESS_C_API logitless_status logitless_workspace_create(logitless_workspace** workspace);
LOGITLESS_C_API void logitless_workspace_free(logitless_workspace* workspace);
LOGITLESS_C_API size_t logitless_workspace_bytes(const logitless_workspace* workspace);
LOGITLESS_C_API void logitless_workspace_release(logitless_workspace* workspace);

/** See Environment. The library makes it, so that it has no struct_size: new members come last. */
typedef struct logitless_environment {
  const char* version;
  const char* cpu;
  int32_t cores, threads;
  int64_t l1d_bytes, l2_bytes, l3_bytes;
  const char* simd_target;
  const char* gemm_backend;
  const char* gemm_float32;
  const char* gemm_bf16;
  const char* blas_config;
  const char* blas_core;
  const char* blas_threading;
  int32_t blas_max_threads;
  const char* const* warnings;
  size_t warning_count;
  const char* const* simd_targets; /**< best first */
  size_t simd_target_count;
  const char* const* gemm_backends; /**< best first */
  size_t gemm_backend_count;
} logitless_environment;

LOGITLESS_C_API logitless_status logitless_environment_create(const logitless_context* context,
                                                              logitless_environment** environment);
LOGITLESS_C_API void logitless_environment_free(logitless_environment* environment);

/* ---- Plans (plan.h) ---- */

/** See Plan. */
typedef struct logitless_plan {
  size_t struct_size;
  int32_t kind;
  int64_t tokens, active_rows, hidden_size, vocab_size;
  int64_t row_tile, row_block, vocab_tile, hidden_block, chunk_rows;
  char gemm_library[32];
  int32_t gradient_dtype, gradient_terms;
  int32_t threads, tiles_alive;
  size_t workspace_bytes, packed_bytes, least_workspace_bytes, blas_bytes;
  char description[256]; /**< Plan::describe() */
  double kept_share, noise_estimate, d_hidden_bound, d_weight_bound;
} logitless_plan;

LOGITLESS_C_API void logitless_plan_init(logitless_plan* plan, size_t size);

/* ---- Statistics of tokens (token_stats.h) ---- */

/** See TokenOptions. */
typedef struct logitless_token_options {
  size_t struct_size;
  int64_t ignore_index; /**< -100 by default */
  int64_t shift;        /**< position t predicts target t + shift */
  double temperature;   /**< 1 by default */
  const double* temperatures;
  size_t temperature_count; /**< N, or 0 */
  int32_t temperature_meaning;
  int32_t round_logits_to; /**< LOGITLESS_NO_DTYPE by default */
} logitless_token_options;

/** See StatsRequest. */
typedef struct logitless_stats_request {
  size_t struct_size;
  int32_t entropy, cross, argmax, rank; /**< not 0: wanted */
  const float* cross_weights;
  size_t cross_weight_count; /**< V, or 0 */
  int64_t top_k;             /**< 0 (none) to 256 */
  int32_t outside;           /**< not 0: wanted */
  int32_t square_sum;        /**< not 0: wanted */
} logitless_stats_request;

/** See TokenStats: arrays of `tokens` entries, but for top_ids and top_logps, which have tokens · top_k. Those that a
 * call fills may be NULL where they are not wanted. Those that it reads must be there: logp, lse, max_logit and
 * log_sum, and entropy, cross, and outside with outside_max, where the gradients have them. */
typedef struct logitless_token_stats {
  size_t struct_size;
  int64_t tokens; /**< N */
  double *logp, *lse, *entropy, *cross;
  int64_t *argmax, *rank;
  double *max_logit, *log_sum;
  int64_t* top_ids;  /**< [tokens, top_k]; a call that reads statistics has no use for these two */
  double* top_logps; /**< [tokens, top_k] */
  double *outside, *outside_max;
  double* square_sum;
  /** [tokens, hidden_size], or with a LoRA [tokens, hidden_size + r]: TokenStats::expected, of which one may be
   * there: expected_f64 for float64 hidden states, and expected_f32 for others. logitless_compute_token_stats()
   * fills it where the context's plan is LOGITLESS_PLAN_EXPECTED_ROW. */
  float* expected_f32;
  double* expected_f64;
} logitless_token_stats;

/** See TokenGrads: arrays of `tokens` entries; NULL stands for zeros, but logp must be there. */
typedef struct logitless_token_grads {
  size_t struct_size;
  int64_t tokens; /**< N */
  double *logp, *lse, *entropy, *cross;
  double* outside;
} logitless_token_grads;

/** See TokenLoss. */
typedef struct logitless_token_loss {
  size_t struct_size;
  const logitless_stats_request* needs; /**< NULL: logp and lse are enough */
  int32_t fills_lse, fills_entropy, fills_cross;
  int32_t may_drop_rows; /**< 1 by default */
  const int64_t* groups; /**< [N], or NULL */
  size_t group_count;    /**< N, or 0 */
  /** Reads the entries of `stats` for `rows` and sets those of `grads`. What is not 0 ends the call with
   * LOGITLESS_CALLBACK_FAILED. */
  int (*evaluate)(void* user, const int64_t* rows, size_t row_count, const logitless_token_stats* stats,
                  logitless_token_grads* grads);
  void* user;            /**< handed to it */
  int32_t fills_outside; /**< as fills_lse */
} logitless_token_loss;

LOGITLESS_C_API void logitless_token_options_init(logitless_token_options* options, size_t size);
LOGITLESS_C_API void logitless_stats_request_init(logitless_stats_request* request, size_t size);
LOGITLESS_C_API void logitless_token_stats_init(logitless_token_stats* stats, size_t size);
LOGITLESS_C_API void logitless_token_grads_init(logitless_token_grads* grads, size_t size);
LOGITLESS_C_API void logitless_token_loss_init(logitless_token_loss* loss, size_t size);

/** Computes the statistics that `request` names into the arrays of `stats`. Here and below a NULL for options, a
 * request, gradients or a plan stands for the defaults, or for what is not wanted. */
LOGITLESS_C_API logitless_status logitless_compute_token_stats(const logitless_context* context,
                                                               const logitless_source* source,
                                                               const logitless_targets* targets,
                                                               const logitless_token_options* options,
                                                               const logitless_stats_request* request,
                                                               logitless_token_stats* stats, logitless_plan* plan);
/** See slices.h: the bytes that a slice leaves of each token, for hidden states of this type; 0 on an error. */
LOGITLESS_C_API size_t logitless_token_stats_slice_bytes(int32_t hidden_dtype, const logitless_stats_request* request);
/** Folds the slice of the context into `slice`, of `slice_bytes` bytes: those of a token, N times. */
LOGITLESS_C_API logitless_status logitless_token_stats_slice(
    const logitless_context* context, const logitless_source* source, const logitless_targets* targets,
    const logitless_token_options* options, const logitless_stats_request* request, void* slice, size_t slice_bytes);
/** Computes the gradients of any loss of the statistics. */
LOGITLESS_C_API logitless_status logitless_backpropagate_token_grads(
    const logitless_context* context, const logitless_source* source, const logitless_targets* targets,
    const logitless_token_options* options, const logitless_stats_request* request, const logitless_token_stats* stats,
    const logitless_token_grads* grads, const logitless_gradients* gradients, logitless_plan* plan);
/** Computes the statistics, a loss of the caller's, and its gradients. `stats` may be NULL. */
LOGITLESS_C_API logitless_status logitless_run_token_loss(
    const logitless_context* context, const logitless_source* source, const logitless_targets* targets,
    const logitless_token_options* options, const logitless_token_loss* loss, const logitless_gradients* gradients,
    logitless_token_stats* stats, logitless_plan* plan);
/** Plans the first of these. */
LOGITLESS_C_API logitless_status logitless_plan_token_stats(
    const logitless_context* context, const logitless_source* source, const logitless_targets* targets,
    const logitless_token_options* options, const logitless_stats_request* request, logitless_plan* plan);
/** Plans the last of these. */
LOGITLESS_C_API logitless_status logitless_plan_token_loss(const logitless_context* context,
                                                           const logitless_source* source,
                                                           const logitless_targets* targets,
                                                           const logitless_token_options* options,
                                                           const logitless_token_loss* loss,
                                                           const logitless_gradients* gradients, logitless_plan* plan);
/** Computes the entropy [N] of finished logits and, with `upstream` [N], dL/dlogits: see entropy_from_logits(). */
LOGITLESS_C_API logitless_status logitless_entropy_from_logits(const logitless_context* context,
                                                               const logitless_logits* logits,
                                                               const logitless_token_options* options,
                                                               const double* upstream,
                                                               const logitless_gradients* gradients, double* entropy);

/* ---- Losses. Each has five functions: the loss and its gradients in one call; its two halves, for an autograd; what
 * the first of these leaves for the second is freed by logitless_forward_free(); and the plan of the one call. A
 * half that is run backward wants the same source, batch and options again. ---- */

/** What a forward half leaves. */
typedef struct logitless_forward logitless_forward;
LOGITLESS_C_API void logitless_forward_free(logitless_forward* forward);

/** See CrossEntropyOptions. */
typedef struct logitless_cross_entropy_options {
  size_t struct_size;
  const logitless_token_options* token; /**< NULL: the defaults */
  int32_t reduction;
  double label_smoothing, z_loss;
  const float* class_weights;
  size_t class_weight_count; /**< V, or 0 */
  double loss_scale;         /**< 1 by default */
  double normaliser;         /**< optional */
  int32_t want_accuracy, want_entropy;
  int32_t dft;
} logitless_cross_entropy_options;

/** See CrossEntropyResult. The call fills it, but for struct_size and what the arrays are. */
typedef struct logitless_cross_entropy_result {
  size_t struct_size;
  int64_t tokens; /**< entries of the arrays, N; unused where there is none */
  double* per_token_loss;
  double* per_token_logps;
  double loss;
  int64_t counted_tokens; /**< tokens that took part */
  double mean_nll, perplexity, z_loss, accuracy, mean_entropy;
} logitless_cross_entropy_result;

LOGITLESS_C_API void logitless_cross_entropy_options_init(logitless_cross_entropy_options* options, size_t size);
LOGITLESS_C_API void logitless_cross_entropy_result_init(logitless_cross_entropy_result* result, size_t size);
LOGITLESS_C_API logitless_status logitless_cross_entropy(const logitless_context* context,
                                                         const logitless_source* source,
                                                         const logitless_targets* targets,
                                                         const logitless_cross_entropy_options* options,
                                                         const logitless_gradients* gradients,
                                                         logitless_cross_entropy_result* result, logitless_plan* plan);
LOGITLESS_C_API logitless_status logitless_cross_entropy_forward(const logitless_context* context,
                                                                 const logitless_source* source,
                                                                 const logitless_targets* targets,
                                                                 const logitless_cross_entropy_options* options,
                                                                 logitless_cross_entropy_result* result,
                                                                 logitless_plan* plan, logitless_forward** forward);
/** As logitless_token_stats_slice_bytes() and logitless_token_stats_slice(), for this loss and its halves. */
LOGITLESS_C_API size_t logitless_cross_entropy_slice_bytes(int32_t hidden_dtype,
                                                           const logitless_cross_entropy_options* options);
LOGITLESS_C_API logitless_status logitless_cross_entropy_slice(const logitless_context* context,
                                                               const logitless_source* source,
                                                               const logitless_targets* targets,
                                                               const logitless_cross_entropy_options* options,
                                                               void* slice, size_t slice_bytes);
/** `upstream` has one entry, or N under LOGITLESS_NO_REDUCTION. */
LOGITLESS_C_API logitless_status logitless_cross_entropy_backward(
    const logitless_context* context, const logitless_source* source, const logitless_targets* targets,
    const logitless_cross_entropy_options* options, const logitless_forward* forward, const double* upstream,
    size_t upstream_count, const logitless_gradients* gradients, logitless_plan* plan);
LOGITLESS_C_API logitless_status logitless_plan_cross_entropy(
    const logitless_context* context, const logitless_source* source, const logitless_targets* targets,
    const logitless_cross_entropy_options* options, const logitless_gradients* gradients, logitless_plan* plan);

/** See IdSets. */
typedef struct logitless_id_sets {
  size_t struct_size;
  const logitless_targets* ids; /**< [E], or [N, K]: `time` is K then; NULL: there are none */
  const int64_t* offsets;       /**< [N + 1], or NULL: ids is [N, K] */
  size_t offset_count;
  const int64_t* counts; /**< [N], or NULL: K in every row */
  size_t count_count;
} logitless_id_sets;

/** See IdLogpsOptions. */
typedef struct logitless_id_logps_options {
  size_t struct_size;
  const logitless_token_options* token; /**< NULL: the defaults */
  int32_t normalise_over;
} logitless_id_logps_options;

/** See SoftTargets. */
typedef struct logitless_soft_targets {
  size_t struct_size;
  const logitless_id_sets* sets;  /**< sparse, with `weights` */
  logitless_const_vector weights; /**< one for each entry of `sets` */
  logitless_const_matrix rows;    /**< dense: [N, V], instead of the two */
  const uint8_t* mask;            /**< [N], or NULL: all take part */
  size_t mask_count;
} logitless_soft_targets;

/** See SoftCrossEntropyOptions. */
typedef struct logitless_soft_cross_entropy_options {
  size_t struct_size;
  const logitless_token_options* token; /**< NULL: the defaults */
  int32_t reduction, subtract_entropy;
  double loss_scale; /**< 1 by default */
  double normaliser; /**< optional */
} logitless_soft_cross_entropy_options;

/** See SoftCrossEntropyResult. The call fills it, but for struct_size and what the array is. */
typedef struct logitless_soft_cross_entropy_result {
  size_t struct_size;
  int64_t tokens; /**< entries of the array, N; unused where there is none */
  double* per_token_loss;
  double loss;
  int64_t counted_tokens; /**< tokens that took part */
  double mean_cross_entropy, mean_target_entropy, mean_kl;
} logitless_soft_cross_entropy_result;

LOGITLESS_C_API void logitless_id_sets_init(logitless_id_sets* sets, size_t size);
LOGITLESS_C_API void logitless_id_logps_options_init(logitless_id_logps_options* options, size_t size);
LOGITLESS_C_API void logitless_soft_targets_init(logitless_soft_targets* targets, size_t size);
LOGITLESS_C_API void logitless_soft_cross_entropy_options_init(logitless_soft_cross_entropy_options* options,
                                                               size_t size);
LOGITLESS_C_API void logitless_soft_cross_entropy_result_init(logitless_soft_cross_entropy_result* result, size_t size);
LOGITLESS_C_API logitless_status logitless_soft_cross_entropy(
    const logitless_context* context, const logitless_source* source, const logitless_soft_targets* targets,
    const logitless_soft_cross_entropy_options* options, const logitless_gradients* gradients,
    logitless_soft_cross_entropy_result* result, logitless_plan* plan);
LOGITLESS_C_API logitless_status logitless_soft_cross_entropy_forward(
    const logitless_context* context, const logitless_source* source, const logitless_soft_targets* targets,
    const logitless_soft_cross_entropy_options* options, logitless_soft_cross_entropy_result* result,
    logitless_plan* plan, logitless_forward** forward);
/** `upstream` has one entry, or N under LOGITLESS_NO_REDUCTION. */
LOGITLESS_C_API logitless_status logitless_soft_cross_entropy_backward(
    const logitless_context* context, const logitless_source* source, const logitless_soft_targets* targets,
    const logitless_soft_cross_entropy_options* options, const logitless_forward* forward, const double* upstream,
    size_t upstream_count, const logitless_gradients* gradients, logitless_plan* plan);
LOGITLESS_C_API logitless_status logitless_plan_soft_cross_entropy(
    const logitless_context* context, const logitless_source* source, const logitless_soft_targets* targets,
    const logitless_soft_cross_entropy_options* options, const logitless_gradients* gradients, logitless_plan* plan);

/** Fills `logps`, one for each entry of `sets`, unless it is NULL. `forward`, unless it is NULL, gets what the backward
 * half needs. */
LOGITLESS_C_API logitless_status logitless_id_logps(const logitless_context* context, const logitless_source* source,
                                                    const logitless_id_sets* sets,
                                                    const logitless_id_logps_options* options, double* logps,
                                                    size_t logp_count, logitless_plan* plan,
                                                    logitless_forward** forward);
/** `upstream` has one entry for each of `sets`. */
LOGITLESS_C_API logitless_status logitless_id_logps_backward(
    const logitless_context* context, const logitless_source* source, const logitless_id_sets* sets,
    const logitless_id_logps_options* options, const logitless_forward* forward, const double* upstream,
    size_t upstream_count, const logitless_gradients* gradients, logitless_plan* plan);
LOGITLESS_C_API logitless_status logitless_plan_id_logps(const logitless_context* context,
                                                         const logitless_source* source, const logitless_id_sets* sets,
                                                         const logitless_id_logps_options* options,
                                                         logitless_plan* plan);

/** See PolicyBatch. */
typedef struct logitless_policy_batch {
  size_t struct_size;
  const logitless_targets* chosen_ids;
  logitless_const_vector advantages, old_logps, ref_logps, sampling_logps;
  const uint8_t* mask;
  size_t mask_count; /**< N, or 0 */
  int32_t advantages_per;
  logitless_const_vector teacher_logps;
  const logitless_id_sets* kept; /**< NULL: all ids */
  logitless_const_vector scores;
} logitless_policy_batch;

/** See PolicyOptions. Where C++ has "none" for a bound, C has INFINITY: log_ratio_clamp, sampler_clip_max. */
typedef struct logitless_policy_options {
  size_t struct_size;
  int32_t variant;
  const logitless_token_options* token; /**< NULL: the defaults */
  int32_t importance_sampling_level;
  double epsilon_low, epsilon_high, delta; /**< optional */
  double log_ratio_clamp;
  double beta;
  int32_t kl_estimator, use_bias_correction_kl;
  double entropy_bonus, top_entropy_quantile;
  double off_policy_mask_threshold; /**< optional */
  int32_t sampler_correction;
  double sampler_clip_min; /**< optional */
  double sampler_clip_max;
  double num_items_in_batch;     /**< optional */
  int64_t max_completion_length; /**< 0: not set */
  double sapo_temperature_pos, sapo_temperature_neg;
  double vespo_k_pos, vespo_lambda_pos, vespo_k_neg, vespo_lambda_neg;
  double loss_scale;
  int32_t want_entropy;
  int32_t teacher_against;
  double teacher_weight, teacher_discount;
  int32_t trust_region;
  double trust_region_low, trust_region_high, m2_threshold; /**< optional */
  double sampler_penalty, positive_nll_weight;
  int32_t aggregation, count_empty_sequences;
  double num_sequences; /**< optional */
  double dro_tau, topr_weight_pos, topr_weight_neg;
  double cov_share, cov_low, cov_high;
  int64_t cov_seed;
  double cov_kl_weight;
} logitless_policy_options;

/** See PolicyResult. */
typedef struct logitless_policy_result {
  size_t struct_size;
  int64_t tokens; /**< entries of the arrays, N; unused where there is none */
  double* per_token_loss;
  double* per_token_logps;
  double loss;
  int64_t counted_tokens; /**< tokens that took part */
  double mean_ratio, clip_fraction_low, clip_fraction_high, clip_fraction, mean_kl, mean_entropy, mean_logp;
  double mean_teacher_kl;
} logitless_policy_result;

LOGITLESS_C_API void logitless_policy_batch_init(logitless_policy_batch* batch, size_t size);
LOGITLESS_C_API void logitless_policy_options_init(logitless_policy_options* options, size_t size);
LOGITLESS_C_API void logitless_policy_result_init(logitless_policy_result* result, size_t size);
LOGITLESS_C_API logitless_status logitless_policy_loss(const logitless_context* context, const logitless_source* source,
                                                       const logitless_policy_batch* batch,
                                                       const logitless_policy_options* options,
                                                       const logitless_gradients* gradients,
                                                       logitless_policy_result* result, logitless_plan* plan);
LOGITLESS_C_API logitless_status logitless_policy_loss_forward(const logitless_context* context,
                                                               const logitless_source* source,
                                                               const logitless_policy_batch* batch,
                                                               const logitless_policy_options* options,
                                                               logitless_policy_result* result, logitless_plan* plan,
                                                               logitless_forward** forward);
LOGITLESS_C_API logitless_status logitless_policy_loss_backward(
    const logitless_context* context, const logitless_source* source, const logitless_policy_batch* batch,
    const logitless_policy_options* options, const logitless_forward* forward, double upstream,
    const logitless_gradients* gradients, logitless_plan* plan);
LOGITLESS_C_API logitless_status logitless_plan_policy_loss(const logitless_context* context,
                                                            const logitless_source* source,
                                                            const logitless_policy_batch* batch,
                                                            const logitless_policy_options* options,
                                                            const logitless_gradients* gradients, logitless_plan* plan);

/** See Reference. */
typedef struct logitless_reference {
  size_t struct_size;
  logitless_const_vector logps;
  int32_t logps_per;
  const logitless_hidden_states* hidden; /**< with `head`, instead of logps */
  const logitless_lm_head* head;
} logitless_reference;

/** See PreferenceOptions. */
typedef struct logitless_preference_options {
  size_t struct_size;
  const int32_t* losses; /**< of logitless_preference_loss_kind; NULL: one sigmoid */
  size_t loss_count;
  const double* loss_weights; /**< NULL: all are 1 */
  size_t loss_weight_count;   /**< as many as losses, or 0 */
  double beta, label_smoothing;
  int32_t average_log_prob;
  double discopop_tau, simpo_gamma;
  double nll_weight;                    /**< optional */
  const logitless_token_options* token; /**< NULL: the defaults */
  double loss_scale;
  int32_t want_entropy;
  int32_t f_divergence;
  double f_alpha;
  double ld_alpha; /**< optional */
  int32_t use_weighting;
  double reward_alpha;
  int32_t ref_logps_are; /**< of logitless_sequence_logps */
} logitless_preference_options;

/** See PreferenceResult. */
typedef struct logitless_preference_result {
  size_t struct_size;
  int64_t tokens;         /**< entries of per_token_logps, N; unused where that is NULL */
  int64_t sequences;      /**< entries of sequence_logps, 2B; unused where that is NULL */
  double* sequence_logps; /**< the chosen ones, then the rejected ones */
  double* per_token_logps;
  double loss;
  int64_t pairs, counted_tokens; /**< that took part */
  double chosen_reward, rejected_reward, margin, accuracy, chosen_logp, rejected_logp, nll, mean_entropy;
} logitless_preference_result;

LOGITLESS_C_API void logitless_reference_init(logitless_reference* reference, size_t size);
LOGITLESS_C_API void logitless_preference_options_init(logitless_preference_options* options, size_t size);
LOGITLESS_C_API void logitless_preference_result_init(logitless_preference_result* result, size_t size);
LOGITLESS_C_API logitless_status logitless_preference_loss(
    const logitless_context* context, const logitless_source* source, const logitless_targets* targets,
    const logitless_reference* reference, const logitless_preference_options* options,
    const logitless_gradients* gradients, logitless_preference_result* result, logitless_plan* plan);
LOGITLESS_C_API logitless_status logitless_preference_loss_forward(
    const logitless_context* context, const logitless_source* source, const logitless_targets* targets,
    const logitless_reference* reference, const logitless_preference_options* options,
    logitless_preference_result* result, logitless_plan* plan, logitless_forward** forward);
LOGITLESS_C_API logitless_status logitless_preference_loss_backward(
    const logitless_context* context, const logitless_source* source, const logitless_targets* targets,
    const logitless_reference* reference, const logitless_preference_options* options, const logitless_forward* forward,
    double upstream, const logitless_gradients* gradients, logitless_plan* plan);
LOGITLESS_C_API logitless_status logitless_plan_preference_loss(
    const logitless_context* context, const logitless_source* source, const logitless_targets* targets,
    const logitless_reference* reference, const logitless_preference_options* options,
    const logitless_gradients* gradients, logitless_plan* plan);

/** See KtoBatch. */
typedef struct logitless_kto_batch {
  size_t struct_size;
  const logitless_targets* targets;
  const uint8_t* labels;
  size_t label_count; /**< B */
  const logitless_reference* reference;
  logitless_const_vector kl_logps, kl_ref_logps;
  logitless_const_vector sequence_weights, reward_targets;
} logitless_kto_batch;

/** See KtoOptions. */
typedef struct logitless_kto_options {
  size_t struct_size;
  double beta, desirable_weight, undesirable_weight;
  int32_t average_log_prob;
  const logitless_token_options* token; /**< NULL: the defaults */
  double loss_scale;
  int32_t want_entropy;
  int32_t loss; /**< of logitless_unpaired_loss */
  double bco_delta;
  int32_t ref_logps_are; /**< of logitless_sequence_logps */
} logitless_kto_options;

/** See KtoResult. */
typedef struct logitless_kto_result {
  size_t struct_size;
  int64_t tokens;    /**< entries of per_token_logps, N; unused where that is NULL */
  int64_t sequences; /**< entries of the other two arrays, B; unused where both are NULL */
  double *sequence_losses, *sequence_logps;
  double* per_token_logps;
  double loss;
  int64_t desirable, undesirable, counted_tokens; /**< that took part */
  double kl, desirable_reward, undesirable_reward, margin, desirable_logp, undesirable_logp, mean_entropy;
} logitless_kto_result;

LOGITLESS_C_API void logitless_kto_batch_init(logitless_kto_batch* batch, size_t size);
LOGITLESS_C_API void logitless_kto_options_init(logitless_kto_options* options, size_t size);
LOGITLESS_C_API void logitless_kto_result_init(logitless_kto_result* result, size_t size);
LOGITLESS_C_API logitless_status logitless_kto_loss(const logitless_context* context, const logitless_source* source,
                                                    const logitless_kto_batch* batch,
                                                    const logitless_kto_options* options,
                                                    const logitless_gradients* gradients, logitless_kto_result* result,
                                                    logitless_plan* plan);
LOGITLESS_C_API logitless_status logitless_kto_loss_forward(const logitless_context* context,
                                                            const logitless_source* source,
                                                            const logitless_kto_batch* batch,
                                                            const logitless_kto_options* options,
                                                            logitless_kto_result* result, logitless_plan* plan,
                                                            logitless_forward** forward);
LOGITLESS_C_API logitless_status logitless_kto_loss_backward(
    const logitless_context* context, const logitless_source* source, const logitless_kto_batch* batch,
    const logitless_kto_options* options, const logitless_forward* forward, double upstream,
    const logitless_gradients* gradients, logitless_plan* plan);
LOGITLESS_C_API logitless_status logitless_plan_kto_loss(const logitless_context* context,
                                                         const logitless_source* source,
                                                         const logitless_kto_batch* batch,
                                                         const logitless_kto_options* options,
                                                         const logitless_gradients* gradients, logitless_plan* plan);

/** See Teacher. */
typedef struct logitless_teacher {
  size_t struct_size;
  const logitless_hidden_states* hidden;
  const logitless_lm_head* head;
  int32_t round_logits_to;        /**< LOGITLESS_NO_DTYPE by default */
  const logitless_logits* logits; /**< instead of hidden and head */
} logitless_teacher;

/** See DistillationOptions. */
typedef struct logitless_distillation_options {
  size_t struct_size;
  int32_t divergence;
  const logitless_token_options* token; /**< NULL: the defaults */
  double teacher_temperature;           /**< optional */
  double beta, skew, forward_weight, acceptance_decay;
  double divergence_weight;
  int32_t temperature_squared;
  double hard_weight, hard_temperature;
  int32_t reduction, mean_over;
  double normaliser; /**< optional */
  double loss_scale;
  int32_t want_entropy, want_agreement;
} logitless_distillation_options;

/** See DistillationResult. Arrays of what was not asked for are left as they are. */
typedef struct logitless_distillation_result {
  size_t struct_size;
  int64_t tokens; /**< entries of the arrays, N; unused where there is none */
  double *per_token_loss, *per_token_logps;
  double *per_token_divergence, *per_token_acceptance, *per_token_agreement;
  double *per_token_entropy, *per_token_teacher_entropy;
  double loss;
  int64_t counted_tokens; /**< tokens that took part */
  double mean_divergence, mean_acceptance, mean_nll, agreement, mean_entropy, mean_teacher_entropy;
} logitless_distillation_result;

LOGITLESS_C_API void logitless_teacher_init(logitless_teacher* teacher, size_t size);
LOGITLESS_C_API void logitless_distillation_options_init(logitless_distillation_options* options, size_t size);
LOGITLESS_C_API void logitless_distillation_result_init(logitless_distillation_result* result, size_t size);
/** `targets` may be NULL: all rows take part then. Beside a source of logits the teacher has logits too. */
LOGITLESS_C_API logitless_status logitless_distillation_loss(
    const logitless_context* context, const logitless_source* source, const logitless_teacher* teacher,
    const logitless_targets* targets, const logitless_distillation_options* options,
    const logitless_gradients* gradients, logitless_distillation_result* result, logitless_plan* plan);
LOGITLESS_C_API logitless_status logitless_distillation_loss_forward(
    const logitless_context* context, const logitless_source* source, const logitless_teacher* teacher,
    const logitless_targets* targets, const logitless_distillation_options* options,
    logitless_distillation_result* result, logitless_plan* plan, logitless_forward** forward);
/** `upstream` has one entry, or N under LOGITLESS_NO_REDUCTION. */
LOGITLESS_C_API logitless_status logitless_distillation_loss_backward(
    const logitless_context* context, const logitless_source* source, const logitless_teacher* teacher,
    const logitless_targets* targets, const logitless_distillation_options* options, const logitless_forward* forward,
    const double* upstream, size_t upstream_count, const logitless_gradients* gradients, logitless_plan* plan);
LOGITLESS_C_API logitless_status logitless_plan_distillation_loss(
    const logitless_context* context, const logitless_source* source, const logitless_teacher* teacher,
    const logitless_targets* targets, const logitless_distillation_options* options,
    const logitless_gradients* gradients, logitless_plan* plan);

/** See SetTeacher. */
typedef struct logitless_set_teacher {
  size_t struct_size;
  const logitless_id_sets* sets;
  logitless_const_vector logps;         /**< as many as ids */
  logitless_const_vector outside_logps; /**< N, or none */
} logitless_set_teacher;

/** See SetDistillationOptions. */
typedef struct logitless_set_distillation_options {
  size_t struct_size;
  int32_t divergence, outside;
  const logitless_token_options* token; /**< NULL: the defaults */
  double beta, skew, forward_weight;
  double divergence_weight;
  int32_t temperature_squared;
  double hard_weight;
  int32_t reduction, mean_over;
  double normaliser; /**< optional */
  double loss_scale;
  double tail_floor;
} logitless_set_distillation_options;

/** See SetDistillationResult. */
typedef struct logitless_set_distillation_result {
  size_t struct_size;
  int64_t tokens; /**< entries of the arrays, N; unused where there is none */
  double *per_token_loss, *per_token_divergence;
  double loss;
  int64_t counted_tokens; /**< tokens that took part */
  double mean_divergence, mean_teacher_mass, mean_student_mass, mean_nll;
} logitless_set_distillation_result;

LOGITLESS_C_API void logitless_set_teacher_init(logitless_set_teacher* teacher, size_t size);
LOGITLESS_C_API void logitless_set_distillation_options_init(logitless_set_distillation_options* options, size_t size);
LOGITLESS_C_API void logitless_set_distillation_result_init(logitless_set_distillation_result* result, size_t size);
/** `targets` may be NULL: the sets alone say which rows take part then. */
LOGITLESS_C_API logitless_status logitless_set_distillation_loss(
    const logitless_context* context, const logitless_source* source, const logitless_set_teacher* teacher,
    const logitless_targets* targets, const logitless_set_distillation_options* options,
    const logitless_gradients* gradients, logitless_set_distillation_result* result, logitless_plan* plan);
LOGITLESS_C_API logitless_status logitless_set_distillation_loss_forward(
    const logitless_context* context, const logitless_source* source, const logitless_set_teacher* teacher,
    const logitless_targets* targets, const logitless_set_distillation_options* options,
    logitless_set_distillation_result* result, logitless_plan* plan, logitless_forward** forward);
/** `upstream` has one entry, or N under LOGITLESS_NO_REDUCTION. */
LOGITLESS_C_API logitless_status logitless_set_distillation_loss_backward(
    const logitless_context* context, const logitless_source* source, const logitless_set_teacher* teacher,
    const logitless_targets* targets, const logitless_set_distillation_options* options,
    const logitless_forward* forward, const double* upstream, size_t upstream_count,
    const logitless_gradients* gradients, logitless_plan* plan);
LOGITLESS_C_API logitless_status logitless_plan_set_distillation_loss(
    const logitless_context* context, const logitless_source* source, const logitless_set_teacher* teacher,
    const logitless_targets* targets, const logitless_set_distillation_options* options,
    const logitless_gradients* gradients, logitless_plan* plan);

#ifdef __cplusplus
}
#endif

#endif /* LOGITLESS_C_API_H */
