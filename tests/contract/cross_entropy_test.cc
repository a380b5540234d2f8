// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// cross_entropy within the error bounds of docs/numerics.md. Drawn calls have its options.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "logitless/cross_entropy.h"
#include "support/calls.h"
#include "support/error_bounds.h"
#include "support/inputs.h"

namespace logitless::testing {
namespace cross_entropy_test {

// Runs every plan.
void expect_bounds(const InputSpec& spec, const ContextOptions& given) {
  Inputs inputs(spec);
  ContextOptions options = given;
  const std::string backend = Context(options).gemm_backend();
  const BoundedCrossEntropy element(inputs, backend, 8), mean(inputs, backend, 1);
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kExpectedRow}) {
    SCOPED_TRACE(std::string(name_of(plan)) + " " + backend + " " + name_of(spec.dtype) + " " + name_of(spec.layout));
    GradientOutputs outputs(inputs, {});
    options.plan = plan;
    const CrossEntropyResult result = cross_entropy(Context(options), inputs.hidden_view(), inputs.head_view(),
                                                    inputs.targets_view(), {}, outputs.gradients());
    EXPECT_EQ(result.plan.kind, plan);
    for (int64_t i = 0; i < spec.tokens; ++i) {
      ASSERT_NEAR(result.per_token_logps[static_cast<size_t>(i)], element.logp[i], element.logp_bound[i]) << i;
    }
    expect_within(outputs, spec.layout, element, mean);
  }
}

TEST(CrossEntropy, EveryTypeLayoutPlanAndBackend) {
  for (const std::string& backend : gemm_backends()) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
      for (const HeadLayout layout : {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden}) {
        // More 16-bit tokens than count as few.
        const int64_t tokens = size_of(dtype) == 2 ? 67 : 37;
        expect_bounds({.tokens = tokens, .dtype = dtype, .layout = layout, .padding = 3, .ignored = 0.2},
                      {.threads = 2, .row_tile = 16, .vocab_tile = 64, .gemm_backend = backend});
      }
    }
  }
}

TEST(CrossEntropy, ShapesOfRealUse) {
  expect_bounds({.tokens = 252, .vocab = 123, .hidden = 507}, {});
  expect_bounds({.tokens = 257, .vocab = 2049, .hidden = 33}, {});
  expect_bounds({.tokens = 512, .vocab = 2560, .hidden = 512, .ignored = 0.1}, {});
}

}  // namespace cross_entropy_test
}  // namespace logitless::testing
