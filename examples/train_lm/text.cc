// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "text.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace {

bool is_word_byte(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '\'' || static_cast<unsigned char>(c) >= 0x80;
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

}  // namespace

std::vector<std::string_view> tokenize(std::string_view text) {
  std::vector<std::string_view> tokens;
  bool line_has_tokens = false;
  const auto end_line = [&] {
    if (line_has_tokens) tokens.push_back(kEndOfVerse);
    line_has_tokens = false;
  };
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '\n') {
      end_line();
      ++i;
    } else if (is_space(text[i])) {
      ++i;
    } else {
      size_t end = i + 1;
      if (is_word_byte(text[i])) {
        while (end < text.size() && is_word_byte(text[end])) ++end;
      }
      tokens.push_back(text.substr(i, end - i));
      line_has_tokens = true;
      i = end;
    }
  }
  end_line();
  return tokens;
}

Vocabulary::Vocabulary(const std::vector<std::string_view>& tokens, int64_t max_size) {
  if (max_size != 0 && max_size < 3) throw std::invalid_argument("the vocabulary needs at least 3 words");
  std::unordered_map<std::string_view, int64_t> counts;
  for (std::string_view token : tokens) ++counts[token];
  counts.erase(kEndOfVerse);

  std::vector<std::pair<std::string_view, int64_t>> ranked(counts.begin(), counts.end());
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  words_ = {std::string(kUnknownWord), std::string(kEndOfVerse)};
  for (const auto& [word, count] : ranked) {
    if (max_size != 0 && size() == max_size) break;
    words_.emplace_back(word);
  }
  for (int32_t id = 0; id < size(); ++id) ids_.emplace(words_[id], id);
}

int32_t Vocabulary::id(std::string_view word) const {
  const auto found = ids_.find(std::string(word));
  return found == ids_.end() ? kUnknownId : found->second;
}

Corpus load_corpus(const std::string& path, int64_t max_vocabulary) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open the text file " + path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::vector<std::string_view> tokens = tokenize(text);
  if (tokens.empty()) throw std::runtime_error("the text file " + path + " holds no words");

  Corpus corpus{Vocabulary(tokens, max_vocabulary), {}};
  corpus.ids.reserve(tokens.size());
  for (std::string_view token : tokens) corpus.ids.push_back(corpus.vocabulary.id(token));
  return corpus;
}

double unigram_entropy(const std::vector<int32_t>& ids, int64_t vocabulary_size) {
  std::vector<int64_t> counts(vocabulary_size, 0);
  for (int32_t id : ids) ++counts[id];
  double entropy = 0;
  for (int64_t count : counts) {
    const double p = static_cast<double>(count) / static_cast<double>(ids.size());
    if (count > 0) entropy -= p * std::log(p);
  }
  return entropy;
}

BatchSampler::BatchSampler(const std::vector<int32_t>& ids, int64_t batch_tokens, int64_t context_length, uint64_t seed)
    : ids_(ids), batch_tokens_(batch_tokens), context_length_(context_length), generator_(seed) {
  if (batch_tokens < 1 || context_length < 1) throw std::invalid_argument("batch and context need at least 1 token");
}

Batch BatchSampler::next() {
  Batch batch;
  batch.context_length = context_length_;
  batch.context.reserve(batch_tokens_ * context_length_);
  batch.targets.reserve(batch_tokens_);
  const int64_t text_size = static_cast<int64_t>(ids_.size());
  while (batch.tokens() < batch_tokens_) {
    const int64_t run = std::min({kRunLength, batch_tokens_ - batch.tokens(), text_size});
    // A plain remainder, because std::uniform_int_distribution differs between standard libraries.
    const int64_t start = static_cast<int64_t>(generator_() % static_cast<uint64_t>(text_size - run + 1));
    for (int64_t position = start; position < start + run; ++position) {
      for (int64_t before = position - context_length_; before < position; ++before) {
        batch.context.push_back(before < 0 ? Vocabulary::kEndOfVerseId : ids_[before]);
      }
      batch.targets.push_back(ids_[position]);
    }
  }
  return batch;
}
