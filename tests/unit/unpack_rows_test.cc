// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares all bits of the kernels that unpack rows with their plain twins, on every instruction set of this
// CPU, in memory of the exact size.
#include <bit>
#include <cstddef>

#include "kernels/packed_blocks.h"
#include "kernels/plain_tile.h"
#include "row_kernel_calls.h"

namespace logitless::kernels {
namespace unpack_rows_test {

constexpr Packing kBlockPackings[] = {Packing::kQ4_0, Packing::kQ8_0, Packing::kQ4K, Packing::kQ5K, Packing::kQ6K};

// A packing, and its group size if it has groups.
struct Form {
  Packing packing = Packing::kInt8;
  int64_t group = 0;

  int64_t row_bytes(int64_t numbers) const { return numbers / block_of(packing).numbers * block_of(packing).bytes; }
  int64_t row_scales(int64_t numbers) const {
    return !has_scales_apart(packing) ? 0 : group > 0 ? (numbers + group - 1) / group : 1;
  }
};

std::vector<Form> all_forms() {
  std::vector<Form> out;
  for (const Packing packing : all_of<Packing>()) out.push_back({packing, 0});
  for (const int64_t group : {1, 7, 32, 64, 100, 128, 1000}) out.push_back({Packing::kInt8, group});
  for (const int64_t group : {2, 6, 32, 64, 100, 128, 1000}) out.push_back({Packing::kNf4, group});
  return out;
}

// Returns the offsets of a block's float16 numbers.
std::vector<size_t> places_of_halves(Packing packing) {
  if (packing == Packing::kQ6K) return {offsetof(Q6_KBlock, d)};
  if (packing == Packing::kQ4K || packing == Packing::kQ5K) return {0, 2};
  if (has_scales_apart(packing)) return {};
  return {0};
}

// A row of random bits.
struct Row {
  Form form;
  std::vector<uint8_t> bytes;
  std::vector<float> scales;

  Row(Form any_form, int64_t numbers, unsigned seed) : form(any_form) {
    std::mt19937 random(seed);
    bytes.resize(static_cast<size_t>(form.row_bytes(numbers)));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    scales.resize(static_cast<size_t>(form.row_scales(numbers)));
    for (float& scale : scales) scale = std::bit_cast<float>(static_cast<uint32_t>(random()));
  }

