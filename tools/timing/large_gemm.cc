// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "timing/large_gemm.h"

#include "stream/context_state.h"

namespace logitless::timing {

namespace {

// In each of the types a normal number: zeros would cost the machine less power.
constexpr std::byte kFill{0x3e};

// A backend that widens 16-bit operands into scratch has no products of their own.
DType multiplied(const Context& context, DType dtype, int64_t edge) {
  return detail::state_of(context).gemm->scratch_bytes(edge, edge, edge, dtype, dtype) > 0 ? DType::kFloat32 : dtype;
}

}  // namespace

LargeGemm::LargeGemm(const Context& context, DType dtype)
    : context_(context),
      dtype_(multiplied(context, dtype, kDepth)),
      threads_(context.threads()),
      cols_(kColsPerThread * threads_),
      a_(static_cast<size_t>(kRows * kDepth) * size_of(dtype_), kFill),
      b_(static_cast<size_t>(kDepth * cols_) * size_of(dtype_), kFill),
      c_(static_cast<size_t>(kRows * cols_) * (dtype_ == DType::kFloat64 ? sizeof(double) : sizeof(float))) {}

void LargeGemm::run() { dtype_ == DType::kFloat64 ? multiply<double>() : multiply<float>(); }

template <class T>
void LargeGemm::multiply() {
  const detail::ContextState& state = detail::state_of(context_);
  const gemm::Product<T> product{kRows,
                                 cols_,
                                 kDepth,
                                 {a_.data(), dtype_, kDepth, false},
                                 {b_.data(), dtype_, cols_, false},
                                 reinterpret_cast<T*>(c_.data()),
                                 cols_,
                                 false};
  state.gemm->multiply_parallel(product, *state.kernels, nullptr, threads_);
}

}  // namespace logitless::timing
