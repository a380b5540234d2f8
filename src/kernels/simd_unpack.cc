// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Unpacks rows of quantised weights. Compiled once per Highway target, for the tables of simd.cc.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_unpack.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "hwy/highway.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/packed_blocks.h"
#include "kernels/row_kernels.h"
#include "kernels/simd_base-inl.h"
#include "kernels/simd_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {

// At most 16 lanes, so that the numbers of a vector share one scale: Q6_K has 16 numbers per scale, the
// fewest.
using Floats = hn::CappedTag<float, 16>;
using FloatsVec = hn::Vec<Floats>;
using IntsVec = hn::Vec<hn::RebindToSigned<Floats>>;

// Returns bytes as integers.
template <class Byte>
HWY_INLINE IntsVec load_bytes(const Byte* from) {
  return hn::PromoteTo(hn::RebindToSigned<Floats>(), hn::LoadU(hn::Rebind<Byte, Floats>(), from));
}

HWY_INLINE IntsVec only(IntsVec bits, int mask) { return hn::And(bits, hn::Set(hn::RebindToSigned<Floats>(), mask)); }

// Returns the lower half of each byte, or the upper half.
template <bool kUpper>
HWY_INLINE IntsVec half_of(IntsVec bytes) {
  return kUpper ? hn::ShiftRight<4>(bytes) : only(bytes, 15);
}

HWY_INLINE void store_scaled(IntsVec q, FloatsVec scale, float* to) {
  const Floats d;
  hn::StoreU(hn::Mul(scale, hn::ConvertTo(d, q)), d, to);
}

// Stores scale · q − offset. The product is exact.
HWY_INLINE void store_scaled(IntsVec q, FloatsVec scale, FloatsVec offset, float* to) {
  const Floats d;
  hn::StoreU(hn::MulSub(scale, hn::ConvertTo(d, q), offset), d, to);
}

// Widens `count` float16, rounded up to whole vectors. `halves` and `to` have room for kMost, a multiple of
// the lanes.
template <int64_t kMost>
HWY_INLINE void widen_halves(const uint16_t* halves, int64_t count, float* to) {
  const hn::CappedTag<float, kMost> d;
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d)))
    hn::StoreU(load_f16(d, halves + i), d, to + i);
}

// How many numbers are unpacked together: a block, or 64 numbers of a larger block.
template <class Block>
inline constexpr int64_t kStep = std::min<int64_t>(Block::kNumbers, 64);

HWY_INLINE void unpack_block(const Q4_0Block& block, FloatsVec scale, float* to) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  const auto eight = hn::Set(hn::RebindToSigned<Floats>(), 8);
  for (int64_t i = 0; i < 16; i += lanes) {
    const IntsVec bytes = load_bytes(block.quants + i);
    store_scaled(hn::Sub(half_of<false>(bytes), eight), scale, to + i);
    store_scaled(hn::Sub(half_of<true>(bytes), eight), scale, to + 16 + i);
  }
}

HWY_INLINE void unpack_block(const Q8_0Block& block, FloatsVec scale, float* to) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  for (int64_t i = 0; i < 32; i += lanes) store_scaled(load_bytes(block.quants + i), scale, to + i);
}

// Unpacks blocks that have one scale each. Up to 16 scales are widened at once, in full vectors.
template <class Block>
HWY_INLINE void unpack_blocks(const Block* blocks, int64_t count, float* to) {
  constexpr int64_t kTogether = 16;
  uint16_t halves[kTogether] = {};
  float scales[kTogether];
  for (int64_t begin = 0; begin < count; begin += kTogether) {
    const int64_t n = std::min(kTogether, count - begin);
    for (int64_t b = 0; b < n; ++b) std::memcpy(halves + b, blocks[begin + b].d, 2);
    widen_halves<kTogether>(halves, n, scales);
    for (int64_t b = 0; b < n; ++b) {
      unpack_block(blocks[begin + b], hn::Set(Floats(), scales[b]), to + (begin + b) * Block::kNumbers);
    }
  }
}

