// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "io/gguf_types.h"

namespace logitless::io {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are read as they are, in little-endian");

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kMostDimensions = 4;  // ggml's own limit
// Arrays in arrays are read by recursion. No model has any.
constexpr int kMostDepth = 8;
// The format's minimum. As the mapping begins at a page, no F32 is misaligned.
constexpr uint32_t kLeastAlignment = 8;
// At least: a name of one letter (8 bytes of length), then type and value, or dimensions, type and offset.
constexpr size_t kLeastKeyBytes = 8 + 1 + 4 + 1;
constexpr size_t kLeastTensorBytes = 8 + 1 + 4 + 4 + 8;
constexpr const char* kTruncated = " (is the file truncated?)";

enum ValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

struct ValueTypeFacts {
  const char* name;
  size_t bytes;  // 0: differs between values
};

// Indexed by ValueType.
constexpr ValueTypeFacts kValueTypes[] = {{"uint8", 1},  {"int8", 1},    {"uint16", 2}, {"int16", 2},  {"uint32", 4},
                                          {"int32", 4},  {"float32", 4}, {"bool", 1},   {"string", 0}, {"array", 0},
                                          {"uint64", 8}, {"int64", 8},   {"float64", 8}};
static_assert(std::size(kValueTypes) == kFloat64 + 1);

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// Follows table 3-7 of the Unicode standard: nothing above U+10FFFF, no surrogates, and only the shortest
// form.
bool is_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  for (size_t i = 0; i < text.size();) {
    const unsigned lead = byte(i);
    const size_t more = lead < 0x80 ? 0 : lead < 0xc2 ? 4 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : lead < 0xf5 ? 3 : 4;
    if (more == 4) return false;
    for (size_t j = 1; j <= more; ++j) {
      if ((byte(i + j) & 0xc0) != 0x80) return false;
    }
    const unsigned second = byte(i + 1);
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) || (lead == 0xf0 && second < 0x90) ||
        (lead == 0xf4 && second > 0x8f)) {
      return false;
    }
    i += more + 1;
  }
  return true;
}

// Reads items from a file's bytes, in order. If one does not fit in the rest, the Error says which.
class Cursor {
 public:
  explicit Cursor(const MappedFile& file) : file_(file) {}

  /// Names what is read from here on, for messages: "tensor output.weight".
  void enter(std::string place) { place_ = one_line(std::move(place)); }
  [[noreturn]] void fail(const std::string& reason) const { throw Error(file_.path() + ": " + place_ + reason); }
  size_t at() const { return at_; }
  size_t rest() const { return file_.size() - at_; }
  const std::byte* data() const { return file_.data() + at_; }

  void skip(size_t bytes) {
    if (bytes > rest()) fail(": the file ends in the middle of it, after " + std::to_string(file_.size()) + " bytes");
    at_ += bytes;
  }

  template <class T>
  T take() {
    skip(sizeof(T));
    return load<T>(data() - sizeof(T));
  }

  std::string_view take_string() {
    const auto length = take<uint64_t>();
    check_count(length, 1, " bytes of a string");
    at_ += length;
    return {reinterpret_cast<const char*>(data()) - length, length};
  }

  // Checks that `count` items of at least `least_bytes` each can follow, before memory is allocated for them.
  void check_count(uint64_t count, size_t least_bytes, const char* things) const {
    if (count <= rest() / least_bytes) return;
    fail(": " + std::to_string(count) + things + " do not fit in the " + std::to_string(rest()) +
         " bytes that are left" + kTruncated);
  }

 private:
  const MappedFile& file_;
  size_t at_ = 0;
  std::string place_;
};

uint32_t take_value_type(Cursor& cursor) {
  const auto type = cursor.take<uint32_t>();
  if (type >= std::size(kValueTypes))
    cursor.fail(" has a value of type " + std::to_string(type) + ", which GGUF does not have");
  return type;
}

void skip_value(Cursor& cursor, uint32_t type, int depth);

