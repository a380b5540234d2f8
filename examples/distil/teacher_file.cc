// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "teacher_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string_view>

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

namespace {

using nlohmann::json;

// The entries of three tensors take a few hundred bytes, and metadata is much smaller than this.
constexpr uint64_t kMostHeaderBytes = 1 << 20;

/// One tensor as the header describes it.
struct Entry {
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t begin = 0;  ///< offset of its bytes from the end of the header
  int64_t end = 0;
};

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(path, std::ios::binary | std::ios::ate) {
    if (!file_) fail("cannot be opened");
    file_bytes_ = static_cast<int64_t>(file_.tellg());
    read_header();
  }

  RowMatrix matrix(const char* name);
  std::vector<int32_t> ids(const char* name, int64_t count, int64_t vocabulary);
  /// Throws unless the bytes of the named tensors cover the file's data exactly once.
  void check_nothing_else(std::span<const char* const> names);
  [[noreturn]] void fail(const std::string& reason) const { throw std::runtime_error(path_ + ": " + reason); }
  [[noreturn]] void fail(const std::string& tensor, const std::string& reason) const {
    fail("tensor " + tensor + ": " + reason);
  }

 private:
  void read_header();
  Entry entry(const std::string& name) const;
  int64_t elements(const std::string& name, const Entry& entry, size_t dimensions, int64_t element_bytes) const;
  void read_bytes(const std::string& name, int64_t begin, void* to, int64_t bytes);

  std::string path_;
  std::ifstream file_;
  int64_t file_bytes_ = 0;
  int64_t data_start_ = 0;
  json header_;
};

void Reader::read_header() {
  constexpr int64_t kLengthBytes = 8;
  if (file_bytes_ < kLengthBytes) {
    fail("is not a safetensors file: it has " + std::to_string(file_bytes_) + " bytes, fewer than the 8 of a length");
  }
  uint64_t length = 0;
  file_.seekg(0);
  file_.read(reinterpret_cast<char*>(&length), kLengthBytes);
  const auto most = std::min(kMostHeaderBytes, static_cast<uint64_t>(file_bytes_ - kLengthBytes));
  if (length > most) {
    fail("is not a safetensors file: its header has " + std::to_string(length) + " bytes, more than the " +
         std::to_string(most) + " that it can have");
  }
  std::string text(length, '\0');
  file_.read(text.data(), static_cast<std::streamsize>(length));
  if (!file_) fail("cannot be read");
  header_ = json::parse(text, nullptr, false);
  if (!header_.is_object()) fail("is not a safetensors file: its header is not a JSON object");
  data_start_ = kLengthBytes + static_cast<int64_t>(length);
}

/// A JSON number may have another type, or be too large for a size.
bool is_size(const json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()};
}

bool are_sizes(const json& values) { return values.is_array() && std::all_of(values.begin(), values.end(), is_size); }

Entry Reader::entry(const std::string& name) const {
  if (!header_.contains(name)) fail(name, "is not in the file");
  const json& from = header_.at(name);
  const auto member = [&](const char* key) -> json {
    return from.is_object() && from.contains(key) ? from.at(key) : json();
  };
  const json dtype = member("dtype"), shape = member("shape"), offsets = member("data_offsets");
  if (!dtype.is_string()) fail(name, "its dtype is not a string");
  if (!are_sizes(shape)) fail(name, "its shape is not a list of sizes");
  if (!are_sizes(offsets) || offsets.size() != 2) fail(name, "its data_offsets are not two sizes");
  Entry result{dtype, shape, offsets[0], offsets[1]};
  if (result.begin > result.end || result.end > file_bytes_ - data_start_) {
    fail(name, "its data_offsets " + offsets.dump() + " do not lie in the " +
                   std::to_string(file_bytes_ - data_start_) + " bytes of data of the file");
  }
  return result;
}

/// Returns the number of elements, after checking that the tensor's bytes hold them.
int64_t Reader::elements(const std::string& name, const Entry& entry, size_t dimensions, int64_t element_bytes) const {
  const std::string shape = json(entry.shape).dump();
  if (entry.shape.size() != dimensions) {
    fail(name, "has shape " + shape + ", but must have " + std::to_string(dimensions) + " dimensions");
  }
  int64_t count = 1, bytes = 0;
  bool fits = true;
  for (const int64_t size : entry.shape) {
    if (size == 0) fail(name, "has shape " + shape + ": it is empty");
    fits = fits && !__builtin_mul_overflow(count, size, &count);
  }
  fits = fits && !__builtin_mul_overflow(count, element_bytes, &bytes);
  if (!fits || bytes != entry.end - entry.begin) {
    fail(name,
         "its " + std::to_string(entry.end - entry.begin) + " bytes do not hold shape " + shape + " of " + entry.dtype);
  }
  return count;
}

