// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Products of float32 by backend "amx_float32" on the emulated tile unit: their error beside its bound and
// beside that of float32 sums, and what infinities, NaN and very large and small numbers become. Those of
// "amx_float32_two_terms" have a bound of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "gemm/gemm.h"
#include "kernels/row_kernels.h"
#include "support/environment_variable.h"

namespace logitless::testing {
namespace {

const EnvironmentVariable kEmulated("LOGITLESS_AMX", "emulated");

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kMax = std::numeric_limits<float>::max();
constexpr double kUnit = 0x1p-24;
constexpr double kTwoTermsLeaveOut = 0x1p-15 * (1 + 0x1p-18);

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }

const gemm::Backend& terms_backend() { return *gemm::find_backend("amx_float32"); }
const gemm::Backend& two_terms_backend() { return *gemm::find_backend("amx_float32_two_terms"); }
const gemm::Backend& openblas() { return *gemm::find_backend("openblas"); }

/// C [m, n] = A [m, k] · B [k, n] of float32.
struct Float32Product {
  int64_t m, n, k;
  std::vector<float> a, b;

  Float32Product(int64_t m_, int64_t n_, int64_t k_)
      : m(m_), n(n_), k(k_), a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n)) {}

  template <class Draw>
  void fill(const Draw& draw) {
    for (float& x : a) x = draw();
    for (float& x : b) x = draw();
  }
  float& at_a(int64_t i, int64_t p) { return a[static_cast<size_t>(i * k + p)]; }
  float& at_b(int64_t p, int64_t j) { return b[static_cast<size_t>(p * n + j)]; }

  std::vector<float> multiply(const gemm::Backend& backend) const {
    std::vector<float> c(static_cast<size_t>(m * n), kNaN);
    std::vector<std::byte> scratch(backend.scratch_bytes(m, n, k, DType::kFloat32, DType::kFloat32));
    backend.multiply(
        {m, n, k, {a.data(), DType::kFloat32, k, false}, {b.data(), DType::kFloat32, n, false}, c.data(), n},
        *kernels::find_kernels("auto"), scratch.data());
    return c;
  }
};

/// Returns C by sums of float32, one product after the other.
std::vector<float> summed_in_order(const Float32Product& p) {
  std::vector<float> c(static_cast<size_t>(p.m * p.n));
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t q = 0; q < p.k; ++q) {
      for (int64_t j = 0; j < p.n; ++j) {
        c[static_cast<size_t>(i * p.n + j)] +=
            p.a[static_cast<size_t>(i * p.k + q)] * p.b[static_cast<size_t>(q * p.n + j)];
      }
    }
  }
  return c;
}

/// The errors of a product: relative, of all elements together, and the largest beside the bound of
/// tile_backend.h, of whose S so much is left out.
struct Errors {
  double relative = 0, of_bound = 0;

  Errors(const Float32Product& p, const std::vector<float>& got, double left_out = 0) {
    double errors = 0, squares = 0;
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        double want = 0, size = 0, operands = 0;
        for (int64_t q = 0; q < p.k; ++q) {
          const double x = p.a[static_cast<size_t>(i * p.k + q)], y = p.b[static_cast<size_t>(q * p.n + j)];
          want += x * y;
          size += std::abs(x * y);
          operands += std::abs(x) + std::abs(y);
        }
        const double error = std::abs(static_cast<double>(got[static_cast<size_t>(i * p.n + j)]) - want);
        const auto depth = static_cast<double>(p.k);
        const double roundings = std::min(depth, 40.0) + depth / 576 + 2;
        const double bound = (roundings * kUnit + left_out) * size + 0x1p-126 * (8 * (depth + 2) + 1.02 * operands);
        // `want` itself is off by 2^-53 a term.
        of_bound = std::max(of_bound, error / (bound + depth * 0x1p-53 * size));
        errors += error * error;
        squares += want * want;
      }
    }
    relative = std::sqrt(errors / squares);
  }
};

