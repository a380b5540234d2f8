// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "ranks/statement.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

namespace logitless::ranks {
namespace {

// A line is a name, a verb, a value and a digest of entries, with this between them.
constexpr char kBetween = '\x1f';

uint64_t mix(uint64_t digest, uint64_t value) {
  digest = (digest ^ value) * 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio
  return digest ^ digest >> 29;
}

// Splits a line; parts that are not there are empty.
std::array<std::string_view, 4> parts_of(std::string_view line) {
  std::array<std::string_view, 4> parts;
  for (std::string_view& part : parts) {
    part = line.substr(0, line.find(kBetween));
    line.remove_prefix(std::min(line.size(), part.size() + 1));
  }
  return parts;
}

}  // namespace

uint64_t digest_of(const void* data, size_t bytes, uint64_t seed) {
  uint64_t digest = mix(seed, bytes), piece = 0;
  const auto* from = static_cast<const std::byte*>(data);
  for (; bytes >= sizeof piece; bytes -= sizeof piece, from += sizeof piece) {
    std::memcpy(&piece, from, sizeof piece);
    digest = mix(digest, piece);
  }
  piece = 0;
  if (bytes > 0) std::memcpy(&piece, from, bytes);
  return mix(digest, piece);
}

uint64_t Entries::digest(int64_t begin, int64_t end) const {
  uint64_t digest = 1;
  for (int64_t i = begin; i < end; ++i) digest = mix(digest, bits(i));
  return digest;
}

void Statement::say(std::string name, std::string value, std::string_view verb) {
  add({std::move(name), verb, std::move(value)});
}

void Statement::say(std::string name, Entries entries) {
  Item item{std::move(name), " = ", entries.size == 0 ? std::string("none") : text_of(entries.size) + " entries"};
  item.digest = entries.digest(0, entries.size);
  item.entries = std::move(entries);
  add(std::move(item));
}

void Statement::add(Item item) {
  digest_ = digest_of(item.name.data(), item.name.size(), digest_);
  digest_ = mix(digest_of(item.value.data(), item.value.size(), digest_), item.digest);
  items_.push_back(std::move(item));
}

std::string Statement::lines() const {
  std::string out;
  for (const Item& item : items_) {
    out.append(item.name).append(1, kBetween).append(item.verb).append(1, kBetween).append(item.value);
    if (item.digest != 0) out.append(1, kBetween).append(std::to_string(item.digest));
    out += '\n';
  }
  return out;
}

const Entries* Statement::entries(size_t line) const {
  return line < items_.size() && items_[line].entries.bits ? &items_[line].entries : nullptr;
}

Parting first_parting(std::string_view mine, std::string_view theirs) {
  const size_t shorter = std::min(mine.size(), theirs.size());
  const auto place = std::mismatch(mine.begin(), mine.begin() + static_cast<ptrdiff_t>(shorter), theirs.begin()).first;
  const auto line = static_cast<size_t>(std::count(mine.begin(), place, '\n'));
  const auto a = parts_of(line_of(mine, line)), b = parts_of(line_of(theirs, line));
  return {line, a[0] == b[0] && a[2] == b[2] && a[3] != b[3]};
}

std::string_view line_of(std::string_view lines, size_t line) {
  for (; line > 0 && !lines.empty(); --line) lines.remove_prefix(std::min(lines.size(), lines.find('\n') + 1));
  return lines.substr(0, lines.find('\n'));
}

std::string text_of_line(std::string_view line) {
  const auto parts = parts_of(line);
  return std::string(parts[0]).append(parts[1]).append(parts[2]);
}

int64_t entry_count(std::string_view line) {
  const std::string_view value = parts_of(line)[2];
  int64_t count = 0;
  std::from_chars(value.data(), value.data() + value.size(), count);
  return count;
}

std::string difference(std::string_view mine, std::string_view theirs, int their_rank) {
  const auto a = parts_of(mine), b = parts_of(theirs);
  const std::string rank = "rank " + std::to_string(their_rank);
  if (a[0] == b[0]) return text_of_line(mine) + " here, where " + rank + " has " + std::string(b[2]);
  const auto or_nothing = [](std::string_view line) { return line.empty() ? "nothing" : text_of_line(line); };
  return or_nothing(mine) + " here, and " + or_nothing(theirs) + " on " + rank;
}

}  // namespace logitless::ranks
