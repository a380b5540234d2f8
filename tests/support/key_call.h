// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A good call of any task through the C API, which a line of text changes:
//
//     KeyCall call("policy_loss");
//     call.change("beta = 0.25; old_logps[3] = nan; hidden = @2x3x7; mask =; d_hidden = &weight");
//
// A value that begins with @ is a tensor of these sizes, optionally followed by a type, strides (after a
// slash) or null. A value that begins with & uses the memory of another key for this key's tensor. An empty
// value unsets the key, and any other value is a text. A key with an index is an element of its tensor. Keys
// that begin with context. set the context.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "logitless/c_api.h"

namespace logitless::testing {

/// The kind of a call's logits, and how it runs.
enum class KeyForm {
  kStates,
  kSequences,  ///< packed sequences
  kLogits,
  kModels,    ///< states, and a reference or teacher with states
  kPacked,    ///< a packed head
  kSegments,  ///< enough vocabulary entries for sampled gradients
};

/// The value of a key.
struct Setting {
  enum { kTensor, kNumber, kInteger, kText } kind;
  logitless_tensor tensor = {};
  double number = 0;
  int64_t integer = 0;
  std::string text = {};

  logitless_status set(logitless_call* call, const std::string& name) const {
    if (kind == kTensor) return logitless_set_tensor(call, name.c_str(), &tensor);
    if (kind == kNumber) return logitless_set_number(call, name.c_str(), number);
    if (kind == kInteger) return logitless_set_integer(call, name.c_str(), integer);
    return logitless_set_text(call, name.c_str(), text.c_str());
  }
};

class KeyCall {
 public:
  static constexpr int64_t kBatch = 2, kTime = 3, kTokens = kBatch * kTime, kHidden = 4, kVocab = 5;

  explicit KeyCall(const std::string& task, KeyForm form = KeyForm::kStates) : task_(task), form_(form) {
    if (form == KeyForm::kLogits) {
      give("logits", LOGITLESS_FLOAT32, {kBatch, kTime, kVocab});
      give_output("d_logits", {kBatch, kTime, kVocab});
    } else {
      give_model("");
      give_output("d_hidden", {kBatch, kTime, kHidden});
      give_output("d_weight", {vocab(), kHidden});
      give_output("d_bias", {vocab()});
    }
    give_task();
    if (form == KeyForm::kPacked) {
      give("weight", LOGITLESS_UINT8, {vocab(), kHidden});
      give("scales", LOGITLESS_FLOAT32, {vocab(), 2});
      set("packing", "int8"), set("group", "2");
      keys.erase("d_weight");
    }
    if (form == KeyForm::kSequences) {
      give("hidden", LOGITLESS_FLOAT32, {kTokens, kHidden});
      give("offsets", LOGITLESS_INT64, {3}, [](int64_t i) { return i == 0 ? 0 : i == 1 ? 2 : 6; });
    }
    if (form == KeyForm::kSegments) set("backward_mode", "sampled"), set("theta", "0.5");
  }

  int64_t vocab() const { return form_ == KeyForm::kSegments ? 2000 : kVocab; }
  /// Sets a key to a tensor with its own memory. The memory is twice as large, so that a size that is one too
  /// large stays inside.
  template <class Fill>
  void give(const std::string& name, int32_t dtype, std::vector<int64_t> sizes, const Fill& fill) {
    int64_t count = 1;
    for (const int64_t size : sizes) count *= std::clamp<int64_t>(size, 0, 1 << 20);
    auto& bytes = memory_[name];
    bytes.assign(static_cast<size_t>(std::min<int64_t>(2 * count + 64, 1 << 21)) * 8, 0);
    Setting setting{.kind = Setting::kTensor};
    setting.tensor = {bytes.data(), dtype, static_cast<int32_t>(sizes.size()), {}, {}};
    std::copy(sizes.begin(), sizes.end(), setting.tensor.sizes);
    for (int64_t i = 0; i < std::min<int64_t>(2 * count + 64, 1 << 21); ++i) set_element(setting.tensor, i, fill(i));
    keys[name] = setting;
  }
  void give(const std::string& name, int32_t dtype, std::vector<int64_t> sizes) {
    const auto shift = static_cast<int64_t>(memory_.size());
    give(name, dtype, std::move(sizes), [&](int64_t i) {
      if (dtype == LOGITLESS_UINT8) return 1.0;
      return 0.1 * static_cast<double>((i + shift) % 7) - 0.9;
    });
  }
  void give_ids(const std::string& name, std::vector<int64_t> sizes = {kBatch, kTime}) {
    give(name, LOGITLESS_INT64, std::move(sizes), [&](int64_t i) { return i * 7 % vocab(); });
  }
  void set(const std::string& name, const std::string& text) { keys[name] = {.kind = Setting::kText, .text = text}; }

