// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Unpacks rows on every instruction set of this CPU, and compares all bits with the results of gguf and
// bitsandbytes (tests/golden/README.md).
#include <bit>
#include <cmath>

#include "golden.h"
#include "kernels/row_kernels.h"

namespace logitless::testing {
namespace packings_golden_test {

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

void expect_same_bits(const std::vector<float>& got, const std::vector<uint32_t>& want) {
  for (size_t i = 0; i < want.size(); ++i) {
    const bool same =
        std::isnan(std::bit_cast<float>(want[i])) ? std::isnan(got[i]) : std::bit_cast<uint32_t>(got[i]) == want[i];
    EXPECT_TRUE(same) << i << ": " << got[i];
  }
}

TEST(PackingsGolden, RowsHaveTheSameBits) {
  std::vector<std::string> targets = {"plain"};
  for (const kernels::RowKernels* target : kernels::simd_kernels()) targets.emplace_back(target->name);
  const Golden golden("packings.json");
  for (const Packing packing : all_of<Packing>()) {
    ASSERT_EQ(golden.cases.contains(name_of(packing)), block_of(packing).numbers > 1) << name_of(packing);
    if (block_of(packing).numbers <= 1) continue;
    const json& c = golden.cases.at(name_of(packing));
    EXPECT_EQ(block_of(packing).numbers, c.at("block")[0]);
    EXPECT_EQ(block_of(packing).bytes, c.at("block")[1]);
    for (const json& row : c.at("rows")) {
      const auto bytes = numbers_of<uint8_t>(row.at("bytes"), 2);
      const auto want = numbers_of<uint32_t>(row.at("numbers"), 8);
      std::vector<float> scales;
      for (const uint32_t bits : numbers_of<uint32_t>(row.value("scales", json("")), 8)) {
        scales.push_back(std::bit_cast<float>(bits));
      }
      const int64_t group = row.value("group", int64_t{0});
      for (const std::string& target : targets) {
        SCOPED_TRACE(std::string(name_of(packing)) + ", " + target);
        std::vector<float> got(want.size());
        kernels::find_kernels(target)->unpack.of(packing, group)({bytes.data(), scales.data(), group}, 0,
                                                                 static_cast<int64_t>(want.size()), got.data());
        expect_same_bits(got, want);
      }
    }
  }
}

}  // namespace packings_golden_test
}  // namespace logitless::testing
