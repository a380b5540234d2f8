// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/ranks/part.h"

#include <array>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

namespace logitless::cli {
namespace {

struct Range {
  int64_t begin, end;
};

Range share_of(int64_t all, int rank, int ranks) { return {all * rank / ranks, all * (rank + 1) / ranks}; }

std::vector<int64_t> all_of(const Range& range) {
  std::vector<int64_t> list(static_cast<size_t>(range.end - range.begin));
  std::iota(list.begin(), list.end(), range.begin);
  return list;
}

// Selected entries of a tensor [outer, all, entry]. Copies them to a dense part and back.
class Cut {
 public:
  Cut(size_t outer, int64_t all, size_t entry_bytes, std::vector<int64_t> selected)
      : outer_(outer),
        row_(static_cast<size_t>(all) * entry_bytes),
        entry_(entry_bytes),
        selected_(std::move(selected)) {}

  int64_t count() const { return std::ssize(selected_); }
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
      for (size_t i = 0, end = 0; i < selected_.size(); i = end) {
        for (end = i + 1; end < selected_.size() && selected_[end] == selected_[end - 1] + 1;) ++end;
        copy(o * row_ + static_cast<size_t>(selected_[i]) * entry_, (o * selected_.size() + i) * entry_,
             (end - i) * entry_);
      }
    }
  }

  size_t outer_, row_, entry_;
  std::vector<int64_t> selected_;
};

// Throws unless the axis that ranks share has one entry per token, sequence, vocabulary entry or mismatched
// completion of the whole job.
void check_axis(const std::string& name, const JobTensor& tensor, const Job& whole) {
  const size_t axis = tensor.axes.find_first_of("NBVJ");
  if (axis == std::string::npos) return;
  const char what = tensor.axes[axis];
  const auto [want, of] = what == 'N'   ? std::pair(whole.tokens, " tokens")
                          : what == 'B' ? std::pair(whole.sequences, " sequences")
                          : what == 'V' ? std::pair(whole.vocab_size, " vocabulary entries")
                                        : std::pair(whole["kl_logps"].view.count(), " entries of kl_logps");
  if (tensor.view.sizes[axis] == want) return;
  throw io::Error(flag_of(name) + " has " + std::to_string(tensor.view.sizes[axis]) +
                  " entries, but must have one for each of the " + std::to_string(want) + of);
}

// Returns a rank's part of a tensor: its entries of the axis that ranks share, or everything if there is no
// such axis.
Cut cut_of(const JobTensor& tensor, const RankPart& part) {
  const size_t axis = tensor.axes.find_first_of("NBVJ");
  if (axis == std::string::npos) return {1, 1, tensor.bytes(), {0}};
  size_t outer = 1, entry_bytes = size_of(tensor.view.dtype);
  for (size_t i = 0; i < tensor.axes.size(); ++i) {
    if (i != axis) (i < axis ? outer : entry_bytes) *= static_cast<size_t>(tensor.view.sizes[i]);
  }
  const char what = tensor.axes[axis];
  const std::vector<int64_t> entries = all_of({part.first_entry, part.first_entry + part.entries});
  return {outer, tensor.view.sizes[axis], entry_bytes,
          what == 'N'   ? part.tokens
          : what == 'B' ? part.sequences
          : what == 'V' ? entries
                        : part.kl};
}

void add_sequence(const Job& whole, int64_t sequence, RankPart& part) {
  const auto* offsets = whole["offsets"].values<int64_t>().data();
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
  const bool packed = whole.has("offsets");
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
  part.kl = all_of(share_of(whole["kl_logps"].view.count(), place.data, ranks));
  return part;
}

Inputs inputs_of(const Job& whole, const RankPart& part) {
  Inputs own;
  own.job = whole;
  own.job.tensors = {};
  own.job.tokens = static_cast<int64_t>(part.tokens.size());
  own.job.sequences = static_cast<int64_t>(part.sequences.size());
  own.job.vocab_size = own.job.stored_entries = part.entries;
  for (const auto& [name, tensor] : whole.tensors) {
    if (is_output(name)) continue;
    if (name == "offsets") {
      own.add_values(name, tensor.axes, part.offsets);
      continue;
    }
    check_axis(name, tensor, whole);
    const Cut cut = cut_of(tensor, part);
    std::array<int64_t, 3> sizes = tensor.view.sizes;
    if (const size_t axis = tensor.axes.find_first_of("NBVJ"); axis != std::string::npos) sizes[axis] = cut.count();
    std::byte* const to = own.add(name, tensor.axes, tensor.view.dtype, sizes[0], tensor.view.axes > 1 ? sizes[1] : 1);
    cut.take(tensor.as_bytes().data(), to);
  }
  return own;
}

void put_output(const std::string& name, const RankPart& part, std::span<const std::byte> from, const Job& whole) {
  const JobTensor& to = whole[name];
  cut_of(to, part).put(from.data(), static_cast<std::byte*>(to.output().data));
}

}  // namespace logitless::cli
