// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares products of every backend with float64 sums: every type, both layouts of both operands, any sizes,
// and the same bits from every caller.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/views.h"
#include "gemm/gemm.h"
#include "kernels/row_kernels.h"
#include "support/host_tensor.h"

namespace logitless::testing {
namespace gemm_products_test {

struct Shape {
  int64_t m, n, k;
};

// One product of random operands, and its expected result.
template <class T>
class Case {
 public:
  Case(const gemm::Backend& backend, DType a, DType b, const Shape& shape, bool a_transposed, bool b_transposed)
      : backend_(backend),
        shape_(shape),
        a_(a_transposed ? HostTensor(a, shape.k, shape.m, 3) : HostTensor(a, shape.m, shape.k, 3)),
        b_(b_transposed ? HostTensor(b, shape.n, shape.k, 2) : HostTensor(b, shape.k, shape.n, 2)),
        a_transposed_(a_transposed),
        b_transposed_(b_transposed) {
    fill(a_);
    fill(b_);
  }

  // Adds to `held`, or overwrites NaN if that is empty. `reordered` is the result of reordered_rows(), or
  // null. Returns C, row by row.
  std::vector<T> multiply(std::optional<T> held, const kernels::RowKernels& kernels = *kernels::find_kernels("auto"),
                          const void* reordered = nullptr) const {
    const int64_t stride = shape_.n + 1;
    std::vector<T> c(static_cast<size_t>(shape_.m * stride), held.value_or(std::numeric_limits<T>::quiet_NaN()));
    const DType a_type = a_.dtype(), b_type = b_.dtype();
    std::vector<std::byte> scratch(backend_.scratch_bytes(shape_.m, shape_.n, shape_.k, a_type, b_type));
    gemm::Product<T> product{
        shape_.m, shape_.n, shape_.k,        operand(a_, a_transposed_), operand(b_, b_transposed_),
        c.data(), stride,   held.has_value()};
    product.a.reordered = reordered;
    backend_.multiply(product, kernels, scratch.data());
    for (int64_t row = 0; row + 1 < shape_.m; ++row) {
      const T between = c[static_cast<size_t>(row * stride + shape_.n)];
      EXPECT_TRUE(held ? between == *held : std::isnan(between)) << "an element between rows was written";
    }
    std::vector<T> out;
    for (int64_t row = 0; row < shape_.m; ++row) {
      out.insert(out.end(), c.begin() + row * stride, c.begin() + row * stride + shape_.n);
    }
    return out;
  }

  struct alignas(64) CacheLine {
    std::byte bytes[64];
  };
  // Returns A as reordered by the backend, or nothing if it does not reorder.
  std::vector<CacheLine> reordered_rows() const {
    const size_t bytes = backend_.reordered_bytes(shape_.m, shape_.k, a_.dtype(), b_.dtype());
    EXPECT_EQ(bytes % sizeof(CacheLine), 0u);
    std::vector<CacheLine> out(bytes / sizeof(CacheLine));
    const auto& kernels = *kernels::find_kernels("auto");
    if (!out.empty()) backend_.reorder_rows(operand(a_, false), b_.dtype(), shape_.m, shape_.k, kernels, out.data());
    return out;
  }

  // Compares a product with the sums of its terms. The bound is (k + 2) roundings of the sum of their
  // absolute values.
  void expect_right(const std::vector<T>& got, T held) {
    if (sums_.empty()) add_up();
    const double unit = static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;
    for (size_t i = 0; i < got.size(); ++i) {
      const double bound = static_cast<double>(shape_.k + 2) * unit * (sizes_[i] + std::abs(held));
      ASSERT_LE(std::abs(static_cast<double>(got[i]) - held - sums_[i]), bound)
          << "element " << i << " of C is " << got[i];
    }
  }

 private:
  void fill(HostTensor& tensor) {
    for (int64_t r = 0; r < tensor.rows(); ++r) {
      for (int64_t c = 0; c < tensor.cols(); ++c) tensor.set(r, c, std::normal_distribution<double>()(random_));
    }
  }
  void add_up() {
    std::vector<double> a, b;  // rows of A, columns of B
    for (int64_t i = 0; i < shape_.m; ++i) {
      for (int64_t p = 0; p < shape_.k; ++p) a.push_back(a_transposed_ ? a_.get(p, i) : a_.get(i, p));
    }
    for (int64_t j = 0; j < shape_.n; ++j) {
      for (int64_t p = 0; p < shape_.k; ++p) b.push_back(b_transposed_ ? b_.get(j, p) : b_.get(p, j));
    }
    for (int64_t i = 0; i < shape_.m; ++i) {
      for (int64_t j = 0; j < shape_.n; ++j) {
        const double* row = a.data() + i * shape_.k;
        const double* col = b.data() + j * shape_.k;
        double sum = 0, size = 0;
        for (int64_t p = 0; p < shape_.k; ++p) {
          sum += row[p] * col[p];
          size += std::abs(row[p] * col[p]);
        }
        sums_.push_back(sum);
        sizes_.push_back(size);
      }
    }
  }
  static gemm::Operand operand(const HostTensor& tensor, bool transposed) {
    const ConstMatrix view = tensor.view();
    return {view.data, view.dtype, view.stride, transposed};
  }

