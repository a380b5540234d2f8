// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares the messages quoted in docs/troubleshooting.md with the library and the command.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli_fixture.h"
#include "io/files.h"
#include "support/calls.h"
#include "support/views.h"

namespace logitless::testing {
namespace troubleshooting_test {

std::string troubleshooting() { return io::read_text_file(SOURCE_FOLDER "/docs/troubleshooting.md", 1 << 20); }

// A good call for a case to spoil: 6 tokens, 5 vocabulary entries, H = 4.
struct SmallCall {
  std::vector<float> x = std::vector<float>(24), w = std::vector<float>(20), d_x = x, d_w = w;
  std::vector<int64_t> ids = std::vector<int64_t>(6), integers;
  HiddenStates hidden{{x.data(), 6, 4}, 2};
  LmHead head{{w.data(), 5, 4}, HeadLayout::kVocabHidden};
  Targets targets{ids};
  CrossEntropy options;
  ContextOptions context;
  Gradients gradients;

  SmallCall() {
    gradients.d_hidden = {d_x.data(), 6, 4};
    gradients.d_weight = {d_w.data(), 5, 4};
  }
  void cross_entropy() { testing::cross_entropy(Context(context), hidden, head, targets, options, gradients); }
};

std::string message_of(const std::function<void(SmallCall&)>& call) {
  SmallCall small;
  try {
    call(small);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Troubleshooting, QuotesTheLibrary) {
  const auto of_cross_entropy = [](const std::function<void(SmallCall&)>& spoil) {
    return message_of([&](SmallCall& c) {
      spoil(c);
      c.cross_entropy();
    });
  };
  const std::string messages[] = {
      of_cross_entropy([](auto& c) {
        c.head.weight = {c.w.data(), 4, 5};
      }),
      of_cross_entropy([](auto& c) { c.ids[2] = 5; }),
      of_cross_entropy([](auto& c) { c.targets.size = 5; }),
      of_cross_entropy([](auto& c) { c.hidden.states.stride = 3; }),
      of_cross_entropy([](auto& c) { c.gradients.d_hidden_batch_stride = 11; }),
      of_cross_entropy([](auto& c) { c.gradients.d_hidden.data = c.x.data(); }),
      of_cross_entropy([](auto& c) { c.gradients.d_weight.data = c.w.data(); }),
      of_cross_entropy([](auto& c) { c.gradients.d_hidden.dtype = DType::kBFloat16; }),
      of_cross_entropy([](auto& c) { c.head.weight.dtype = DType::kFloat64; }),
      of_cross_entropy([](auto& c) { c.gradients.weight_sink = [](int64_t, int64_t, const ConstMatrix&) {}; }),
      of_cross_entropy([](auto& c) { c.context.workspace_bytes = 100; }),
      of_cross_entropy([](auto& c) {
        c.hidden.offsets = c.integers = {0, 2, 5};
      }),
      of_cross_entropy([](auto& c) { c.options.token.temperature = 0; }),
      message_of([](auto& c) {
        c.context.plan = PlanKind::kOnePass;
        const auto saved = cross_entropy.forward(Context(c.context), c.hidden, c.head, c.targets);
        cross_entropy.backward(Context(c.context), c.hidden, c.head, c.targets, {}, saved, 1.0, c.gradients);
      }),
      message_of([](auto& c) {
        PolicyBatch batch;
        batch.chosen_ids = c.targets;
        batch.advantages = {c.x.data(), 5};
        policy_loss(Context(), c.hidden, c.head, batch);
      }),
      message_of([](auto& c) {
        PolicyBatch batch;
        batch.chosen_ids = c.targets;
        batch.advantages = {c.x.data(), 2};
        PolicyLoss options;
        options.beta = 0.5;
        policy_loss(Context(), c.hidden, c.head, batch, options);
      }),
      message_of([](auto& c) { preference_loss(Context(), c.hidden, c.head, c.targets, {}); }),
      message_of([](auto& c) {
        c.hidden.sequences = 3;
        preference_loss(Context(), c.hidden, c.head, c.targets, {});
      }),
  };
  const std::string page = troubleshooting();
  for (const std::string& message : messages) {
    // The bytes of a tile, and the plan that needs fewest, depend on the rows that the BLAS's kernels take.
    const size_t plan = message.find("is too small: plan ");
    const std::string quoted = plan == std::string::npos ? message + "`" : message.substr(0, plan);
    EXPECT_NE(page.find("`" + quoted), std::string::npos) << message;
  }
}

TEST(Troubleshooting, QuotesWhatTeachersGet) {
  const auto of_set = [](std::vector<float> logps, std::vector<int64_t> ids) {
    return message_of([&](SmallCall& c) {
      SetTeacher teacher;
      teacher.sets = IdSets(Targets(ids.data(), 6, 2));
      teacher.logps = logps;
      set_distillation_loss(Context(), c.hidden, c.head, teacher, {});
    });
  };
  const std::vector<int64_t> pairs = {1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2};
  const std::string messages[] = {
      message_of([](auto& c) {
        const std::vector<float> w(24);
        distillation_loss(Context(), c.hidden, c.head, Teacher{c.hidden, {{w.data(), 6, 4}, HeadLayout::kVocabHidden}},
                          c.targets);
      }),
      of_set(std::vector<float>(12, 0.5F), pairs),
      of_set(std::vector<float>(12, 0.0F), pairs),
      of_set(std::vector<float>(12, -2.0F), std::vector<int64_t>(12, 1)),
      message_of([&](auto& c) {
        const std::vector<float> weights(12, -0.5F);
        soft_cross_entropy(Context(), c.hidden, c.head, SoftTargets(IdSets(view(pairs.data(), {6, 2})), weights));
      }),
  };
  const std::string page = troubleshooting();
  for (const std::string& message : messages) EXPECT_NE(page.find("`" + message + "`"), std::string::npos) << message;
}

TEST_F(CliTest, TroubleshootingQuotesTheCommand) {
  const std::string page = troubleshooting();
  const std::vector<std::string> calls[] = {
      {"compare"},
      {"compare", kTiny, "--set", "model.vocab_siz=8"},
      {"compare", kTiny, "--set", "model.layout=tall"},
      {"compare", kTiny, "--hidden", "states.safetensors"},
      {"compare", "absent.yaml"},
  };
  for (const std::vector<std::string>& call : calls) {
    const std::string message = run(call).err;
    EXPECT_NE(page.find("`" + message.substr(0, message.find('\n')) + "`"), std::string::npos) << message;
  }
}

}  // namespace troubleshooting_test
}  // namespace logitless::testing
