// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Heads with a LoRA, and their reference matrices. adapted_head.cc instantiates the templates for float and
// double.
#pragma once

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/matrices.h"
#include "support/every_task.h"
#include "support/views.h"

namespace logitless::testing {

template <class T>
using MatrixOf = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Returns seeded normal numbers.
template <class T>
MatrixOf<T> drawn(int64_t rows, int64_t cols, uint64_t seed, double scale = 1);

/// A weight, its LoRA, and the equivalent matrix W + scale · b · a. If G [V, H] is that matrix's gradient,
/// then d_b = scale · G aᵀ and d_a = scale · bᵀ G.
template <class T>
struct AdaptedHead {
  MatrixOf<T> weight, a, b, whole;
  double scale;

  AdaptedHead(int64_t vocab, int64_t hidden, int64_t rank, double scale_, uint64_t seed = 60);
  void give(LmHead& head) const {
    head.lora.a = {a.data(), a.rows(), a.cols()};
    head.lora.b = {b.data(), b.rows(), b.cols()};
    head.lora.scale = scale;
  }
  LmHead head() const {
    LmHead out(ConstMatrix(weight.data(), weight.rows(), weight.cols()));
    give(out);
    return out;
  }
  LmHead plain() const { return LmHead(ConstMatrix(whole.data(), whole.rows(), whole.cols())); }
  MatrixOf<T> d_a(const MatrixOf<T>& d_whole) const;
  MatrixOf<T> d_b(const MatrixOf<T>& d_whole) const;

  /// The bound on errors of gradients, relative to the norms of the whole matrix's. A probability's relative
  /// error equals its logit's absolute error. A logit is a sum of H + r products of rounded numbers, whose
  /// error grows with the root of their number and is bounded by |x| |w|. Adding 1 accounts for the rounding
  /// of the results, and a factor of eight for the sums over rows and entries.
  double tolerance(const MatrixOf<T>& hidden) const;
};

template <class T>
struct AdaptedOutputs {
  MatrixOf<T> d_hidden, d_weight, d_a, d_b;

  AdaptedOutputs(int64_t tokens, int64_t vocab, int64_t hidden, int64_t rank, T value)
      : d_hidden(MatrixOf<T>::Constant(tokens, hidden, value)),
        d_weight(MatrixOf<T>::Constant(vocab, hidden, value)),
        d_a(MatrixOf<T>::Constant(rank, hidden, value)),
        d_b(MatrixOf<T>::Constant(vocab, rank, value)) {}

  static Matrix view(MatrixOf<T>& of) { return {of.data(), of.rows(), of.cols()}; }
  Gradients views(bool lora) {
    Gradients out;
    out.d_hidden = view(d_hidden);
    out.d_weight = view(d_weight);
    if (lora) out.d_lora_a = view(d_a);
    if (lora) out.d_lora_b = view(d_b);
    return out;
  }
};

/// Returns the hidden states of a source as a matrix.
inline MatrixOf<float> states_of(const FromHidden& source) {
  return Eigen::Map<const MatrixOf<float>>(source.hidden.data(), kTokens, kHidden);
}

inline bfloat16 truncated(float x) { return {static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16)}; }
inline float widened(bfloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
/// Returns the numbers in 16 bits, and rounds the matrix to them.
inline std::vector<bfloat16> narrowed(MatrixOf<float>& of) {
  std::vector<bfloat16> out;
  for (float& x : std::span(of.data(), static_cast<size_t>(of.size()))) x = widened(out.emplace_back(truncated(x)));
  return out;
}
/// Expects each number to be `want` rounded once to 16 bits, where the unrounded sum may have an error of
/// `tolerance` times the norm.
inline void expect_rounded(const std::vector<bfloat16>& got, const MatrixOf<float>& want, double tolerance) {
  const double sums = tolerance * static_cast<double>(want.norm());
  for (size_t i = 0; i < got.size(); ++i) {
    const double exact = static_cast<double>(want.data()[i]);
    EXPECT_NEAR(static_cast<double>(widened(got[i])), exact, std::fabs(exact) / 256 + 2 * sums) << i;
  }
}

/// Expects the norm of the difference to be within `tolerance` times the norm of `want`.
template <class T>
void expect_near(const MatrixOf<T>& got, const MatrixOf<T>& want, double tolerance, const char* what);

}  // namespace logitless::testing