// Multiplies bytes by a factor. kCount is a multiple of the lanes.
template <int64_t kCount, class Byte>
HWY_INLINE void multiply(const Byte* bytes, float factor, float* to) {
  const hn::CappedTag<float, kCount> d;
  const hn::Rebind<Byte, decltype(d)> d8;
  const hn::RebindToSigned<decltype(d)> di;
  for (int64_t j = 0; j < kCount; j += static_cast<int64_t>(hn::Lanes(d))) {
    const auto q = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, bytes + j)));
    hn::StoreU(hn::Mul(hn::Set(d, factor), q), d, to + j);
  }
}

// d · s and dmin · m for each 32 numbers of Q4_K and Q5_K.
struct ScalesAndOffsets {
  float scales[8];
  float offsets[8];
};

template <class Block>
HWY_INLINE ScalesAndOffsets scales_of(const Block& block) {
  uint16_t halves[2];
  float wide[2];
  std::memcpy(halves, block.d, 2);
  std::memcpy(halves + 1, block.dmin, 2);
  widen_halves<2>(halves, 2, wide);
  // Extract four bytes at a time; the masks keep bits from moving between bytes.
  uint32_t packed[3];
  std::memcpy(packed, block.scales, 12);
  const uint32_t s[2] = {packed[0] & 0x3F3F3F3F, (packed[2] & 0x0F0F0F0F) | (packed[0] >> 2 & 0x30303030)};
  const uint32_t m[2] = {packed[1] & 0x3F3F3F3F, (packed[2] >> 4 & 0x0F0F0F0F) | (packed[1] >> 2 & 0x30303030)};
  ScalesAndOffsets out;
  multiply<8>(reinterpret_cast<const uint8_t*>(s), wide[0], out.scales);
  multiply<8>(reinterpret_cast<const uint8_t*>(m), wide[1], out.offsets);
  return out;
}

// d · scales[j] for each 16 numbers of Q6_K.
struct Scales {
  float scales[16];
};

HWY_INLINE Scales scales_of(const Q6_KBlock& block) {
  uint16_t half;
  float d;
  std::memcpy(&half, block.d, 2);
  widen_halves<1>(&half, 1, &d);
  Scales out;
  multiply<16>(block.scales, d, out.scales);
  return out;
}

// Unpacks numbers 64 step + [0, 64) of a block. The first 32 are the lower halves of 32 bytes, the others the
// upper halves.
HWY_INLINE void unpack_step(const Q4_KBlock& block, const ScalesAndOffsets& of, int64_t step, float* to) {
  const Floats d;
  const auto scale = hn::Set(d, of.scales[2 * step]), next_scale = hn::Set(d, of.scales[2 * step + 1]);
  const auto offset = hn::Set(d, of.offsets[2 * step]), next_offset = hn::Set(d, of.offsets[2 * step + 1]);
  for (int64_t i = 0; i < 32; i += static_cast<int64_t>(hn::Lanes(d))) {
    const IntsVec bytes = load_bytes(block.quants + 32 * step + i);
    store_scaled(half_of<false>(bytes), scale, offset, to + i);
    store_scaled(half_of<true>(bytes), next_scale, next_offset, to + 32 + i);
  }
}

HWY_INLINE void unpack_step(const Q5_KBlock& block, const ScalesAndOffsets& of, int64_t step, float* to) {
  const Floats d;
  const auto scale = hn::Set(d, of.scales[2 * step]), next_scale = hn::Set(d, of.scales[2 * step + 1]);
  const auto offset = hn::Set(d, of.offsets[2 * step]), next_offset = hn::Set(d, of.offsets[2 * step + 1]);
  for (int64_t i = 0; i < 32; i += static_cast<int64_t>(hn::Lanes(d))) {
    const IntsVec bytes = load_bytes(block.quants + 32 * step + i);
    const IntsVec high = hn::ShiftRightSame(load_bytes(block.high + i), static_cast<int>(2 * step));
    const IntsVec fifth = hn::ShiftLeft<4>(only(high, 1)), next_fifth = hn::ShiftLeft<3>(only(high, 2));
    store_scaled(hn::Or(half_of<false>(bytes), fifth), scale, offset, to + i);
    store_scaled(hn::Or(half_of<true>(bytes), next_fifth), next_scale, next_offset, to + 32 + i);
  }
}

