// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Checks that the backend keeps the promise of its RowRule with the kernels that run: a row's product has the
// same bits in every product that the rule allows, whichever rows of its class surround it.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "core/integers.h"
#include "core/views.h"
#include "gemm/gemm.h"
#include "gemm/openblas_core.h"
#include "kernels/row_kernels.h"
#include "logitless/dtype.h"

namespace logitless::testing {
namespace gemm_rows_test {

using gemm::RowRule;

// The operands of products of one family; rows can be multiplied in any order.
template <class T>
class Family {
 public:
  Family(const gemm::Backend& backend, DType dtype, int64_t n, int64_t k, bool b_transposed, int64_t most_rows)
      : backend_(backend),
        kernels_(*kernels::find_kernels("auto")),
        family_{n, k, dtype, dtype, b_transposed},
        rule_(backend_.row_rule(family_, most_rows)),
        most_rows_(rule_.padded(most_rows)),
        a_(random_elements(most_rows_ * k)),
        b_(random_elements(n * k)),
        scratch_(backend_.scratch_bytes(most_rows_, n, k, dtype, dtype)) {}

  const RowRule& rule() const { return rule_; }
  int64_t most_rows() const { return most_rows_; }

  // Multiplies the rows `order`, in that order and `stride` >= k elements apart. The rule must allow their
  // number.
  std::vector<T> multiply(const std::vector<int64_t>& order, int64_t stride) {
    const auto bytes = static_cast<size_t>(family_.k) * size_of(family_.a);
    const auto step = static_cast<size_t>(stride) * size_of(family_.a);
    std::vector<std::byte> a(order.size() * step);
    for (size_t r = 0; r < order.size(); ++r) {
      std::memcpy(a.data() + r * step, a_.data() + static_cast<size_t>(order[r]) * bytes, bytes);
    }
    std::vector<T> c(order.size() * static_cast<size_t>(family_.n));
    gemm::Product<T> product;
    product.m = static_cast<int64_t>(order.size());
    product.n = family_.n;
    product.k = family_.k;
    product.a = {a.data(), family_.a, stride, false};
    product.b = {b_.data(), family_.b, family_.b_transposed ? family_.k : family_.n, family_.b_transposed};
    product.c = c.data();
    product.ldc = family_.n;
    backend_.multiply(product, kernels_, scratch_.data());
    return c;
  }

 private:
  std::vector<std::byte> random_elements(int64_t count) {
    std::vector<std::byte> out(static_cast<size_t>(count) * size_of(family_.a));
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = std::normal_distribution<float>()(random_);
    if (size_of(family_.a) == 2) {
      kernels_.round(values.data(), count, false, out.data(), family_.a);
    } else if constexpr (sizeof(T) == 8) {
      for (size_t i = 0; i < values.size(); ++i) {
        const double value = std::normal_distribution<double>()(random_);
        std::memcpy(out.data() + i * sizeof value, &value, sizeof value);
      }
    } else {
      std::memcpy(out.data(), values.data(), out.size());
    }
    return out;
  }