  void change(const std::string& changes) {
    std::istringstream all(changes);
    for (std::string change; std::getline(all, change, ';');) {
      const size_t equals = change.find('=');
      change_key(trimmed(change.substr(0, equals)), trimmed(change.substr(equals + 1)));
    }
  }

  /// A call with these keys. If the context or a key is refused, `status` is not 0.
  class Handle {
   public:
    explicit Handle(const KeyCall& of) {
      logitless_context* context = logitless_context_new();
      logitless_context_set(context, "threads", "1");
      for (const auto& [name, text] : of.context_) {
        status |= static_cast<int>(logitless_context_set(context, name.c_str(), text.c_str()));
      }
      call = logitless_call_new(context, of.task_.c_str());
      logitless_context_free(context);
      for (const auto& [name, setting] : of.keys) {
        if (status == LOGITLESS_OK) status |= static_cast<int>(setting.set(call, name));
      }
    }
    ~Handle() { logitless_call_free(call); }
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    operator logitless_call*() const { return call; }

    logitless_call* call = nullptr;
    int status = LOGITLESS_OK;
  };

  /// Returns whether the outputs are unchanged.
  bool untouched() const {
    return std::ranges::all_of(written_, [](const auto& output) {
      const auto* data = static_cast<const float*>(output.second.data());
      return std::all_of(data, data + output.second.size(), [](float value) { return value == 7; });
    });
  }
  void reset_outputs() {
    for (auto& [name, output] : written_) std::fill(output.begin(), output.end(), 7.0F);
  }
  const std::string& task() const { return task_; }
  KeyForm form() const { return form_; }
  /// Without a loss, run() refuses gradients.
  bool has_loss() const { return task_ != "id_logps" && task_ != "token_stats"; }

  std::map<std::string, Setting> keys;

