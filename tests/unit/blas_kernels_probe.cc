// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One process of BlasCoresOfAProcess: lets OpenBLAS begin with the core of the first argument, where there is
// one, and prints what a Context says before and after use_best_blas_kernels(), and whether products are
// right.
#include <cblas.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/forced_core.h"

namespace {

void print(const char* name, const std::string& value) { std::printf("%s=%s\n", name, value.c_str()); }

// Multiplies on all threads of the BLAS; the result is a whole number, whatever the order of summation.
bool large_product_is_right() {
  constexpr int kEdge = 400;
  std::vector<float> a(kEdge * kEdge, 3.0f), b(kEdge * kEdge, -2.0f), c(kEdge * kEdge, 1.0f);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, kEdge, kEdge, kEdge, 1.0f, a.data(), kEdge, b.data(), kEdge,
              0.0f, c.data(), kEdge);
  return std::all_of(c.begin(), c.end(), [](float x) { return x == -6.0f * kEdge; });
}

// All logits are equal, so that the loss is log(7) in every arithmetic.
double loss_of(const logitless::Context& context) {
  const std::vector<float> hidden(12, 1.0f), head(21, 0.5f);
  const std::vector<int64_t> targets(4, 6);
  return logitless::cross_entropy(context, logitless::ConstMatrix(hidden.data(), 4, 3),
                                  {{head.data(), 7, 3}, logitless::HeadLayout::kVocabHidden}, {targets})
      .loss;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) logitless::testing::force_core(argv[1]);
  const logitless::Context context({.threads = 1});
  print("loss before", std::to_string(loss_of(context)));
  const logitless::Environment before = describe_environment(context);
  print("core before", before.blas_core);
  print("warning before", context.blas_warning());
  print("warnings before", before.warnings.empty() ? "" : before.warnings.front());

  const logitless::BlasKernels blas = logitless::use_best_blas_kernels();
  print("outcome", name_of(blas.outcome));
  print("before", blas.before);
  print("after", blas.after);
  print("reason", blas.reason);

  print("core after", describe_environment(context).blas_core);
  print("warning after", context.blas_warning());
  print("loss after", std::to_string(loss_of(context)));
  print("large product", large_product_is_right() ? "right" : "wrong");
  print("outcome again", name_of(logitless::use_best_blas_kernels().outcome));
  const char* variable = getenv("OPENBLAS_CORETYPE");
  print("variable", variable ? variable : "");
}
