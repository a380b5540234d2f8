// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A good call of every function of the C API, all of whose structures and arguments a test may spoil.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "c_api/members.h"

namespace logitless::testing {

/// Where the logits come from, and how the rows of the call stand.
enum class Form { kHidden, kStrided, kPacked, kLogits };
inline constexpr Form kForms[] = {Form::kHidden, Form::kStrided, Form::kPacked, Form::kLogits};

/// Everything that one call is given. Arrays have room before and behind, so that a size which is one too
/// large stays in this memory: how much memory there is, no library can know.
struct World {
  static constexpr int64_t kBatch = 2, kTime = 3, kTokens = 6, kVocab = 5, kHidden = 4, kTeacherHidden = 3, kRoom = 32;
  template <class T>
  struct Room {
    T before[kRoom], data[kRoom], behind[4 * kRoom];
    Room() { std::fill(before, behind + 4 * kRoom, T(1)); }
  };
  /// What a call may write, apart from the structures of results.
  struct Written {
    float d_hidden[256], d_weight[256], d_bias[256], d_logits[256];
    double columns[29][kRoom];
    int64_t argmax[kRoom], rank[kRoom];
    // Top_k is 2, and 3 at most where it is spoiled and still good.
    int64_t top_ids[4 * kRoom];
    double top_logps[4 * kRoom];
    double entropy_of_logits[kRoom];
  };

  // Inputs. Class weights, cross weights and temperatures of 1 are good ones; so are ids of 1 and masks of 1.
  Room<float> hidden_data, weight_data, bias_data, logits_data, class_weights, per_sequence, per_token;
  Room<float> teacher_data;
  Room<double> temperatures, upstream, loss_weights;
  Room<double> columns[5];
  Room<int64_t> ids, offsets, groups, slices, set_offsets;
  Room<uint8_t> mask, labels;
  Room<int32_t> losses;
  Written written;

  // Structures, and arguments that point to them. `context` and `forward` are the caller's.
  logitless_hidden_states hidden;
  logitless_lm_head head;
  logitless_logits logits;
  logitless_source source;
  logitless_targets targets;
  logitless_gradients gradients;
  logitless_backward_options backward;
  logitless_token_options token;
  logitless_stats_request request;
  logitless_token_stats stats;
  logitless_token_grads grads;
  logitless_token_loss token_loss;
  logitless_cross_entropy_options cross_entropy;
  logitless_targets set_ids;
  logitless_id_sets sets;
  logitless_id_logps_options id_logps;
  logitless_soft_targets soft_targets;
  logitless_soft_cross_entropy_options soft_cross_entropy;
  logitless_policy_batch policy_batch;
  logitless_policy_options policy;
  logitless_reference reference;
  logitless_preference_options preference;
  logitless_kto_batch kto_batch;
  logitless_kto_options kto;
  logitless_hidden_states teacher_hidden;
  logitless_lm_head teacher_head;
  logitless_logits teacher_logits;
  logitless_teacher teacher;
  logitless_distillation_options distillation;
  logitless_set_teacher set_teacher;
  logitless_set_distillation_options set_distillation;
  logitless_communicator vocab_ranks, data_ranks;
  logitless_context_options context_options;
  logitless_cross_entropy_result cross_entropy_result;
  logitless_soft_cross_entropy_result soft_cross_entropy_result;
  logitless_policy_result policy_result;
  logitless_preference_result preference_result;
  logitless_kto_result kto_result;
  logitless_distillation_result distillation_result;
  logitless_set_distillation_result set_distillation_result;
  logitless_plan plan;
  size_t upstream_count = 1, upstream_of_sets = kTokens, logp_count = kTokens;
  double upstream_value = 0.5;

  struct Arguments {
    const logitless_context* context;
    const logitless_source* source;
    const logitless_targets* targets;
    const logitless_gradients* gradients;
    const logitless_token_options* token;
    const logitless_stats_request* request;
    logitless_token_stats* stats;
    const logitless_token_grads* grads;
    const logitless_token_loss* token_loss;
    const logitless_logits* logits;
    const logitless_cross_entropy_options* cross_entropy;
    const logitless_id_sets* sets;
    const logitless_id_logps_options* id_logps;
    const logitless_soft_targets* soft_targets;
    const logitless_soft_cross_entropy_options* soft_cross_entropy;
    const logitless_policy_batch* policy_batch;
    const logitless_policy_options* policy;
    const logitless_reference* reference;
    const logitless_preference_options* preference;
    const logitless_kto_batch* kto_batch;
    const logitless_kto_options* kto;
    const logitless_teacher* teacher;
    const logitless_distillation_options* distillation;
    const logitless_set_teacher* set_teacher;
    const logitless_set_distillation_options* set_distillation;
    const logitless_context_options* context_options;
    logitless_cross_entropy_result* cross_entropy_result;
    logitless_soft_cross_entropy_result* soft_cross_entropy_result;
    logitless_policy_result* policy_result;
    logitless_preference_result* preference_result;
    logitless_kto_result* kto_result;
    logitless_distillation_result* distillation_result;
    logitless_set_distillation_result* set_distillation_result;
    logitless_plan* plan;
    const logitless_forward* forward;
    logitless_forward** left;
    logitless_context** made;
    const double* upstream;
    double* entropy;
    double* logps;
  } given;
  logitless_forward* left = nullptr;
  logitless_context* made = nullptr;

  World(Form form, const logitless_context* context);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() {
    logitless_forward_free(left);
    logitless_context_free(made);
  }

  /// Calls visit(name, structure) for every structure.
  template <class Visit>
  void visit_structures(const Visit& visit) {
    visit("hidden", hidden), visit("head", head), visit("logits", logits), visit("source", source);
    visit("targets", targets), visit("gradients", gradients), visit("backward", backward);
    visit("token", token), visit("request", request);
    visit("stats", stats), visit("grads", grads), visit("token_loss", token_loss);
    visit("set_ids", set_ids), visit("sets", sets), visit("id_logps", id_logps);
    visit("soft_targets", soft_targets), visit("soft_cross_entropy", soft_cross_entropy);
    visit("soft_cross_entropy_result", soft_cross_entropy_result);
    visit("cross_entropy", cross_entropy), visit("policy_batch", policy_batch), visit("policy", policy);
    visit("reference", reference), visit("preference", preference), visit("kto_batch", kto_batch), visit("kto", kto);
    visit("teacher_hidden", teacher_hidden), visit("teacher_head", teacher_head), visit("teacher", teacher);
    visit("distillation", distillation), visit("distillation_result", distillation_result);
    visit("set_teacher", set_teacher), visit("set_distillation", set_distillation);
    visit("set_distillation_result", set_distillation_result);
    visit("vocab_ranks", vocab_ranks), visit("data_ranks", data_ranks), visit("context_options", context_options);
    visit("cross_entropy_result", cross_entropy_result), visit("policy_result", policy_result);
    visit("preference_result", preference_result), visit("kto_result", kto_result), visit("plan", plan);
  }

 private:
  void set_inputs(Form form);
  void set_outputs(Form form);
  void set_losses();
};

/// A function of the API, with the world's arguments.
struct Function {
  const char* name;
  logitless_status (*call)(World&);
  bool (*has)(Form) = [](Form) { return true; };
};

/// All of them that return a status of a call; the backward half of a loss stands in `backward`, with the
/// forward half whose result it wants.
extern const Function kFunctions[34];
struct Backward {
  Function function;
  logitless_status (*forward)(World&);
};
extern const Backward kBackward[8];

}  // namespace logitless::testing
