// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "gemm/openblas_core.h"

#include <stdlib.h>
#include <strings.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "core/views.h"
#include "gemm/openblas.h"
#include "kernels/row_kernels.h"

// OpenBLAS itself calls these when it is loaded and unloaded, where it was built with DYNAMIC_ARCH. The
// references are weak and thereby null in other builds; the linker binds them to the same library as the
// products, which a search by name in a process with two copies of OpenBLAS would not.
extern "C" {
__attribute__((weak)) void gotoblas_dynamic_quit();
__attribute__((weak)) void gotoblas_dynamic_init();
}

namespace logitless::gemm {
namespace {

constexpr const char* kVariable = "OPENBLAS_CORETYPE";

struct Core {
  const char* name;
  VectorLevel level;
};

// All cores of x86-64 from OpenBLAS 0.3.21 to 0.3.30, each with the generation of the CPUs that it
// is written for.
constexpr Core kCores[] = {
    {"Prescott", VectorLevel::kSse},      {"Atom", VectorLevel::kSse},
    {"Core2", VectorLevel::kSse},         {"Penryn", VectorLevel::kSse},
    {"Dunnington", VectorLevel::kSse},    {"Nehalem", VectorLevel::kSse},
    {"Athlon", VectorLevel::kSse},        {"Opteron", VectorLevel::kSse},
    {"Opteron_SSE3", VectorLevel::kSse},  {"Barcelona", VectorLevel::kSse},
    {"Bobcat", VectorLevel::kSse},        {"Nano", VectorLevel::kSse},
    {"Sandybridge", VectorLevel::kAvx},   {"Bulldozer", VectorLevel::kAvx},
    {"Piledriver", VectorLevel::kAvx},    {"Steamroller", VectorLevel::kAvx},
    {"Excavator", VectorLevel::kAvx2},    {"Haswell", VectorLevel::kAvx2},
    {"Zen", VectorLevel::kAvx2},          {"SkylakeX", VectorLevel::kAvx512},
    {"Cooperlake", VectorLevel::kAvx512}, {"SapphireRapids", VectorLevel::kAvx512},
};

std::string name_of(VectorLevel level) {
  constexpr const char* kNames[] = {"SSE", "AVX", "AVX2", "AVX-512"};
  return kNames[static_cast<int>(level)];
}

// Returns the core to ask for on a CPU of this level. Cooperlake and SapphireRapids have SkylakeX's float32
// and float64 kernels but are names that some versions refuse, and Zen has Haswell's.
const char* best_core(VectorLevel cpu) {
  constexpr const char* kNames[] = {"Prescott", "Sandybridge", "Haswell", "SkylakeX"};
  return kNames[static_cast<int>(cpu)];
}

bool same_core(const std::string& a, const std::string& b) { return strcasecmp(a.c_str(), b.c_str()) == 0; }

// Returns whether the CPU is known to have more than this core uses.
bool is_narrow(const CoreSwitch& blas, const std::string& core) {
  const std::optional<VectorLevel> level = core_vector_level(core);
  return blas.cpu && level && *level < *blas.cpu;
}

std::string obeyed(const char* asked) { return std::string(kVariable) + "=" + asked + " is set and obeyed"; }

bool is_fixed(const CoreSwitch& blas) { return !blas.quit || !blas.init; }

// No allocation of ours stands between quit and init: the BLAS has no kernels there.
bool run_core(const CoreSwitch& blas, const char* core) {
  if (setenv(kVariable, core, 1) != 0) return false;
  blas.quit();
  blas.init();
  unsetenv(kVariable);
  return true;
}

struct TrialShape {
  int64_t m, n, k;
};

// The first is small enough for the paths of small matrices, which SkylakeX has below 10^6 multiply-adds, and
// the second is large enough for the usual ones. No edge is a multiple of a register block.
constexpr TrialShape kTrialShapes[] = {{37, 53, 65}, {151, 119, 131}};

int trial_a(int64_t row, int64_t depth) { return static_cast<int>((7 * row + 3 * depth) % 11) - 5; }
int trial_b(int64_t depth, int64_t col) { return static_cast<int>((5 * depth + 2 * col) % 13) - 6; }

// The operands are whole numbers, whose sums are exact in every order: |c| <= 2 * 131 * 30 < 2^24.
template <class T>
bool trial_is_right(const TrialShape& s, bool a_transposed, bool b_transposed) {
  constexpr DType kType = sizeof(T) == sizeof(float) ? DType::kFloat32 : DType::kFloat64;
  const auto count = [](int64_t rows, int64_t cols) { return static_cast<size_t>(rows * cols); };
  std::vector<T> a(count(s.m, s.k)), b(count(s.k, s.n));
  std::vector<T> c(count(s.m, s.n), std::numeric_limits<T>::quiet_NaN());
  std::vector<int> want(c.size());
  std::vector<int> b_row(static_cast<size_t>(s.n));
  for (int64_t p = 0; p < s.k; ++p) {
    for (int64_t j = 0; j < s.n; ++j) {
      b_row[j] = trial_b(p, j);
      b[b_transposed ? j * s.k + p : p * s.n + j] = static_cast<T>(b_row[j]);
    }
    for (int64_t i = 0; i < s.m; ++i) {
      const int a_value = trial_a(i, p);
      a[a_transposed ? p * s.m + i : i * s.k + p] = static_cast<T>(a_value);
      for (int64_t j = 0; j < s.n; ++j) want[i * s.n + j] += a_value * b_row[j];
    }
  }
  const Operand op_a{a.data(), kType, a_transposed ? s.m : s.k, a_transposed};
  const Operand op_b{b.data(), kType, b_transposed ? s.k : s.n, b_transposed};
  Product<T> product{s.m, s.n, s.k, op_a, op_b, c.data(), s.n, false};
  const auto is = [&](int factor) {
    return std::equal(c.begin(), c.end(), want.begin(), [&](T x, int y) { return x == static_cast<T>(factor * y); });
  };
  openblas_backend().multiply(product, kernels::plain_kernels(), nullptr);
  if (!is(1)) return false;
  product.accumulate = true;
  openblas_backend().multiply(product, kernels::plain_kernels(), nullptr);
  return is(2);
}

bool trials_are_right() {
  const std::shared_ptr<void> alone = openblas_backend().single_threaded_region();
  for (const TrialShape& shape : kTrialShapes) {
    for (const bool a : {false, true}) {
      for (const bool b : {false, true}) {
        if (!trial_is_right<float>(shape, a, b) || !trial_is_right<double>(shape, a, b)) return false;
      }
    }
  }
  return true;
}

struct Stay {
  BlasKernelsOutcome outcome;
  std::string reason;
};

// Returns why this core stays, or nothing where it should be changed and can be.
std::optional<Stay> reason_to_stay(const CoreSwitch& blas, const std::string& core) {
  using enum BlasKernelsOutcome;
  if (const char* asked = getenv(kVariable)) return {{kUserChose, obeyed(asked)}};
  const std::optional<VectorLevel> level = core_vector_level(core);
  if (!blas.cpu) return {{kUnknown, "only on x86-64 is it known which kernels a CPU can run"}};
  if (!level) return {{kUnknown, "how wide kernels named " + core + " are is not known"}};
  if (*level >= *blas.cpu) return {{kFit, "the " + core + " kernels fit this CPU (" + name_of(*blas.cpu) + ")"}};
  if (is_fixed(blas)) return {{kFixed, "this BLAS was built with one set of kernels (without DYNAMIC_ARCH)"}};
  return std::nullopt;
}

}  // namespace

std::optional<VectorLevel> cpu_vector_level() {
#if defined(__x86_64__)
  // The compiler's own tests ask the operating system (XGETBV) as well.
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx")) return VectorLevel::kSse;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return VectorLevel::kAvx;
  const bool all_of_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                             __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("bmi") &&
                             __builtin_cpu_supports("bmi2");
  return all_of_avx512 ? VectorLevel::kAvx512 : VectorLevel::kAvx2;
#else
  return std::nullopt;
#endif
}

std::optional<VectorLevel> core_vector_level(std::string_view core) {
  const std::string name(core);
  for (const Core& known : kCores) {
    if (same_core(name, known.name)) return known.level;
  }
  return std::nullopt;
}

CoreSwitch openblas_core_switch() {
  CoreSwitch blas;
  blas.cpu = cpu_vector_level();
  blas.core = [] { return openblas_description().core; };
  if (gotoblas_dynamic_quit && gotoblas_dynamic_init) {
    blas.quit = gotoblas_dynamic_quit;
    blas.init = gotoblas_dynamic_init;
  }
  blas.multiplies_right = trials_are_right;
  return blas;
}

BlasKernels use_best_kernels(const CoreSwitch& blas) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  BlasKernels out;
  out.before = out.after = blas.core();
  if (std::optional<Stay> stay = reason_to_stay(blas, out.before)) {
    out.outcome = stay->outcome;
    out.reason = std::move(stay->reason);
    return out;
  }

