// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Each allocation of one call of each kind fails in turn: the caller catches std::bad_alloc, nothing leaks,
// nothing hangs, and the next call gives the bits of one that nothing happened to.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdio>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/coupled_loss.h"
#include "support/failing_allocation.h"
#include "support/inputs.h"

namespace logitless::testing {
namespace {

constexpr int64_t kTokens = 40, kSequences = 4, kVocab = 150;

ContextOptions small_tiles(PlanKind plan) {
  ContextOptions options;
  options.threads = 2;
  options.row_tile = 16;
  options.vocab_tile = 48;
  options.plan = plan;
  return options;
}

// The bytes of what a call returned.
class Bytes {
 public:
  void add(double value) { add(std::span<const double>(&value, 1)); }
  template <class T>
  void add(const std::vector<T>& values) {
    add(std::span<const T>(values));
  }
  template <class T>
  void add(std::span<const T> values) {
    const auto bytes = std::as_bytes(values);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void add(const TokenStats& s) {
    for (const auto* values : {&s.logp, &s.lse, &s.entropy, &s.prior, &s.max_logit, &s.log_sum}) add(*values);
    add(s.argmax);
    add(s.rank);
  }
  bool operator==(const Bytes&) const = default;

 private:
  std::vector<std::byte> bytes_;
};

struct Outcomes {
  int64_t allocations = 0, thrown = 0, survived = 0;
};

// `call(bytes)` is a call of the library, which is watched, and after stop() what it left. The first calls
// start the team and what the BLAS keeps.
template <class Result, class Call, class Collect>
void fail_each_allocation(const std::string& name, const Call& call, const Collect& collect) {
  SCOPED_TRACE(name);
  const auto bytes_of = [&](const Result& result) {
    Bytes bytes;
    collect(result, bytes);
    return bytes;
  };
  call();
  const Bytes expected = bytes_of(call());
  Outcomes outcomes;
  for (const Failing failing : {Failing::kOne, Failing::kAllAfter}) {
    for (int64_t index = 0;; ++index) {
      const int64_t before = blocks_alive();
      AllocationsSeen seen;
      std::string other;
      {
        Result result;
        bool thrown = true;
        fail_allocation(index, failing);
        try {
          result = call();
          thrown = false;
        } catch (const std::bad_alloc&) {
        } catch (const std::exception& error) {
          stop_failing();
          other = error.what();
        }
        seen = stop_failing();
        ASSERT_EQ(other, "") << "allocation " << index;
        if (seen.failed == 0) {
          ASSERT_FALSE(thrown);
          outcomes.allocations = seen.allocations;
          break;
        }
        // std::stable_sort goes on without the buffer that it did not get.
        // A workspace frees the column that it has no room to note.
        if (!thrown) {
          ASSERT_TRUE(bytes_of(result) == expected) << "allocation " << index;
        }
        (thrown ? outcomes.thrown : outcomes.survived) += 1;
      }
      ASSERT_EQ(blocks_alive(), before) << "allocation " << index << " left blocks behind";
      ASSERT_TRUE(bytes_of(call()) == expected) << "the call after allocation " << index << " failed has other bits";
    }
  }
  EXPECT_GT(outcomes.thrown, 10);
  std::printf("%s: %lld allocations, %lld failures thrown, %lld survived\n", name.c_str(),
              static_cast<long long>(outcomes.allocations), static_cast<long long>(outcomes.thrown),
              static_cast<long long>(outcomes.survived));
}

// Inputs of every kind of call, and its outputs.
struct Batch {
  explicit Batch(DType dtype = DType::kFloat32, bool narrow = false, bool sink = false) : inputs(spec(dtype)) {
    RunSpec run;
    if (narrow) run.gradient_dtype = dtype;
    run.sink = sink;
    outputs.emplace(inputs, run);
    for (int64_t row = 0; row < kTokens; ++row) {
      chosen.push_back(row * 7 % kVocab);
      logps.push_back(-2.0 - 0.01 * static_cast<double>(row % 9));
      mask.push_back(row % 5 != 0);
    }
    for (int64_t s = 0; s < kSequences; ++s) {
      advantages.push_back(s % 2 ? -0.5 : 1.5);
      labels.push_back(s % 2 == 0);
    }
  }
  static InputSpec spec(DType dtype) {
    InputSpec spec;
    spec.tokens = kTokens;
    spec.sequences = kSequences;
    spec.vocab = kVocab;
    spec.dtype = dtype;
    spec.ignored = 0.2;
    spec.poison = false;
    return spec;
  }
  PolicyBatch policy() const {
    PolicyBatch batch;
    batch.chosen_ids = std::span<const int64_t>(chosen);
    batch.advantages = {advantages.data(), kSequences};
    batch.old_logps = {logps.data(), kTokens};
    batch.mask = mask;
    return batch;
  }
  Reference reference_of_model() const {
    Reference reference;
    reference.hidden = inputs.hidden_view();
    reference.head = inputs.head_view();
    return reference;
  }
  void add_outputs(Bytes& bytes) const { bytes.add(outputs->bytes()); }

