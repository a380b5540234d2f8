// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Where logits that are products come from. A Source makes tiles of them, and tells the planner what that
// takes and costs. No schedule knows how many products there are, nor how a head is stored.
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

/// Room for rows of the states of all products, which stand there product by product.
struct Room {
  std::byte* data = nullptr;
  int64_t rows = 0;   // that find room
  int64_t first = 0;  // where these rows begin

  Room from(int64_t row) const { return {data, rows, first + row}; }
};

/// Logits (+)= states · head.
struct Product {
  States states;
  Head head;
  /// 0: the logits that are differentiated. Those of a second head over the same vocabulary are side 1: their
  /// tile stands behind the tile of side 0.
  int64_t side = 0;
  size_t bytes_before = 0;  // of a row of the products before, in a Room

  std::byte* rows_in(const Room& room) const {
    if (!room.data) return nullptr;
    return room.data + static_cast<size_t>(room.rows) * bytes_before +
           static_cast<size_t>(room.first) * states.row_bytes();
  }
};

/// The rows of a block's tiles.
struct TileRows {
  const RowBlocks& blocks;
  const RowBlock& block;
  Room gathered;                      // for rows that do not follow one another
  const std::byte* packed = nullptr;  // what Source::pack() has made of them; null where it has not
};

/// The sizes of the parts that a plan cuts gradients into, at most.
struct PartSizes {
  int64_t rows = 0;
  int64_t entries = 0;
  int64_t hidden_block = 0;  // components of d_hidden that one product writes
  int64_t weight_block = 0;  // components of d_weight that one product writes
};

/// What a backend wants to know of a product C [m, n] = A [m, k] · B [k, n].
struct ProductShape {
  int64_t m, n, k;
  DType a, b;
};

class Source {
 public:
  /// Makes the source of hidden · head, and of its teacher's logits beside it if there is one. The states of
  /// their LoRAs are `loras`.
  explicit Source(const problem::HiddenProblem& problem, const LoraStates& loras = {});
  /// Makes a source whose logits are, on each side, the sum of its products. All have the same rows and
  /// vocabulary entries, and their sides do not decrease.
  explicit Source(core::Array<Product> products);

  std::span<const Product> products() const { return products_; }
  /// Returns the product of the LoRA of side 0, or null.
  const Product* lora() const { return has_lora_ ? &products_[1] : nullptr; }
  /// Returns the products whose sum are the logits of side 0.
  std::span<const Product> differentiated() const {
    return std::span<const Product>(products_).first(has_lora_ ? 2 : 1);
  }
  /// Returns the components of their states, those of all products together.
  int64_t width() const { return products_.front().states.cols() + (has_lora_ ? products_[1].states.cols() : 0); }
  int64_t sides() const { return products_.back().side + (teacher_.any() ? 2 : 1); }
  int64_t entries() const { return products_.front().head.entries(); }
  /// The types and the number of components of the first product, the largest, for which kernels are chosen.
  DType states_type() const { return products_.front().states.dtype(); }
  DType head_type() const { return products_.front().head.dtype(); }
  int64_t hidden_size() const { return products_.front().states.cols(); }
  /// Returns where rows that follow one another do not do so in the memory of some product's states.
  RowBreaks breaks() const;

  /// Returns the multiply-adds of a logit.
  int64_t depth() const;
  /// Returns the bytes that reading the heads of a side once takes.
  double head_bytes(int64_t side) const;
  /// Returns the rule of rows in tiles of `entries` vocabulary entries.
  gemm::RowRule row_rule(const gemm::Backend& gemm, int64_t entries, int64_t most_rows) const;
  /// Returns the most of bytes(shape) over the products that make [rows, entries] logits.
  template <class Bytes>
  size_t most_of_logits(int64_t rows, int64_t entries, const Bytes& bytes) const {
    size_t most = 0;
    for (const Product& p : products_) {
      const ProductShape shape = {rows, entries, p.states.cols(), p.states.dtype(), p.head.dtype()};
      most = std::max<size_t>(most, bytes(shape));
    }
    return most;
  }
  /// Returns the same over the products of gradients of type `gradient`, which are those of side 0, whether
  /// they are wanted or not.
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

  Room take_room(core::Arena& arena, int64_t rows) const;
  /// Takes scratch for products of at most `entries` vocabulary entries, for which the backend needs
  /// `gemm_bytes`.
  Scratch take_scratch(core::Arena& arena, size_t gemm_bytes, int64_t entries) const;

  /// Copies `rows` into the room, one after the other, on a team of at most `threads`.
  void gather(std::span<const int64_t> rows, int threads, const Room& room) const;
  /// Copies the rows of a tile together where they neither follow one another nor are packed.
  void gather(const gemm::Backend& gemm, const TileRows& rows) const;
  /// Moves the rows of a gathered tile together, as the other gather() puts them.
  void close_holes(const TileRows& rows) const;

  /// Returns the bytes that pack() writes, or 0 where the backend packs no rows.
  size_t packed_bytes(const gemm::Backend& gemm, int64_t rows) const;
  /// Lets the backend pack the rows of a tile, which gather() has seen.
  void pack(const gemm::Backend& gemm, const kernels::RowKernels& kernels, const TileRows& rows, std::byte* to) const;

  /// Overwrites tile [sides, tile_rows, entries] with the raw logits, without bias, of vocabulary entries
  /// [first_entry, first_entry + entries). gather() or pack() has seen the rows.
  template <class Logit>
  void make_tile(const TileRows& rows, int64_t first_entry, int64_t entries, Logit* tile, int64_t stride,
                 const Multiplier& multiply) const;
  /// Overwrites logits [sides, rows, entries], which follow one another, with those of `rows` and of
  /// vocabulary entries [first_entry, first_entry + entries); the rows have been gathered into the room, or
  /// stand in place where it is none.
  template <class Logit>
  void make_logits(std::span<const int64_t> rows, const Room& gathered, int64_t first_entry, int64_t entries,
                   Logit* logits, const Multiplier& multiply) const;

 private:
  // Fills where the rows of each product begin in a Room.
  void place_products();
  // Writes the sums of the products of each side, whose operands are states(product).
  template <class Logit, class Operand>
  void multiply_all(gemm::Product<Logit> product, int64_t first_entry, const Operand& states,
                    const Multiplier& multiply) const;
  size_t packed_bytes(const gemm::Backend& gemm, const Product& product, int64_t rows) const;
  // Copies logits of the teacher, which stand in memory, behind the tile of side 0; row place(r) is rows[r].
  template <class Logit, class Place>
  void copy_teacher(std::span<const int64_t> rows, const Place& place, const gemm::Product<Logit>& product,
                    int64_t first_entry, const Multiplier& multiply) const;

  core::Array<Product> products_;
  bool has_lora_ = false;  // of side 0: then it is the second product
  GivenLogits teacher_;    // those of side 1, where they are no products
};

}  // namespace logitless::source
