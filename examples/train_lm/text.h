// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Turns a text file into batches of (context, next word): tokens, a vocabulary, a seeded sampler.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

inline constexpr std::string_view kUnknownWord = "<unk>";
inline constexpr std::string_view kEndOfVerse = "<eov>";

/// Returns words ([A-Za-z']+, and bytes of multi-byte UTF-8 characters), single punctuation marks and digits,
/// and kEndOfVerse after each line that is not empty. Spaces only separate tokens. Case matters.
std::vector<std::string_view> tokenize(std::string_view text);

/// Word ids in order of decreasing frequency (ties in byte order), after the two special ids.
class Vocabulary {
 public:
  static constexpr int32_t kUnknownId = 0;
  static constexpr int32_t kEndOfVerseId = 1;

  /// Keeps the `max_size` most frequent words, including <unk> and <eov>; 0 keeps all. Throws
  /// std::invalid_argument for a size below 3.
  Vocabulary(const std::vector<std::string_view>& tokens, int64_t max_size);

  int64_t size() const { return static_cast<int64_t>(words_.size()); }
  const std::string& word(int32_t id) const { return words_[id]; }
  /// Returns kUnknownId for words that were not kept.
  int32_t id(std::string_view word) const;

 private:
  std::vector<std::string> words_;
  std::unordered_map<std::string, int32_t> ids_;
};

struct Corpus {
  Vocabulary vocabulary;
  std::vector<int32_t> ids;  ///< the whole text, one id per token
};

/// Throws std::runtime_error if the file cannot be read or holds no token.
Corpus load_corpus(const std::string& path, int64_t max_vocabulary);

/// -Σ p log p over word frequencies, in nats per token: the loss of the best model without context.
double unigram_entropy(const std::vector<int32_t>& ids, int64_t vocabulary_size);

/// N tokens to predict. Row i of `context` holds the words before target i, the nearest one last. It never
/// holds the target or later words, so the model is causal by construction.
struct Batch {
  int64_t context_length = 0;
  std::vector<int32_t> context;  ///< [N, context_length]
  std::vector<int32_t> targets;  ///< [N]

  int64_t tokens() const { return static_cast<int64_t>(targets.size()); }
};

/// Draws runs of kRunLength consecutive tokens at seeded positions, so that equal seeds give equal batches on
/// all machines.
class BatchSampler {
 public:
  static constexpr int64_t kRunLength = 32;

  /// `ids` must outlive the sampler.
  BatchSampler(const std::vector<int32_t>& ids, int64_t batch_tokens, int64_t context_length, uint64_t seed);

  Batch next();

 private:
  const std::vector<int32_t>& ids_;
  int64_t batch_tokens_;
  int64_t context_length_;
  std::mt19937_64 generator_;
};
