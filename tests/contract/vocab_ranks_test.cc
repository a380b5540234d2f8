// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Ranks that share the vocabulary send only necessary data, plus a little.
#include <gtest/gtest.h>

#include <vector>

#include "logitless/logitless.h"
#include "support/thread_ranks.h"

namespace logitless::testing {
namespace vocab_ranks_test {

// 16 bytes of statistics per token and rank, 8 H (P - 1) / P of d_hidden, and a little more.
TEST(VocabRanks, SendWhatTheyMust) {
  constexpr int64_t kRows = 4000, kColumns = 48, kWords = 90;
  struct Case {
    bool gradients;
    DType dtype;
    WriteMode mode;
    double bytes_of_d_hidden;  // per element that a rank sends: parts, and their sums
  };
  for (const Case& c : {Case{false, DType::kFloat32, WriteMode::kOverwrite, 0},
                        {true, DType::kFloat32, WriteMode::kOverwrite, 4 + 4},
                        {true, DType::kBFloat16, WriteMode::kOverwrite, 4 + 2},
                        {true, DType::kBFloat16, WriteMode::kAccumulate, 4 + 4}}) {
    const std::vector<double> zeros(kRows * kColumns);  // enough for any type
    const std::vector<int64_t> ids(kRows, 3);
    ThreadGroup group(3);
    const auto errors = run_ranks(3, [&](int rank) {
      ContextOptions options;
      options.threads = 1;
      options.ranks.vocab = &group.of(rank);
      std::vector<double> written(zeros);
      logitless::Gradients outputs;
      outputs.d_hidden_mode = c.mode;
      if (c.gradients) outputs.d_hidden = Tensor(written.data(), c.dtype, {kRows, kColumns});
      run(Context(options),
          Logits::of(ConstTensor(zeros.data(), c.dtype, {kRows, kColumns}),
                     ConstTensor(zeros.data(), c.dtype, {kWords / 3, kColumns})),
          CrossEntropy{.targets = ids}, outputs);
    });
    for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
    const double bytes = static_cast<double>(group.sent_bytes()) / 3 / kRows;
    const double needed = 16 * 2 + c.bytes_of_d_hidden * kColumns * 2 / 3;
    EXPECT_GE(bytes, needed);
    EXPECT_LE(bytes, 1.02 * needed + 1);
  }
}

}  // namespace vocab_ranks_test
}  // namespace logitless::testing
