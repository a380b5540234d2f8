// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A Source computes tiles of logits as products, and tells the planner their memory and cost. Schedules do
// not depend on the number of products or on how a head is stored.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/arena.h"
#include "core/store.h"
#include "gemm/gemm.h"
#include "problem/hidden_problem.h"
#include "source/given_logits.h"
#include "source/head.h"
#include "source/lora.h"
#include "source/multiplier.h"
#include "source/row_blocks.h"
#include "source/states.h"

namespace logitless::source {

/// Memory for gathered rows of the states of all products, product by product.
struct GatherBuffer {
  std::byte* data = nullptr;
  int64_t rows = 0;   // capacity in rows
  int64_t first = 0;  // index of the first of these rows

  GatherBuffer from(int64_t row) const { return {data, rows, first + row}; }
};

/// One product: logits (+)= states · head.
struct Product {
  States states;
  Head head;
  /// 0: the logits that are differentiated. 1: the logits of a second head (the teacher's) over the same
  /// vocabulary; their tile follows the tile of side 0 in memory.
  int64_t side = 0;
  size_t bytes_before = 0;  // bytes of one row of all products before this one, in a GatherBuffer

  std::byte* rows_in(const GatherBuffer& buffer) const {
    if (!buffer.data) return nullptr;
    return buffer.data + static_cast<size_t>(buffer.rows) * bytes_before +
           static_cast<size_t>(buffer.first) * states.row_bytes();
  }
};

/// The rows of a block's tiles.
struct TileRows {
  const RowBlocks& blocks;
  const RowBlock& block;
  GatherBuffer gathered;                 // memory for rows that are not contiguous
  const std::byte* reordered = nullptr;  // the rows as reordered by Source::reorder(), or null
};

/// Upper bounds on the sizes of the parts that a plan divides gradients into.
struct PartSizes {
  int64_t rows = 0;
  int64_t entries = 0;
  int64_t hidden_block = 0;  // components of d_hidden that one product writes
  int64_t weight_block = 0;  // components of d_weight that one product writes
};

/// The sizes and types of a product C [m, n] = A [m, k] · B [k, n].
struct ProductShape {
  int64_t m, n, k;
  DType a, b;
};

class Source {
 public:
  /// The source of hidden · head and, if there is a teacher, of its logits. `loras` holds the states of their
  /// LoRAs.
  explicit Source(const problem::HiddenProblem& problem, const LoraStates& loras = {});
  /// A source whose logits are, on each side, the sum of its products. All products have the same rows and
  /// vocabulary entries, and their sides do not decrease.
  explicit Source(core::Array<Product> products);

  std::span<const Product> products() const { return products_; }
  /// Returns the LoRA product of side 0, or null.
  const Product* lora() const { return has_lora_ ? &products_[1] : nullptr; }
  /// Returns the products whose sum is the logits of side 0.
  std::span<const Product> differentiated() const {
    return std::span<const Product>(products_).first(has_lora_ ? 2 : 1);
  }
  /// Returns the number of components of differentiated(), summed over its products.
  int64_t width() const { return products_.front().states.cols() + (has_lora_ ? products_[1].states.cols() : 0); }
  int64_t sides() const { return products_.back().side + (teacher_.any() ? 2 : 1); }
  int64_t entries() const { return products_.front().head.entries(); }
  /// The types and the number of components of the first product, which is the largest; kernels are chosen by
  /// them.
  DType states_type() const { return products_.front().states.dtype(); }
  DType head_type() const { return products_.front().head.dtype(); }
  int64_t hidden_size() const { return products_.front().states.cols(); }
  /// Returns the pieces in which consecutive rows are in memory at one stride, for the states of every
  /// product.
  RowBreaks breaks() const;