  Inputs inputs;
  std::optional<GradientOutputs> outputs;
  std::vector<int64_t> chosen;
  std::vector<double> logps, advantages;
  std::vector<uint8_t> mask, labels;
};

CrossEntropyOptions all_options() {
  CrossEntropyOptions options;
  options.label_smoothing = 0.1;
  options.z_loss = 0.01;
  options.want_accuracy = options.want_entropy = true;
  options.reduction = Reduction::kNone;
  return options;
}

void add_result(const CrossEntropyResult& result, Bytes& bytes) {
  bytes.add(result.loss);
  bytes.add(result.per_token_loss);
  bytes.add(result.metrics.mean_entropy);
}

void fail_cross_entropy(const std::string& name, Batch batch, const ContextOptions& options, bool gradients = true) {
  const Context context(options);
  const Gradients outputs = gradients ? batch.outputs->gradients() : Gradients{};
  fail_each_allocation<CrossEntropyResult>(
      name,
      [&] {
        return cross_entropy(context, batch.inputs.hidden_view(), batch.inputs.head_view(), batch.inputs.targets_view(),
                             all_options(), outputs);
      },
      [&](const CrossEntropyResult& result, Bytes& bytes) {
        add_result(result, bytes);
        if (gradients) batch.add_outputs(bytes);
      });
}

TEST(AllocationFailure, CrossEntropy) {
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kDense}) {
    fail_cross_entropy(std::string("cross_entropy ") + name_of(plan), Batch(), small_tiles(plan));
  }
  ContextOptions chunks = small_tiles(PlanKind::kOnePass);
  chunks.workspace_bytes = size_t{28} << 10;
  Batch batch;
  const Plan plan = plan_cross_entropy(Context(chunks), batch.inputs.hidden_view(), batch.inputs.head_view(),
                                       batch.inputs.targets_view(), all_options(), batch.outputs->gradients());
  EXPECT_LT(plan.chunk_rows, plan.active_rows);
  fail_cross_entropy("cross_entropy one_pass in chunks", Batch(), chunks);
  fail_cross_entropy("cross_entropy forward only", Batch(), small_tiles(PlanKind::kAuto), false);
}

// Two calls in one Workspace, which holds nothing for a call that has failed.
TEST(AllocationFailure, InAWorkspace) {
  Batch batch;
  const Gradients outputs = batch.outputs->gradients();
  fail_each_allocation<CrossEntropyResult>(
      "cross_entropy in a workspace",
      [&] {
        Workspace workspace;
        ContextOptions options = small_tiles(PlanKind::kTwoPass);
        options.workspace = &workspace;
        const Context context(options);
        const auto run = [&] {
          return cross_entropy(context, batch.inputs.hidden_view(), batch.inputs.head_view(),
                               batch.inputs.targets_view(), all_options(), outputs);
        };
        try {
          run();
          return run();
        } catch (const std::bad_alloc&) {
          workspace.release();
          EXPECT_EQ(workspace.bytes(), 0u);
          throw;
        }
      },
      [&](const CrossEntropyResult& result, Bytes& bytes) {
        add_result(result, bytes);
        batch.add_outputs(bytes);
      });
}

TEST(AllocationFailure, NarrowTypes) {
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kDense}) {
    fail_cross_entropy(std::string("bfloat16 outputs ") + name_of(plan), Batch(DType::kBFloat16, true),
                       small_tiles(plan));
  }
}

