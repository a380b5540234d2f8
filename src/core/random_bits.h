// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace logitless::core {

/// Returns 64 bits that look random and depend on nothing but the key (SplitMix64: Steele, Lea and Flood
/// 2014). A choice that reads them is the same for every order of the work.
inline uint64_t random_bits(uint64_t key) {
  uint64_t z = key + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace logitless::core