void skip_array(Cursor& cursor, int depth) {
  if (depth > kMostDepth) cursor.fail(" has arrays nested deeper than " + std::to_string(kMostDepth) + " levels");
  const uint32_t type = take_value_type(cursor);
  const auto count = cursor.take<uint64_t>();
  const size_t bytes = kValueTypes[type].bytes;
  // A string has at least its length, an array its type and its length.
  const size_t least_bytes = type == kString ? 8 : type == kArray ? 12 : bytes;
  cursor.check_count(count, least_bytes, " values");
  if (bytes != 0 && type != kBool) return cursor.skip(count * bytes);
  for (uint64_t i = 0; i < count; ++i) skip_value(cursor, type, depth);
}

// Skips a value inside of `depth` arrays.
void skip_value(Cursor& cursor, uint32_t type, int depth) {
  if (type == kString) {
    cursor.take_string();
  } else if (type == kArray) {
    skip_array(cursor, depth + 1);
  } else if (type == kBool) {
    const auto value = cursor.take<uint8_t>();
    if (value > 1) cursor.fail(" has a bool of " + std::to_string(value) + ", not 0 or 1");
  } else {
    cursor.skip(kValueTypes[type].bytes);
  }
}

// `kind` is "key" or "tensor"; `index` is its number in the file.
std::string take_name(Cursor& cursor, const std::string& kind, uint64_t index) {
  cursor.enter(kind + " number " + std::to_string(index));
  const std::string_view name = cursor.take_string();
  if (name.empty()) cursor.fail(" has an empty name");
  if (!is_utf8(name)) cursor.fail(" has a name that is not UTF-8");
  cursor.enter(kind + " " + std::string(name));
  return std::string(name);
}

void take_shape(Cursor& cursor, GgufTensor& tensor) {
  const auto dimensions = cursor.take<uint32_t>();
  if (dimensions > kMostDimensions) {
    cursor.fail(" has " + std::to_string(dimensions) + " dimensions, more than " + std::to_string(kMostDimensions));
  }
  tensor.shape.resize(dimensions);
  int64_t elements = 1;
  for (uint32_t i = 0; i < dimensions; ++i) {
    const auto size = cursor.take<uint64_t>();
    if (size == 0) cursor.fail(" has a dimension of size 0");
    if (size > INT64_MAX || __builtin_mul_overflow(elements, static_cast<int64_t>(size), &elements)) {
      cursor.fail(" has more than 2^63 elements: one dimension is " + std::to_string(size));
    }
    tensor.shape[dimensions - 1 - i] = static_cast<int64_t>(size);
  }
  if (dimensions > 0) tensor.cols = tensor.shape.back();
  tensor.rows = elements / tensor.cols;
}

void take_type(Cursor& cursor, GgufTensor& tensor) {
  tensor.type = cursor.take<uint32_t>();
  const GgmlType* known = ggml_type(tensor.type);
  if (!known) return;
  tensor.type_name = known->name;
  tensor.format = known->format;
  if (known->block == 0) return;
  if (tensor.cols % known->block != 0) {
    cursor.fail(" has rows of " + std::to_string(tensor.cols) + " numbers, which must be a multiple of the " +
                std::to_string(known->block) + " of a block of " + known->name);
  }
  int64_t row_bytes = 0, bytes = 0;
  if (__builtin_mul_overflow(tensor.cols / known->block, known->bytes, &row_bytes) ||
      __builtin_mul_overflow(tensor.rows, row_bytes, &bytes)) {
    cursor.fail(": shape " + tensor.shape_text() + " of " + known->name + " takes more than 2^63 bytes");
  }
  tensor.row_bytes = static_cast<size_t>(row_bytes);
}

