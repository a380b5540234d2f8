// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "ranks/cut.h"

#include "core/checks.h"

namespace logitless::ranks {

HeadTypes head_types(const Heads& heads, const GradientMatrices& outputs) {
  const HeadMatrices& head = heads.head;
  const auto type_of = [](const auto& tensor) { return tensor.data ? static_cast<int64_t>(tensor.dtype) : -1; };
  HeadTypes types;
  types.entries = head.vocab_size();
  const auto types_of = [&](const HeadMatrices& of) -> HeadTypes::Of {
    return {static_cast<int64_t>(of.weight.dtype),
            static_cast<int64_t>(of.layout),
            type_of(of.bias),
            of.packed.given() ? static_cast<int64_t>(of.packed.packing) : -1,
            of.packed.group,
            of.ids.empty() ? -1 : 1,
            of.lora.given() && !of.lora.has_states() ? static_cast<int64_t>(of.lora.a.dtype) : -1,
            of.lora.has_states() ? static_cast<int64_t>(of.lora.states.dtype) : -1,
            of.lora.given() ? static_cast<int64_t>(of.lora.b.dtype) : -1,
            of.lora.rank()};
  };
  types.head = types_of(head);
  if (heads.teacher) types.teacher = types_of(*heads.teacher);
  types.d_weight = type_of(outputs.d_weight);
  types.weight_sink = outputs.weight_sink ? 1 : -1;
  types.d_bias = type_of(outputs.d_bias);
  types.d_lora_b = type_of(outputs.d_lora_b);
  types.wants_gradients = outputs.any() ? 1 : 0;
  return types;
}

Cut cut_of_slice(Group& group, const Ranks& ranks, const HeadTypes& types) {
  if (ranks.vocab || ranks.data || !ranks.slices.empty()) {
    core::fail(
        "ranks.slice is set together with ranks.vocab, ranks.data or ranks.slices: its caller does the exchange");
  }
  const VocabSlice& slice = *ranks.slice;
  if (types.entries == 0) core::fail("weight has no vocabulary entries");
  if (slice.first < 0 || slice.vocab_size < types.entries || slice.first > slice.vocab_size - types.entries) {
    core::fail("ranks.slice begins at ", slice.first, " and weight has ", types.entries,
               " vocabulary entries, which is not within a vocabulary of ", slice.vocab_size);
  }
  Cut cut;
  cut.group = &group;
  cut.vocab_size = slice.vocab_size;
  cut.first_entry = slice.first;
  cut.entries = {types.entries};
  cut.slices = {1};
  cut.types = types;
  cut.wants_gradients = types.wants_gradients != 0;
  cut.gathered = slice.gathered;
  return cut;
}

Cut agree_on_cut(Group& group, const Ranks& ranks, const HeadTypes& types) {
  core::Array<int64_t> mine(ranks.slices.begin(), ranks.slices.end());
  if (mine.empty()) mine = {types.entries};
  int64_t sum = 0;
  for (size_t s = 0; s < mine.size(); ++s) {
    if (mine[s] < 0) core::fail("ranks.slices[", s, "] = ", mine[s], " must not be negative");
    if (__builtin_add_overflow(sum, mine[s], &sum)) {
      core::fail("ranks.slices[", s, "] = ", mine[s], " makes the sum of the slices overflow, but weight has ",
                 types.entries, " vocabulary entries");
    }
  }
  if (sum != types.entries) core::fail("ranks.slices has ", sum, " vocabulary entries but weight has ", types.entries);

  Cut cut;
  cut.group = &group;
  cut.own_d_hidden = ranks.own_d_hidden;
  cut.slices = group.all_gather(static_cast<int64_t>(mine.size()));
  const auto most = static_cast<size_t>(cut.most_slices());
  mine.resize(most, 0);
  core::Array<int64_t> all(most * static_cast<size_t>(group.size()));
  group.all_gather(std::span<const int64_t>(mine), std::span(all));
  for (size_t r = 0; r < cut.slices.size(); ++r) {
    const auto from = all.begin() + static_cast<ptrdiff_t>(r * most);
    cut.entries.insert(cut.entries.end(), from, from + static_cast<ptrdiff_t>(cut.slices[r]));
  }
  if (cut.most_entries() == 0) core::fail("weight has no vocabulary entries on any rank");
  const size_t own = cut.first_slice(group.rank());
  for (size_t s = 0; s < cut.entries.size(); ++s) {
    if (s == own) cut.first_entry = cut.vocab_size;
    if (__builtin_add_overflow(cut.vocab_size, cut.entries[s], &cut.vocab_size)) {
      core::fail("the vocabulary entries of all ranks do not fit 64 bits");
    }
  }
  for (const HeadTypes& rank : group.all_gather(types)) {
    if (cut.types.entries == 0) cut.types = rank;
    cut.wants_gradients |= rank.wants_gradients != 0;
  }
  return cut;
}

}  // namespace logitless::ranks
