// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Requirements between tensors. Errors in a single tensor are in refusals_test.cc.
#include <string>
#include <vector>

#include "support/key_call.h"

namespace logitless::testing {
namespace refused_tensors_test {

TEST(RefusedTensors, OfHiddenStatesAndAHead) {
  expect_changes({
      {"cross_entropy", "hidden = @2x3x3", "weight is [5, 4] but hidden has 3 columns"},
      {"cross_entropy", "hidden = @2x3x0; weight = @5x0", "0*must be positive"},
      {"cross_entropy", "weight = @0x4", "weight.rows = 0 must be positive"},
      {"cross_entropy", "hidden = @9223372036854775807x0x4", "sequences = 9223372036854775807*2147483647"},
      {"cross_entropy", "targets = @5", "targets has 5 entries but hidden has 6 rows"},
      {"cross_entropy", "bias = ", "d_bias is set but the head has no bias"},
      {"cross_entropy", "d_hidden = @2x3x4 float32 /11,4,1", "d_hidden_batch_stride = 11*overlap*d_hidden.stride = 4"},
      {"cross_entropy", "d_hidden = @2x3x4 float32 /4,7,1", "d_hidden_batch_stride = 4*overlap*d_hidden.stride = 7"},
      {"cross_entropy", "hidden = @6x1x4 float32; targets = @6; d_hidden = @6x1x4 float32 /3,4,1",
       "d_hidden_batch_stride = 3"},
      {"cross_entropy", "hidden = @2x3x4 float32 /3,4,1", "hidden.batch_stride = 3*row of 4 elements"},
      {"cross_entropy", "targets = @2x3 int64 /3,0", "targets.stride = 0*positive"},
      {"cross_entropy", "d_weight = @5x4 float32 /1,5", "d_weight has strides [1, 5]: it must be stored as weight is"},
      {"cross_entropy", "hidden = @2x3x4 float64", "weight is float32 but hidden is float64"},
      {"cross_entropy", "bias = @5 float64", "bias is float64 but hidden is float32"},
      {"cross_entropy", "d_hidden = @2x3x4 float64", "d_hidden is float64 but must be float32"},
      {"cross_entropy", "logits = @6x5 float32", "logits are given together with hidden states or a head"},
      {"cross_entropy", "d_logits = @6x5 float32", "d_logits is set, but the logits are computed from hidden states"},
      {"cross_entropy", "packing = q4_0", "packing = q4_0, but weight is float32: a packed weight is uint8"},
      {"cross_entropy", "group = 4", "group = 4 is set, but weight is not packed"},
      {"cross_entropy", "scales = @5 float32", "scales is set, but weight is not packed"},
      {"cross_entropy of packed", "", ""},
      {"cross_entropy of packed", "packing = none", "weight is uint8, but packing is not set"},
      {"cross_entropy of packed", "packing = q8_0; scales = ; group = 0",
       "weight has 4 bytes per row, which is not a multiple of the 34 of a block of q8_0"},
      {"cross_entropy of packed", "d_weight = @5x4 float32",
       "d_weight is set but weight is packed (int8): it is frozen"},
  });
}

TEST(RefusedTensors, OfSequencesAndTargets) {
  expect_changes({
      {"cross_entropy of sequences", "", ""},
      {"cross_entropy of sequences", "offsets[0] = 1", "offsets[0] = 1 must be 0"},
      {"cross_entropy of sequences", "offsets[1] = 7", "offsets[2] = 6 is below offsets[1] = 7"},
      {"cross_entropy of sequences", "offsets[2] = 7", "offsets[2] = 7 must be the number of rows of hidden, 6"},
      {"cross_entropy of sequences", "hidden = @2x3x4 float32", "offsets is given, but hidden is [B, T, H]"},
      {"cross_entropy", "targets[2] = 5", "targets[2] = 5 is outside [0, 5) and is not ignore_index (-100)"},
      {"cross_entropy", "targets[5] = -100", ""},
      {"cross_entropy", "targets[1] = -100; targets[0] = -1; ignore_index = -1",
       "targets[1] = -100 is outside [0, 5) and is not ignore_index (-1)"},
      {"cross_entropy", "targets[0] = 4294967296", "targets[0] = 4294967296 is outside [0, 5)"},
      // Per-token tensors of [T, B] would be read in the wrong order.
      {"cross_entropy", "targets = @3x2", "targets is [3, 2] but hidden is [2, 3, 4]"},
      {"policy_loss", "chosen_ids = @3x2", "chosen_ids is [3, 2] but hidden is [2, 3, 4]"},
      {"policy_loss", "advantages = @3x2", "advantages is [3, 2] but hidden is [2, 3, 4]"},
      {"policy_loss", "mask = @3x2", "mask is [3, 2] but hidden is [2, 3, 4]"},
      {"policy_loss", "chosen_ids = @6; advantages = @2x3; old_logps = @2x3; mask = @6", ""},
      {"preference_loss", "hidden = @1x6x4 float32; d_hidden = ; targets = @6; ref_logps_per = by_size",
       "hidden holds 1 sequences: pairs need an even number"},
      {"preference_loss of sequences", "offsets = @4; offsets[0] = 0; offsets[1] = 2; offsets[2] = 2; offsets[3] = 6",
       "hidden holds 3 sequences: pairs need an even number"},
      {"policy_loss", "advantages = @3",
       "advantages has 3 entries but must have one per sequence (2) or one per token (6)"},
      {"policy_loss", "advantages_per = token",
       "advantages has 2 entries but must have one per token (6), as advantages_per says"},
      {"policy_loss of sequences",
       "offsets = @7; offsets[0] = 0; offsets[1] = 0; offsets[2] = 3; offsets[3] = 3; offsets[4] = 4; offsets[5] = 4; "
       "offsets[6] = 6; advantages = @6",
       "advantages has 6 entries, which may be per sequence or per token: set advantages_per"},
      {"policy_loss", "chosen_ids[4] = -100", "chosen_ids[4] = -100 is outside [0, 5)"},
      {"policy_loss", "chosen_ids[1] = -9223372036854775808", "chosen_ids[1] = -9223372036854775808"},
      {"policy_loss", "sampling_logps = @6; sampler_penalty = 1; sampling_logps[0] = -inf",
       "sampling_logps[0] = -inf must be finite"},
      // Values under a false mask are not read; a sampler's log-probability may be unknown.
      {"policy_loss",
       "mask[3] = 0; mask[4] = 0; mask[5] = 0; chosen_ids[3] = 99; chosen_ids[4] = -1; old_logps[3] = nan; "
       "advantages[1] = nan; ref_logps = @6; beta = 0.1; ref_logps[3] = inf; sampling_logps = @6; "
       "sampler_correction = token_truncate; sampling_logps[3] = -inf; sampling_logps[2] = nan; "
       "temperatures = @6; temperatures[0] = 1; temperatures[1] = 1; temperatures[2] = 1; temperatures[3] = nan",
       ""},
  });
}

TEST(RefusedTensors, OfAReference) {
  for (const std::string task : {"preference_loss", "kto_loss"}) {
    const std::string models = task + " of models";
    // Six sequences with six tokens; two of the sequences have two tokens.
    const std::string six_sequences =
        std::string(task == "kto_loss" ? "labels = @6; " : "") +
        "hidden = @6x4 float32; d_hidden = ; offsets = @7 int64; offsets[2] = 2; offsets[3] = 2; offsets[4] = 4; "
        "offsets[5] = 6; offsets[6] = 6; targets = @6; ref_logps_per = ";
    expect_changes({
        {task, "", ""},
        {models, "", ""},
        {models, "ref_logps = @6", "ref_logps and reference.hidden are both set"},
        {task, "reference.hidden = @2x3x4", "ref_logps and reference.hidden are both set"},
        {task, "reference.bias = @5", "ref_logps and reference.bias are both set"},
        {task, "reference.lora_a = @2x4; reference.lora_b = @5x2", "ref_logps and reference.lora are both set"},
        {task, "ref_logps_per = by_size; ref_logps = @3",
         "ref_logps has 3 entries but must have one per sequence (2) or one per token (6)"},
        {task, "ref_logps_per = by_size; ref_logps = @2", ""},
        {task, "ref_logps = @2", "ref_logps has 2 entries but must have one per token (6), as ref_logps_per says"},
        {task, "ref_logps_per = sequence", "ref_logps has 6 entries but must have one per sequence (2)"},
        {task, "ref_logps_per = by_size; ref_logps = @2; ref_logps[1] = nan", "ref_logps[1] = nan must be finite",
         true},
        {task, "ref_logps[5] = nan", "ref_logps[5] = nan must be finite", true},
        {task, "ref_logps_are = averages", "ref_logps_are = averages is set but ref_logps has one entry per token"},
        {models, "ref_logps_are = averages", "ref_logps_are = averages is set but ref_logps is not given"},
        {models, "reference.hidden = @2x3x6 float32", "reference: weight is [5, 4] but hidden has 6 columns"},
        {models, "reference.weight = @4x4 float32; reference.bias =",
         "reference.weight has 4 vocabulary entries but weight has 5"},
        {models, "reference.weight = ; reference.bias =", "reference.weight is not given"},
        {task, six_sequences + "by_size",
         "ref_logps has 6 entries, which may be per sequence or per token: set ref_logps_per"},
        {task, six_sequences + "token", ""},
        {task, six_sequences + "sequence", ""},
        // Ignored values are not read.
        {task, "targets[1] = -100; ref_logps[1] = nan", ""},
        {task,
         "targets[3] = -100; targets[4] = -100; targets[5] = -100; ref_logps_per = sequence; ref_logps = @2; "
         "ref_logps[1] = nan",
         ""},
    });
  }
  expect_changes({
      {"preference_loss of models", "reference.hidden = ", "reference.hidden is not given"},
      {"preference_loss", "loss_type = simpo; ref_logps = ; ref_logps_per = by_size; ref_logps_are = averages",
       "ref_logps_are = averages is set but ref_logps is not given"},
  });
}

TEST(RefusedTensors, OfATeacher) {
  expect_changes({
      {"distillation_loss of models",
       "teacher.weight = @8x4 float32; teacher.bias =", "teacher.weight has 8 vocabulary entries but weight has 5"},
      {"distillation_loss of models", "weight = @4x4 float32; bias = ; d_weight = ; d_bias =",
       "teacher.weight has 5 vocabulary entries but weight has 4"},
      {"distillation_loss of models", "teacher.hidden = @5x4 float32", "teacher.hidden has 5 rows but hidden has 6"},
      {"distillation_loss of models", "teacher.weight = ; teacher.bias =", "teacher: weight is not given"},
      {"distillation_loss of models", "teacher.hidden = @2x3x4 float64; teacher.weight = @5x4 float64; teacher.bias =",
       "teacher.hidden is float64 but hidden is float32: float64 cannot be mixed with other types"},
      {"distillation_loss", "teacher.lora_a = @2x4 float32; teacher.lora_b = @5x2 float32",
       "teacher: logits are given together with hidden states or a head"},
      {"distillation_loss", "teacher.logits = ", "distillation_loss needs teacher.hidden or teacher.logits"},
      {"set_distillation_loss", "teacher.logps[3] = 0.4",
       "teacher.logps of row 3, entry 0, = 0.4 must be a log-probability: at most 0, not a probability"},
      {"set_distillation_loss", "teacher.sets.ids[2] = 5", "teacher.sets.ids of row 2, entry 0, = 5 is outside [0, 5)"},
      {"set_distillation_loss", "teacher.sets.offsets[1] = 2; teacher.sets.ids[0] = 1; teacher.sets.ids[1] = 1",
       "teacher.sets of row 0 has token id 1 twice: each id may occur once per row"},
      {"set_distillation_loss",
       "teacher.sets.offsets[1] = 2; teacher.sets.ids[0] = 1; teacher.sets.ids[1] = 2; teacher.logps[0] = -0.1; "
       "teacher.logps[1] = -0.1",
       "the probabilities of teacher.logps of row 0 sum to *, which is more than 1"},
      {"set_distillation_loss", "teacher.outside_logps = @6; teacher.logps[1] = -0.01",
       "the probabilities of teacher.outside_logps[*and teacher.logps of row *sum to *, which is more than 1"},
      {"set_distillation_loss", "teacher.logps[0] = 0; loss_type = reverse_kl",
       "which leaves nothing for the tail: loss_type = reverse_kl would be infinite"},
      {"set_distillation_loss", "teacher.logps[0] = -inf; outside = renormalised", "are all -inf"},
  });
}

TEST(RefusedTensors, OfSetsOfIds) {
  const auto one = [&](const std::string& changes, const std::string& words) {
    expect_change({"id_logps", changes, words});
    expect_change({"soft_cross_entropy", changes, words});
  };
  one("shift = 0", "");
  one("sets.ids[3] = -1", "sets.ids of row 3, entry 0, = -1 is outside [0, 5)");
  one("sets.ids[0] = 5", "sets.ids of row 0, entry 0, = 5 is outside [0, 5)");
  one("sets.offsets[0] = 1", "sets.offsets[0] = 1 must be 0");
  one("sets.offsets[1] = 3", "sets.offsets[2] = 2 is below *sets.offsets[1] = 3");
  one("sets.offsets[6] = 5", "sets.offsets[6] = 5 must be the number of *sets.ids, 6");
  one("sets.offsets = @6", "sets.offsets has 6 entries but must have 7");
  one("sets.counts = @6 int64", "sets.offsets and *sets.counts are both set: counts are for ids of [N, K]");
  one("sets.offsets = ; sets.ids = @7", "sets.ids has 7 entries but hidden has 6 rows");
  one("sets.offsets = ; sets.ids = @6x1; sets.counts = @6 int64; sets.counts[1] = 3",
      "sets.counts[1] = 3 must be from 0 to K = 1");
  one("sets.offsets = ; sets.ids = @6x1; sets.counts = @5 int64", "sets.counts has 5 entries but hidden has 6 rows");
  expect_changes({
      {"id_logps", "upstream = @5", "upstream has 5 entries but the sets have 6"},
      {"soft_cross_entropy", "weights[3] = -0.5", "row 3, entry 0, = -0.5*a probability, not a logarithm"},
      {"soft_cross_entropy", "rows = @6x5 float32", "rows is set *targets are either dense or sparse"},
      // Ignored values are not read.
      {"soft_cross_entropy", "mask = @6 uint8; weights[1] = nan; sets.ids[1] = -7", ""},
  });
  const std::string dense = "sets.ids = ; sets.offsets = ; weights = ; rows = @6x5 float32; ";
  expect_changes({
      {"soft_cross_entropy", dense + "rows[7] = -1", "vocabulary entry *a probability, not a logarithm"},
  });
}

TEST(RefusedTensors, OfFinishedLogits) {
  expect_changes({
      {"cross_entropy of logits", "", ""},
      {"cross_entropy of logits", "d_hidden = @2x3x4 float32", "d_hidden is set, but finished logits have no"},
      {"cross_entropy of logits", "d_weight = @5x4 float32", "d_weight is set"},
      {"cross_entropy of logits", "d_bias = @5 float32", "d_bias is set"},
      {"cross_entropy of logits", "d_lora_a = @2x4 float32", "d_lora_a is set"},
      {"cross_entropy of logits", "d_lora_b = @5x2 float32", "d_lora_b is set"},
      {"cross_entropy of logits", "d_lora_states = @6x2 float32", "d_lora_states is set"},
      {"cross_entropy of logits", "logits = @2x3x0 float32; d_logits =", "logits.vocab = 0 must be positive"},
      {"cross_entropy of logits", "d_logits = @2x2x5 float32", "d_logits is [2, 2, 5] but logits is [2, 3, 5]"},
      {"cross_entropy of logits", "logits = @1099511627776x0x5 float32", "logits.batch = 1099511627776*2147483647"},
      {"cross_entropy of logits", "logits = @2x3x5 float32 /15,4,1", "logits.row_stride = 4*5 elements"},
      {"cross_entropy of logits", "logits = @2x3x5 float32 /4,5,1", "logits.batch_stride = 4*5 elements"},
      {"cross_entropy of logits", "d_logits = @2x3x5 float32 /15,3,1", "d_logits.row_stride = 3"},
      {"cross_entropy of logits", "d_logits = @2x3x5 float32 /14,5,1", "d_logits.batch_stride = 14*overlap*15"},
      {"cross_entropy of logits", "d_logits = @2x3x5 float32 /5,9,1", "d_logits.batch_stride = 5*row_stride = 9*10"},
      {"cross_entropy of logits", "logits = @2x3x5 float16; d_logits = @2x3x5 bfloat16",
       "d_logits is bfloat16 but must be float32 or logits's type, float16"},
      {"cross_entropy of logits", "logits = @2x3x5 float64", "d_logits is float32 but must be float64"},
      {"cross_entropy of logits", "d_logits = &logits + 4", "output d_logits overlaps input logits"},
      {"cross_entropy of logits", "d_logits = &logits + 116", "output d_logits overlaps input logits"},
      // In place requires the same strides and type.
      {"cross_entropy of logits", "d_logits = @2x3x5 float32 /18,6,1; d_logits = &logits",
       "output d_logits overlaps input logits"},
      {"cross_entropy of logits", "logits = @2x3x5 float16; d_logits = &logits",
       "output d_logits overlaps input logits"},
      {"cross_entropy of logits",
       "logits = @2x3x5 float32 /7,5,1; d_logits = @2x3x5 float32 /7,5,1; d_logits = &logits",
       "d_logits.batch_stride = 7*overlap"},
  });
}

TEST(RefusedTensors, OfALora) {
  const std::string lora = "lora_a = @3x4 float32; lora_b = @5x3 float32; ";
  const std::string states = "lora_states = @6x3 float32; lora_b = @5x3 float32; ";
  expect_changes({
      {"cross_entropy", lora, ""},
      {"cross_entropy", states, ""},
      {"cross_entropy", lora + "lora_b = @5x2", "lora_b has 2 columns but lora_a has 3 rows"},
      {"cross_entropy", lora + "lora_scale = 4e38", "lora_scale = 4e+38 does not fit in float32"},
      {"cross_entropy", lora + "d_lora_a = @2x4 float32", "d_lora_a is [2, 4] but lora_a is [3, 4]"},
      {"cross_entropy", "d_lora_a = @3x4 float32", "d_lora_a is set but the head has no lora_a"},
      {"cross_entropy", lora + states, "lora_a and lora_states are both set"},
      {"cross_entropy", states + "lora_scale = 2", "lora_scale = 2 must be 1 with lora_states"},
  });
}

}  // namespace refused_tensors_test
}  // namespace logitless::testing
