// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "caller_names.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace logitless::python {
namespace {

struct Name {
  std::string_view of_library;
  std::string_view of_caller;
  bool of_head = false;  // gets the prefix teacher_ or ref_ in a message about the teacher or the reference
};

// The first match wins, so a name comes before its own prefixes. A name that ends in a dot matches as a
// prefix.
constexpr Name kNames[] = {
    {"offsets", "offsets", true},
    {"hidden", "hidden", true},
    {"vocab_ids", "vocab_ids", true},
    {"scales", "scales", true},
    {"weight", "weight", true},
    {"bias", "bias", true},
    {"softcap", "softcap", true},
    {"lora_a", "lora_a", true},
    {"lora_b", "lora_b", true},
    {"lora_states", "lora_states", true},
    {"lora_scale", "lora_scale", true},
    {"lora has", "lora_a has", true},
    {"d_hidden_batch_stride", "d_hidden.batch_stride"},
    {"teacher.hidden", "teacher_hidden"},
    {"teacher.bias", "teacher_bias"},
    {"teacher.vocab_ids", "teacher_vocab_ids"},
    {"teacher.weight", "teacher_weight"},
    {"teacher.logits", "teacher_logits"},
    {"teacher.logps", "teacher_logps"},
    {"teacher.outside_logps", "teacher_outside_logps"},
    {"teacher.sets.ids.time", "ids.shape[1]"},
    {"teacher.sets.ids", "ids"},
    {"teacher.sets.offsets", "id_offsets"},
    {"teacher.sets.counts", "id_counts"},
    {"teacher.sets", "ids"},
    {"reference.hidden", "ref_hidden"},
    {"reference.bias", "ref_bias"},
    {"reference.vocab_ids", "ref_vocab_ids"},
    {"reference.weight", "ref_weight"},
    {"reference is given", "a reference (ref_logps, or ref_hidden and ref_weight) is given"},
    {"reference is not given", "a reference (ref_logps, or ref_hidden and ref_weight) is not given"},
    {"targets.sets.ids", "ids"},
    {"targets.sets", "ids"},
    {"targets.weights", "weights"},
    {"targets.rows", "probabilities"},
    {"sets.ids.time", "ids.shape[1]"},
    {"sets.ids", "ids"},
    {"sets.offsets", "id_offsets"},
    {"sets.counts", "id_counts"},
    {"kept.ids.time", "kept_ids.shape[1]"},
    {"kept.ids", "kept_ids"},
    {"kept.offsets", "kept_offsets"},
    {"kept.counts", "kept_counts"},
    {"kept of row", "kept_ids of row"},
    {"kept cannot run", "kept_ids cannot run"},
    {"backward.mode", "backward"},
    {"backward.", ""},
    {"token.", ""},
    {"ranks.vocab", "vocab_ranks"},
    {"ranks.data", "data_ranks"},
    {"ranks.", ""},
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Tells whether the name is at this position as a whole word.
bool is_word_at(std::string_view text, size_t at, std::string_view name) {
  if (text.substr(at, name.size()) != name) return false;
  if (at > 0 && (is_word(text[at - 1]) || text[at - 1] == '.')) return false;
  const size_t end = at + name.size();
  return name.back() == '.' ? end < text.size() && is_word(text[end]) : end == text.size() || !is_word(text[end]);
}

}  // namespace

std::string with_caller_names(const std::string& message) {
  std::string_view text = message, of_head;
  const auto cut = [&](std::string_view begin, std::string_view prefix) {
    if (!text.starts_with(begin)) return;
    text.remove_prefix(begin.size());
    of_head = prefix;
  };
  cut("teacher: ", "teacher_");
  cut("reference: ", "ref_");
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto* name = std::find_if(std::begin(kNames), std::end(kNames),
                                    [&](const Name& n) { return is_word_at(text, at, n.of_library); });
    if (name == std::end(kNames)) {
      out += text[at++];
      continue;
    }
    if (name->of_head) out += of_head;
    out += name->of_caller;
    at += name->of_library.size();
  }
  return out;
}

}  // namespace logitless::python
