// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Matrix products, and the backends that compute them. Sums are float32 for float32, bfloat16 and float16
// operands, and float64 for float64 operands.
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

/// A row-major matrix in memory, and whether the product uses its transpose.
struct Operand {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t stride = 0;
  bool transposed = false;
  /// The output of Backend::reorder_rows(), which is read instead of `data`; null: not reordered.
  const void* reordered = nullptr;
};

/// C [m, n] = op(A) [m, k] · op(B) [k, n], plus C itself if `accumulate`. C is row-major with stride ldc >= n
/// and overlaps nothing. Without `accumulate` it may hold anything on entry, even NaN; k = 0 then writes
/// zeros. The bits depend only on m, n, k, the operands' types and transpositions, and the backend: not on
/// alignment, nor on the calling thread.
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

/// Returns whether some size is 0. If so, writes the zeros of C, unless it accumulates.
template <class T>
bool write_empty(const Product<T>& p) {
  if (p.m == 0 || p.n == 0) return true;
  if (p.k > 0) return false;
  for (int64_t row = 0; row < p.m && !p.accumulate; ++row) std::fill_n(p.c + row * p.ldc, p.n, T{0});
  return true;
}

/// The m for which the bits of a row of C depend only on its row of A, on B, n, k and the row's class, but
/// not on the number and contents of other rows: a multiple of `row_step`, at least `least_rows`, and at most
/// the number of rows for which the rule was requested.
struct RowRule {
  int64_t row_step = 1;
  int64_t least_rows = 1;  // a multiple of row_step
  /// If not 0, there are two classes of rows: row r has class (r / class_rows) % 2, and row_step is a
  /// multiple of 2 * class_rows.
  int64_t class_rows = 0;

  /// Returns the number of rows to multiply if `rows` are needed.
  int64_t padded(int64_t rows) const { return std::max(core::round_up(rows, row_step), least_rows); }
  int64_t class_of(int64_t row) const { return class_rows == 0 ? 0 : row / class_rows % 2; }
};

/// Products C [m, n] = A [m, k] · op(B) [k, n] that differ only in m.
struct RowFamily {
  int64_t n = 0;
  int64_t k = 0;
  DType a = DType::kFloat32;
  DType b = DType::kFloat32;
  bool b_transposed = false;
};

/// What plans assume about a backend's speed. These are constants of the kernels, never measured at run time.
struct Costs {
  /// Approximate FLOP that such products do while the machine's memory moves one byte.
  double flops_per_byte = 12;
  /// Up to this many rows per call, kernels that read the head once are faster (Backend::for_rows()).
  int64_t few_rows = 32;
  /// The number of vocabulary entries in a tile of 512 rows. Wide tiles read and write d_hidden less often;
  /// narrow ones stay in the caches.
  int64_t tile_entries = 1024;
  /// The same under two pass, where gradients replace the logits of each tile at once. Narrow tiles then also
  /// save memory.
  int64_t gradient_tile_entries = 1024;
  /// d_hidden and d_weight have this many chains of tasks each, if tiles have enough rows and the hidden size
  /// allows it. Each of the two is half the work of a gradient pass in plan one pass, and a third in two pass
  /// (bench/work_order.py). Narrower products reorder more, so units that multiply tiles have fewer chains.
  int64_t gradient_chains = 8;
};

/// Describes a backend to the user.
struct Description {
  std::string library;                // e.g. "OpenBLAS 0.3.21 ... MAX_THREADS=128"
  std::string core;                   // core whose kernels OpenBLAS runs, e.g. "Zen"
  std::string threading;              // "openmp", "pthreads" or "sequential"
  int max_threads = 0;                // OpenBLAS's limit, set when it was compiled
  std::string float32;                // library for float32, e.g. "oneDNN 2.6.3 (AVX2)"
  std::string bf16;                   // library for bfloat16; empty if it is widened
  std::vector<std::string> warnings;  // one line each: settings of the process that are slow or unusual
};

class Routine;

