// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every key of every task at hostile values, alone and in pairs. A call may accept or refuse them;
// it never crashes, it is never a defect of the library, and one that is refused has written nothing. Under
// the address and undefined-behaviour sanitizers nothing outside of the arrays is touched either: .ci/run
// hostile.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "logitless/c_api.h"

namespace logitless::testing {
namespace {

constexpr int64_t kBatch = 2, kTime = 3, kTokens = kBatch * kTime, kHidden = 8, kVocab = 12;

/// The source of a call's logits, and how it runs.
enum class Kind {
  kStates,
  kSequences,  ///< packed ones
  kLogits,
  kModels,    ///< states, with a reference or teacher of states
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

/// The arrays of a call. Each is twice as long as needed, so that a size that is one too large stays inside.
struct World {
  Kind kind;
  int64_t vocab = kind == Kind::kSegments ? 2000 : kVocab;
  size_t length = static_cast<size_t>(2 * vocab * kHidden);
  std::vector<float> floats[6];
  std::vector<double> doubles = std::vector<double>(length, 0.5);
  std::vector<int64_t> ids, offsets = {0, 1, 2, 3, 4, 5, 6}, sequences = {0, 2, 6}, chosen;
  std::vector<uint8_t> bytes = std::vector<uint8_t>(16 * length, 1);
  std::vector<float> written[4];
  std::map<std::string, Setting> keys;  ///< a good call

  World(const std::string& task, Kind kind_) : kind(kind_) {
    for (size_t k = 0; k < 6; ++k) {
      for (size_t i = 0; i < length; ++i) floats[k].push_back(0.1F * static_cast<float>((i + k) % 7) - 0.9F);
      // Some segments weigh more than others.
      if (kind == Kind::kSegments && k == 2)
        for (size_t i = 0; i < length; ++i) floats[k][i] = 0.004F * static_cast<float>(i);
    }
    for (size_t i = 0; i < length; ++i) ids.push_back(static_cast<int64_t>(i * 5 % static_cast<size_t>(vocab)));
    for (int64_t i = 0; i < vocab; ++i) chosen.push_back(i);
    offsets.resize(length, 6), sequences.resize(length, 6), chosen.resize(length, 0);
    for (auto& memory : written) memory.assign(length, 7);
    if (kind == Kind::kLogits) {
      give("logits", floats[0].data(), LOGITLESS_FLOAT32, {kBatch, kTime, kVocab});
      give("d_logits", written[0].data(), LOGITLESS_FLOAT32, {kBatch, kTime, kVocab});
    } else {
      give_model("");
      give("d_hidden", written[0].data(), LOGITLESS_FLOAT32, {kBatch, kTime, kHidden});
      give("d_weight", written[1].data(), LOGITLESS_FLOAT32, {vocab, kHidden});
      give("d_bias", written[2].data(), LOGITLESS_FLOAT32, {vocab});
      give("d_lora_b", written[3].data(), LOGITLESS_FLOAT32, {vocab, 2});
    }
    give_task(task);
    if (kind == Kind::kPacked) {
      give("weight", bytes.data(), LOGITLESS_UINT8, {vocab, kHidden});
      give("scales", floats[5].data(), LOGITLESS_FLOAT32, {vocab, 2});
      keys["packing"] = {.kind = Setting::kText, .text = "int8"};
      keys["group"] = {.kind = Setting::kInteger, .integer = kHidden / 2};
      keys.erase("d_weight");
    }
    if (kind == Kind::kSequences) {
      give("hidden", floats[0].data(), LOGITLESS_FLOAT32, {kTokens, kHidden});
      give("offsets", sequences.data(), LOGITLESS_INT64, {3});
    }
    if (kind == Kind::kSegments) {
      for (const char* name : {"lora_a", "lora_b", "d_lora_b", "class_weights"}) keys.erase(name);
      keys["backward_mode"] = {.kind = Setting::kText, .text = "sampled"};
      keys["theta"] = {.kind = Setting::kNumber, .number = 0.5};
    }
  }

