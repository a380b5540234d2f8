// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/adapted_head.h"

namespace logitless::testing {

template <class T>
MatrixOf<T> drawn(int64_t rows, int64_t cols, uint64_t seed, double scale) {
  const std::vector<float> values = normal(static_cast<size_t>(rows * cols), seed, scale);
  return Eigen::Map<const MatrixOf<float>>(values.data(), rows, cols).cast<T>();
}

template <class T>
AdaptedHead<T>::AdaptedHead(int64_t vocab, int64_t hidden, int64_t rank, double scale_, uint64_t seed)
    : weight(drawn<T>(vocab, hidden, seed)),
      a(drawn<T>(rank, hidden, seed + 1, 0.5)),
      b(drawn<T>(vocab, rank, seed + 2, 0.5)),
      scale(scale_) {
  whole = (weight.template cast<double>() + scale * b.template cast<double>() * a.template cast<double>())
              .template cast<T>();
}

template <class T>
MatrixOf<T> AdaptedHead<T>::d_a(const MatrixOf<T>& d_whole) const {
  return static_cast<T>(scale) * b.transpose() * d_whole;
}

template <class T>
MatrixOf<T> AdaptedHead<T>::d_b(const MatrixOf<T>& d_whole) const {
  return static_cast<T>(scale) * d_whole * a.transpose();
}

template <class T>
double AdaptedHead<T>::tolerance(const MatrixOf<T>& hidden) const {
  const auto longest = [](const MatrixOf<T>& of) { return static_cast<double>(of.rowwise().norm().maxCoeff()); };
  const double unit = std::numeric_limits<T>::epsilon() / 2;
  return 8 * std::sqrt(static_cast<double>(a.rows() + a.cols())) * unit * (1 + longest(hidden) * longest(whole));
}

template <class T>
void expect_near(const MatrixOf<T>& got, const MatrixOf<T>& want, double tolerance, const char* what) {
  const double scale = want.template cast<double>().norm();
  EXPECT_LE((got.template cast<double>() - want.template cast<double>()).norm(), tolerance * scale) << what;
}

template MatrixOf<float> drawn(int64_t, int64_t, uint64_t, double);
template MatrixOf<double> drawn(int64_t, int64_t, uint64_t, double);
template struct AdaptedHead<float>;
template struct AdaptedHead<double>;
template void expect_near(const MatrixOf<float>&, const MatrixOf<float>&, double, const char*);
template void expect_near(const MatrixOf<double>&, const MatrixOf<double>&, double, const char*);

}  // namespace logitless::testing
