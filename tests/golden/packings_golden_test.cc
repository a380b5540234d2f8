// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Unpacks rows on every instruction set of this CPU, and compares all bits with the results of gguf and
// bitsandbytes (tests/golden/README.md).
#include <bit>
#include <cmath>

#include "golden.h"
#include "kernels/row_kernels.h"

namespace logitless::testing {
namespace packings_golden_test {

const Golden& packings_golden() {
  static const Golden golden("packings.json");
  return golden;
}

// Reads numbers of `digits` hexadecimal digits each.
template <class T>
std::vector<T> numbers_of(const json& text, size_t digits) {
  const auto& all = text.get_ref<const std::string&>();
  std::vector<T> out;
  for (size_t at = 0; at < all.size(); at += digits) {
    out.push_back(static_cast<T>(std::stoul(all.substr(at, digits), nullptr, 16)));
  }
  return out;
}

class PackingsGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  const json& case_ = packings_golden().cases.at(GetParam());
  const Packing packing_ = named<Packing>(GetParam()).value();
};

TEST_P(PackingsGoldenTest, BlocksAreAsLarge) {
  EXPECT_EQ(block_of(packing_).numbers, case_.at("block")[0]);
  EXPECT_EQ(block_of(packing_).bytes, case_.at("block")[1]);
}

TEST_P(PackingsGoldenTest, RowsHaveTheSameBits) {
  std::vector<std::string> names = {"plain"};
  for (const kernels::RowKernels* target : kernels::simd_kernels()) names.emplace_back(target->name);
  for (const json& row : case_.at("rows")) {
    const auto bytes = numbers_of<uint8_t>(row.at("bytes"), 2);
    const auto want = numbers_of<uint32_t>(row.at("numbers"), 8);
    const auto count = static_cast<int64_t>(want.size());
    std::vector<float> scales;
    for (const uint32_t bits : numbers_of<uint32_t>(row.value("scales", json("")), 8)) {
      scales.push_back(std::bit_cast<float>(bits));
    }
    const int64_t group = row.value("group", int64_t{0});
    ASSERT_EQ(count / block_of(packing_).numbers * block_of(packing_).bytes, static_cast<int64_t>(bytes.size()));
    for (const std::string& name : names) {
      SCOPED_TRACE(name);
      std::vector<float> got(want.size());
      kernels::find_kernels(name)->unpack.of(packing_, group)({bytes.data(), scales.data(), group}, 0, count,
                                                              got.data());
      for (size_t i = 0; i < want.size(); ++i) {
        if (std::isnan(std::bit_cast<float>(want[i]))) {
          EXPECT_TRUE(std::isnan(got[i])) << i << ": " << got[i];
        } else {
          EXPECT_EQ(std::bit_cast<uint32_t>(got[i]), want[i]) << i << ": " << got[i];
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, PackingsGoldenTest,
                         ::testing::ValuesIn(packings_golden().names([](const json&) { return true; })), case_name);

TEST(GoldenFilesTest, HoldEveryPackingOfBlocks) {
  for (const Packing packing : all_of<Packing>()) {
    EXPECT_EQ(packings_golden().cases.contains(name_of(packing)), block_of(packing).numbers > 1) << name_of(packing);
  }
}

}  // namespace packings_golden_test
}  // namespace logitless::testing
