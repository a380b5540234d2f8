// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The lists of keys and results in C, and what drawn calls (tests/generator/c_calls_test.cc) do not draw: a
// context's keys, slices, and options of gradients.
#include <cmath>
#include <cstring>
#include <set>

#include "c_api/call.h"
#include "c_call.h"
#include "leaves.h"
#include "record/record.h"
#include "support/calls.h"
#include "support/every_task.h"
#include "support/key_call.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

Logits source_of(const FromHidden& from) { return logits_of(from.states(), from.head()); }

// Drawn calls set the keys (generator/c_calls_test.cc).
TEST(CKeys, EveryOneIsDescribedAndCanBeUnset) {
  AllTasks::each([]<class Task> {
    const std::string text = logitless_describe(Task::kName);
    static const Task kDefaults = {};
    CCall call(Task::kName);
    visit_leaves(kDefaults, "", [&](const std::string& name, const Field&, const auto&) {
      SCOPED_TRACE(Task::kName + (" " + name));
      EXPECT_EQ(logitless_unset(call, name.c_str()), LOGITLESS_OK) << logitless_last_error();
      const size_t at = text.find("  " + name + ": ");
      ASSERT_NE(at, std::string::npos);
      EXPECT_NE(text.substr(at, text.find('\n', at) - at).find(" — "), std::string::npos) << "says what it is for";
    });
  });
}

TEST(CKeys, OfAContextArrive) {
  const std::pair<const char*, const char*> texts[] = {{"threads", "3"},
                                                       {"workspace_bytes", "64MiB"},
                                                       {"plan", "two_pass"},
                                                       {"row_tile", "8"},
                                                       {"vocab_tile", "32"},
                                                       {"row_block", "4"},
                                                       {"gemm_backend", "openblas"},
                                                       {"gradient_precision", "split"},
                                                       {"simd_target", "plain"},
                                                       {"slices", "40,61"},
                                                       {"own_d_hidden", "true"},
                                                       {"sum_d_weight", "true"}};
  std::set<std::string> seen = {"workspace"};  // each call has its own
  for (const auto& [key, text] : texts) {
    const std::string name = key;
    SCOPED_TRACE(name);
    logitless_context* context = logitless_context_new();
    ASSERT_EQ(logitless_context_set(context, key, text), LOGITLESS_OK) << logitless_last_error();
    const ContextOptions by_default, &arrived = context->record.context().options();
    visit_fields(
        FieldsOf<ContextOptions>(),
        [&](const Field& field, const auto& now, const auto& before) {
          if constexpr (requires { text_of(now); }) {
            EXPECT_EQ(text_of(now) != text_of(before), field.name == name) << field.name;
          }
        },
        arrived, by_default);
    seen.insert(name);
    logitless_context_free(context);
  }
  visit_fields(
      FieldsOf<ContextOptions>(),
      [&](const Field& field, const auto&) { EXPECT_TRUE(seen.contains(field.name)) << field.name; }, ContextOptions());
}

// Keys of a task have distinct names.
TEST(CKeys, HaveOneNameEach) {
  for (const std::string& task : record::task_names()) {
    std::set<std::string> names;
    std::string text = logitless_describe(task.c_str());
    text = text.substr(0, text.find("results:"));
    for (size_t at = text.find("\n  "); at != std::string::npos; at = text.find("\n  ", at + 1)) {
      const std::string name = text.substr(at + 3, text.find(':', at) - at - 3);
      EXPECT_TRUE(names.insert(name).second) << task << " has two keys " << name;
    }
    EXPECT_GT(names.size(), 40u);
  }
}

