// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "source/source.h"

#include <cstring>
#include <numeric>
#include <utility>

namespace logitless::source {

Source::Source(const problem::HiddenProblem& problem, const LoraStates& loras) : has_lora_(problem.head.lora.given()) {
  products_.reserve(4);
  products_.push_back({States(problem::rows_of(problem)), Head(problem.head)});
  if (has_lora_) products_.push_back({States(loras.of_call(problem)), Head(lora_head(problem.head))});
  if (problem.teacher_logits) teacher_ = GivenLogits(*problem.teacher_logits);
  if (problem.teacher) {
    const HeadMatrices& head = problem.teacher->head;
    products_.push_back({States(problem::rows_of(*problem.teacher)), Head(head), 1});
    if (head.lora.given()) products_.push_back({States(loras.of_teacher(problem)), Head(lora_head(head)), 1});
  }
  place_products();
}

Source::Source(core::Array<Product> products) : products_(std::move(products)) { place_products(); }

void Source::place_products() {
  size_t before = 0;
  for (Product& product : products_) {
    product.bytes_before = before;
    before += product.states.row_bytes();
  }
}

RowBreaks Source::breaks() const {
  RowBreaks all = products_.front().states.breaks();
  for (const Product& p : products_) {
    const RowBreaks breaks = p.states.breaks();
    if (p.states.is_matrix() || breaks.time == all.time) continue;
    // The pieces of two products end at different rows, so every row is copied.
    all = products_.front().states.is_matrix() && p.side > 0 ? breaks : RowBreaks{1};
  }
  return all;
}

int64_t Source::depth() const {
  int64_t depth = 0;
  for (const Product& p : products_) depth += p.states.cols();
  return depth;
}

double Source::head_bytes(int64_t side) const {
  double bytes = 0;
  for (const Product& p : products_) {
    if (p.side != side) continue;
    bytes += p.head.entry_bytes() * static_cast<double>(p.head.entries());
  }
  return bytes;
}

gemm::RowRule Source::row_rule(const gemm::Backend& gemm, int64_t entries, int64_t most_rows) const {
  gemm::RowRule all;
  for (const Product& p : products_) {
    const gemm::RowRule rule = gemm.row_rule({entries, p.states.cols(), p.states.dtype(), p.head.dtype(),
                                              p.head.is_transposed(Head::Order::kComponentsFirst)},
                                             most_rows);
    all.row_step = std::lcm(all.row_step, rule.row_step);
    all.least_rows = core::round_up(std::max(all.least_rows, rule.least_rows), all.row_step);
    all.class_rows = std::max(all.class_rows, rule.class_rows);
  }
  return all;
}

GatherBuffer Source::take_gather_buffer(core::Arena& arena, int64_t rows) const {
  const Product& last = products_.back();
  const auto row_bytes = static_cast<int64_t>(last.bytes_before + last.states.row_bytes());
  return {arena.take<std::byte>(rows * row_bytes), rows, 0};
}

Scratch Source::take_scratch(core::Arena& arena, size_t gemm_bytes, int64_t entries) const {
  size_t head_bytes = 0;
  for (const Product& p : products_) head_bytes = std::max(head_bytes, p.head.scratch_bytes(entries));
  void* const gemm = arena.take_bytes(gemm_bytes);
  return {gemm, arena.take_bytes(head_bytes)};
}

void Source::gather(std::span<const int64_t> rows, int threads, const GatherBuffer& buffer) const {
  for (const Product& p : products_) p.states.gather(rows, threads, p.rows_in(buffer));
}

void Source::gather(const gemm::Backend& gemm, const TileRows& rows) const {
  if (rows.block.contiguous) return;
  for (const Product& p : products_) {
    if (rows.reordered && reordered_bytes(gemm, p, rows.block.tile_rows) > 0) continue;
    p.states.gather_tile(rows.blocks, rows.block, p.rows_in(rows.gathered));
  }
}

void Source::close_holes(const TileRows& rows) const {
  if (!rows.blocks.has_holes(rows.block)) return;
  for (const Product& p : products_) p.states.close_holes(rows.blocks, rows.block, p.rows_in(rows.gathered));
}

size_t Source::reordered_bytes(const gemm::Backend& gemm, const Product& p, int64_t rows) const {
  return gemm.reordered_bytes(rows, p.states.cols(), p.states.dtype(), p.head.dtype());
}

size_t Source::reordered_bytes(const gemm::Backend& gemm, int64_t rows) const {
  size_t bytes = 0;
  for (const Product& p : products_) bytes += reordered_bytes(gemm, p, rows);
  return bytes;
}

void Source::reorder(const gemm::Backend& gemm, const kernels::RowKernels& kernels, const TileRows& rows,
                     std::byte* to) const {
  for (const Product& p : products_) {
    const size_t bytes = reordered_bytes(gemm, p, rows.block.tile_rows);
    if (bytes == 0) continue;
    const gemm::Operand operand = p.states.tile_operand(rows.blocks, rows.block, p.rows_in(rows.gathered));
    gemm.reorder_rows(operand, p.head.dtype(), rows.block.tile_rows, p.states.cols(), kernels, to);
    to += bytes;
  }
}

template <class Logit, class Operand>
void Source::multiply_all(gemm::Product<Logit> product, int64_t first_entry, const Operand& states,
                          const Multiplier& multiply) const {
  Logit* const begin = product.c;
  int64_t side = -1;
  for (const Product& p : products_) {
    product.k = p.states.cols();
    product.a = states(p);
    product.b = p.head.operand(Head::Order::kComponentsFirst, first_entry, product.n, 0, product.k, multiply);
    product.c = begin + p.side * product.m * product.ldc;
    product.accumulate = p.side == side;
    multiply(product);
    side = p.side;
  }
}

template <class Logit, class Place>
void Source::copy_teacher(std::span<const int64_t> rows, const Place& place, const gemm::Product<Logit>& product,
                          int64_t first_entry, const Multiplier& multiply) const {
  if (!teacher_.any()) return;
  Logit* const side = product.c + product.m * product.ldc;
  const auto bytes = static_cast<size_t>(product.n) * sizeof(Logit);
  for (size_t r = 0; r < rows.size(); ++r) {
    Logit* const to = side + place(r) * product.ldc;
    const Logit* from = teacher_.values(multiply.kernels, rows[r], first_entry, product.n, to);
    if (from != to) std::memcpy(to, from, bytes);
  }
}

template <class Logit>
void Source::make_tile(const TileRows& rows, int64_t first_entry, int64_t entries, Logit* tile, int64_t stride,
                       const Multiplier& multiply) const {
  gemm::Product<Logit> product;
  product.m = rows.block.tile_rows;
  product.n = entries;
  product.c = tile;
  product.ldc = stride;
  const std::byte* reordered = rows.reordered;
  const auto states = [&](const Product& p) {
    gemm::Operand operand = p.states.tile_operand(rows.blocks, rows.block, p.rows_in(rows.gathered));
    const size_t bytes = reordered ? reordered_bytes(multiply.gemm, p, product.m) : 0;
    if (bytes > 0) operand.reordered = reordered;
    reordered += bytes;
    return operand;
  };
  multiply_all(product, first_entry, states, multiply);
  const std::span<const int32_t> places = rows.blocks.places(rows.block);
  copy_teacher(
      rows.blocks.rows(rows.block), [&](size_t r) { return places[r]; }, product, first_entry, multiply);
}

template <class Logit>
void Source::make_logits(std::span<const int64_t> rows, const GatherBuffer& gathered, int64_t first_entry,
                         int64_t entries, Logit* logits, const Multiplier& multiply) const {
  gemm::Product<Logit> product;
  product.m = static_cast<int64_t>(rows.size());
  product.n = product.ldc = entries;
  product.c = logits;
  multiply_all(
      product, first_entry, [&](const Product& p) { return p.states.operand(rows, p.rows_in(gathered)); }, multiply);
  copy_teacher(
      rows, [](size_t r) { return static_cast<int64_t>(r); }, product, first_entry, multiply);
}

template void Source::make_tile(const TileRows&, int64_t, int64_t, float*, int64_t, const Multiplier&) const;
template void Source::make_tile(const TileRows&, int64_t, int64_t, double*, int64_t, const Multiplier&) const;
template void Source::make_logits(std::span<const int64_t>, const GatherBuffer&, int64_t, int64_t, float*,
                                  const Multiplier&) const;
template void Source::make_logits(std::span<const int64_t>, const GatherBuffer&, int64_t, int64_t, double*,
                                  const Multiplier&) const;

}  // namespace logitless::source
