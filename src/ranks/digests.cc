// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "ranks/digests.h"

#include <cstring>

namespace logitless::ranks {

uint64_t digest_of(const void* data, size_t bytes, uint64_t seed) {
  uint64_t digest = mix(seed, bytes), word = 0;
  const auto* from = static_cast<const std::byte*>(data);
  for (; bytes >= sizeof word; bytes -= sizeof word, from += sizeof word) {
    std::memcpy(&word, from, sizeof word);
    digest = mix(digest, word);
  }
  word = 0;
  if (bytes > 0) std::memcpy(&word, from, bytes);
  return mix(digest, word);
}

void Digests::add(std::string name, std::string text, uint64_t digest) {
  digest = digest_of(text.data(), text.size(), digest_of(name.data(), name.size(), digest));
  fields_.push_back({std::move(name), std::move(text), digest});
}

uint64_t Digests::digest() const {
  uint64_t digest = 0;
  for (const Field& field : fields_) digest = mix(digest, field.digest);
  return digest;
}

}  // namespace logitless::ranks