// Each of these settings gives a different gradient, which shows that the keys reach the call.
TEST(CKeys, OfGradientsOfChosenSegmentsArrive) {
  std::set<std::vector<float>> distinct;
  const char* all[] = {"backward_mode = exact",
                       "theta = 0; noise = 0.2",
                       "theta = 0; noise = 0.4",
                       "theta = 0.2",
                       "theta = 0.2; seed = 12",
                       "backward_mode = certified; theta = 0; tolerance = 0.3",
                       "backward_mode = certified; theta = 0; tolerance = 0.1"};
  for (const char* changes : all) {
    KeyCall call("cross_entropy", KeyForm::kSegments);
    call.change(changes);
    const KeyCall::Handle handle(call);
    ASSERT_EQ(logitless_run(handle), LOGITLESS_OK) << changes << ": " << logitless_last_error();
    const auto* d_hidden = static_cast<const float*>(call.keys["d_hidden"].tensor.data);
    distinct.emplace(d_hidden, d_hidden + KeyCall::kTokens * KeyCall::kHidden);
  }
  EXPECT_EQ(distinct.size(), std::size(all));
}

// The list of a result's members is complete: their sizes add up to its size.
TEST(CKeys, ResultsAreListed) {
  AllTasks::each([]<class Task> {
    using Result = typename Task::Result;
    SCOPED_TRACE(Task::kName);
    size_t listed = sizeof(Plan);
    const auto add = [&]<class T>(const Field&, const T& member) {
      listed += sizeof(T);
      if constexpr (std::is_class_v<T> && requires { member.tokens; }) {
        size_t of_metrics = 0;
        visit_fields(
            FieldsOf<T>(), [&](const Field&, const auto& metric) { of_metrics += sizeof metric; }, member);
        EXPECT_EQ(of_metrics, sizeof(T));
      }
    };
    visit_fields(FieldsOf<Result>(), add, Result());
    EXPECT_EQ(listed, sizeof(Result));
  });
}

// Two slices whose statistics the caller exchanges.
TEST(CSlices, HaveTheBitsOfCxx) {
  const Batch batch;
  const FromHidden half[2] = {{.first_entry = 0, .entries = 40}, {.first_entry = 40, .entries = kVocab - 40}};
  CrossEntropy task;
  task.targets = batch.targets();
  std::vector<uint8_t> all;
  std::vector<std::byte> same;
  CCall call("cross_entropy");
  call.give(task);
  for (int rank = 0; rank < 2; ++rank) {
    call.give(source_of(half[rank]));
    call.put("slice_first", half[rank].first_entry), call.put("slice_vocab_size", kVocab);
    ASSERT_EQ(logitless_slice(call), LOGITLESS_OK) << logitless_last_error();
    logitless_tensor slice;
    ASSERT_EQ(logitless_get_tensor(call, "slice", &slice), LOGITLESS_OK) << logitless_last_error();
    EXPECT_EQ(slice.axes, 2);
    EXPECT_EQ(slice.sizes[0], kTokens);
    const auto* bytes = static_cast<const uint8_t*>(slice.data);
    all.insert(all.end(), bytes, bytes + slice.sizes[0] * slice.sizes[1]);
    ContextOptions options;
    options.ranks.slice = VocabSlice{half[rank].first_entry, kVocab};
    const auto folded = fold_slice(Context(options), source_of(half[rank]), task);
    same.insert(same.end(), folded.begin(), folded.end());
  }
  ASSERT_EQ(all.size(), same.size());
  EXPECT_EQ(std::memcmp(all.data(), same.data(), all.size()), 0);
  for (int rank = 0; rank < 2; ++rank) {
    CCall call("cross_entropy");
    call.give(source_of(half[rank])), call.give(task);
    call.put("slice_first", half[rank].first_entry), call.put("slice_vocab_size", kVocab);
    call.put("gathered", std::span<const uint8_t>(all));
    call.put("keep_workspace", true);
    ASSERT_EQ(logitless_run(call), LOGITLESS_OK) << logitless_last_error();
    double loss = 0;
    logitless_get_number(call, "loss", &loss);
    ContextOptions options;
    options.ranks.slice = VocabSlice{half[rank].first_entry, kVocab, same};
    EXPECT_EQ(loss, run(Context(options), source_of(half[rank]), task, {}).loss);
  }
}

}  // namespace
}  // namespace logitless::testing