TEST(AllocationFailure, ForwardThenBackward) {
  Batch batch;
  const Context context(small_tiles(PlanKind::kAuto));
  const Gradients outputs = batch.outputs->gradients();
  const std::vector<double> upstream(kTokens, 0.5);
  fail_each_allocation<CrossEntropyForward>(
      "cross_entropy_forward and backward",
      [&] {
        CrossEntropyForward forward = cross_entropy_forward(
            context, batch.inputs.hidden_view(), batch.inputs.head_view(), batch.inputs.targets_view(), all_options());
        cross_entropy_backward(context, batch.inputs.hidden_view(), batch.inputs.head_view(),
                               batch.inputs.targets_view(), all_options(), forward, upstream, outputs);
        return forward;
      },
      [&](const CrossEntropyForward& forward, Bytes& bytes) {
        add_result(forward.result, bytes);
        bytes.add(forward.stats);
        batch.add_outputs(bytes);
      });
}

// A sink that allocates, as one that copies a tile does.
TEST(AllocationFailure, WeightSink) {
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    Batch batch;
    std::vector<float> weight(static_cast<size_t>(batch.inputs.head_view().weight.rows * kVocab));
    Gradients outputs = batch.outputs->gradients();
    outputs.d_weight = {};
    outputs.weight_sink = [&](int64_t first, int64_t count, const ConstMatrix& tile) {
      for (int64_t r = 0; r < tile.rows; ++r) {
        const float* from = static_cast<const float*>(tile.data) + r * tile.stride;
        const std::vector<float> row(from, from + count);
        std::copy(row.begin(), row.end(), weight.begin() + r * kVocab + first);
      }
    };
    const Context context(small_tiles(plan));
    fail_each_allocation<CrossEntropyResult>(
        std::string("weight_sink ") + name_of(plan),
        [&] {
          return cross_entropy(context, batch.inputs.hidden_view(), batch.inputs.head_view(),
                               batch.inputs.targets_view(), {}, outputs);
        },
        [&](const CrossEntropyResult& result, Bytes& bytes) {
          bytes.add(result.loss);
          bytes.add(weight);
        });
  }
}

TEST(AllocationFailure, TokenStats) {
  Batch batch;
  for (const PlanKind plan : {PlanKind::kAuto, PlanKind::kDense}) {
    const Context context(small_tiles(plan));
    fail_each_allocation<TokenStats>(
        std::string("compute_token_stats ") + name_of(plan),
        [&] {
          return compute_token_stats(context, batch.inputs.hidden_view(), batch.inputs.head_view(),
                                     batch.inputs.targets_view(), {},
                                     {.entropy = true, .prior = true, .argmax = true, .rank = true});
        },
        [](const TokenStats& stats, Bytes& bytes) { bytes.add(stats); });
  }
}

TEST(AllocationFailure, PolicyLoss) {
  PolicyOptions options;
  options.entropy_bonus = 0.01;
  options.top_entropy_quantile = 0.8;
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kDense}) {
    Batch batch;
    const Context context(small_tiles(plan));
    const Gradients outputs = batch.outputs->gradients();
    fail_each_allocation<PolicyResult>(
        std::string("policy_loss ") + name_of(plan),
        [&] {
          return policy_loss(context, batch.inputs.hidden_view(), batch.inputs.head_view(), batch.policy(), options,
                             outputs);
        },
        [&](const PolicyResult& result, Bytes& bytes) {
          bytes.add(result.loss);
          bytes.add(result.per_token_loss);
          batch.add_outputs(bytes);
        });
  }
}

TEST(AllocationFailure, PreferenceLoss) {
  PreferenceOptions options;
  options.terms = {{PreferenceLoss::kSigmoid, 1.0}, {PreferenceLoss::kAotUnpaired, 0.5}};
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    Batch batch;
    const Context context(small_tiles(plan));
    const Gradients outputs = batch.outputs->gradients();
    const Reference reference = batch.reference_of_model();
    fail_each_allocation<PreferenceResult>(
        std::string("preference_loss ") + name_of(plan),
        [&] {
          return preference_loss(context, batch.inputs.hidden_view(), batch.inputs.head_view(),
                                 batch.inputs.targets_view(), reference, options, outputs);
        },
        [&](const PreferenceResult& result, Bytes& bytes) {
          bytes.add(result.loss);
          bytes.add(result.sequence_logps);
          batch.add_outputs(bytes);
        });
  }
}

