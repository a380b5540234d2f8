// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/ranks/part.h"

#include <cstring>
#include <numeric>
#include <string>

namespace logitless::cli {
namespace {

struct Range {
  int64_t begin, end;
};

Range share_of(int64_t all, int rank, int ranks) { return {all * rank / ranks, all * (rank + 1) / ranks}; }

const char* name_of(TensorId id) {
  switch (id) {
    case TensorId::kHidden:
      return "hidden";
    case TensorId::kWeight:
      return "lm_head";
    default:
      return "a rank's inputs";
  }
}

// Copies rows of equal size.
void copy_rows(const TensorBytes& from, int64_t rows, const std::vector<int64_t>& which, std::byte* to) {
  if (which.empty()) return;
  const size_t bytes = from.bytes / static_cast<size_t>(rows);
  for (const int64_t row : which) {
    std::memcpy(to, from.data + static_cast<size_t>(row) * bytes, bytes);
    to += bytes;
  }
}

// Words stand side by side in each of the head's rows, or one after the other.
struct EntryLayout {
  size_t rows, row_bytes, first, bytes;

  EntryLayout(const Job& job, const RankPart& part, size_t element, bool of_matrix) {
    const auto entries = [&](int64_t count, size_t each) { return static_cast<size_t>(count) * each; };
    const bool side_by_side = of_matrix && job.layout == HeadLayout::kHiddenVocab;
    const size_t each = of_matrix && !side_by_side ? entries(job.hidden_size, element) : element;
    rows = side_by_side ? static_cast<size_t>(job.hidden_size) : 1;
    row_bytes = entries(job.vocab_size, each);
    first = entries(part.first_entry, each);
    bytes = entries(part.entries, each);
  }

  void take(const std::byte* from, std::byte* to) const {
    for (size_t r = 0; r < rows; ++r) std::memcpy(to + r * bytes, from + r * row_bytes + first, bytes);
  }
  void put(const std::byte* from, std::byte* to) const {
    for (size_t r = 0; r < rows; ++r) std::memcpy(to + r * row_bytes + first, from + r * bytes, bytes);
  }
};

std::vector<int64_t> all_of(const Range& range) {
  std::vector<int64_t> list(static_cast<size_t>(range.end - range.begin));
  std::iota(list.begin(), list.end(), range.begin);
  return list;
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
  const bool alone =
      ranks > 1 && config.task == io::Task::kCrossEntropy && !config.cross_entropy.token.shift && !packed;
  const bool pairs = ranks > 1 && config.task == io::Task::kDpo;
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
  const Range kl = share_of(whole[TensorId::kKlLogps].count(sizeof(double)), place.data, ranks);
  part.first_kl = kl.begin;
  part.kl = kl.end - kl.begin;
  return part;
}

Inputs inputs_of(const Job& whole, const RankPart& part) {
  Inputs own;
  own.job = whole;
  own.job.tensors = {};
  own.job.tokens = static_cast<int64_t>(part.tokens.size());
  own.job.sequences = static_cast<int64_t>(part.sequences.size());
  own.job.vocab_size = part.entries;
  const size_t element = size_of(whole.dtype);
  for (size_t i = 0; i < kTensorCount; ++i) {
    const auto id = static_cast<TensorId>(i);
    const TensorBytes& from = whole[id];
    if (!from || is_output(id)) continue;
    const auto rows = [&](int64_t count, const std::vector<int64_t>& which) {
      copy_rows(from, count, which,
                own.add(id, name_of(id), count > 0 ? from.bytes / static_cast<size_t>(count) * which.size() : 0));
    };
    switch (id) {
      case TensorId::kWeight:
      case TensorId::kBias: {
        const EntryLayout entries(whole, part, element, id == TensorId::kWeight);
        entries.take(from.data, own.add(id, name_of(id), entries.rows * entries.bytes));
        break;
      }
      case TensorId::kClassWeights:
        std::memcpy(own.add(id, name_of(id), from.bytes), from.data, from.bytes);
        break;
      case TensorId::kOffsets:
        own.add_values(id, name_of(id), part.offsets);
        break;
      case TensorId::kKlLogps:
      case TensorId::kKlRefLogps:
        std::memcpy(own.add(id, name_of(id), static_cast<size_t>(part.kl) * sizeof(double)),
                    from.data + static_cast<size_t>(part.first_kl) * sizeof(double),
                    static_cast<size_t>(part.kl) * sizeof(double));
        break;
      case TensorId::kLabels:
        rows(whole.sequences, part.sequences);
        break;
      case TensorId::kAdvantages:
      case TensorId::kRefLogps:  // one a token or one a sequence
        if (from.count(sizeof(double)) == whole.tokens) {
          rows(whole.tokens, part.tokens);
        } else {
          rows(whole.sequences, part.sequences);
        }
        break;
      default:
        rows(whole.tokens, part.tokens);
    }
  }
  return own;
}

void put_output(TensorId id, const RankPart& part, std::span<const std::byte> from, const Job& whole) {
  std::byte* to = whole[id].writable();
  if (id != TensorId::kDHidden) {
    EntryLayout(whole, part, size_of(whole.gradient_dtype), id == TensorId::kDWeight).put(from.data(), to);
    return;
  }
  const size_t bytes = static_cast<size_t>(whole.hidden_size) * size_of(whole.gradient_dtype);
  for (size_t i = 0; i < part.tokens.size(); ++i) {
    std::memcpy(to + static_cast<size_t>(part.tokens[i]) * bytes, from.data() + i * bytes, bytes);
  }
}

}  // namespace logitless::cli