  std::mt19937_64 random_{17};
  const gemm::Backend& backend_;
  Shape shape_;
  HostTensor a_, b_;
  bool a_transposed_, b_transposed_;
  // The sums of each element's terms and of their absolute values. Computing them takes longer than the
  // products.
  std::vector<double> sums_, sizes_;
};

bool is_emulated(const gemm::Backend* backend) {
  return backend->describe().bf16.find("emulated") != std::string::npos;
}

// If a tile unit is emulated, which is slow, returns only its backends; another run tests the others.
std::vector<const gemm::Backend*> named_backends() {
  std::vector<const gemm::Backend*> out;
  for (const std::string_view name : gemm::backend_names()) out.push_back(gemm::find_backend(name));
  if (std::any_of(out.begin(), out.end(), is_emulated)) std::erase_if(out, std::not_fn(is_emulated));
  return out;
}

// Returns the named backends and their replacements for calls with few rows.
std::vector<const gemm::Backend*> all_backends() {
  std::vector<const gemm::Backend*> out = named_backends();
  for (const gemm::Backend* backend : named_backends())
    out.push_back(&backend->for_rows(1, DType::kFloat32, DType::kFloat32));
  return out;
}

template <class T>
void multiplies(DType a, DType b) {
  constexpr Shape kShapes[] = {{1, 1, 1},    {1, 5, 7},     {5, 1, 7},      {2, 2, 2},      {3, 17, 33},
                               {16, 64, 31}, {65, 33, 100}, {40, 30, 1700}, {400, 30, 100}, {40, 50, 0}};
  for (const gemm::Backend* backend : all_backends()) {
    for (const Shape& shape : kShapes) {
      for (const bool a_transposed : {false, true}) {
        for (const bool b_transposed : {false, true}) {
          SCOPED_TRACE(::testing::Message()
                       << backend->name() << " " << name_of(a) << " x " << name_of(b) << " " << shape.m << " x "
                       << shape.n << " x " << shape.k << (a_transposed ? ", A transposed" : "")
                       << (b_transposed ? ", B transposed" : ""));
          Case<T> product(*backend, a, b, shape, a_transposed, b_transposed);
          product.expect_right(product.multiply(std::nullopt), 0);
          product.expect_right(product.multiply(T{2}), 2);
        }
      }
    }
  }
}

TEST(Products, OfBFloat16) { multiplies<float>(DType::kBFloat16, DType::kBFloat16); }

TEST(Products, OfEveryOtherType) {
  multiplies<float>(DType::kFloat32, DType::kFloat32);
  multiplies<float>(DType::kFloat16, DType::kFloat16);
  multiplies<float>(DType::kFloat32, DType::kBFloat16);
  multiplies<float>(DType::kBFloat16, DType::kFloat32);
  multiplies<double>(DType::kFloat64, DType::kFloat64);
}

template <class T>
void multiplies_few_rows(const gemm::Backend& others, DType a, DType b) {
  const gemm::Backend& backend = others.for_rows(1, a, b);
  std::vector<const kernels::RowKernels*> tables = kernels::simd_kernels();
  tables.push_back(&kernels::plain_kernels());
  for (const Shape& shape : {Shape{1, 21, 70}, Shape{3, 9, 5}, Shape{4, 2051, 9}, Shape{7, 30, 64}, Shape{15, 47, 301},
                             Shape{16, 33, 131}, Shape{64, 19, 70}}) {
    for (const bool b_transposed : {false, true}) {
      Case<T> product(backend, a, b, shape, false, b_transposed);
      for (const kernels::RowKernels* kernels : tables) {
        SCOPED_TRACE(::testing::Message()
                     << others.name() << " " << kernels->name << " " << name_of(a) << " x " << name_of(b) << " "
                     << shape.m << " x " << shape.n << " x " << shape.k << (b_transposed ? ", B transposed" : ""));
        product.expect_right(product.multiply(std::nullopt, *kernels), 0);
        product.expect_right(product.multiply(T{2}, *kernels), 2);
      }
    }
  }
}

TEST(Products, OfFewRowsByEveryInstructionSet) {
  const gemm::Backend& openblas = *gemm::find_backend("openblas");
  multiplies_few_rows<float>(openblas, DType::kFloat32, DType::kFloat32);
  multiplies_few_rows<float>(openblas, DType::kFloat16, DType::kFloat16);
  multiplies_few_rows<float>(openblas, DType::kFloat32, DType::kFloat16);
  multiplies_few_rows<double>(openblas, DType::kFloat64, DType::kFloat64);
  // Few bfloat16 rows may use their own instruction, depending on the backend.
  for (const gemm::Backend* others : named_backends()) {
    multiplies_few_rows<float>(*others, DType::kBFloat16, DType::kBFloat16);
  }
}

// One large term comes first, like the target's in a softmax's gradient. Added one by one, the following
// terms would be rounded relative to it.
TEST(Products, OfFewRowsKeepTheDigitsOfLongSums) {
  constexpr int64_t kRows = 5, kCols = 40, kDepth = 40000;
  std::mt19937_64 random(1);
  std::normal_distribution<float> draw;
  std::vector<float> a(kRows * kDepth), b(kDepth * kCols), c(kRows * kCols);
  for (float& value : a) value = draw(random) / kDepth;
  for (float& value : b) value = draw(random);
  for (int64_t row = 0; row < kRows; ++row) a[static_cast<size_t>(row * kDepth)] = 1;
  const gemm::Backend& backend = gemm::find_backend("openblas")->for_rows(kRows, DType::kFloat32, DType::kFloat32);
  std::vector<std::byte> scratch(backend.scratch_bytes(kRows, kCols, kDepth, DType::kFloat32, DType::kFloat32));
  for (const kernels::RowKernels* kernels : kernels::simd_kernels()) {
    gemm::Product<float> product;
    product.m = kRows;
    product.n = kCols;
    product.k = kDepth;
    product.a = {a.data(), DType::kFloat32, kDepth, false};
    product.b = {b.data(), DType::kFloat32, kCols, false};
    product.c = c.data();
    product.ldc = kCols;
    backend.multiply(product, *kernels, scratch.data());
    double squares = 0, errors = 0;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t col = 0; col < kCols; ++col) {
        double want = 0;
        for (int64_t k = 0; k < kDepth; ++k) {
          want +=
              static_cast<double>(a[static_cast<size_t>(row * kDepth + k)]) * b[static_cast<size_t>(k * kCols + col)];
        }
        const double error = c[static_cast<size_t>(row * kCols + col)] - want;
        squares += want * want;
        errors += error * error;
      }
    }
    // One rounding, relative to the large term, for each of 157 parts.
    EXPECT_LE(std::sqrt(errors / squares), std::sqrt(157.0) * 0x1p-24) << kernels->name;
  }
}

