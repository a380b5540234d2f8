// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "generator/call_check.h"

#include <exception>

namespace logitless::testing {

std::string output_fault(const char* name, const DrawnCall& call, const GuardedTensor& got, const GuardedTensor& before,
                         const oracle::MatrixXd& want, const oracle::MatrixXd& bound, const oracle::MatrixXd& size) {
  const int64_t cols = got.cols();
  for (int64_t i = 0; i < got.count(); ++i) {
    const double before_call = before.given() ? before.get(i) : 0;
    const double held = std::isnan(before_call) ? 0 : before_call;
    const double exact = want.data()[i] + held, value = got.get(i);
    if (std::isnan(exact) && std::isnan(value)) continue;
    double tolerance = bound.data()[i] + half_ulp(std::fabs(exact) + bound.data()[i], got.dtype()) + 1e-30;
    // Each data rank rounds its part before they are summed.
    if (call.data_ranks > 1) {
      tolerance += static_cast<double>(call.data_ranks) * half_ulp(size.data()[i] + std::fabs(held), got.dtype());
    }
    if (call.accumulate) {
      const auto parts = static_cast<double>(2 + call.tokens() + call.vocab);
      tolerance += parts * unit_of(call.states) * (std::fabs(held) + size.data()[i]);
    }
    if (std::fabs(value - exact) <= tolerance) continue;
    if (std::isinf(value) && got.dtype() == DType::kFloat16 && std::fabs(exact) > 6e4) continue;
    std::ostringstream text;
    text.precision(10);
    text << name << '[' << i / cols << ", " << i % cols << "] is " << value << ", not " << exact << " +- " << tolerance;
    return text.str();
  }
  return "";
}

namespace {

template <Task T>
Verdict check_task(const DrawnCall& call) {
  try {
    return CallCheck<T>(call).check();
  } catch (const std::exception& error) {
    return {std::string("threw ") + error.what(), ""};
  }
}

}  // namespace

Verdict check(const DrawnCall& call) {
  Verdict verdict{"no such task", ""};
  AllTasks::each([&]<class T>() {
    if constexpr (!std::is_same_v<T, CustomLoss>) {
      if (call.task == T::kName) verdict = check_task<T>(call);
    }
  });
  return verdict;
}

}  // namespace logitless::testing