  void set_half(int64_t block, size_t place, uint16_t half) {
    uint8_t* const at = bytes.data() + block * block_of(form.packing).bytes + place;
    at[0] = static_cast<uint8_t>(half);
    at[1] = static_cast<uint8_t>(half >> 8);
  }
  // Sets the blocks' scales to the size of a head's.
  void set_usual_halves() {
    const int64_t bytes_of_block = block_of(form.packing).bytes;
    const auto blocks = static_cast<int64_t>(bytes.size()) / bytes_of_block;
    for (const size_t place : places_of_halves(form.packing)) {
      for (int64_t b = 0; b < blocks; ++b) set_half(b, place, static_cast<uint16_t>(0x0C00 + b * 37 % 1024));
    }
  }
};

std::vector<float> unpack(const UnpackKernels& kernels, const Row& row, int64_t first, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  kernels.of(row.form.packing, row.form.group)({row.bytes.data(), row.scales.data(), row.form.group}, first, count,
                                               out.data());
  return out;
}

// Unpacks as above, in memory that ends with the blocks and scales of the range, and with the numbers.
std::vector<float> unpack_guarded(const UnpackKernels& kernels, const Row& row, int64_t first, int64_t count,
                                  Flush flush) {
  const auto part = [&]<class T>(const std::vector<T>& all, int64_t numbers, int64_t elements) {
    const auto begin = first / numbers * elements, end = (first + count + numbers - 1) / numbers * elements;
    const auto last = std::min(end, static_cast<int64_t>(all.size()));
    return std::pair(begin, Guarded<T>({all.begin() + begin, all.begin() + last}, flush));
  };
  const PackedBlock block = block_of(row.form.packing);
  const auto [byte, bytes] = part(row.bytes, block.numbers, block.bytes);
  const bool one_scale = row.form.group == 0;
  const auto [scale, scales] = part(row.scales, one_scale ? first + count : row.form.group, 1);
  const Guarded<float> to(std::vector<float>(static_cast<size_t>(count), 77), flush);
  kernels.of(row.form.packing, row.form.group)(
      {bytes.data() - byte, scales.data() - (one_scale ? 0 : scale), row.form.group}, first, count, to.data());
  return to.values();
}

// Expects equal bits; any two NaN are equal.
void expect_same_bits(const float* got, const float* want, size_t count) {
  if (std::memcmp(got, want, count * sizeof(float)) == 0) return;
  for (size_t i = 0; i < count; ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
        << i << ": " << got[i] << ", not " << want[i];
  }
}

TEST_P(SimdTargets, UnpackAnyRangeOfARow) {
  const UnpackKernels& kernels = GetParam()->unpack;
  constexpr int64_t kNumbers = 1280;
  const std::vector<int64_t> edges = {0,   1,   15,  16,  17,  31,  32,  33,  63,  64,  65,  96,   127,  128,
                                      129, 192, 200, 255, 256, 257, 320, 448, 511, 512, 777, 1024, 1279, 1280};
  unsigned seed = 1;
  for (const Form form : all_forms()) {
    SCOPED_TRACE(std::string(name_of(form.packing)) + ", groups of " + std::to_string(form.group));
    Row row(form, kNumbers, seed++);
    row.set_usual_halves();
    const std::vector<float> want = unpack(plain_kernels().unpack, row, 0, kNumbers);
    for (size_t a = 0; a < edges.size(); ++a) {
      for (size_t b = a + 1; b < edges.size(); ++b) {
        const int64_t first = edges[a], count = edges[b] - first;
        SCOPED_TRACE(std::to_string(count) + " from " + std::to_string(first));
        for (const Flush flush : {Flush::kEnd, Flush::kBegin}) {
          const std::vector<float> got = unpack_guarded(kernels, row, first, count, flush);
          expect_same_bits(got.data(), want.data() + first, got.size());
        }
        const std::vector<float> plain = unpack(plain_kernels().unpack, row, first, count);
        expect_same_bits(plain.data(), want.data() + first, plain.size());
      }
    }
  }
}

TEST_P(SimdTargets, UnpackRowsAtOddAddresses) {
  const UnpackKernels& kernels = GetParam()->unpack;
  for (const Form form : all_forms()) {
    Row row(form, 512, 90);
    const std::vector<float> want = unpack(plain_kernels().unpack, row, 0, 512);
    std::vector<uint8_t> moved = row.bytes;
    moved.insert(moved.begin(), 1);
    const PackedRow odd = {moved.data() + 1, row.scales.data(), form.group};
    for (const UnpackKernels* each : {&kernels, &plain_kernels().unpack}) {
      std::vector<float> got(512);
      each->of(form.packing, form.group)(odd, 0, 512, got.data());
      expect_same_bits(got.data(), want.data(), got.size());
    }
  }
}

// Puts every float16 into each scale of a block, with random other bits.
TEST_P(SimdTargets, UnpackBlocksOfEveryScale) {
  const UnpackKernels& kernels = GetParam()->unpack;
  constexpr int64_t kBlocks = 512;
  for (const Packing packing : kBlockPackings) {
    SCOPED_TRACE(name_of(packing));
    const int64_t numbers = kBlocks * block_of(packing).numbers;
    Row row({packing, 0}, numbers, 7);
    for (const size_t place : places_of_halves(packing)) {
      for (int64_t half = 0; half < 65536; half += kBlocks) {
        for (int64_t b = 0; b < kBlocks; ++b) row.set_half(b, place, static_cast<uint16_t>(half + b));
        const std::vector<float> got = unpack(kernels, row, 0, numbers);
        const std::vector<float> want = unpack(plain_kernels().unpack, row, 0, numbers);
        expect_same_bits(got.data(), want.data(), got.size());
      }
    }
  }
}

std::vector<float> many_scales() {
  std::vector<float> scales = {0.0f, -0.0f, 1.0f, 0.01f, -3.7f, 0x1p-149f, 0x1.8p-127f, 0x1p-126f, 3e38f, 1e36f};
  for (const double special : {kNan, kInf, -kInf}) scales.push_back(static_cast<float>(special));
  return scales;
}

// Each byte, of one or two codes, with each scale.
TEST_P(SimdTargets, ScaleEveryCode) {
  std::vector<uint8_t> bytes(256);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  for (const UnpackKernels* kernels : {&GetParam()->unpack, &plain_kernels().unpack}) {
    for (const float scale : many_scales()) {
      std::vector<float> int8, nf4;
      for (const uint8_t byte : bytes) {
        int8.push_back(scale * static_cast<float>(static_cast<int8_t>(byte)));
        nf4.insert(nf4.end(), {scale * kNf4Numbers[byte >> 4], scale * kNf4Numbers[byte & 15]});
      }
      for (const int64_t group : {0, 600}) {
        for (const auto& [packing, want] : {std::pair(Packing::kInt8, &int8), {Packing::kNf4, &nf4}}) {
          std::vector<float> got(want->size());
          kernels->of(packing, group)({bytes.data(), &scale, group}, 0, std::ssize(got), got.data());
          expect_same_bits(got.data(), want->data(), got.size());
        }
      }
    }
  }
}

}  // namespace unpack_rows_test
}  // namespace logitless::kernels
