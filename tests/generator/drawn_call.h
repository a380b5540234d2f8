// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Describes a call of any task by a few numbers and names, which a generator draws and shrinks:
//
//     DrawnCall call;
//     call.task = "policy_loss";
//     call.options = {{"beta", "0.5"}};
//     call.vocab = 65;
//     EXPECT_EQ(fault_of(call), "");
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "logitless/context.h"
#include "logitless/dtype.h"
#include "logitless/gradients.h"
#include "logitless/packed.h"

namespace logitless::testing {

/// The distribution of the tensors' numbers.
enum class Values {
  kNormal,
  kCertain,  ///< each row is nearly certain of one entry
  kTies,     ///< half of the rows have equal logits
  kOffset,   ///< logits share an offset of 2^20
  kMasked,   ///< every fourth entry has a bias of -inf
  kLarge,    ///< logits up to about 10^4
  kWhole,    ///< small integers: logits are exact, and many are equal
};

/// The workspace budget of a call.
enum class Budget {
  kDefault,
  kSmall,  ///< 48 KiB
  kLeast,  ///< the smallest that the call accepts
};

/// Where the tensors of a call are allocated.
enum class Place {
  kHeap,       ///< between guard bytes, which must not change
  kPageEnd,    ///< before a forbidden page
  kPageBegin,  ///< after a forbidden page
};

}  // namespace logitless::testing

namespace logitless {
template <>
inline constexpr std::array kNamesOf<testing::Values> = {"normal", "certain", "ties", "offset",
                                                         "masked", "large",   "whole"};
template <>
inline constexpr std::array kNamesOf<testing::Budget> = {"default", "small", "least"};
template <>
inline constexpr std::array kNamesOf<testing::Place> = {"heap", "page_end", "page_begin"};
}  // namespace logitless

namespace logitless::testing {

/// visit_fields() below lists the fields. code_of() omits those with their default.
struct DrawnCall {
  std::string task = "cross_entropy";
  std::vector<std::pair<std::string, std::string>> options = {};  ///< name and value of each
  int64_t sequences = 2, time = 2, hidden = 3, vocab = 5;
  bool packed = false;  ///< sequences of unequal length, one of them empty
  Values values = Values::kNormal;
  uint64_t seed = 1;
  Place place = Place::kHeap;

  // The logits.
  bool finished = false;
  DType states = DType::kFloat32, head = DType::kFloat32;
  bool head_transposed = false, bias = false;
  int64_t states_gap = 0, head_gap = 0;  ///< elements between rows
  bool time_first = false;               ///< [T, B, H] in memory
  int64_t sequence_gap = 0;              ///< rows between sequences
  double softcap = 0;
  int64_t lora_rank = 0;
  DType lora = DType::kFloat32;
  bool lora_states = false;
  double lora_scale = 0.5;  ///< not drawn: a teacher or reference has a different one
  std::optional<Packing> packing = {};
  bool scale_groups = false;  ///< int8, nf4: several scales per row
  bool vocab_ids = false;

  // The tensors of the task.
  DType numbers = DType::kFloat64;  ///< of log-probabilities, advantages, weights
  bool ids32 = false, strided_ids = false, per_token = false, mask = false, old_logps = true;
  bool model_as_reference = false;  ///< states and a head instead of log-probabilities
  bool dense_targets = false, padded_sets = false, targets = true;
  bool kept = false;              ///< policy loss: with the ids that the sampler kept
  bool all_ignored = false;       ///< all tokens are ignored
  bool other_differs = false;     ///< the reference model or teacher differs in type, softcap and bias
  bool teacher_logits = false;    ///< a teacher with finished logits, for a student with hidden states
  bool upstream_of_each = false;  ///< one ∂L/∂loss per token
  bool temperatures = false, weights_of_entries = false;

  // The gradients.
  bool d_hidden = true, d_weight = true, d_bias = true, d_lora_a = true, d_lora_b = true;
  bool narrow_outputs = false;  ///< gradients have the inputs' type
  bool accumulate = false, sink = false, in_place = false;
  bool sink_overwrites = false;  ///< the sink then sets its tile of the head to NaN
  bool lora_overwrites = false;  ///< even if other gradients accumulate
  int64_t output_gap = 0, output_sequence_gap = 0;
  bool output_time_first = false;
  BackwardMode backward = BackwardMode::kExact;

  // The execution.
  PlanKind plan = PlanKind::kAuto;
  Budget budget = Budget::kDefault;
  int64_t threads = 1, row_tile = 0, vocab_tile = 0, row_block = 0;
  int64_t backend = 0, kernels = 0;  ///< 0: auto; n: the n-th on this machine
  bool halves = false, reuse = false;
  GradientPrecision precision = GradientPrecision::kNative;
  int64_t slices = 1, vocab_ranks = 1, data_ranks = 1;  ///< ranks form a grid