TEST(Float32OnTiles, ErrNoMoreThanFloat32AndKeepTheirBound) {
  for (const int64_t k : {1, 2, 5, 31, 33, 100, 576, 1536, 8192}) {
    std::mt19937_64 random(static_cast<uint64_t>(k));
    std::normal_distribution<float> normal;
    Float32Product plain(40, 36, k);
    plain.fill([&] { return normal(random); });
    Float32Product offset = plain;  // sums of one sign, which grow
    for (std::vector<float>* operand : {&offset.a, &offset.b}) {
      for (float& x : *operand) x += 3;
    }
    Float32Product cancelling = plain;  // the second half of the depth takes nearly all of the first away
    for (int64_t q = 0; 2 * q + 1 < k; ++q) {
      for (int64_t i = 0; i < plain.m; ++i) {
        cancelling.at_a(i, q + k / 2) = -cancelling.at_a(i, q) * (1 + 0x1p-10f * normal(random));
      }
      for (int64_t j = 0; j < plain.n; ++j) cancelling.at_b(q + k / 2, j) = cancelling.at_b(q, j);
    }
    const struct {
      const char* name;
      const Float32Product& product;
    } cases[] = {{"plain", plain}, {"offset", offset}, {"cancelling", cancelling}};
    for (const auto& [name, product] : cases) {
      SCOPED_TRACE(::testing::Message() << name << ", depth " << k);
      const Errors terms(product, product.multiply(terms_backend()));
      const Errors in_order(product, summed_in_order(product));
      EXPECT_LE(terms.of_bound, 1);
      // Where depth is small, both are a few roundings.
      if (k >= 100) {
        EXPECT_LE(terms.relative, in_order.relative / 2);
      }
      std::printf("%-10s depth %4d: error %.1e, in float32 %.1e, by OpenBLAS %.1e\n", name, static_cast<int>(k),
                  terms.relative, in_order.relative, Errors(product, product.multiply(openblas())).relative);
    }
  }
}

// Two terms leave out what is left of each number, and the product of their second ones.
TEST(Float32OnTiles, OfTwoTermsKeepTheirBound) {
  for (const int64_t k : {1, 2, 33, 576, 1536, 8192}) {
    std::mt19937_64 random(static_cast<uint64_t>(k));
    std::normal_distribution<float> normal;
    Float32Product plain(40, 36, k);
    plain.fill([&] { return normal(random); });
    const Errors two(plain, plain.multiply(two_terms_backend()), kTwoTermsLeaveOut);
    EXPECT_LE(two.of_bound, 1);
    EXPECT_LE(two.relative, 6e-6);
    EXPECT_GE(two.relative, 1e-6) << "these are three terms";
    std::printf("depth %4d: error %.1e\n", static_cast<int>(k), two.relative);
  }
  std::mt19937_64 random(9);
  // Where A has one term, nothing of two terms of B is left out.
  Float32Product whole(67, 70, 150);
  whole.fill([&] { return static_cast<float>(static_cast<int>(random() % 601) - 300); });
  for (float& x : whole.a) x = static_cast<float>(static_cast<int>(random() % 255) - 127);
  EXPECT_EQ(whole.multiply(two_terms_backend()), whole.multiply(openblas()));
}

// Each number is split for itself: one that is much smaller than its neighbours keeps its digits.
TEST(Float32OnTiles, KeepTheirBoundOverAllMagnitudes) {
  for (const int widest : {10, 40, 60}) {
    std::mt19937_64 random(6);
    Float32Product product(33, 35, 97);
    product.fill([&] {
      const auto exponent = static_cast<int>(random() % static_cast<uint64_t>(2 * widest + 1)) - widest;
      return std::ldexp(std::normal_distribution<float>()(random), exponent);
    });
    EXPECT_LE(Errors(product, product.multiply(terms_backend())).of_bound, 1) << widest;
  }
  // Terms and products that are flushed.
  for (const int scale : {-126, -118, -110, -70}) {
    std::mt19937_64 random(7);
    Float32Product product(20, 20, 50);
    product.fill([&] { return std::ldexp(std::normal_distribution<float>()(random), scale); });
    for (float& x : product.b) x = std::ldexp(x, -scale / 2);
    EXPECT_LE(Errors(product, product.multiply(terms_backend())).of_bound, 1) << scale;
  }
}

// Whole numbers below 2^12 have exact products and sums, in every order: nothing may be off.
TEST(Float32OnTiles, AreExactWhereFloat32Is) {
  std::mt19937_64 random(9);
  Float32Product product(67, 70, 150);
  product.fill([&] { return static_cast<float>(static_cast<int>(random() % 601) - 300); });
  EXPECT_EQ(product.multiply(terms_backend()), product.multiply(openblas()));
}