// In each half of a Q6_K block, the first step has the lower halves of 64 bytes, and the second the upper
// halves.
template <bool kUpper>
HWY_INLINE void unpack_q6_k(const Q6_KBlock& block, const float* scales, int64_t half, float* to) {
  const Floats d;
  const auto middle = hn::Set(hn::RebindToSigned<Floats>(), 32);
  for (int64_t i = 0; i < 32; i += static_cast<int64_t>(hn::Lanes(d))) {
    const IntsVec bits = load_bytes(block.high + 32 * half + i);
    const IntsVec high = kUpper ? hn::ShiftRight<4>(bits) : bits;
    const IntsVec low = half_of<kUpper>(load_bytes(block.low + 64 * half + i));
    const IntsVec next_low = half_of<kUpper>(load_bytes(block.low + 64 * half + 32 + i));
    const IntsVec q = hn::Or(low, hn::ShiftLeft<4>(only(high, 3)));
    const IntsVec next_q = hn::Or(next_low, hn::ShiftLeft<2>(only(high, 12)));
    store_scaled(hn::Sub(q, middle), hn::Set(d, scales[i / 16]), to + i);
    store_scaled(hn::Sub(next_q, middle), hn::Set(d, scales[2 + i / 16]), to + 32 + i);
  }
}

HWY_INLINE void unpack_step(const Q6_KBlock& block, const Scales& of, int64_t step, float* to) {
  const float* const scales = of.scales + 4 * step;
  step % 2 == 0 ? unpack_q6_k<false>(block, scales, step / 2, to) : unpack_q6_k<true>(block, scales, step / 2, to);
}

// Unpacks steps [first, first + count) of blocks that have several scales each.
template <class Block>
HWY_INLINE void unpack_parts(const Block* blocks, int64_t first, int64_t count, float* to) {
  constexpr int64_t kSteps = Block::kNumbers / kStep<Block>;
  for (int64_t step = first; step < first + count;) {
    const Block& block = blocks[step / kSteps];
    const int64_t end = std::min(first + count, (step / kSteps + 1) * kSteps);
    const auto scales = scales_of(block);
    for (; step < end; ++step) unpack_step(block, scales, step % kSteps, to + (step - first) * kStep<Block>);
  }
}

// Unpacks steps [first, first + count) of a row.
template <class Block>
HWY_INLINE void unpack_steps(const Block* blocks, int64_t first, int64_t count, float* to) {
  if constexpr (kStep<Block> == Block::kNumbers) {
    unpack_blocks(blocks + first, count, to);
  } else {
    unpack_parts(blocks, first, count, to);
  }
}

template <class Block>
HWY_NOINLINE void unpack(const PackedRow& row, int64_t first, int64_t count, float* to) {
  constexpr int64_t kLength = kStep<Block>;
  const auto* blocks = reinterpret_cast<const Block*>(row.bytes);
  float whole[kLength];
  while (count > 0) {
    const int64_t skipped = first % kLength;
    int64_t done = count - count % kLength;
    if (skipped == 0 && done > 0) {
      unpack_steps(blocks, first / kLength, done / kLength, to);
    } else {
      unpack_steps(blocks, first / kLength, 1, whole);
      done = std::min(count, kLength - skipped);
      std::copy_n(whole + skipped, done, to);
    }
    first += done;
    count -= done;
    to += done;
  }
}

