// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// All members of every structure of c_api.h that says how large it is: those of fields.h, and here what C has
// beside them. Where a structure of an older header ended is read off this list, and tests hold the list to
// the structures and walk it.
#pragma once

#include <cstddef>
#include <type_traits>

#include "logitless/c_api.h"
#include "logitless/fields.h"

namespace logitless::c_api {

// The lists of fields.h that structures of C share.
inline FieldsOf<TokenOptions> fields_of(const logitless_token_options&) { return {}; }
inline FieldsOf<BackwardOptions> fields_of(const logitless_backward_options&) { return {}; }
inline FieldsOf<StatsRequest> fields_of(const logitless_stats_request&) { return {}; }
inline FieldsOf<TokenStats> fields_of(const logitless_token_stats&) { return {}; }
inline FieldsOf<TokenGrads> fields_of(const logitless_token_grads&) { return {}; }
inline FieldsOf<ContextOptions> fields_of(const logitless_context_options&) { return {}; }
inline FieldsOf<CrossEntropy> fields_of(const logitless_cross_entropy_options&) { return {}; }
inline FieldsOf<CrossEntropyMetrics> fields_of(const logitless_cross_entropy_result&) { return {}; }
inline FieldsOf<SoftCrossEntropy> fields_of(const logitless_soft_cross_entropy_options&) { return {}; }
inline FieldsOf<SoftCrossEntropyMetrics> fields_of(const logitless_soft_cross_entropy_result&) { return {}; }
inline FieldsOf<IdLogps> fields_of(const logitless_id_logps_options&) { return {}; }
inline FieldsOf<PolicyBatch> fields_of(const logitless_policy_batch&) { return {}; }
inline FieldsOf<PolicyLoss> fields_of(const logitless_policy_options&) { return {}; }
inline FieldsOf<PolicyMetrics> fields_of(const logitless_policy_result&) { return {}; }
inline FieldsOf<PreferenceLoss> fields_of(const logitless_preference_options&) { return {}; }
inline FieldsOf<PreferenceMetrics> fields_of(const logitless_preference_result&) { return {}; }
inline FieldsOf<Distillation> fields_of(const logitless_distillation_options&) { return {}; }
inline FieldsOf<DistillationMetrics> fields_of(const logitless_distillation_result&) { return {}; }
inline FieldsOf<SetDistillation> fields_of(const logitless_set_distillation_options&) { return {}; }
inline FieldsOf<SetDistillationMetrics> fields_of(const logitless_set_distillation_result&) { return {}; }
inline FieldsOf<KtoBatch> fields_of(const logitless_kto_batch&) { return {}; }
inline FieldsOf<KtoLoss> fields_of(const logitless_kto_options&) { return {}; }
inline FieldsOf<KtoMetrics> fields_of(const logitless_kto_result&) { return {}; }

// LOGITLESS_OWN(T, a, b, ...) lists members of T that stand in no list of fields.h.
#define LOGITLESS_PARENTHESES ()
#define LOGITLESS_EXPAND(...) LOGITLESS_EXPAND2(LOGITLESS_EXPAND2(LOGITLESS_EXPAND2(__VA_ARGS__)))
#define LOGITLESS_EXPAND2(...) LOGITLESS_EXPAND1(LOGITLESS_EXPAND1(LOGITLESS_EXPAND1(__VA_ARGS__)))
#define LOGITLESS_EXPAND1(...) LOGITLESS_EXPAND0(LOGITLESS_EXPAND0(LOGITLESS_EXPAND0(__VA_ARGS__)))
#define LOGITLESS_EXPAND0(...) __VA_ARGS__
#define LOGITLESS_VISIT(name, ...) \
  visit(#name, of.name);           \
  __VA_OPT__(LOGITLESS_AGAIN LOGITLESS_PARENTHESES(__VA_ARGS__))
#define LOGITLESS_AGAIN() LOGITLESS_VISIT
#define LOGITLESS_OWN(T, ...)                      \
  template <class Visit>                           \
  void visit_own(T& of, const Visit& visit) {      \
    LOGITLESS_EXPAND(LOGITLESS_VISIT(__VA_ARGS__)) \
  }

LOGITLESS_OWN(logitless_const_matrix, data, dtype, rows, cols, stride)
LOGITLESS_OWN(logitless_matrix, data, dtype, rows, cols, stride)
LOGITLESS_OWN(logitless_const_vector, data, dtype, size)
LOGITLESS_OWN(logitless_vector, data, dtype, size)
LOGITLESS_OWN(logitless_hidden_states, struct_size, states, sequences, offsets, offset_count, batch_stride)
LOGITLESS_OWN(logitless_packed_matrix, data, packing, rows, cols, row_bytes, scales, group)
LOGITLESS_OWN(logitless_lm_head, struct_size, weight, layout, bias, softcap, packed, ids, id_count, lora_a, lora_b,
              lora_scale, lora_states)
LOGITLESS_OWN(logitless_logits, struct_size, data, dtype, batch, time, vocab, batch_stride, row_stride)
LOGITLESS_OWN(logitless_source, struct_size, hidden, head, logits)
LOGITLESS_OWN(logitless_targets, struct_size, data32, data64, size, stride, time, batch_stride)
LOGITLESS_OWN(logitless_gradients, struct_size, d_hidden, d_weight, d_bias, d_hidden_mode, d_weight_mode, d_bias_mode,
              weight_sink, weight_sink_user, d_hidden_batch_stride, d_logits, d_logits_dtype, d_logits_batch_stride,
              d_logits_row_stride, backward, d_lora_a, d_lora_b, d_lora_states, d_lora_mode)
LOGITLESS_OWN(logitless_backward_options, struct_size)
LOGITLESS_OWN(logitless_communicator, struct_size, rank, size, all_gather, all_to_all, user)
LOGITLESS_OWN(logitless_plan, struct_size, kind, tokens, active_rows, hidden_size, vocab_size, row_tile, row_block,
              vocab_tile, hidden_block, chunk_rows, gemm_library, gradient_dtype, gradient_terms, threads, tiles_alive,
              workspace_bytes, packed_bytes, least_workspace_bytes, blas_bytes, description, kept_share, noise_estimate,
              d_hidden_bound, d_weight_bound)
LOGITLESS_OWN(logitless_token_loss, struct_size, needs, fills_lse, fills_entropy, fills_cross, may_drop_rows, groups,
              group_count, evaluate, user, fills_outside)
LOGITLESS_OWN(logitless_reference, struct_size, logps, logps_per, hidden, head)
LOGITLESS_OWN(logitless_token_options, struct_size)
LOGITLESS_OWN(logitless_stats_request, struct_size)
LOGITLESS_OWN(logitless_token_stats, struct_size, tokens, expected_f32, expected_f64)
LOGITLESS_OWN(logitless_token_grads, struct_size, tokens)
LOGITLESS_OWN(logitless_context_options, struct_size, vocab_ranks, data_ranks, slice_first, slice_vocab_size, gathered,
              gathered_bytes)
LOGITLESS_OWN(logitless_cross_entropy_options, struct_size)
LOGITLESS_OWN(logitless_cross_entropy_result, struct_size, tokens, per_token_loss, per_token_logps, loss)
LOGITLESS_OWN(logitless_id_sets, struct_size, ids, offsets, offset_count, counts, count_count)
LOGITLESS_OWN(logitless_id_logps_options, struct_size)
LOGITLESS_OWN(logitless_soft_targets, struct_size, sets, weights, rows, mask, mask_count)
LOGITLESS_OWN(logitless_soft_cross_entropy_options, struct_size)
LOGITLESS_OWN(logitless_soft_cross_entropy_result, struct_size, tokens, per_token_loss, loss)
LOGITLESS_OWN(logitless_policy_batch, struct_size)
LOGITLESS_OWN(logitless_policy_options, struct_size)
LOGITLESS_OWN(logitless_policy_result, struct_size, tokens, per_token_loss, per_token_logps, loss)
LOGITLESS_OWN(logitless_preference_options, struct_size)
LOGITLESS_OWN(logitless_preference_result, struct_size, tokens, sequences, sequence_logps, per_token_logps, loss)
LOGITLESS_OWN(logitless_teacher, struct_size, hidden, head, round_logits_to, logits)
LOGITLESS_OWN(logitless_distillation_options, struct_size)
LOGITLESS_OWN(logitless_distillation_result, struct_size, tokens, per_token_loss, per_token_logps, per_token_divergence,
              per_token_acceptance, per_token_agreement, per_token_entropy, per_token_teacher_entropy, loss)
LOGITLESS_OWN(logitless_set_teacher, struct_size, sets, logps, outside_logps)
LOGITLESS_OWN(logitless_set_distillation_options, struct_size)
LOGITLESS_OWN(logitless_set_distillation_result, struct_size, tokens, per_token_loss, per_token_divergence, loss)
LOGITLESS_OWN(logitless_kto_batch, struct_size)
LOGITLESS_OWN(logitless_kto_options, struct_size)
LOGITLESS_OWN(logitless_kto_result, struct_size, tokens, sequences, sequence_losses, sequence_logps, per_token_logps,
              loss)
#undef LOGITLESS_OWN
#undef LOGITLESS_VISIT
#undef LOGITLESS_AGAIN
#undef LOGITLESS_PARENTHESES
#undef LOGITLESS_EXPAND
#undef LOGITLESS_EXPAND2
#undef LOGITLESS_EXPAND1
#undef LOGITLESS_EXPAND0

struct NoVisit {
  void operator()(const char*, auto&) const {}
};
/// Tells whether T is one of these structures.
template <class T>
constexpr bool is_listed = requires(T& of) {
  visit_own(of, NoVisit());
};
template <>
inline constexpr bool is_listed<void> = false;

/// Calls visit(name, member) for each member of the structure, struct_size first. The name of a number of
/// entries, which stands behind their array, is "count".
template <class T, class Visit>
void visit_members(T& of, const Visit& visit) {
  visit_own(of, visit);
  if constexpr (requires { fields_of(of); }) {
    const auto unpack = [&]<class Member>(const Field& field, Member&& member) {
      if constexpr (requires { member.count; }) {
        visit(field.name, member.data);
        visit("count", member.count);
      } else {
        visit(field.name, member);
      }
    };
    visit_fields(fields_of(of), unpack, of);
  }
}

/// Calls visit(begin, end, alignment) with the bytes at which each member of T stands.
template <class T, class Visit>
void visit_places(const Visit& visit) {
  static T model = {};
  visit_members(model, [&]<class Member>(const char*, Member& member) {
    const auto place = [](const auto* at) {
      return static_cast<size_t>(reinterpret_cast<const char*>(at) - reinterpret_cast<const char*>(&model));
    };
    visit(place(&member), place(&member + 1), alignof(Member));
  });
}

constexpr size_t rounded_up(size_t bytes, size_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

/// Tells whether T was `size` bytes in some header: the struct_size of no other cuts a member in two.
template <class T>
bool is_size_of(size_t size) {
  bool found = false;
  visit_places<T>([&](size_t, size_t end, size_t) { found = found || size == rounded_up(end, alignof(T)); });
  return found;
}

}  // namespace logitless::c_api