// Sets file_offset relative to the data section, whose position is not known yet.
GgufTensor take_tensor(Cursor& cursor, std::string name, uint32_t alignment) {
  GgufTensor tensor;
  tensor.name = std::move(name);
  take_shape(cursor, tensor);
  take_type(cursor, tensor);
  const auto offset = cursor.take<uint64_t>();
  if (offset % alignment != 0) {
    cursor.fail(": its offset " + std::to_string(offset) + " is not a multiple of the alignment " +
                std::to_string(alignment));
  }
  tensor.file_offset = offset;
  return tensor;
}

// Turns offsets within the data section into offsets within the file.
void place_tensors(const GgufFile& file, std::vector<GgufTensor>& tensors, const MappedFile& mapping, size_t header) {
  const size_t data_start = (header + file.alignment() - 1) & ~size_t{file.alignment() - 1};
  const size_t data_bytes = mapping.size() - std::min(data_start, mapping.size());
  for (GgufTensor& tensor : tensors) {
    const size_t offset = tensor.file_offset;
    if (offset >= data_bytes || tensor.bytes() > data_bytes - offset) {
      const std::string length = tensor.row_bytes != 0 ? std::to_string(tensor.bytes()) + " bytes" : "its bytes";
      throw Error(file.place_of(tensor) + ": " + length + " at offset " + std::to_string(offset) +
                  " reach outside the file, which holds " + std::to_string(data_bytes) + " bytes of data" + kTruncated);
    }
    tensor.file_offset += data_start;
    tensor.data = mapping.data() + tensor.file_offset;
  }
}

void check_overlaps(const GgufFile& file, const std::vector<GgufTensor>& tensors) {
  std::vector<const GgufTensor*> in_order;
  for (const GgufTensor& tensor : tensors) in_order.push_back(&tensor);
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const GgufTensor* a, const GgufTensor* b) { return a->file_offset < b->file_offset; });
  for (size_t i = 1; i < in_order.size(); ++i) {
    const GgufTensor& before = *in_order[i - 1];
    // A tensor of unknown size has at least one byte.
    if (before.file_offset + std::max(before.bytes(), size_t{1}) > in_order[i]->file_offset) {
      throw Error(file.place_of(*in_order[i]) + ": its bytes overlap those of tensor " + one_line(before.name));
    }
  }
}

// Checks the first bytes and returns the version.
uint32_t take_version(Cursor& cursor) {
  cursor.enter("the header");
  const std::string_view magic(reinterpret_cast<const char*>(cursor.data()), std::min(cursor.rest(), kMagic.size()));
  if (magic != kMagic) {
    cursor.enter("");
    cursor.fail("is not a GGUF file: its first four bytes are not \"GGUF\"");
  }
  cursor.skip(kMagic.size());
  const auto version = cursor.take<uint32_t>();
  if (version == 2 || version == 3) return version;
  cursor.enter("");
  if (version == 1)
    cursor.fail("is a GGUF file of version 1, whose lengths have 32 bits: only versions 2 and 3 are read");
  if (version != 0 && (version & 0xffff) == 0) {
    cursor.fail("is a big-endian GGUF file (its version reads " + std::to_string(version) +
                "): only little-endian files are read");
  }
  cursor.fail("is a GGUF file of version " + std::to_string(version) + ": only versions 2 and 3 are read");
}

}  // namespace

std::string GgufTensor::type_text() const {
  const std::string number = "type " + std::to_string(type);
  return type_name.empty() ? number : std::string(type_name) + " (" + number + ")";
}