  const std::shared_ptr<void> region_ = gemm::Backend::single_threaded_region();
  std::mt19937_64 random_{7};
  const gemm::Backend& backend_;
  const kernels::RowKernels& kernels_;
  gemm::RowFamily family_;
  RowRule rule_;
  int64_t most_rows_;
  std::vector<std::byte> a_, b_;
  std::vector<std::byte> scratch_;
};

// Draws an order of `count` rows of [0, most). Each position gets a row of its class; rows may repeat.
std::vector<int64_t> random_order(const RowRule& rule, int64_t most, int64_t count, std::mt19937_64& random) {
  std::vector<int64_t> order;
  for (int64_t place = 0; place < count; ++place) {
    int64_t row = 0;
    do {
      row = static_cast<int64_t>(random() % static_cast<uint64_t>(most));
    } while (rule.class_of(row) != rule.class_of(place));
    order.push_back(row);
  }
  return order;
}

template <class T>
void keeps_its_rule_with(const gemm::Backend& backend, DType dtype, int64_t n, int64_t k, bool b_transposed,
                         int64_t most_rows) {
  SCOPED_TRACE(::testing::Message() << backend.name() << " " << name_of(dtype) << " n=" << n << " k=" << k
                                    << " most_rows=" << most_rows << (b_transposed ? ", B transposed" : ""));
  Family<T> family(backend, dtype, n, k, b_transposed, most_rows);
  const RowRule& rule = family.rule();
  ASSERT_EQ(rule.least_rows % rule.row_step, 0);
  ASSERT_LE(rule.least_rows, family.most_rows());
  if (rule.class_rows > 0) {
    ASSERT_EQ(rule.row_step % (2 * rule.class_rows), 0);
  }
  std::vector<int64_t> all(static_cast<size_t>(family.most_rows()));
  for (size_t r = 0; r < all.size(); ++r) all[r] = static_cast<int64_t>(r);
  const std::vector<T> whole = family.multiply(all, k);
  std::mt19937_64 random(11);
  const auto row_bytes = static_cast<size_t>(n) * sizeof(T);
  std::vector<int64_t> counts = {rule.least_rows, rule.least_rows + rule.row_step, family.most_rows() - rule.row_step,
                                 family.most_rows()};
  for (int i = 0; i < 4; ++i) {
    const int64_t steps = (family.most_rows() - rule.least_rows) / rule.row_step;
    counts.push_back(rule.least_rows +
                     static_cast<int64_t>(random() % static_cast<uint64_t>(steps + 1)) * rule.row_step);
  }
  // Libraries may choose kernels by stride; oneDNN avoids multiples of 256.
  const int64_t strides[] = {k, k + 5, core::round_up(k, int64_t{256}), k};
  for (size_t i = 0; i < counts.size(); ++i) {
    const int64_t count = counts[i];
    if (count < rule.least_rows || count > family.most_rows()) continue;
    const std::vector<int64_t> order = random_order(rule, family.most_rows(), count, random);
    const std::vector<T> some = family.multiply(order, strides[i % 4]);
    int64_t different = 0;
    for (size_t r = 0; r < order.size(); ++r) {
      different += std::memcmp(some.data() + r * static_cast<size_t>(n),
                               whole.data() + static_cast<size_t>(order[r]) * static_cast<size_t>(n), row_bytes) != 0;
    }
    EXPECT_EQ(different, 0) << "of " << count << " rows have other bits than among " << family.most_rows();
  }
}

template <class T>
void keeps_its_rule(DType dtype, int64_t n, int64_t k, bool b_transposed, int64_t most_rows) {
  for (const std::string_view name : gemm::backend_names()) {
    keeps_its_rule_with<T>(*gemm::find_backend(std::string(name)), dtype, n, k, b_transposed, most_rows);
  }
}

void every_type(int64_t n, int64_t k, int64_t most_rows) {
  for (const bool b_transposed : {false, true}) {
    keeps_its_rule<float>(DType::kFloat32, n, k, b_transposed, most_rows);
    keeps_its_rule<float>(DType::kBFloat16, n, k, b_transposed, most_rows);
    keeps_its_rule<float>(DType::kFloat16, n, k, b_transposed, most_rows);
    keeps_its_rule<double>(DType::kFloat64, n, k, b_transposed, most_rows);
  }
}

TEST(RowRules, OfTiles) {
  for (const int64_t n : {512, 1000, 1024}) {
    for (const int64_t k : {64, 576, 1000}) every_type(n, k, 130);
  }
}

TEST(RowRules, OfTilesThatEndAnywhere) {
  for (int64_t n = 256; n < 320; ++n) {
    for (const bool b_transposed : {false, true}) {
      keeps_its_rule<float>(DType::kFloat32, n, 176, b_transposed, 130);
      keeps_its_rule<double>(DType::kFloat64, n, 176, b_transposed, 130);
    }
  }
}

TEST(RowRules, OfLargeTiles) {
  for (const bool b_transposed : {false, true}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
      keeps_its_rule<float>(dtype, 1024, 96, b_transposed, 600);
    }
    keeps_its_rule<double>(DType::kFloat64, 1024, 96, b_transposed, 600);
    for (const int64_t n : {1000, 1024}) keeps_its_rule<float>(DType::kFloat32, n, 800, b_transposed, 600);
  }
}

TEST(RowRules, OfLargeBFloat16Tiles) {
  for (const bool b_transposed : {false, true}) {
    keeps_its_rule<float>(DType::kBFloat16, 1024, 96, b_transposed, 600);
  }
}

TEST(RowRules, OfNarrowTiles) {
  for (const int64_t n : {2, 3, 7, 8, 16, 17, 31, 64, 100}) {
    for (const int64_t k : {1, 7, 33, 64, 257, 640}) {
      for (const int64_t most_rows : {5, 64, 129}) every_type(n, k, most_rows);
    }
  }
}

// A row has the same bits alone as in the largest product of few rows.
TEST(RowRules, OfFewRows) {
  for (const std::string_view name : gemm::backend_names()) {
    const gemm::Backend& backend = *gemm::find_backend(std::string(name));
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
      const int64_t most = backend.costs(dtype, dtype).few_rows;
      const gemm::Backend& few = backend.for_rows(most, dtype, dtype);
      EXPECT_EQ(few.row_rule({1024, 576, dtype, dtype, false}, most).least_rows, 1);
      for (const bool b_transposed : {false, true}) {
        for (const auto& [n, k] : {std::pair{1, 1}, {7, 33}, {100, 64}, {1000, 577}}) {
          if (dtype == DType::kFloat64) {
            keeps_its_rule_with<double>(few, dtype, n, k, b_transposed, most);
          } else {
            keeps_its_rule_with<float>(few, dtype, n, k, b_transposed, most);
          }
        }
      }
    }
  }
}

TEST(RowRules, OfOneEntry) {
  for (const int64_t k : {1, 33, 640, 1536}) every_type(1, k, 64);
}

TEST(RowRules, DoNotDependOnTheTilesWhereTheySaySo) {
  for (const std::string_view name : gemm::backend_names()) {
    const gemm::Backend& backend = *gemm::find_backend(std::string(name));
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
      const RowRule one = backend.row_rule({1, 1, dtype, dtype, false}, 1);
      const RowRule other = backend.row_rule({1024, 576, dtype, dtype, true}, 512);
      EXPECT_EQ(one.row_step, other.row_step) << name;
      EXPECT_EQ(one.class_rows, other.class_rows) << name;
    }
  }
}

TEST(RowRules, OfAnUnknownCoreAreTheStrictest) {
  const RowRule unknown = gemm::openblas_row_rule("a core of the future", false, 1024, 576, false, 512);
  for (const char* core :
       {"Haswell", "ZEN", "SkylakeX", "Cooperlake", "SapphireRapids", "Nehalem", "Prescott", "Sandybridge"}) {
    const RowRule known = gemm::openblas_row_rule(core, false, 1024, 576, false, 512);
    EXPECT_EQ(unknown.row_step % known.row_step, 0) << core;
    EXPECT_LT(known.row_step, unknown.row_step) << core;
    if (known.class_rows > 0) {
      EXPECT_EQ(known.class_rows, unknown.class_rows) << core;
    }
  }
}

}  // namespace gemm_rows_test
}  // namespace logitless::testing