  out.outcome = BlasKernelsOutcome::kFailed;
  const std::string wanted = best_core(*blas.cpu);
  if (!run_core(blas, wanted.c_str())) {
    out.reason = std::string(kVariable) + " cannot be set: out of memory";
    return out;
  }
  bool right = false;
  out.reason = "this BLAS has no " + wanted + " kernels";
  if (same_core(blas.core(), wanted)) {
    out.reason = "its " + wanted + " kernels gave a wrong product";
    try {
      right = blas.multiplies_right();
    } catch (const std::bad_alloc&) {
      out.reason = "the trial products found no memory";
    }
  }
  if (right) {
    out.outcome = BlasKernelsOutcome::kSwitched;
    out.reason = "the " + out.before + " kernels (" + name_of(*core_vector_level(out.before)) +
                 ") are narrower than this CPU (" + name_of(*blas.cpu) + ")";
  } else {
    run_core(blas, out.before.c_str());
  }
  out.after = blas.core();
  return out;
}

std::string core_warning(const CoreSwitch& blas) {
  const std::string core = blas.core();
  if (!is_narrow(blas, core)) return "";
  const std::string text = "the BLAS runs its " + core + " kernels (" + name_of(*core_vector_level(core)) +
                           "), but this CPU has " + name_of(*blas.cpu) + ": ";
  const std::string wide = best_core(*blas.cpu);
  if (const char* asked = getenv(kVariable)) {
    return text + obeyed(asked) +
           "; unset it and call logitless::use_best_blas_kernels(), as the command does, or set " + wide;
  }
  if (is_fixed(blas)) return text + "it has no others; install an OpenBLAS that was built with DYNAMIC_ARCH";
  return text + "call logitless::use_best_blas_kernels() first thing in main(), or set " + kVariable + "=" + wide;
}

}  // namespace logitless::gemm

namespace logitless {

BlasKernels use_best_blas_kernels() { return gemm::use_best_kernels(gemm::openblas_core_switch()); }

}  // namespace logitless