std::string GgufTensor::shape_text() const {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

GgufFile::GgufFile(std::string file_path) : file_(std::move(file_path)) {
  try {
    read_all();
  } catch (const Error&) {
    check_size();  // If the file was truncated meanwhile, report that instead.
    throw;
  }
}

void GgufFile::read_all() {
  Cursor cursor(file_);
  version_ = take_version(cursor);
  const auto tensor_count = cursor.take<uint64_t>();
  const auto key_count = cursor.take<uint64_t>();
  cursor.check_count(key_count, kLeastKeyBytes, " keys");
  for (uint64_t i = 0; i < key_count; ++i) {
    const std::string key = take_name(cursor, "key", i);
    const uint32_t type = take_value_type(cursor);
    if (!values_.emplace(key, Value{type, cursor.at()}).second) cursor.fail(" occurs twice in the file");
    skip_value(cursor, type, 0);
  }

  if (const Value* alignment = value_of("general.alignment")) {
    if (alignment->type != kUint32) refuse("general.alignment", *alignment, "must be uint32");
    alignment_ = load<uint32_t>(file_.data() + alignment->offset);
    if (alignment_ < kLeastAlignment || !std::has_single_bit(alignment_)) {
      throw Error(path() + ": key general.alignment is " + std::to_string(alignment_) +
                  ", which must be a power of two of at least " + std::to_string(kLeastAlignment));
    }
  }

  cursor.enter("the header");
  cursor.check_count(tensor_count, kLeastTensorBytes, " tensors");
  std::unordered_set<std::string> names;
  for (uint64_t i = 0; i < tensor_count; ++i) {
    std::string name = take_name(cursor, "tensor", i);
    if (!names.insert(name).second) cursor.fail(" occurs twice in the file");
    tensors_.push_back(take_tensor(cursor, std::move(name), alignment_));
  }
  place_tensors(*this, tensors_, file_, cursor.at());
  check_overlaps(*this, tensors_);
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto it = std::find_if(tensors_.begin(), tensors_.end(), [&](const GgufTensor& t) { return t.name == name; });
  return it == tensors_.end() ? nullptr : &*it;
}

std::string GgufFile::place_of(const GgufTensor& tensor) const { return path() + ": tensor " + one_line(tensor.name); }

const GgufFile::Value* GgufFile::value_of(const std::string& key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

void GgufFile::refuse(const std::string& key, const Value& value, const char* rule) const {
  throw Error(path() + ": key " + one_line(key) + " is of type " + kValueTypes[value.type].name + ", but " + rule);
}

std::optional<std::string> GgufFile::text(const std::string& key) const {
  const Value* value = value_of(key);
  if (!value) return {};
  if (value->type != kString) refuse(key, *value, "must be a string");
  const std::byte* at = file_.data() + value->offset;
  std::string text(reinterpret_cast<const char*>(at) + sizeof(uint64_t), load<uint64_t>(at));
  if (!is_utf8(text)) throw Error(path() + ": key " + one_line(key) + " has a text that is not UTF-8");
  return text;
}

std::optional<double> GgufFile::real(const std::string& key) const {
  const Value* value = value_of(key);
  if (!value) return {};
  const std::byte* at = file_.data() + value->offset;
  if (value->type == kFloat32) return load<float>(at);
  if (value->type == kFloat64) return load<double>(at);
  refuse(key, *value, "must be float32 or float64");
}

std::optional<int64_t> GgufFile::integer(const std::string& key) const {
  const Value* value = value_of(key);
  if (!value) return {};
  const std::byte* at = file_.data() + value->offset;
  switch (value->type) {
    case kUint8:
      return load<uint8_t>(at);
    case kInt8:
      return load<int8_t>(at);
    case kUint16:
      return load<uint16_t>(at);
    case kInt16:
      return load<int16_t>(at);
    case kUint32:
      return load<uint32_t>(at);
    case kInt32:
      return load<int32_t>(at);
    case kInt64:
      return load<int64_t>(at);
    case kUint64:
      if (const auto wide = load<uint64_t>(at); wide > INT64_MAX) {
        throw Error(path() + ": key " + one_line(key) + " is " + std::to_string(wide) + ", above 2^63 - 1");
      }
      return load<int64_t>(at);
    default:
      refuse(key, *value, "must be an integer");
  }
}

std::string GgufFile::architecture() const {
  if (std::optional<std::string> name = text("general.architecture")) return *std::move(name);
  throw Error(path() + ": has no key general.architecture");
}

}  // namespace logitless::io