 private:
  static std::string trimmed(const std::string& text) {
    const size_t first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
    return first == std::string::npos ? "" : text.substr(first, last - first + 1);
  }
  static void set_element(const logitless_tensor& tensor, int64_t i, double value) {
    const auto put = [&](auto number) {
      std::memcpy(static_cast<char*>(tensor.data) + i * static_cast<int64_t>(sizeof number), &number, sizeof number);
    };
    if (tensor.dtype == LOGITLESS_FLOAT32) put(static_cast<float>(value));
    if (tensor.dtype == LOGITLESS_FLOAT64) put(value);
    if (tensor.dtype == LOGITLESS_INT64) put(static_cast<int64_t>(value));
    if (tensor.dtype == LOGITLESS_UINT8) put(static_cast<uint8_t>(value));
  }
  static int32_t type_of(const std::string& name) {
    static constexpr const char* kNames[] = {"float32", "bfloat16", "float64", "float16", "int32", "int64", "uint8"};
    for (int32_t k = 0; k < 7; ++k) {
      if (name == kNames[k]) return k;
    }
    ADD_FAILURE() << "no type " << name;
    return -1;
  }
  static std::vector<int64_t> numbers_in(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c == 'x' || c == ','; }, ' ');
    std::istringstream words(text);
    std::vector<int64_t> numbers;
    for (int64_t number = 0; words >> number;) numbers.push_back(number);
    return numbers;
  }

  void change_key(const std::string& name, const std::string& value) {
    const size_t bracket = name.find('[');
    if (bracket != std::string::npos) {
      set_element(keys.at(name.substr(0, bracket)).tensor, std::stoll(name.substr(bracket + 1)), std::stod(value));
    } else if (name.starts_with("context.")) {
      context_[name.substr(8)] = value;
    } else if (value.empty()) {
      keys.erase(name);
    } else if (value[0] == '@') {
      change_tensor(name, value.substr(1));
    } else if (value[0] == '&') {
      const size_t plus = std::min(value.find('+'), value.size());
      auto* const data = static_cast<char*>(keys.at(trimmed(value.substr(1, plus - 1))).tensor.data);
      keys.at(name).tensor.data = data + (plus == value.size() ? 0 : std::stoll(value.substr(plus + 1)));
    } else {
      set(name, value);
    }
  }
  void change_tensor(const std::string& name, const std::string& value) {
    std::istringstream words(value);
    std::string sizes, word;
    words >> sizes;
    const auto at = keys.find(name);
    const int32_t dtype = at != keys.end() ? at->second.tensor.dtype : LOGITLESS_FLOAT64;
    const bool is_output = name.starts_with("d_") && name != "d_logp";
    if (sizes != "null" && is_output) give_output(name, numbers_in(sizes));
    if (sizes != "null" && !is_output) give(name, dtype, numbers_in(sizes));
    logitless_tensor& tensor = keys.at(name).tensor;
    if (sizes == "null") tensor.data = nullptr;
    while (words >> word) {
      if (word[0] == '/') {
        const std::vector<int64_t> strides = numbers_in(word.substr(1));
        std::copy(strides.begin(), strides.end(), tensor.strides);
      } else {
        tensor.dtype = type_of(word);
        for (int64_t i = 0; !is_output && i < 32; ++i) set_element(tensor, i, dtype == LOGITLESS_INT64 ? 0 : -0.5);
      }
    }
  }

  void give_output(const std::string& name, std::vector<int64_t> sizes) {
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    auto& memory = written_[name];
    memory.assign(static_cast<size_t>(2 * count + 16), 7);
    Setting setting{.kind = Setting::kTensor};
    setting.tensor = {memory.data(), LOGITLESS_FLOAT32, static_cast<int32_t>(sizes.size()), {}, {}};
    std::copy(sizes.begin(), sizes.end(), setting.tensor.sizes);
    keys[name] = setting;
  }
  void give_model(const std::string& prefix) {
    give(prefix + "hidden", LOGITLESS_FLOAT32, {kBatch, kTime, kHidden});
    give(prefix + "weight", LOGITLESS_FLOAT32, {vocab(), kHidden});
    // Some segments have more weight than others.
    const double step = form_ == KeyForm::kSegments ? 0.004 : 0.1;
    give(prefix + "bias", LOGITLESS_FLOAT32, {vocab()}, [&](int64_t i) { return step * static_cast<double>(i); });
  }
  void give_sets(const std::string& name) {
    give_ids(name + ".ids", {kTokens});
    give(name + ".offsets", LOGITLESS_INT64, {kTokens + 1}, [](int64_t i) { return std::min(i, kTokens); });
  }
  void give_halves(const std::string& name) {
    give(name, LOGITLESS_FLOAT64, {kTokens}, [](int64_t) { return 0.5; });
  }
  void give_other(const std::string& prefix) {
    if (form_ == KeyForm::kModels) return give_model(prefix);
    if (prefix == "teacher.") return give("teacher.logits", LOGITLESS_FLOAT32, {kBatch, kTime, vocab()});
    give("ref_logps", LOGITLESS_FLOAT64, {kTokens});
    set("ref_logps_per", "token");
  }
  void give_task() {
    if (task_ == "cross_entropy" || task_ == "preference_loss" || task_ == "kto_loss" || task_ == "token_stats") {
      give_ids("targets");
    }
    if (task_ == "policy_loss") {
      give_ids("chosen_ids");
      give("advantages", LOGITLESS_FLOAT64, {kBatch});
      give("old_logps", LOGITLESS_FLOAT64, {kTokens});
      give("mask", LOGITLESS_UINT8, {kBatch, kTime});
    }
    if (task_ == "preference_loss" || task_ == "kto_loss") give_other("reference.");
    if (task_ == "kto_loss") give("labels", LOGITLESS_UINT8, {kBatch});
    if (task_ == "distillation_loss") give_other("teacher.");
    if (task_ == "distillation_loss" || task_ == "set_distillation_loss") give_ids("targets");
    if (task_ == "soft_cross_entropy") give_sets("sets"), give_halves("weights");
    if (task_ == "id_logps") give_sets("sets"), give_halves("upstream");
    if (task_ == "set_distillation_loss") {
      give_sets("teacher.sets");
      give("teacher.logps", LOGITLESS_FLOAT64, {kTokens});
    }
    if (task_ == "token_stats") give_halves("d_logp");
  }

  std::string task_;
  KeyForm form_;
  std::map<std::string, std::vector<char>> memory_;
  std::map<std::string, std::vector<float>> written_;
  std::map<std::string, std::string> context_;
};

