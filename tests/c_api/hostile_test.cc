// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Sets every key of every task to hostile values, alone and in pairs. A call may accept or refuse them. It
// must not crash or report a defect of the library, and a refused call must not write anything. Under the
// address and undefined-behaviour sanitizers (.ci/run hostile) it must not touch memory outside the arrays
// either.
#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "support/key_call.h"

namespace logitless::testing {
namespace {

// Returns a good call with additional keys.
KeyCall rich_call(const std::string& task, KeyForm form) {
  KeyCall call(task, form);
  const auto adapt = [&](const std::string& of) {
    call.change(of + "lora_a = @2x4 float32; " + of + "lora_b = @5x2 float32; " + of + "vocab_ids = @5 int64");
  };
  if (form != KeyForm::kLogits && form != KeyForm::kSegments) {
    adapt("");
    call.change("d_lora_b = @5x2 float32");
    if (form == KeyForm::kModels) adapt(task == "distillation_loss" ? "teacher." : "reference.");
  }
  if (task == "cross_entropy" && form != KeyForm::kSegments) {
    call.give("class_weights", LOGITLESS_FLOAT32, {call.vocab()}, [](int64_t) { return 0.5; });
  }
  if (task == "policy_loss") {
    call.change("beta = 0.1; ref_logps = @6; advantages = @6; advantages_per = token");
    call.give("temperatures", LOGITLESS_FLOAT64, {KeyCall::kTokens}, [](int64_t) { return 0.5; });
  }
  return call;
}

// Sets `out` to the key's hostile setting `number`; returns false if there are no more.
bool spoil(const KeyCall& call, const std::string& name, size_t number, Setting& out) {
  std::vector<Setting> all;
  const auto add = [&](const logitless_tensor& tensor) { all.push_back({.kind = Setting::kTensor, .tensor = tensor}); };
  const auto at = call.keys.find(name);
  logitless_tensor good = call.keys.at(call.form() == KeyForm::kLogits ? "logits" : "hidden").tensor;
  good.axes = 1, good.sizes[0] = KeyCall::kTokens;
  if (at != call.keys.end() && at->second.kind == Setting::kTensor) good = at->second.tensor;
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
      bad.strides[i] = std::max<int64_t>(other, -1) > (int64_t{1} << 31) ? std::numeric_limits<int64_t>::max() : other;
      add(bad);
    }
  }
  for (const int64_t integer : {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{2}, int64_t{100}, int64_t{1} << 40,
                                std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}) {
    all.push_back({.kind = Setting::kInteger, .integer = integer});
  }
  using Limits = std::numeric_limits<double>;
  for (const double value : {0.0, 1.0, -1.0, 0.5, 1e300, 0x1p63, Limits::max(), Limits::lowest(), Limits::denorm_min(),
                             Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}) {
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

// Creates the good call, changes it, and calls its verbs.
void expect_survives(KeyCall& world, const Changes& changes, Counts& counts) {
  std::string what = world.task();
  for (const auto& [name, setting] : changes) what += ", " + name + " of kind " + std::to_string(setting.kind);
  SCOPED_TRACE(what);
  const KeyCall::Handle call(world);
  ASSERT_EQ(call.status, LOGITLESS_OK) << logitless_last_error();
  bool taken = true;
  for (const auto& [name, setting] : changes) {
    const logitless_status status = setting.set(call, name);
    ASSERT_TRUE(status == LOGITLESS_OK || status == LOGITLESS_INVALID_INPUT) << status << logitless_last_error();
    taken &= status == LOGITLESS_OK;
  }
  const auto check = [&](logitless_status (*verb)(logitless_call*), const char* name) {
    world.reset_outputs();
    const logitless_status status = verb(call);
    EXPECT_TRUE(status == LOGITLESS_OK || status == LOGITLESS_INVALID_INPUT)
        << name << ": status " << status << ", " << logitless_last_error();
    (status == LOGITLESS_OK ? counts.accepted : counts.refused) += 1;
    if (status == LOGITLESS_OK) return true;
    EXPECT_TRUE(world.untouched()) << name << " was refused: " << logitless_last_error();
    return false;
  };
  if (taken) {
    check(logitless_run, "run");
    double kept = 1;
    if (changes.empty() && world.form() == KeyForm::kSegments) {
      EXPECT_EQ(logitless_get_number(call, "plan.kept_share", &kept), LOGITLESS_OK);
      EXPECT_LT(kept, 1);
    }
    check(logitless_plan, "plan");
    check(logitless_slice, "slice");
    if (check(logitless_forward, "forward")) check(logitless_backward, "backward");
  } else {
    check(logitless_run, "run");
  }
}

struct Form {
  const char* task;
  KeyForm kind;
};
constexpr Form kForms[] = {{"cross_entropy", KeyForm::kStates},
                           {"cross_entropy", KeyForm::kSequences},
                           {"cross_entropy", KeyForm::kLogits},
                           {"cross_entropy", KeyForm::kPacked},
                           {"cross_entropy", KeyForm::kSegments},
                           {"policy_loss", KeyForm::kStates},
                           {"policy_loss", KeyForm::kLogits},
                           {"preference_loss", KeyForm::kStates},
                           {"preference_loss", KeyForm::kModels},
                           {"kto_loss", KeyForm::kModels},
                           {"kto_loss", KeyForm::kLogits},
                           {"soft_cross_entropy", KeyForm::kStates},
                           {"distillation_loss", KeyForm::kModels},
                           {"distillation_loss", KeyForm::kLogits},
                           {"set_distillation_loss", KeyForm::kStates},
                           {"id_logps", KeyForm::kStates},
                           {"token_stats", KeyForm::kStates}};

class HostileKeys : public ::testing::TestWithParam<Form> {};

TEST_P(HostileKeys, NoValueEndsTheProcessOrIsWrittenBeforeItIsRefused) {
  const auto [task, kind] = GetParam();
  KeyCall world = rich_call(task, kind);
  Counts good, counts;
  expect_survives(world, {}, good);
  const bool has_loss = world.has_loss();
  // Without a loss, run() refuses gradients.
  ASSERT_GE(good.accepted, has_loss ? 3 : 2) << logitless_last_error();
  const std::vector<std::string> names = keys_of(task);
  Setting setting{};
  for (const std::string& name : names) {
    for (size_t number = 0; spoil(world, name, number, setting); ++number) {
      expect_survives(world, {{name, setting}}, counts);
    }
  }
  // Pairs of keys, the same in every run.
  uint64_t state = 1;
  const auto next = [&](size_t below) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<size_t>(state >> 33) % below;
  };
  for (int pair = 0; pair < 1000; ++pair) {
    Changes changes;
    for (int i = 0; i < 2; ++i) {
      const std::string& name = names[next(names.size())];
      if (spoil(world, name, next(60), setting)) changes.emplace_back(name, setting);
    }
    expect_survives(world, changes, counts);
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