void expect_infinite_or_nan_where_float32_is(const gemm::Backend& backend) {
  std::mt19937_64 random(10);
  std::normal_distribution<float> normal;
  Float32Product finite(70, 66, 130);
  finite.fill([&] { return normal(random); });
  const std::vector<float> undisturbed = finite.multiply(backend);
  Float32Product product = finite;
  // Infinity times what has no low terms, times zero, and beside infinities of either sign.
  product.at_a(3, 40) = kInfinity;
  product.at_b(40, 0) = 1;
  product.at_b(40, 1) = 0;
  product.at_b(40, 2) = -2;
  product.at_b(40, 3) = 1 + 0x1.8p-7f;  // its second term is negative
  product.at_a(5, 0) = -kInfinity;
  product.at_a(5, 129) = kInfinity;
  product.at_a(34, 7) = kNaN;
  product.at_b(20, 33) = -kInfinity;
  product.at_b(21, 50) = kNaN;
  product.at_a(60, 9) = std::bit_cast<float>(0x7f800001u);  // its 16 high bits alone would be infinity
  const std::vector<float> got = product.multiply(backend);
  for (int64_t i = 0; i < product.m; ++i) {
    for (int64_t j = 0; j < product.n; ++j) {
      float want = 0;
      for (int64_t q = 0; q < product.k; ++q) want += product.at_a(i, q) * product.at_b(q, j);
      const float element = got[static_cast<size_t>(i * product.n + j)];
      SCOPED_TRACE(::testing::Message() << i << ", " << j);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(element)) << element;
      } else if (std::isinf(want)) {
        EXPECT_EQ(element, want);
      } else if (j > 3) {
        EXPECT_EQ(bits_of(element), bits_of(undisturbed[static_cast<size_t>(i * product.n + j)]));
      } else {
        EXPECT_TRUE(std::isfinite(element));
      }
    }
  }
}

TEST(Float32OnTiles, AreInfiniteOrNaNWhereFloat32IsAndNowhereElse) {
  expect_infinite_or_nan_where_float32_is(terms_backend());
  expect_infinite_or_nan_where_float32_is(two_terms_backend());
}

TEST(Float32OnTiles, TakeTheScratchThatTheMemoryPageSays) {
  const auto rounded = [](int64_t x) { return (x + 31) / 32 * 32; };
  for (const int64_t n : {1, 40, 512, 1024, 6000}) {
    for (const int64_t k : {1, 96, 576, 5000}) {
      const int64_t width = rounded(n), depth = rounded(k);
      const int64_t bytes = 2 * std::min(3 * width * depth, std::max<int64_t>(384 * 1024, 384 * depth)) +
                            192 * std::min<int64_t>(depth, 96) + 256 * std::min<int64_t>(width, 4096) + 64;
      EXPECT_EQ(terms_backend().scratch_bytes(512, n, k, DType::kFloat32, DType::kFloat32), static_cast<size_t>(bytes))
          << n << " x " << k;
      const int64_t of_two = 2 * std::min(2 * width * depth, std::max<int64_t>(384 * 1024, 256 * depth)) +
                             128 * std::min<int64_t>(depth, 128) + 256 * std::min<int64_t>(width, 6144) + 64;
      EXPECT_EQ(two_terms_backend().scratch_bytes(512, n, k, DType::kFloat32, DType::kFloat32),
                static_cast<size_t>(of_two))
          << n << " x " << k;
    }
  }
  EXPECT_EQ(terms_backend().packed_rows_bytes(512, 576, DType::kFloat32, DType::kFloat32), size_t{6 * 512 * 576});
}

TEST(Float32OnTiles, KeepNumbersUpToTheLargest) {
  Float32Product product(2, 3, 2);
  product.a = {kMax, 0, -kMax, 0x1.ffp127f};
  product.b = {1, 0.5f, 0x1p-126f, 0, 0, 0x1p-126f};
  const std::vector<float> got = product.multiply(terms_backend());
  EXPECT_EQ(got[0], kMax);
  EXPECT_EQ(got[1], kMax / 2);
  EXPECT_EQ(got[3], -kMax);
  EXPECT_LE(Errors(product, got).of_bound, 1);
}

}  // namespace
}  // namespace logitless::testing