// In a team of one, and in threads not created by OpenMP, a library built on OpenMP would start a team.
TEST(Products, HaveTheSameBitsWhoeverCalls) {
  for (const gemm::Backend* backend : all_backends()) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      SCOPED_TRACE(std::string(backend->name()) + " " + name_of(dtype));
      // Several blocks of rows, columns and depth; emulated backends have smaller ones.
      const Shape shape = is_emulated(backend) ? Shape{70, 130, 700} : Shape{130, 300, 2100};
      Case<float> product(*backend, dtype, dtype, shape, false, true);
      const std::vector<float> want = product.multiply(std::nullopt);
      product.expect_right(want, 0);
      const auto expect_same = [&](const std::vector<float>& got) {
        EXPECT_EQ(0, std::memcmp(got.data(), want.data(), want.size() * sizeof(float)));
      };
      std::thread([&] { expect_same(product.multiply(std::nullopt)); }).join();
      for (const int threads : {1, 3}) {
#pragma omp parallel num_threads(threads)
        {
          const std::vector<float> got = product.multiply(std::nullopt);
#pragma omp critical
          expect_same(got);
        }
      }
    }
  }
}

TEST(Products, OfReorderedRowsHaveTheSameBits) {
  for (const gemm::Backend* backend : all_backends()) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (const Shape& shape : {Shape{1, 5, 7}, Shape{70, 33, 100}, Shape{64, 300, 900}, Shape{33, 400, 1100}}) {
        for (const bool b_transposed : {false, true}) {
          SCOPED_TRACE(::testing::Message() << backend->name() << " " << name_of(dtype) << " " << shape.m << " x "
                                            << shape.n << " x " << shape.k);
          const Case<float> product(*backend, dtype, dtype, shape, false, b_transposed);
          const auto reordered = product.reordered_rows();
          const std::string_view library = backend->library_of(dtype, dtype);
          const bool widens = library != "logitless" && !backend->reads(dtype, dtype);
          const bool reorders = library == "amx" || library == "bfmmla" || widens;
          EXPECT_EQ(reordered.empty(), !reorders);
          if (reordered.empty()) continue;
          EXPECT_EQ(product.multiply(1.0f), product.multiply(1.0f, *kernels::find_kernels("auto"), reordered.data()));
        }
      }
    }
  }
}

}  // namespace gemm_products_test
}  // namespace logitless::testing
