// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/ranks/part.h"

#include <cstring>
#include <numeric>
#include <string>
#include <utility>

namespace logitless::cli {
namespace {

constexpr const char* kWhat = "a rank's inputs";  // in messages

struct Range {
  int64_t begin, end;
};

Range share_of(int64_t all, int rank, int ranks) { return {all * rank / ranks, all * (rank + 1) / ranks}; }

std::vector<int64_t> all_of(const Range& range) {
  std::vector<int64_t> list(static_cast<size_t>(range.end - range.begin));
  std::iota(list.begin(), list.end(), range.begin);
  return list;
}

// Some of the entries of a tensor [outer, all, entry], side by side.
class Cut {
 public:
  Cut(size_t outer, int64_t all, size_t entry_bytes, std::vector<int64_t> which)
      : outer_(outer), row_(static_cast<size_t>(all) * entry_bytes), entry_(entry_bytes), which_(std::move(which)) {}

  size_t bytes() const { return outer_ * which_.size() * entry_; }
  void take(const std::byte* whole, std::byte* part) const {
    for_each_run(
        [&](size_t in_whole, size_t in_part, size_t bytes) { std::memcpy(part + in_part, whole + in_whole, bytes); });
  }
  void put(const std::byte* part, std::byte* whole) const {
    for_each_run(
        [&](size_t in_whole, size_t in_part, size_t bytes) { std::memcpy(whole + in_whole, part + in_part, bytes); });
  }

 private:
  template <class Copy>
  void for_each_run(const Copy& copy) const {
    for (size_t o = 0; o < outer_; ++o) {
      for (size_t i = 0, end = 0; i < which_.size(); i = end) {
        for (end = i + 1; end < which_.size() && which_[end] == which_[end - 1] + 1;) ++end;
        copy(o * row_ + static_cast<size_t>(which_[i]) * entry_, (o * which_.size() + i) * entry_, (end - i) * entry_);
      }
    }
  }