TEST(AllocationFailure, KtoLoss) {
  Batch batch;
  const Context context(small_tiles(PlanKind::kAuto));
  const Gradients outputs = batch.outputs->gradients();
  KtoBatch kto;
  kto.targets = batch.inputs.targets_view();
  kto.labels = batch.labels;
  kto.reference.logps = {batch.logps.data(), kTokens};
  fail_each_allocation<KtoResult>(
      "kto_loss",
      [&] { return kto_loss(context, batch.inputs.hidden_view(), batch.inputs.head_view(), kto, {}, outputs); },
      [&](const KtoResult& result, Bytes& bytes) {
        bytes.add(result.loss);
        bytes.add(result.sequence_losses);
        batch.add_outputs(bytes);
      });
}

// Finished logits are kept apart from a buffer that every call may overwrite with its gradient.
struct LogitsBatch : Batch {
  std::vector<float> logits = std::vector<float>(kTokens * kVocab);
  std::vector<float> gradient = std::vector<float>(kTokens * kVocab);
  LogitsBatch() {
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 37 % 101) * 0.1f;
  }
  Logits view() const { return {logits.data(), kSequences, kTokens / kSequences, kVocab}; }
  LogitsGradient output() { return {gradient.data(), kSequences, kTokens / kSequences, kVocab}; }
};

TEST(AllocationFailure, FromLogits) {
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    LogitsBatch batch;
    ContextOptions options = small_tiles(plan);
    options.row_tile = options.row_block = 3;
    const Context context(options);
    fail_each_allocation<CrossEntropyResult>(
        std::string("cross_entropy ") + name_of(plan),
        [&] {
          return cross_entropy(context, batch.view(), batch.inputs.targets_view(), all_options(), batch.output());
        },
        [&](const CrossEntropyResult& result, Bytes& bytes) {
          bytes.add(result.loss);
          bytes.add(result.per_token_loss);
          bytes.add(batch.gradient);
        });
    fail_each_allocation<PolicyResult>(
        std::string("policy_loss ") + name_of(plan),
        [&] { return policy_loss(context, batch.view(), batch.policy(), {}, batch.output()); },
        [&](const PolicyResult& result, Bytes& bytes) {
          bytes.add(result.loss);
          bytes.add(result.per_token_loss);
          bytes.add(batch.gradient);
        });
    const std::vector<double> upstream(kTokens, 0.5);
    fail_each_allocation<std::vector<double>>(
        std::string("entropy_from_logits ") + name_of(plan),
        [&] { return entropy_from_logits(context, batch.view(), {}, upstream, batch.output()); },
        [&](const std::vector<double>& entropies, Bytes& bytes) {
          bytes.add(entropies);
          bytes.add(batch.gradient);
        });
  }
}

// A loss of the caller's that allocates, inside the regions of finished logits and between those of the fused
// plans.
TEST(AllocationFailure, ALossThatAllocates) {
  LogitsBatch batch;
  std::vector<int64_t> groups(kTokens);
  for (size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<int64_t>(i);
  const Gradients outputs = batch.outputs->gradients();
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    ContextOptions options = small_tiles(plan);
    options.row_tile = options.row_block = 3;
    const Context context(options);
    fail_each_allocation<TokenStats>(
        std::string("run_token_loss ") + name_of(plan),
        [&] {
          CoupledLoss loss(groups, true, /*declared=*/false);
          return run_token_loss(context, batch.view(), batch.inputs.targets_view(), {}, loss, batch.output());
        },
        [&](const TokenStats& stats, Bytes& bytes) {
          bytes.add(stats);
          bytes.add(batch.gradient);
        });
    fail_each_allocation<TokenStats>(
        std::string("run_token_loss ") + name_of(plan),
        [&] {
          CoupledLoss loss(groups, true);
          return run_token_loss(context, batch.inputs.hidden_view(), batch.inputs.head_view(),
                                batch.inputs.targets_view(), {}, loss, outputs);
        },
        [&](const TokenStats& stats, Bytes& bytes) {
          bytes.add(stats);
          batch.add_outputs(bytes);
        });
  }
}

TEST(AllocationFailure, TheHookFails) {
  fail_allocation(1, Failing::kOne);
  bool first = true, second = false;
  try {
    ::operator delete(::operator new(1));
  } catch (const std::bad_alloc&) {
    first = false;
  }
  try {
    ::operator delete(::operator new(2));
  } catch (const std::bad_alloc&) {
    second = true;
  }
  const AllocationsSeen seen = stop_failing();
  EXPECT_TRUE(first);
  EXPECT_TRUE(second);
  EXPECT_EQ(seen.failed, 1);
}

}  // namespace
}  // namespace logitless::testing
