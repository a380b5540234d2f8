// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The bytes of good and bad GGUF files. Everything that is not set is valid.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace logitless::testing {

/// Returns the bytes of a number.
template <class T>
std::string number(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

/// Returns a string preceded by its length.
inline std::string text(const std::string& value) { return number(uint64_t{value.size()}) + value; }

/// The numbers of value types, copied from the format, because the reader's may be wrong.
enum GgufValueType : uint32_t {
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

/// Returns an array without its own type.
inline std::string array(uint32_t type, uint64_t count, const std::string& values) {
  return number(type) + number(count) + values;
}

class GgufBytes {
 public:
  GgufBytes& key(const std::string& name, uint32_t type, const std::string& value) {
    keys_ += text(name) + number(type) + value;
    ++key_count_;
    return *this;
  }
  GgufBytes& string(const std::string& name, const std::string& value) { return key(name, kString, text(value)); }
  GgufBytes& architecture(const std::string& name) { return string("general.architecture", name); }
  GgufBytes& alignment(uint32_t value) {
    alignment_ = value;
    return key("general.alignment", kUint32, number(value));
  }
  /// `dims` are in the file's order: [H, V]. The bytes follow the previous tensor.
  GgufBytes& tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type,
                    const std::string& bytes) {
    if (alignment_ != 0) data_.resize((data_.size() + alignment_ - 1) / alignment_ * alignment_);
    tensor_at(name, dims, type, data_.size());
    data_ += bytes;
    return *this;
  }
  GgufBytes& floats(const std::string& name, const std::vector<uint64_t>& dims, const std::vector<float>& values) {
    return tensor(name, dims, 0,
                  std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
  }
  /// Adds only the info of a tensor, with any offset.
  GgufBytes& tensor_at(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    infos_ += text(name) + number(static_cast<uint32_t>(dims.size()));
    for (const uint64_t size : dims) infos_ += number(size);
    infos_ += number(type) + number(offset);
    ++tensor_count_;
    return *this;
  }
  GgufBytes& data(size_t bytes) {
    data_.append(bytes, '\1');
    return *this;
  }
  GgufBytes& version(uint32_t value) {
    version_ = value;
    return *this;
  }
  /// Adds any bytes as a tensor's info.
  GgufBytes& info_bytes(const std::string& bytes) {
    infos_ += bytes;
    ++tensor_count_;
    return *this;
  }
  /// Replaces the true counts.
  GgufBytes& counts(uint64_t tensors, uint64_t keys) {
    tensor_count_ = tensors;
    key_count_ = keys;
    return *this;
  }

  std::string bytes() const {
    std::string all = "GGUF" + number(version_) + number(tensor_count_) + number(key_count_) + keys_ + infos_;
    if (alignment_ != 0 && !data_.empty()) all.resize((all.size() + alignment_ - 1) / alignment_ * alignment_);
    return all + data_;
  }

 private:
  uint32_t version_ = 3;
  uint32_t alignment_ = 32;
  uint64_t key_count_ = 0, tensor_count_ = 0;
  std::string keys_, infos_, data_;
};

/// A head [entries, 32] in Q8_0, and its numbers.
struct GgufQ8Head {
  static constexpr int64_t kHidden = 32;
  int64_t entries;
  std::string rows;
  std::vector<float> weight;

  explicit GgufQ8Head(int64_t entries_) : entries(entries_) {
    for (int64_t v = 0; v < entries; ++v) {
      rows += number(uint16_t{0x2400});  // 1/64 in float16
      for (int64_t h = 0; h < kHidden; ++h) {
        const auto value = static_cast<int8_t>((v * kHidden + h) * 37 % 255 - 127);
        rows += number(value);
        weight.push_back(static_cast<float>(value) / 64);
      }
    }
  }
  /// Returns a file that holds it, with a softcap of 20.
  std::string file(const std::string& name = "output.weight") const {
    GgufBytes bytes;
    bytes.architecture("gemma2").key("gemma2.final_logit_softcapping", kFloat32, number(20.0F));
    return bytes.tensor(name, {static_cast<uint64_t>(kHidden), static_cast<uint64_t>(entries)}, 8, rows).bytes();
  }
};

}  // namespace logitless::testing