/// A change of a good call, and words of its refusal, in which * matches any text. Without words the call
/// must be accepted. `task` may name a form, as in "cross_entropy of logits".
struct RefusedChange {
  std::string task, changes, words;
  bool by_run_alone = false;  ///< plan() does not check it
};

inline bool has_words(std::string_view message, std::string_view words) {
  for (size_t from = 0; from <= words.size();) {
    const size_t star = std::min(words.find('*', from), words.size());
    const std::string_view part = words.substr(from, star - from);
    const size_t at = message.find(part);
    if (at == std::string_view::npos) return false;
    message.remove_prefix(at + part.size());
    from = star + 1;
  }
  return true;
}

inline KeyCall key_call_of(const std::string& task) {
  static const std::map<std::string, KeyForm> kForms = {{"sequences", KeyForm::kSequences},
                                                        {"logits", KeyForm::kLogits},
                                                        {"models", KeyForm::kModels},
                                                        {"packed", KeyForm::kPacked}};
  const size_t of = task.find(" of ");
  return of == std::string::npos ? KeyCall(task) : KeyCall(task.substr(0, of), kForms.at(task.substr(of + 4)));
}

/// Expects run(), plan() and, without a loss, the halves to refuse the call with these words and to write
/// nothing.
inline void expect_change(const RefusedChange& line) {
  SCOPED_TRACE(line.task + ": " + line.changes);
  KeyCall call = key_call_of(line.task);
  call.change(line.changes);
  const auto verb = [&](const std::vector<logitless_status (*)(logitless_call*)>& steps) {
    const KeyCall::Handle handle(call);
    int status = handle.status;
    for (const auto& step : steps) {
      if (status == LOGITLESS_OK) status = static_cast<int>(step(handle));
    }
    const std::string message = status == LOGITLESS_OK ? "" : logitless_last_error();
    if (line.words.empty()) {
      EXPECT_EQ(message, "");
      return call.reset_outputs();
    }
    EXPECT_EQ(status, LOGITLESS_INVALID_INPUT) << "accepted, or " << message;
    EXPECT_TRUE(has_words(message, line.words)) << "not '" << line.words << "' but: " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_TRUE(call.untouched()) << "an output was written";
  };
  if (!call.has_loss()) return verb({logitless_forward, logitless_backward});
  verb({logitless_run});
  if (!line.by_run_alone) verb({logitless_plan});
}
inline void expect_changes(const std::vector<RefusedChange>& lines) {
  for (const RefusedChange& line : lines) expect_change(line);
}

}  // namespace logitless::testing