/// Chooses a routine for each pair of operand types: one for bfloat16 if the backend has it, else one for
/// float32, to which 16-bit operands are widened, and OpenBLAS for float64.
class Backend {
 public:
  /// `bfloat16` is null if bfloat16 is widened. `few_rows` is the backend that for_rows() returns for few
  /// rows; null in that backend itself.
  Backend(const char* name, const Routine& float32, const Routine* bfloat16, const Backend* few_rows)
      : name_(name), float32_(float32), bfloat16_(bfloat16), few_rows_(few_rows) {}

  const char* name() const { return name_; }
  Description describe() const;
  /// Returns how many threads may call the backend at once.
  static int max_threads();

  /// Returns whether operands of these types are multiplied directly; others are first widened into scratch.
  bool reads(DType a, DType b) const;
  /// Returns the name of the library that multiplies operands of these types.
  const char* library_of(DType a, DType b) const;
  Costs costs(DType a, DType b) const;
  /// Returns the backend for calls with at most `rows` rows and operands of these types. This is another
  /// backend only if these are few rows. Its products of few rows read B once and directly, even in a 16-bit
  /// type, and rows of C never depend on each other; it computes all other products as this backend does.
  const Backend& for_rows(int64_t rows, DType a, DType b) const {
    return few_rows_ && rows <= costs(a, b).few_rows ? *few_rows_ : *this;
  }

  /// Returns the rule of such products with at most `most_rows` rows (rounded up to the rule's step). Two
  /// rules of one family are only comparable if their `most_rows` are equal. class_rows does not depend on n,
  /// k and `most_rows`. Neither does row_step, except for operands that are widened: a product with more rows
  /// than are widened together (2016) has that number as its step.
  RowRule row_rule(const RowFamily& family, int64_t most_rows) const;

  /// Returns the scratch bytes of products with sizes of at most m, n and k.
  size_t scratch_bytes(int64_t m, int64_t n, int64_t k, DType a, DType b) const;
  /// Returns the bytes that reorder_rows() writes for A [rows, depth], in whole cache lines, or 0 if products
  /// read A directly.
  size_t reordered_bytes(int64_t rows, int64_t depth, DType a, DType b) const;
  /// Reorders or widens A [rows, depth], which is not transposed, for products with operands B of type b. If
  /// A is not reordered, each product does this itself, with the same bits. `to` must begin at a cache line.
  void reorder_rows(const Operand& a, DType b, int64_t rows, int64_t depth, const kernels::RowKernels& kernels,
                    void* to) const;
  /// Multiply on the calling thread alone. `kernels` widen 16-bit operands and multiply few rows.
  void multiply(const Product<float>& product, const kernels::RowKernels& kernels, void* scratch) const;
  void multiply(const Product<double>& product, const kernels::RowKernels& kernels, void* scratch) const;
  /// Hold the returned object while a team calls multiply(). It keeps OpenBLAS from using its own threads: in
  /// the whole process, if OpenBLAS has no setting per thread.
  static std::shared_ptr<void> single_threaded_region();
  /// Estimates what a library allocates internally for one thread's products of at most these sizes.
  size_t internal_bytes(int64_t m, int64_t n, int64_t k, DType a, DType b) const;

 private:
  bool is_native(DType a, DType b) const { return bfloat16_ && a == DType::kBFloat16 && b == DType::kBFloat16; }
  // Returns whether the kernels for few rows compute the product. In d_weight's products A is transposed: its
  // rows are vocabulary entries or components of hidden.
  template <class T>
  bool has_few_rows(const Product<T>& product) const;

  const char* name_;
  const Routine& float32_;
  const Routine* bfloat16_;
  const Backend* few_rows_;
};

/// Returns the names that find_backend() accepts on this CPU, best first.
std::vector<std::string_view> backend_names();
/// Returns the backend of this name, or the best one for "auto"; null if there is none.
const Backend* find_backend(std::string_view name);

}  // namespace logitless::gemm