  int64_t tokens() const { return sequences * time; }
};

/// Calls visit(name, member, {default, other values}) for every field except task, options and seed.
template <class Visit>
void visit_fields(DrawnCall& c, const Visit& visit) {
  using enum DType;
  const auto pick = [&]<class T>(const char* name, T& member, std::type_identity_t<std::initializer_list<T>> values) {
    visit(name, member, values);
  };
  const auto flag = [&](const char* name, bool& member, bool by_default = false) {
    pick(name, member, {by_default, !by_default});
  };
  pick("sequences", c.sequences, {2, 4, 1, 6});
  pick("time", c.time, {2, 0, 1, 3, 5, 8, 16, 33});
  pick("hidden", c.hidden, {3, 1, 2, 8, 17, 64, 65});
  pick("vocab", c.vocab, {5, 3, 4, 31, 63, 64, 65, 129, 257, 2049});
  flag("packed", c.packed);
  pick("values", c.values,
       {Values::kNormal, Values::kCertain, Values::kTies, Values::kOffset, Values::kMasked, Values::kLarge,
        Values::kWhole});
  pick("place", c.place, {Place::kHeap, Place::kPageEnd, Place::kPageBegin});
  flag("finished", c.finished);
  pick("states", c.states, {kFloat32, kBFloat16, kFloat64, kFloat16});
  pick("head", c.head, {kFloat32, kBFloat16, kFloat64, kFloat16});
  flag("head_transposed", c.head_transposed), flag("bias", c.bias);
  pick("states_gap", c.states_gap, {0, 1, 5});
  pick("head_gap", c.head_gap, {0, 1, 5});
  flag("time_first", c.time_first);
  pick("sequence_gap", c.sequence_gap, {0, 1, 2});
  pick("softcap", c.softcap, {0.0, 3.0, 30.0});
  pick("lora_rank", c.lora_rank, {0, 1, 4, 20});
  pick("lora", c.lora, {kFloat32, kBFloat16, kFloat64, kFloat16});
  flag("lora_states", c.lora_states);
  pick("packing", c.packing,
       {std::optional<Packing>(), std::optional(Packing::kInt8), std::optional(Packing::kQ8_0),
        std::optional(Packing::kNf4), std::optional(Packing::kQ4_0), std::optional(Packing::kQ4K),
        std::optional(Packing::kQ5K), std::optional(Packing::kQ6K)});
  flag("scale_groups", c.scale_groups), flag("vocab_ids", c.vocab_ids);
  pick("numbers", c.numbers, {kFloat64, kFloat32, kBFloat16, kFloat16});
  flag("ids32", c.ids32), flag("strided_ids", c.strided_ids), flag("per_token", c.per_token), flag("mask", c.mask);
  flag("old_logps", c.old_logps, true), flag("model_as_reference", c.model_as_reference);
  flag("dense_targets", c.dense_targets), flag("padded_sets", c.padded_sets), flag("targets", c.targets, true);
  flag("kept", c.kept), flag("all_ignored", c.all_ignored), flag("other_differs", c.other_differs);
  flag("teacher_logits", c.teacher_logits);
  flag("upstream_of_each", c.upstream_of_each), flag("temperatures", c.temperatures);
  flag("weights_of_entries", c.weights_of_entries);
  flag("d_hidden", c.d_hidden, true), flag("d_weight", c.d_weight, true), flag("d_bias", c.d_bias, true);
  flag("d_lora_a", c.d_lora_a, true), flag("d_lora_b", c.d_lora_b, true);
  flag("narrow_outputs", c.narrow_outputs), flag("accumulate", c.accumulate), flag("sink", c.sink);
  flag("in_place", c.in_place), flag("sink_overwrites", c.sink_overwrites);
  flag("lora_overwrites", c.lora_overwrites);
  pick("output_gap", c.output_gap, {0, 3});
  pick("output_sequence_gap", c.output_sequence_gap, {0, 1, 2});
  flag("output_time_first", c.output_time_first);
  pick("backward", c.backward, {BackwardMode::kExact, BackwardMode::kSampled, BackwardMode::kCertified});
  pick("plan", c.plan, {PlanKind::kAuto, PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kExpectedRow});
  pick("budget", c.budget, {Budget::kDefault, Budget::kSmall, Budget::kLeast});
  pick("threads", c.threads, {1, 2, 3});
  pick("row_tile", c.row_tile, {0, 1, 7, 16});
  pick("vocab_tile", c.vocab_tile, {0, 1, 16, 64, 65});
  pick("row_block", c.row_block, {0, 1, 3});
  pick("backend", c.backend, {0, 1, 2, 3});
  pick("kernels", c.kernels, {0, 1, 2, 3, 4, 5, 6, 7});
  flag("halves", c.halves), flag("reuse", c.reuse);
  pick("precision", c.precision, {GradientPrecision::kNative, GradientPrecision::kSplit, GradientPrecision::kFloat32});
  pick("slices", c.slices, {1, 2, 3});
  pick("vocab_ranks", c.vocab_ranks, {1, 2, 3});
  pick("data_ranks", c.data_ranks, {1, 2});
}

/// Draws a call; the same number gives the same call.
DrawnCall draw_call(uint64_t random);
/// Returns calls that are simpler in one field or option.
std::vector<DrawnCall> simpler_calls(const DrawnCall& call);
/// Returns the call as C++ code.
std::string code_of(const DrawnCall& call);

/// The outcome of a call.
struct Verdict {
  std::string fault = {};    ///< what the call did wrong; empty: nothing
  std::string refusal = {};  ///< the message of a call that was refused
};
/// Runs the call, compares all its results with the oracle, and checks the library's other promises.
Verdict check(const DrawnCall& call);
inline std::string fault_of(const DrawnCall& call) { return check(call).fault; }
/// Runs the call once, and returns the bytes of its results and gradients; none if it is refused. OpenMP
/// chooses the team if `threads` is 0.
std::vector<std::byte> bytes_of_call(const DrawnCall& call);

}  // namespace logitless::testing