  void give(const std::string& name, const void* data, int32_t dtype, std::vector<int64_t> sizes) {
    Setting setting{.kind = Setting::kTensor};
    setting.tensor = {const_cast<void*>(data), dtype, static_cast<int32_t>(sizes.size()), {}, {}};
    std::copy(sizes.begin(), sizes.end(), setting.tensor.sizes);
    keys[name] = setting;
  }
  void give_model(const std::string& prefix) {
    give(prefix + "hidden", floats[0].data(), LOGITLESS_FLOAT32, {kBatch, kTime, kHidden});
    give(prefix + "weight", floats[1].data(), LOGITLESS_FLOAT32, {vocab, kHidden});
    give(prefix + "bias", floats[2].data(), LOGITLESS_FLOAT32, {vocab});
    give(prefix + "lora_a", floats[3].data(), LOGITLESS_FLOAT32, {2, kHidden});
    give(prefix + "lora_b", floats[4].data(), LOGITLESS_FLOAT32, {vocab, 2});
    give(prefix + "vocab_ids", chosen.data(), LOGITLESS_INT64, {vocab});
  }
  void give_ids(const std::string& name) { give(name, ids.data(), LOGITLESS_INT64, {kBatch, kTime}); }
  void give_sets(const std::string& name) {
    give(name + ".ids", ids.data(), LOGITLESS_INT64, {kTokens});
    give(name + ".offsets", offsets.data(), LOGITLESS_INT64, {kTokens + 1});
  }
  void give_other(const std::string& prefix) {
    if (kind == Kind::kModels) return give_model(prefix);
    if (prefix == "teacher.")
      return give("teacher.logits", floats[5].data(), LOGITLESS_FLOAT32, {kBatch, kTime, vocab});
    give("ref_logps", floats[5].data(), LOGITLESS_FLOAT32, {kTokens});
    keys["ref_logps_per"] = {.kind = Setting::kText, .text = "token"};
  }
  void give_task(const std::string& task) {
    if (task == "cross_entropy" || task == "preference_loss" || task == "kto_loss" || task == "token_stats") {
      give_ids("targets");
    }
    if (task == "cross_entropy") give("class_weights", bytes.data(), LOGITLESS_FLOAT32, {vocab});
    if (task == "policy_loss") {
      give_ids("chosen_ids");
      for (const char* name : {"advantages", "old_logps", "ref_logps"}) {
        give(name, floats[5].data(), LOGITLESS_FLOAT32, {kTokens});
      }
      give("mask", bytes.data(), LOGITLESS_UINT8, {kBatch, kTime});
      give("temperatures", doubles.data(), LOGITLESS_FLOAT64, {kTokens});
      keys["beta"] = {.kind = Setting::kNumber, .number = 0.1};
      keys["advantages_per"] = {.kind = Setting::kText, .text = "token"};
    }
    if (task == "preference_loss" || task == "kto_loss") give_other("reference.");
    if (task == "kto_loss") give("labels", bytes.data(), LOGITLESS_UINT8, {kBatch});
    if (task == "distillation_loss") give_other("teacher.");
    if (task == "soft_cross_entropy") give_sets("sets"), give("weights", doubles.data(), LOGITLESS_FLOAT64, {kTokens});
    if (task == "id_logps") give_sets("sets"), give("upstream", doubles.data(), LOGITLESS_FLOAT64, {kTokens});
    if (task == "set_distillation_loss") {
      give_sets("teacher.sets");
      give("teacher.logps", floats[5].data(), LOGITLESS_FLOAT32, {kTokens});
    }
    if (task == "token_stats") give("d_logp", doubles.data(), LOGITLESS_FLOAT64, {kTokens});
  }