// Unpacks numbers that share one scale.
HWY_INLINE void scale_int8(const uint8_t* from, float scale, int64_t count, float* to) {
  for_each_vector<float>(count, [&](auto d, int64_t i) HWY_ATTR {
    const hn::Rebind<int8_t, decltype(d)> d8;
    const auto q =
        hn::PromoteTo(hn::RebindToSigned<decltype(d)>(), hn::LoadU(d8, reinterpret_cast<const int8_t*>(from) + i));
    hn::StoreU(hn::Mul(hn::Set(d, scale), hn::ConvertTo(d, q)), d, to + i);
  });
}

inline void int8_row(const PackedRow& row, int64_t first, int64_t count, float* to) {
  if (count > 0) scale_int8(row.bytes + first, row.scales[0], count, to);
}

inline void int8_group(const PackedRow& row, int64_t first, int64_t count, float* to) {
  const int64_t end = first + count;
  for (int64_t i = first, next = 0; i < end; i = next) {
    const int64_t group = i / row.group;
    next = std::min(end, (group + 1) * row.group);
    scale_int8(row.bytes + i, row.scales[group], next - i, to + (i - first));
  }
}

// Returns kNf4Numbers[code] for codes below 16.
HWY_INLINE FloatsVec nf4_numbers(IntsVec codes) {
  const Floats d;
#if HWY_HAVE_SCALABLE || HWY_MAX_BYTES < 32
  return hn::GatherIndex(d, kNf4Numbers, codes);
#else
  if constexpr (hn::MaxLanes(Floats()) == 16) {
    return hn::TableLookupLanes(hn::LoadU(d, kNf4Numbers), hn::IndicesFromVec(d, codes));
  } else {
    const auto of_eight = hn::IndicesFromVec(d, only(codes, 7));
    const auto low = hn::TableLookupLanes(hn::LoadU(d, kNf4Numbers), of_eight);
    const auto high = hn::TableLookupLanes(hn::LoadU(d, kNf4Numbers + 8), of_eight);
    const auto seven = hn::Set(hn::RebindToSigned<Floats>(), 7);
    return hn::IfThenElse(hn::RebindMask(d, hn::Gt(codes, seven)), high, low);
  }
#endif
}

// Unpacks whole bytes whose numbers share one scale.
HWY_INLINE void scale_nf4(const uint8_t* from, float scale, int64_t bytes, float* to) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const FloatsVec scales = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + lanes <= bytes; i += lanes) {
    const IntsVec both = load_bytes(from + i);
    const FloatsVec even = hn::Mul(scales, nf4_numbers(half_of<true>(both)));
    const FloatsVec odd = hn::Mul(scales, nf4_numbers(half_of<false>(both)));
    hn::StoreInterleaved2(even, odd, d, to + 2 * i);
  }
  for (; i < bytes; ++i) {
    to[2 * i] = scale * kNf4Numbers[from[i] >> 4];
    to[2 * i + 1] = scale * kNf4Numbers[from[i] & 15];
  }
}

inline void nf4(const PackedRow& row, int64_t first, int64_t count, float* to) {
  const int64_t end = first + count;
  for (int64_t i = first, next = 0; i < end; i = next) {
    const int64_t group = row.group > 0 ? i / row.group : 0;
    next = row.group > 0 ? std::min(end, (group + 1) * row.group) : end;
    const float scale = row.scales[group];
    const int64_t begin = (i + 1) / 2, behind = next / 2;  // bytes with both numbers in the range
    if (i % 2 != 0) to[i - first] = scale * kNf4Numbers[row.bytes[i / 2] & 15];
    scale_nf4(row.bytes + begin, scale, behind - begin, to + (2 * begin - first));
    if (next % 2 != 0) to[next - 1 - first] = scale * kNf4Numbers[row.bytes[behind] >> 4];
  }
}

void set_unpacks(RowKernels& kernels) {
  kernels.unpack = {int8_row,          int8_group,        unpack<Q4_0Block>, unpack<Q8_0Block>,
                    unpack<Q4_KBlock>, unpack<Q5_KBlock>, unpack<Q6_KBlock>, nf4};
}

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();
