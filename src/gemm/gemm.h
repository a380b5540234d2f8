// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Matrix products stand behind one interface, so that a backend is a class here and one line in gemm.cc.
// Products have float sums for float32, bfloat16 and float16 operands and double sums for float64 operands.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/integers.h"
#include "logitless/dtype.h"

namespace logitless::kernels {
struct RowKernels;
}

namespace logitless::gemm {

/// A row-major matrix as it stands in memory, and whether the product wants its transpose.
struct Operand {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t stride = 0;
  bool transposed = false;
  /// What Backend::pack_rows() has made of it, which is read instead of `data`; null where it has not.
  const void* packed = nullptr;
};

/// C [m, n] = op(A) [m, k] · op(B) [k, n], plus C itself when `accumulate`. C is row-major with stride ldc >=
/// n; when not accumulating it may hold anything, NaN too. k = 0 with accumulate = false writes zeros. C
/// overlaps nothing. The bits depend on m, n, k, the operands' form and the backend alone: not on alignment,
/// nor on who calls.
template <class T>
struct Product {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  Operand a;
  Operand b;
  T* c = nullptr;
  int64_t ldc = 0;
  bool accumulate = false;
};

/// Returns whether the product has nothing to multiply, and then writes the zeros that it asks for.
template <class T>
bool write_empty(const Product<T>& p) {
  if (p.m == 0 || p.n == 0) return true;
  if (p.k > 0) return false;
  for (int64_t row = 0; row < p.m && !p.accumulate; ++row) std::fill_n(p.c + row * p.ldc, p.n, T{0});
  return true;
}

/// What a product must look like for the bits of one of its rows to depend on that row of A, on B, n,
/// k and the row's class alone: neither on how many rows are multiplied with it nor on what they hold. It
/// holds for products whose m is at least `least_rows` and a multiple of `row_step`, and at most what was
/// asked about.
struct RowRule {
  int64_t row_step = 1;
  int64_t least_rows = 1;  // a multiple of row_step
  /// Where it is not 0, the rows of a product are of two classes that take turns: row r is of class
  /// (r / class_rows) % 2. A multiple of 2 * class_rows divides row_step then.
  int64_t class_rows = 0;

  /// Returns the number of rows to multiply where `rows` are wanted.
  int64_t padded(int64_t rows) const { return std::max(core::round_up(rows, row_step), least_rows); }
  int64_t class_of(int64_t row) const { return class_rows == 0 ? 0 : row / class_rows % 2; }
};

/// A family of products C [m, n] = A [m, k] · op(B) [k, n] that differ in m alone.
struct RowFamily {
  int64_t n = 0;
  int64_t k = 0;
  DType a = DType::kFloat32;
  DType b = DType::kFloat32;
  bool b_transposed = false;
};

/// What a backend says of itself.
struct Description {
  std::string library;                // e.g. "OpenBLAS 0.3.21 ... MAX_THREADS=128"
  std::string core;                   // whose kernels it runs, e.g. "Zen"
  std::string threading;              // "openmp", "pthreads" or "sequential"
  int max_threads = 0;                // that it was compiled for
  std::string float32;                // what multiplies float32, e.g. "oneDNN 2.6.3 (AVX2)"
  std::string bf16;                   // what multiplies bfloat16 as it stands; empty where it is widened
  std::vector<std::string> warnings;  // one line each: settings of the process that make it slow or odd
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  virtual Description describe() const = 0;
  /// Returns how many threads may call the backend at once.
  virtual int max_threads() const = 0;

  /// Returns whether it multiplies operands of these types as they stand. It widens others into scratch
  /// first.
  virtual bool reads(DType a, DType b) const = 0;
  /// Names the library that multiplies operands of these types.
  virtual const char* library_of(DType a, DType b) const = 0;

  /// Returns how many FLOP of such products a machine does, roughly, in the time in which its memory moves a
  /// byte: what plans count with. It is a constant of the kernels, never measured where they run.
  virtual double flops_per_byte(DType a, DType b) const = 0;

  /// Returns up to how many rows of a call kernels that read the head once are faster (few_rows.h).
  virtual int64_t few_rows(DType a, DType b) const = 0;
  /// Returns how many vocabulary entries a tile of 512 rows of logits has where gradients are made of it: the
  /// more, the more seldom its products read and write d_hidden; fewer stay in caches, and where tiles do not
  /// stay (one pass keeps them) fewer take less memory. It is a constant of the kernels, too.
  virtual int64_t tile_entries(DType a, DType b, bool logits_stay) const = 0;

  /// Returns the rule of such products with at most `most_rows` rows (rounded up to the rule's step). Two
  /// rules of one family agree only where `most_rows` is the same. class_rows does not depend on n, k and
  /// `most_rows`; neither does row_step, but for operands that are packed first: of these a product with more
  /// rows than are packed at once has that number as its step (OpenBLAS, 16-bit operands: 2016 rows).
  virtual RowRule row_rule(const RowFamily& family, int64_t most_rows) const = 0;

  /// Returns the bytes of scratch that a product whose sizes are at most m, n, k needs for what it packs.
  virtual size_t scratch_bytes(int64_t m, int64_t n, int64_t k, DType a, DType b) const = 0;
  /// A backend that packs or widens A does so again for each product, unless pack_rows() has for all of them.
  /// Returns the bytes, in whole cache lines, that this writes for A [rows, depth], or 0 where products read
  /// A as it stands. The bits of a product do not depend on it.
  virtual size_t packed_rows_bytes(int64_t rows, int64_t depth, DType a, DType b) const = 0;
  /// Packs A [rows, depth], which is not transposed, into as many bytes; `to` begins at a cache line. The
  /// product's other operand is of type b.
  virtual void pack_rows(const Operand& a, DType b, int64_t rows, int64_t depth, const kernels::RowKernels& kernels,
                         void* to) const = 0;
  /// These multiply on the calling thread alone. `kernels` widens 16-bit operands into scratch where the
  /// backend cannot read them.
  virtual void multiply(const Product<float>& product, const kernels::RowKernels& kernels, void* scratch) const = 0;
  virtual void multiply(const Product<double>& product, const kernels::RowKernels& kernels, void* scratch) const = 0;
  /// What this returns is alive while a team calls multiply(): it keeps the backend from using threads of its
  /// own in the whole process, where it has no narrower switch.
  virtual std::shared_ptr<void> single_threaded_region() const = 0;
  /// Estimates what the backend allocates by itself for one thread's products of these sizes and types.
  virtual size_t packing_bytes(int64_t m, int64_t n, int64_t k, DType a, DType b) const = 0;
};

/// Returns the names that find_backend() knows on this CPU, best first.
std::vector<std::string_view> backend_names();
/// Finds "auto" or a name; returns null when there is none of that name.
const Backend* find_backend(std::string_view name);
/// Returns the backend with the fastest products of float32: OpenBLAS's or oneDNN's.
const Backend& float32_backend();

}  // namespace logitless::gemm