void Reader::read_bytes(const std::string& name, int64_t begin, void* to, int64_t bytes) {
  file_.seekg(data_start_ + begin);
  file_.read(static_cast<char*>(to), bytes);
  if (!file_) fail(name, "cannot be read");
}

RowMatrix Reader::matrix(const char* name) {
  const Entry from = entry(name);
  if (from.dtype != "F32") fail(name, "is " + from.dtype + ", but must be F32");
  const int64_t count = elements(name, from, 2, sizeof(float));
  RowMatrix result(from.shape[0], from.shape[1]);
  read_bytes(name, from.begin, result.data(), from.end - from.begin);
  for (int64_t i = 0; i < count; ++i) {
    if (std::isfinite(result.data()[i])) continue;
    fail(name, "element (" + std::to_string(i / result.cols()) + ", " + std::to_string(i % result.cols()) + ") is " +
                   std::to_string(result.data()[i]));
  }
  return result;
}

std::vector<int32_t> Reader::ids(const char* name, int64_t count, int64_t vocabulary) {
  const Entry from = entry(name);
  if (from.dtype != "I32" && from.dtype != "I64") fail(name, "is " + from.dtype + ", but must be I32 or I64");
  const bool wide = from.dtype == "I64";
  if (elements(name, from, 1, wide ? 8 : 4) != count) {
    fail(name, "has " + std::to_string(from.shape[0]) + " ids, but must have " + std::to_string(count) +
                   ", one more than hidden has rows");
  }
  std::vector<int32_t> result(static_cast<size_t>(count));
  std::vector<int64_t> values(wide ? result.size() : 0);
  read_bytes(name, from.begin, wide ? static_cast<void*>(values.data()) : result.data(), from.end - from.begin);
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t id = wide ? values[i] : result[i];
    if (id < 0 || id >= vocabulary) {
      fail(name, "element " + std::to_string(i) + " is " + std::to_string(id) + ", but lm_head has " +
                     std::to_string(vocabulary) + " rows");
    }
    result[i] = static_cast<int32_t>(id);
  }
  return result;
}

void Reader::check_nothing_else(std::span<const char* const> names) {
  for (const auto& [name, ignored] : header_.items()) {
    const bool known = std::find(names.begin(), names.end(), std::string_view(name)) != names.end();
    if (!known && name != "__metadata__") fail(name, "is none of hidden, lm_head and ids");
  }
  std::vector<std::pair<Entry, const char*>> entries;
  for (const char* name : names) entries.emplace_back(entry(name), name);
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first.begin < b.first.begin; });
  int64_t covered = 0;
  for (const auto& [entry, name] : entries) {
    if (entry.begin != covered) fail(name, "its bytes do not begin where those before it end");
    covered = entry.end;
  }
  if (const int64_t rest = file_bytes_ - data_start_ - covered; rest != 0) {
    fail("its last " + std::to_string(rest) + " bytes belong to no tensor");
  }
}

}  // namespace

TeacherFile read_teacher(const std::string& path) {
  Reader reader(path);
  // Read, not mapped: a mapped head would become resident in the first call, and count as that call's memory.
  TeacherFile teacher;
  teacher.hidden = reader.matrix("hidden");
  teacher.lm_head = reader.matrix("lm_head");
  if (teacher.tokens() < 2) reader.fail("hidden", "has 1 row: the student needs 2, one of them to validate");
  if (teacher.lm_head.cols() != teacher.hidden.cols()) {
    reader.fail("lm_head", "has " + std::to_string(teacher.lm_head.cols()) + " columns, but hidden has " +
                               std::to_string(teacher.hidden.cols()));
  }
  if (teacher.vocabulary() > std::numeric_limits<int32_t>::max()) {
    reader.fail("lm_head", "has " + std::to_string(teacher.vocabulary()) + " rows, more than an int32 id can name");
  }
  teacher.ids = reader.ids("ids", teacher.tokens() + 1, teacher.vocabulary());
  constexpr std::array kNames = {"hidden", "lm_head", "ids"};
  reader.check_nothing_else(kNames);
  return teacher;
}