  /// Returns the number of multiply-adds per logit.
  int64_t depth() const;
  /// Returns the bytes that one pass over the heads of a side reads.
  double head_bytes(int64_t side) const;
  /// Returns the row rule of tiles with `entries` vocabulary entries.
  gemm::RowRule row_rule(const gemm::Backend& gemm, int64_t entries, int64_t most_rows) const;
  /// Returns the maximum of bytes(shape) over the products that compute [rows, entries] logits.
  template <class Bytes>
  size_t most_of_logits(int64_t rows, int64_t entries, const Bytes& bytes) const {
    size_t most = 0;
    for (const Product& p : products_) {
      const ProductShape shape = {rows, entries, p.states.cols(), p.states.dtype(), p.head.dtype()};
      most = std::max<size_t>(most, bytes(shape));
    }
    return most;
  }
  /// Returns the maximum of bytes(shape) over the products of gradients (side 0), with gradients of type
  /// `gradient`. It includes gradients that are not requested.
  template <class Bytes>
  size_t most_of_gradients(const PartSizes& sizes, DType gradient, const Bytes& bytes) const {
    size_t most = 0;
    for (const Product& p : products_) {
      if (p.side > 0) break;
      const DType states = p.states.dtype(), head = p.head.dtype();
      const int64_t cols = p.states.cols(), hidden = std::min(sizes.hidden_block, cols);
      const int64_t weight = std::min(sizes.weight_block, cols);
      const ProductShape d_states = {sizes.rows, hidden, sizes.entries, gradient, head};
      const ProductShape d_head = p.head.layout().is_hidden_vocab()
                                      ? ProductShape{weight, sizes.entries, sizes.rows, states, gradient}
                                      : ProductShape{sizes.entries, weight, sizes.rows, gradient, states};
      const ProductShape mean_entry = {1, hidden, sizes.entries, gradient, head};
      most = std::max<size_t>({most, bytes(d_states), bytes(d_head), bytes(mean_entry)});
    }
    return most;
  }

  GatherBuffer take_gather_buffer(core::Arena& arena, int64_t rows) const;
  /// Takes scratch for products of at most `entries` vocabulary entries; the backend needs `gemm_bytes` of
  /// it.
  Scratch take_scratch(core::Arena& arena, size_t gemm_bytes, int64_t entries) const;

  /// Copies `rows` into the buffer, consecutively, with at most `threads` threads.
  void gather(std::span<const int64_t> rows, int threads, const GatherBuffer& buffer) const;
  /// Gathers the rows of a tile, unless they are contiguous; products whose rows are reordered are skipped.
  void gather(const gemm::Backend& gemm, const TileRows& rows) const;
  /// Moves the rows of a gathered tile together, to where gather(rows, threads, buffer) would put them.
  void close_holes(const TileRows& rows) const;

  /// Returns the bytes that reorder() writes, or 0 if the backend does not reorder rows.
  size_t reordered_bytes(const gemm::Backend& gemm, int64_t rows) const;
  /// Reorders the rows of a tile for the backend. gather() must have been called for the rows.
  void reorder(const gemm::Backend& gemm, const kernels::RowKernels& kernels, const TileRows& rows,
               std::byte* to) const;

  /// Overwrites tile [sides, tile_rows, entries] with the raw logits (without bias) of vocabulary entries
  /// [first_entry, first_entry + entries). gather() or reorder() must have been called for the rows.
  template <class Logit>
  void make_tile(const TileRows& rows, int64_t first_entry, int64_t entries, Logit* tile, int64_t stride,
                 const Multiplier& multiply) const;
  /// Overwrites logits [sides, rows, entries], contiguous, with the raw logits of `rows` and vocabulary
  /// entries [first_entry, first_entry + entries). The rows were gathered into `gathered`, or are read in
  /// place if that has no memory.
  template <class Logit>
  void make_logits(std::span<const int64_t> rows, const GatherBuffer& gathered, int64_t first_entry, int64_t entries,
                   Logit* logits, const Multiplier& multiply) const;

 private:
  // Computes where each product's rows start in a GatherBuffer.
  void place_products();
  // Computes the logits of each side: the sum of its products, whose left operands are states(product).
  template <class Logit, class Operand>
  void multiply_all(gemm::Product<Logit> product, int64_t first_entry, const Operand& states,
                    const Multiplier& multiply) const;
  size_t reordered_bytes(const gemm::Backend& gemm, const Product& product, int64_t rows) const;
  // Copies given logits of the teacher to side 1, after the tile of side 0. rows[r] goes to tile row
  // place(r).
  template <class Logit, class Place>
  void copy_teacher(std::span<const int64_t> rows, const Place& place, const gemm::Product<Logit>& product,
                    int64_t first_entry, const Multiplier& multiply) const;

  core::Array<Product> products_;
  bool has_lora_ = false;  // side 0 has a LoRA: the second product
  GivenLogits teacher_;    // side 1, if its logits are given
};

}  // namespace logitless::source