  /// Sets `out` to hostile setting `number` of the key; returns false if there are no more.
  bool spoil(const std::string& name, size_t number, Setting& out) const {
    std::vector<Setting> all;
    const auto add = [&](const logitless_tensor& tensor) {
      all.push_back({.kind = Setting::kTensor, .tensor = tensor});
    };
    const auto at = keys.find(name);
    logitless_tensor good = {const_cast<float*>(floats[0].data()), LOGITLESS_FLOAT32, 1, {kTokens, 0, 0}, {0, 0, 0}};
    if (at != keys.end() && at->second.kind == Setting::kTensor) good = at->second.tensor;
    add(good);
    for (const int32_t axes : {-1, 0, 1, 2, 3, 4, std::numeric_limits<int32_t>::max()}) {
      logitless_tensor bad = good;
      bad.axes = axes;
      add(bad);
    }
    for (int32_t dtype = -1; dtype <= 7; ++dtype) {
      if (dtype == LOGITLESS_FLOAT64 || dtype == LOGITLESS_INT64) continue;  // larger than the arrays
      logitless_tensor bad = good;
      bad.dtype = dtype;
      add(bad);
    }
    for (const ptrdiff_t shift : {1, 2}) {
      logitless_tensor bad = good;
      bad.data = static_cast<char*>(good.data) + shift;
      add(bad);
    }
    logitless_tensor none = good;
    none.data = nullptr;
    add(none);
    for (int i = 0; i < std::min(good.axes, 3); ++i) {
      const int64_t size = good.sizes[i];
      for (const int64_t other :
           {int64_t{0}, int64_t{1}, int64_t{-1}, size - 1, size + 1, int64_t{1} << 32, int64_t{1} << 62,
            std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}) {
        logitless_tensor bad = good;
        bad.sizes[i] = other;
        add(bad);
        bad = good;
        bad.strides[i] =
            std::max<int64_t>(other, -1) > (int64_t{1} << 31) ? std::numeric_limits<int64_t>::max() : other;
        add(bad);
      }
    }
    for (const int64_t integer : {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{2}, int64_t{100}, int64_t{1} << 40,
                                  std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}) {
      all.push_back({.kind = Setting::kInteger, .integer = integer});
    }
    using Limits = std::numeric_limits<double>;
    for (const double value : {0.0, 1.0, -1.0, 0.5, 1e300, 0x1p63, Limits::max(), Limits::lowest(),
                               Limits::denorm_min(), Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}) {
      all.push_back({.kind = Setting::kNumber, .number = value});
    }
    for (const char* text :
         {"",        "none",      "nonsense",    "1",    "-1",    "true",     "sum",      "mean",
          "1,2,3",   "[",         "q4_k",        "int8", "nf4",   "float64",  "bfloat16", "accumulate",
          "sampled", "certified", "sigmoid,ipo", "jsd",  "token", "sequence", "1e999",    "99999999999999999999"}) {
      all.push_back({.kind = Setting::kText, .text = text});
    }
    if (number >= all.size()) return false;
    out = all[number];
    return true;
  }
};

struct Counts {
  int64_t accepted = 0, refused = 0;
};

std::vector<std::string> keys_of(const std::string& task) {
  std::vector<std::string> names;
  std::string text = logitless_describe(task.c_str());
  text = text.substr(0, text.find("results:"));
  for (size_t at = text.find("\n  "); at != std::string::npos; at = text.find("\n  ", at + 1)) {
    names.push_back(text.substr(at + 3, text.find(": ", at) - at - 3));
  }
  return names;
}

using Changes = std::vector<std::pair<std::string, Setting>>;

// Makes the good call, changes it, and calls its verbs.
void expect_survives(const std::string& task, World& world, const Changes& changes, Counts& counts) {
  std::string what = task;
  for (const auto& [name, setting] : changes) what += ", " + name + " of kind " + std::to_string(setting.kind);
  SCOPED_TRACE(what);
  logitless_context* context = logitless_context_new();
  ASSERT_EQ(logitless_context_set(context, "threads", "1"), LOGITLESS_OK);
  logitless_call* call = logitless_call_new(context, task.c_str());
  logitless_context_free(context);
  for (const auto& [name, setting] : world.keys) {
    ASSERT_EQ(setting.set(call, name), LOGITLESS_OK) << name << ": " << logitless_last_error();
  }
  bool taken = true;
  for (const auto& [name, setting] : changes) {
    const logitless_status status = setting.set(call, name);
    ASSERT_TRUE(status == LOGITLESS_OK || status == LOGITLESS_INVALID_INPUT) << status << logitless_last_error();
    taken &= status == LOGITLESS_OK;
  }
  const auto check = [&](logitless_status (*verb)(logitless_call*), const char* name) {
    for (auto& memory : world.written) std::fill(memory.begin(), memory.end(), 7.0F);
    const logitless_status status = verb(call);
    EXPECT_TRUE(status == LOGITLESS_OK || status == LOGITLESS_INVALID_INPUT)
        << name << ": status " << status << ", " << logitless_last_error();
    (status == LOGITLESS_OK ? counts.accepted : counts.refused) += 1;
    if (status == LOGITLESS_OK) return true;
    for (const auto& memory : world.written) {
      EXPECT_EQ(memory, std::vector<float>(memory.size(), 7)) << name << " was refused: " << logitless_last_error();
    }
    return false;
  };
  if (taken) {
    check(logitless_run, "run");
    double kept = 1;
    if (changes.empty() && world.kind == Kind::kSegments) {
      EXPECT_EQ(logitless_get_number(call, "plan.kept_share", &kept), LOGITLESS_OK);
      EXPECT_LT(kept, 1);
    }
    check(logitless_plan, "plan");
    check(logitless_slice, "slice");
    if (check(logitless_forward, "forward")) check(logitless_backward, "backward");
  } else {
    check(logitless_run, "run");
  }
  logitless_call_free(call);
}

struct Form {
  const char* task;
  Kind kind;
};
constexpr Form kForms[] = {{"cross_entropy", Kind::kStates},
                           {"cross_entropy", Kind::kSequences},
                           {"cross_entropy", Kind::kLogits},
                           {"cross_entropy", Kind::kPacked},
                           {"cross_entropy", Kind::kSegments},
                           {"policy_loss", Kind::kStates},
                           {"policy_loss", Kind::kLogits},
                           {"preference_loss", Kind::kStates},
                           {"preference_loss", Kind::kModels},
                           {"kto_loss", Kind::kModels},
                           {"kto_loss", Kind::kLogits},
                           {"soft_cross_entropy", Kind::kStates},
                           {"distillation_loss", Kind::kModels},
                           {"distillation_loss", Kind::kLogits},
                           {"set_distillation_loss", Kind::kStates},
                           {"id_logps", Kind::kStates},
                           {"token_stats", Kind::kStates}};

class HostileKeys : public ::testing::TestWithParam<Form> {};

TEST_P(HostileKeys, NoValueEndsTheProcessOrIsWrittenBeforeItIsRefused) {
  const auto [task, kind] = GetParam();
  World world(task, kind);
  Counts good, counts;
  expect_survives(task, world, {}, good);
  const bool has_loss = std::string_view(task) != "id_logps" && std::string_view(task) != "token_stats";
  // Without a loss, run has no gradients.
  ASSERT_GE(good.accepted, has_loss ? 3 : 2) << logitless_last_error();
  const std::vector<std::string> names = keys_of(task);
  Setting setting{};
  for (const std::string& name : names) {
    for (size_t number = 0; world.spoil(name, number, setting); ++number) {
      expect_survives(task, world, {{name, setting}}, counts);
    }
  }
  // Two keys at once, the same two in every run.
  uint64_t state = 1;
  const auto next = [&](size_t below) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<size_t>(state >> 33) % below;
  };
  for (int pair = 0; pair < 1000; ++pair) {
    Changes changes;
    for (int i = 0; i < 2; ++i) {
      const std::string& name = names[next(names.size())];
      if (world.spoil(name, next(60), setting)) changes.emplace_back(name, setting);
    }
    expect_survives(task, world, changes, counts);
  }
  std::printf("hostile: %s, %lld accepted, %lld refused\n", task, static_cast<long long>(counts.accepted),
              static_cast<long long>(counts.refused));
  EXPECT_GT(counts.refused, 2000);
  EXPECT_GT(counts.accepted, has_loss ? 500 : 400);
}
const char* const kKinds[] = {"states", "sequences", "logits", "models", "packed", "segments"};
INSTANTIATE_TEST_SUITE_P(Tasks, HostileKeys, ::testing::ValuesIn(kForms), [](const auto& form) {
  return std::string(form.param.task) + "_of_" + kKinds[static_cast<size_t>(form.param.kind)];
});

}  // namespace
}  // namespace logitless::testing
