// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "ranks/meeting.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include "core/checks.h"
#include "core/integers.h"

namespace logitless {

Communicator::~Communicator() = default;

namespace ranks {
namespace {

// A rank says what it does next, with how many bytes, and the digest of its statement, before every exchange.
enum Step : int64_t { kFailed, kAgree, kGather, kScatter };
using Said = std::array<int64_t, 3>;
// What ranks say of themselves before an exchange is 1.5 MiB then, and the messages of a failure 16 MiB.
constexpr int kMostRanks = 1 << 16;
// A message that is longer is cut.
constexpr size_t kMessageBytes = 256;

// Memory that is there when the heap's is not, unless there are very many ranks.
class Scratch {
 public:
  explicit Scratch(size_t bytes) {
    if (bytes > sizeof small_) large_.resize(bytes);
  }
  char* data() { return large_.empty() ? small_ : large_.data(); }

 private:
  alignas(int64_t) char small_[64 << 10];
  std::vector<char> large_;
};

void exchange_messages(Communicator& communicator, std::string_view mine, Scratch& all) {
  char text[kMessageBytes] = {};
  mine.copy(text, kMessageBytes - 1);
  communicator.all_gather(text, all.data(), kMessageBytes);
}

// Meets the others where they are next, with a failure.
void fail_to(Communicator* communicator, std::string_view message) noexcept {
  if (!communicator) return;
  try {
    // With a size that is none, there was no call to meet in.
    if (communicator->size() < 1 || communicator->size() > kMostRanks) return;
    const Said mine = {kFailed};
    Scratch all(kMessageBytes * static_cast<size_t>(communicator->size()));
    communicator->all_gather(mine.data(), all.data(), sizeof mine);
    exchange_messages(*communicator, message, all);
  } catch (...) {
    // The others are lost; what this rank throws is known.
  }
}

std::string another_call(std::string_view group) {
  return "the ranks of ranks." + std::string(group) + " do not make the same call: ";
}

const char* what_of(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();  // It lives as long as `error`.
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace

Group::Group(std::string_view name, Communicator* communicator, Group* before)
    : name_(name), communicator_(communicator), before_(before) {
  if (!communicator) return;
  size_ = communicator->size();
  rank_ = communicator->rank();
  if (size_ < 1) core::fail("ranks.", name, ": size() = ", size_, " must be positive");
  if (size_ > kMostRanks) core::fail("ranks.", name, ": size() = ", size_, " is above ", kMostRanks);
  if (rank_ < 0 || rank_ >= size_) core::fail("ranks.", name, ": rank() = ", rank_, " is outside [0, ", size_, ")");
  said_.resize(std::tuple_size_v<Said> * static_cast<size_t>(size_));
}

void Group::say(int64_t step, size_t bytes) {
  if (left_) throw RankError("ranks." + std::string(name_) + ": the other ranks have been left");
  if (before_) before_->agree();
  const Said mine = {step, static_cast<int64_t>(bytes), static_cast<int64_t>(statement_.digest())};
  carry([&](Communicator& c) { c.all_gather(mine.data(), said_.data(), sizeof mine); });
  const auto said = [&](int r, size_t i) { return said_[std::tuple_size_v<Said> * static_cast<size_t>(r) + i]; };
  for (int r = 0; r < size_; ++r) {
    if (said(r, 0) != kFailed) continue;
    left_ = true;
    Scratch messages(kMessageBytes * static_cast<size_t>(size_));
    exchange_messages(*communicator_, {}, messages);
    throw RankError("rank " + std::to_string(r) + " of ranks." + std::string(name_) + ": " +
                    (messages.data() + kMessageBytes * static_cast<size_t>(r)));
  }
  for (int r = 0; r < size_; ++r) {
    if (said(r, 2) != said(0, 2)) explain();
  }
  for (int r = 0; r < size_; ++r) {
    if (said(r, 0) == said(0, 0) && said(r, 1) == said(0, 1)) continue;
    left_ = true;
    constexpr const char* kSteps[] = {"fails", "waits", "gathers", "scatters"};
    const auto text = [&](int i) {
      return "rank " + std::to_string(i) + " " + kSteps[std::clamp<int64_t>(said(i, 0), kFailed, kScatter)] + " " +
             std::to_string(said(i, 1)) + " bytes";
    };
    throw RankError(another_call(name_) + text(0) + " where " + text(r));
  }
}

void Group::explain() {
  left_ = true;
  const std::string mine = statement_.lines();
  const uint64_t length = mine.size();
  core::Array<uint64_t> lengths(static_cast<size_t>(size_));
  communicator_->all_gather(&length, lengths.data(), sizeof length);
  const size_t most = *std::max_element(lengths.begin(), lengths.end());
  core::Array<char> padded(mine.begin(), mine.end()), all(most * lengths.size());
  padded.resize(most);
  communicator_->all_gather(padded.data(), all.data(), most);
  const auto lines = [&](int r) {
    return std::string_view(all.data() + static_cast<size_t>(r) * most, lengths[static_cast<size_t>(r)]);
  };
  // All ranks tell of the same line: the first in which some rank differs from rank 0.
  int other = 0;
  while (other < size_ - 1 && lines(other) == lines(0)) ++other;
  const Parting parting = first_parting(lines(0), lines(other));
  if (parting.in_entries) throw RankError(another_call(name_) + different_entry(parting.line, lines(0), other));
  const std::string_view line = line_of(mine, parting.line);
  const int theirs = line == line_of(lines(0), parting.line) ? other : 0;
  throw RankError(another_call(name_) + difference(line, line_of(lines(theirs), parting.line), theirs));
}

std::string Group::different_entry(size_t line, std::string_view lines_of_first, int other) {
  // Ranks hash equal parts of the entries, and go on with the first part that differs.
  constexpr int64_t kParts = 64;
  const Entries* entries = statement_.entries(line);
  int64_t begin = 0, end = entry_count(line_of(lines_of_first, line));
  const int64_t count = end;
  std::array<uint64_t, kParts> parts;
  core::Array<uint64_t> all(kParts * static_cast<size_t>(size_));
  while (end - begin > 1) {
    const int64_t step = core::div_up(end - begin, kParts);
    for (int64_t p = 0; p < kParts; ++p) {
      const int64_t from = std::min(end, begin + p * step), to = std::min(end, from + step);
      parts[static_cast<size_t>(p)] = entries && entries->size == count ? entries->digest(from, to) : 0;
    }
    communicator_->all_gather(parts.data(), all.data(), sizeof parts);
    const auto theirs = all.begin() + static_cast<ptrdiff_t>(kParts) * other;
    const auto part = std::mismatch(all.begin(), all.begin() + kParts, theirs).first - all.begin();
    begin += std::min<int64_t>(part, kParts - 1) * step;
    end = std::min(end, begin + step);
  }
  struct Entry {
    uint64_t bits = 0;
    char text[120] = {};
  } mine;
  if (entries && entries->size == count) {
    mine.bits = entries->bits(begin);
    if (entries->text) entries->text(begin).copy(mine.text, sizeof mine.text - 1);
  }
  core::Array<Entry> of_ranks(static_cast<size_t>(size_));
  communicator_->all_gather(&mine, of_ranks.data(), sizeof mine);
  const int theirs = mine.bits == of_ranks[0].bits ? other : 0;
  const std::string rank = "rank " + std::to_string(theirs);
  // A rank that differs in an earlier line may have no such entries.
  if (!entries) return text_of_line(line_of(lines_of_first, line)) + " on rank 0, and others on " + rank;
  const std::string name = entries->name_of(begin);
  if (!entries->text) return name + " has other values here than on " + rank;
  return name + " = " + mine.text + " here, where " + rank + " has " + of_ranks[static_cast<size_t>(theirs)].text;
}

void Group::gather(const void* mine, void* all, size_t bytes) {
  if (!communicator_) {
    std::copy_n(static_cast<const std::byte*>(mine), bytes, static_cast<std::byte*>(all));
    return;
  }
  say(kGather, bytes);
  carry([&](Communicator& c) { c.all_gather(mine, all, bytes); });
}

void Group::scatter(const void* mine, void* theirs, size_t bytes) {
  if (!communicator_) {
    std::copy_n(static_cast<const std::byte*>(mine), bytes, static_cast<std::byte*>(theirs));
    return;
  }
  say(kScatter, bytes);
  carry([&](Communicator& c) { c.all_to_all(mine, theirs, bytes); });
}

void Group::agree() {
  if (communicator_) say(kAgree, 0);
}

int64_t Group::most_before(int64_t mine) {
  if (!before_) return mine;
  const core::Array<int64_t> all = before_->all_gather(mine);
  return *std::max_element(all.begin(), all.end());
}

void Group::sit_out() {
  if (before_) before_->agree();
}

void Group::leave(std::string_view message) noexcept {
  if (!left_) fail_to(communicator_, message);
  left_ = true;
}

void Meeting::leave(const std::exception_ptr& error) noexcept {
  vocab.leave(what_of(error));
  data.leave(what_of(error));
}

void leave(const Ranks& ranks, const std::exception_ptr& error) noexcept {
  fail_to(ranks.vocab, what_of(error));
  fail_to(ranks.data, what_of(error));
}

}  // namespace ranks
}  // namespace logitless
