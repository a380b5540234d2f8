// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "dense/large_gemm.h"

#include "planning/context_state.h"

namespace logitless::dense {
namespace {

constexpr int64_t kRows = 1024;
constexpr int64_t kDepth = 1024;
constexpr int64_t kColsPerThread = 2048;  // 4.3 GFLOP per thread: long enough to time on any machine

// This byte pattern makes elements of any type normal numbers. Zeros would use less power and run faster.
constexpr std::byte kFill{0x3e};

DType multiplied(const Context& context, DType dtype) {
  return detail::state_of(context).gemm->reads(dtype, dtype) ? dtype : DType::kFloat32;
}

}  // namespace

LargeGemm::LargeGemm(const Context& context, DType dtype)
    : multiply_(context),
      dtype_(multiplied(context, dtype)),
      cols_(kColsPerThread * multiply_.threads()),
      a_(static_cast<size_t>(kRows * kDepth) * size_of(dtype_), kFill),
      b_(static_cast<size_t>(kDepth * cols_) * size_of(dtype_), kFill),
      c_(static_cast<size_t>(kRows * cols_) * (dtype_ == DType::kFloat64 ? sizeof(double) : sizeof(float))) {}

double LargeGemm::flops() const { return 2.0 * kRows * kDepth * static_cast<double>(cols_); }

void LargeGemm::run() { dtype_ == DType::kFloat64 ? multiply<double>() : multiply<float>(); }

template <class T>
void LargeGemm::multiply() {
  multiply_(gemm::Product<T>{kRows,
                             cols_,
                             kDepth,
                             {a_.data(), dtype_, kDepth, false},
                             {b_.data(), dtype_, cols_, false},
                             reinterpret_cast<T*>(c_.data()),
                             cols_,
                             false});
}

}  // namespace logitless::dense