  size_t outer_, row_, entry_;
  std::vector<int64_t> which_;
};

Range entries_of(const RankPart& part) { return {part.first_entry, part.first_entry + part.entries}; }

// Of the head, its bias or their gradients.
Cut cut_of_words(const Job& job, const RankPart& part, size_t element, bool of_matrix, int64_t hidden_size) {
  const bool side_by_side = of_matrix && job.layout == HeadLayout::kHiddenVocab;
  const size_t hidden = static_cast<size_t>(hidden_size);
  return {side_by_side ? hidden : 1, job.vocab_size, of_matrix && !side_by_side ? hidden * element : element,
          all_of(entries_of(part))};
}

// Of what has an entry a token, a sequence or anything else.
Cut cut_of_rows(const TensorBytes& whole, int64_t all, const std::vector<int64_t>& which) {
  return {1, all, all > 0 ? whole.bytes / static_cast<size_t>(all) : 0, which};
}

Cut cut_of(const Job& whole, TensorId id, const RankPart& part) {
  const TensorBytes& tensor = whole[id];
  switch (id) {
    case TensorId::kWeight:
    case TensorId::kBias:
      return cut_of_words(whole, part, size_of(whole.dtype), id == TensorId::kWeight, whole.hidden_size);
    case TensorId::kTeacherWeight:
    case TensorId::kTeacherBias:
      return cut_of_words(whole, part, size_of(whole.teacher_dtype), id == TensorId::kTeacherWeight,
                          whole.teacher_size);
    case TensorId::kLoraA:  // whole, on every rank
    case TensorId::kDLoraA:
      return cut_of_rows(tensor, whole.lora_rank, all_of({0, whole.lora_rank}));
    case TensorId::kLoraB:
    case TensorId::kDLoraB:
      return cut_of_rows(tensor, whole.vocab_size, all_of(entries_of(part)));
    case TensorId::kDWeight:
    case TensorId::kDBias:
      return cut_of_words(whole, part, size_of(whole.gradient_dtype), id == TensorId::kDWeight, whole.hidden_size);
    case TensorId::kClassWeights:  // of all vocabulary entries, on every rank
      return cut_of_rows(tensor, whole.vocab_size, all_of({0, whole.vocab_size}));
    case TensorId::kKlLogps:
    case TensorId::kKlRefLogps:
      return cut_of_rows(tensor, tensor.count(sizeof(double)), part.kl);
    case TensorId::kLabels:
    case TensorId::kScores:
    case TensorId::kSequenceWeights:
    case TensorId::kRewardTargets:
      return cut_of_rows(tensor, whole.sequences, part.sequences);
    case TensorId::kAdvantages:
    case TensorId::kRefLogps:  // one a token or one a sequence
      if (tensor.count(sizeof(double)) != whole.tokens) return cut_of_rows(tensor, whole.sequences, part.sequences);
      break;
    default:
      break;
  }
  return cut_of_rows(tensor, whole.tokens, part.tokens);
}

void add_sequence(const Job& whole, int64_t sequence, RankPart& part) {
  const auto* offsets = whole[TensorId::kOffsets].as<int64_t>();
  const int64_t length = offsets ? 0 : whole.tokens / whole.sequences;
  const Range tokens =
      offsets ? Range{offsets[sequence], offsets[sequence + 1]} : Range{sequence * length, (sequence + 1) * length};
  part.sequences.push_back(sequence);
  for (int64_t token = tokens.begin; token < tokens.end; ++token) part.tokens.push_back(token);
  if (offsets) part.offsets.push_back(static_cast<int64_t>(part.tokens.size()));
}

}  // namespace

RankPart part_of(const io::Config& config, const Job& whole, const GridPlace& place) {
  RankPart part;
  const Range entries = share_of(whole.vocab_size, place.vocab, config.parallel.vocab);
  part.first_entry = entries.begin;
  part.entries = entries.end - entries.begin;

  const int ranks = config.parallel.data;
  const bool packed = whole.has(TensorId::kOffsets);
  const bool alone = ranks > 1 && config.runs<CrossEntropy>() && config.of<CrossEntropy>().token.shift == 0 && !packed;
  const bool pairs = ranks > 1 && config.runs<PreferenceLoss>();
  const int64_t units = alone ? whole.tokens : pairs ? whole.sequences / 2 : whole.sequences;
  if (ranks > 1 && units < ranks) {
    throw io::Error(config.place_of("parallel.data") + " = " + std::to_string(ranks) + ": the batch has " +
                    std::to_string(units) +
                    (alone   ? " tokens"
                     : pairs ? " pairs"
                             : " sequences"));
  }
  const Range own = share_of(units, place.data, ranks);
  if (alone) {
    part.tokens = all_of(own);
    part.sequences = {0};
    return part;
  }
  if (packed) part.offsets.push_back(0);
  for (int64_t s = own.begin; s < own.end; ++s) add_sequence(whole, s, part);
  for (int64_t s = own.begin; pairs && s < own.end; ++s) add_sequence(whole, units + s, part);
  part.kl = all_of(share_of(whole[TensorId::kKlLogps].count(sizeof(double)), place.data, ranks));
  return part;
}

Inputs inputs_of(const Job& whole, const RankPart& part) {
  Inputs own;
  own.job = whole;
  own.job.tensors = {};
  own.job.tokens = static_cast<int64_t>(part.tokens.size());
  own.job.sequences = static_cast<int64_t>(part.sequences.size());
  own.job.vocab_size = own.job.stored_entries = part.entries;
  for (size_t i = 0; i < kTensorCount; ++i) {
    const auto id = static_cast<TensorId>(i);
    if (!whole.has(id) || is_output(id)) continue;
    if (id == TensorId::kOffsets) {
      own.add_values(id, kWhat, part.offsets);
      continue;
    }
    const Cut cut = cut_of(whole, id, part);
    cut.take(whole[id].data, own.add(id, kWhat, cut.bytes()));
  }
  return own;
}

void put_output(TensorId id, const RankPart& part, std::span<const std::byte> from, const Job& whole) {
  cut_of(whole, id, part).put(from.data(), whole[id].writable());
}

}  // namespace logitless::cli
