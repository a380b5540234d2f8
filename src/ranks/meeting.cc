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

// Before every exchange each rank sends its next step, the number of bytes, and one digest of its fields.
enum Step : int64_t { kFailed, kBarrier, kGather, kScatter };
using Header = std::array<int64_t, 3>;
// With this many ranks, the headers of an exchange take 1.5 MiB, and the messages of a failure 16 MiB.
constexpr int kMostRanks = 1 << 16;
// Longer messages are truncated.
constexpr size_t kMessageBytes = 256;

// Scratch on the stack, so that it is available when the heap is exhausted; very many ranks need the heap.
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

// Joins the other ranks in their next exchange and reports a failure.
void fail_to(Communicator* communicator, std::string_view message) noexcept {
  if (!communicator) return;
  try {
    // The constructor of Group refused this size, so the other ranks are not in a call.
    if (communicator->size() < 1 || communicator->size() > kMostRanks) return;
    const Header mine = {kFailed};
    Scratch all(kMessageBytes * static_cast<size_t>(communicator->size()));
    communicator->all_gather(mine.data(), all.data(), sizeof mine);
    exchange_messages(*communicator, message, all);
  } catch (...) {
    // The other ranks cannot be told. This rank throws its own error.
  }
}

std::string another_call(std::string_view group) {
  return "the ranks of ranks." + std::string(group) + " do not make the same call: ";
}

const char* message_of(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();  // valid as long as `error`
  } catch (...) {
    return "an exception of an unknown type";
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
  headers_.resize(std::tuple_size_v<Header> * static_cast<size_t>(size_));
}

void Group::exchange_headers(int64_t step, size_t bytes) {
  if (unreachable_) throw RankError("ranks." + std::string(name_) + ": the other ranks can no longer be reached");
  if (before_) before_->barrier();
  const Header mine = {step, static_cast<int64_t>(bytes), static_cast<int64_t>(digests_.digest())};
  call_communicator([&](Communicator& c) { c.all_gather(mine.data(), headers_.data(), sizeof mine); });
  const auto header_field = [&](int r, size_t i) {
    return headers_[std::tuple_size_v<Header> * static_cast<size_t>(r) + i];
  };
  for (int r = 0; r < size_; ++r) {
    if (header_field(r, 0) != kFailed) continue;
    unreachable_ = true;
    Scratch messages(kMessageBytes * static_cast<size_t>(size_));
    exchange_messages(*communicator_, {}, messages);
    throw RankError("rank " + std::to_string(r) + " of ranks." + std::string(name_) + ": " +
                    (messages.data() + kMessageBytes * static_cast<size_t>(r)));
  }
  for (int r = 0; r < size_; ++r) {
    if (header_field(r, 2) != header_field(0, 2)) throw_difference();
  }
  for (int r = 0; r < size_; ++r) {
    if (header_field(r, 0) == header_field(0, 0) && header_field(r, 1) == header_field(0, 1)) continue;
    unreachable_ = true;
    constexpr const char* kSteps[] = {"fails", "waits", "gathers", "scatters"};
    const auto text = [&](int i) {
      return "rank " + std::to_string(i) + " " + kSteps[std::clamp<int64_t>(header_field(i, 0), kFailed, kScatter)] +
             " " + std::to_string(header_field(i, 1)) + " bytes";
    };
    throw RankError(another_call(name_) + text(0) + " where " + text(r));
  }
}

void Group::throw_difference() {
  unreachable_ = true;
  const std::span<const Digests::Field> fields = digests_.fields();
  const auto ranks = static_cast<size_t>(size_);
  const uint64_t count = fields.size();
  core::Array<uint64_t> counts(ranks);
  communicator_->all_gather(&count, counts.data(), sizeof count);
  const size_t most = *std::max_element(counts.begin(), counts.end());
  core::Array<uint64_t> mine(most), all(most * ranks);
  for (size_t i = 0; i < count; ++i) mine[i] = fields[i].digest;
  communicator_->all_gather(mine.data(), all.data(), most * sizeof(uint64_t));
  // Find the first field in which some rank differs from rank 0. Missing fields of a rank are zeros.
  size_t field = most, other = 0;
  for (size_t r = 1; r < ranks; ++r) {
    size_t first = 0;
    while (first < field && all[r * most + first] == all[first]) ++first;
    if (first < field) field = first, other = r;
  }
  struct Text {
    char name[64] = {}, value[64] = {};
  } text;
  if (field < count) {
    fields[field].name.copy(text.name, sizeof text.name - 1);
    fields[field].text.copy(text.value, sizeof text.value - 1);
  }
  core::Array<Text> texts(ranks);
  communicator_->all_gather(&text, texts.data(), sizeof text);
  const auto name = [&](size_t rank) { return std::string(texts[rank].name); };
  const auto value = [&](size_t rank) { return std::string(texts[rank].value); };
  const std::string other_rank = "rank " + std::to_string(other);
  if (name(0) != name(other)) {
    const auto given = [&](size_t rank) {
      return name(rank).empty() ? "nothing more" : name(rank) + " = " + value(rank);
    };
    throw RankError(another_call(name_) + "rank 0 has " + given(0) + " where " + other_rank + " has " + given(other));
  }
  throw RankError(name(0) + " must be the same on all ranks of ranks." + std::string(name_) + ": " +
                  (value(0) == value(other)
                       ? "the values of rank 0 and " + other_rank + " differ"
                       : "rank 0 has " + value(0) + " where " + other_rank + " has " + value(other)));
}

void Group::gather(const void* mine, void* all, size_t bytes) {
  if (!communicator_) {
    std::copy_n(static_cast<const std::byte*>(mine), bytes, static_cast<std::byte*>(all));
    return;
  }
  exchange_headers(kGather, bytes);
  call_communicator([&](Communicator& c) { c.all_gather(mine, all, bytes); });
}

void Group::scatter(const void* mine, void* theirs, size_t bytes) {
  if (!communicator_) {
    std::copy_n(static_cast<const std::byte*>(mine), bytes, static_cast<std::byte*>(theirs));
    return;
  }
  exchange_headers(kScatter, bytes);
  call_communicator([&](Communicator& c) { c.all_to_all(mine, theirs, bytes); });
}

void Group::barrier() {
  if (communicator_) exchange_headers(kBarrier, 0);
}

int64_t Group::most_before(int64_t mine) {
  if (!before_) return mine;
  const core::Array<int64_t> all = before_->all_gather(mine);
  return *std::max_element(all.begin(), all.end());
}

void Group::skip_exchange() {
  if (before_) before_->barrier();
}

void Group::report_failure(std::string_view message) noexcept {
  if (!unreachable_) fail_to(communicator_, message);
  unreachable_ = true;
}

void Meeting::report_failure(const std::exception_ptr& error) noexcept {
  vocab.report_failure(message_of(error));
  data.report_failure(message_of(error));
}

void report_failure(const Ranks& ranks, const std::exception_ptr& error) noexcept {
  fail_to(ranks.vocab, message_of(error));
  fail_to(ranks.data, message_of(error));
}

}  // namespace ranks
}  // namespace logitless
