// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "gemm/cpu_bfloat16.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>

namespace logitless::gemm {

bool system_saves(unsigned registers) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return false;
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & registers) == registers;
}

bool cpu_has_avx512_bfloat16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kAvx512 = 1u << 16 | 1u << 30 | 1u << 31;  // F, BW, VL
  if ((b & kAvx512) != kAvx512 || !__get_cpuid_count(7, 1, &a, &b, &c, &d)) return false;
  constexpr unsigned kBFloat16 = 1u << 5;
  return (a & kBFloat16) != 0 && system_saves(0xe6);  // SSE, AVX, AVX-512
}

}  // namespace logitless::gemm

#else

namespace logitless::gemm {

bool system_saves(unsigned) { return false; }
bool cpu_has_avx512_bfloat16() { return false; }

}  // namespace logitless::gemm

#endif
