// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "engine/backward.h"

#include <omp.h>

#include "core/parallel.h"
#include "core/views.h"
#include "engine/row_gradients.h"
#include "engine/rows_of_hidden.h"

namespace logitless::engine {
namespace {

// Tiles a thread whose tasks are submitted before they are done. OpenMP keeps a record of each task that waits: this
// many keep the team busy while the submitting thread works on a task itself, and bound the records whatever the shape.
// (libgomp's own bound, 64 tasks a thread, does not count tasks that wait for others.)
constexpr int64_t kTilesAhead = 16;

/// The tasks of one backward pass. What one task does stands in its function; who waits for whom stands in run().
template <class T>
class BackwardTasks {
 public:
  BackwardTasks(const Pass<T>& pass, BackwardBuffers<T>& buffers, const ActiveBlocks& active, bool begin,
                const TokenGrads& grads, const Gradients& outputs)
      : pass_(pass), grid_(pass.run.grid), buffers_(buffers), active_(active), outputs_(outputs), begin_(begin) {
    hidden_apart_ = buffers.d_hidden != nullptr;
    if (outputs.wants_d_hidden()) d_hidden_breaks_ = d_hidden_breaks(pass.problem, outputs);
    weight_tiles_ = needs_weight_tiles<T>(outputs);
    wants_weight_ = outputs.d_weight.data || outputs.weight_sink;
    const auto any = [](const std::vector<double>& g) {
      return std::any_of(g.begin(), g.end(), [](double x) { return x != 0; });
    };
    entropy_ = any(grads.entropy);
    prior_ = any(grads.prior);
  }

  void run() {
    for (const RowBlock& rows : active_.blocks.blocks) {
      if (pass_.chunk && !rows.contiguous) {
        gather_rows(pass_.problem, active_.blocks.rows(rows), chunk_gathered(rows));
      }
    }
    Tokens tokens(*this);
    const auto alone = pass_.context.gemm->single_threaded_region();
    core::parallel_tasks(pass_.run.plan.threads, [&](core::FirstError& error) { submit(tokens, &error); });
    if (hidden_apart_) hand_on_d_hidden();
  }

 private:
  /// Places that stand for what tasks wait for; only their addresses matter.
  struct Tokens {
    int64_t slots;             // tiles that are alive: two pass: those of the plan; one pass: all
    std::vector<char> tile;    // [slots]: a tile is made, used, and free again
    std::vector<char> hidden;  // [row blocks, hidden blocks]: chains of d_hidden
    std::vector<char> weight;  // [vocabulary tiles, weight blocks]: chains of d_weight and d_bias
    std::vector<char> words;   // [vocabulary tiles]: the head's part is read no more
    std::vector<char> ahead;   // [tiles that are submitted before they are done]: all tasks of a tile are done
    char finished = 0;         // weight tiles are handed on one at a time, in order

    explicit Tokens(const BackwardTasks& tasks) {
      const TileGrid& grid = tasks.grid_;
      const auto row_blocks = static_cast<int64_t>(tasks.active_.blocks.blocks.size());
      slots = tasks.pass_.chunk ? row_blocks * grid.vocab_tiles() : static_cast<int64_t>(tasks.buffers_.slots.size());
      tile.resize(static_cast<size_t>(slots));
      hidden.resize(static_cast<size_t>(row_blocks * grid.hidden_blocks()));
      weight.resize(static_cast<size_t>(grid.vocab_tiles() * grid.weight_blocks()));
      words.resize(static_cast<size_t>(grid.vocab_tiles()));
      ahead.resize(static_cast<size_t>(kTilesAhead * tasks.pass_.run.plan.threads));
    }
  };

  // Tiles go by vocabulary first, rows second: a part of the head stays near while all row blocks use it, and its part
  // of d_weight is complete when the next one begins. Sums into one place form a chain in that order, whatever the
  // threads. Each task has its own copy of what it names.
  void submit([[maybe_unused]] Tokens& tokens, core::FirstError* error) {
    const auto row_blocks = static_cast<int64_t>(active_.blocks.blocks.size());
    const int64_t vocab_tiles = grid_.vocab_tiles();
    const int hidden_blocks = static_cast<int>(grid_.hidden_blocks());
    const int weight_blocks = static_cast<int>(grid_.weight_blocks());
    int64_t slot = 0;
    size_t ahead = 0;
    for (int64_t j = 0; j < vocab_tiles; ++j) {
      // Tiles of d_weight that are summed apart take turns.
      [[maybe_unused]] char* weight_token =
          &tokens.weight[static_cast<size_t>((weight_tiles_ ? j % kWeightTiles : j) * weight_blocks)];
      [[maybe_unused]] char* word_token = &tokens.words[static_cast<size_t>(j)];
      for (int64_t b = 0; b < row_blocks; ++b, slot = (slot + 1) % tokens.slots) {
        [[maybe_unused]] char* done = &tokens.ahead[ahead];
        ahead = (ahead + 1) % tokens.ahead.size();
#ifdef LOGITLESS_ARCHER
        // LLVM 14's Archer crashes where a thread waits for a dependence, so it waits for everything now and then.
        if (ahead == 0) {
#pragma omp taskwait
        }
#else
// Waits for the tile that was submitted this many tiles ago, and runs tasks meanwhile.
#pragma omp task if (false) depend(inout : done[0])
        {}
#endif
        [[maybe_unused]] char* tile_token = &tokens.tile[static_cast<size_t>(slot)];
        [[maybe_unused]] char* hidden_token = &tokens.hidden[static_cast<size_t>(b * hidden_blocks)];
#pragma omp task depend(inout : tile_token[0]) depend(in : word_token[0], done[0])
        error->guard([&] { make_tile(j, b, slot); });
        for (int h = 0; outputs_.wants_d_hidden() && h < hidden_blocks; ++h) {
#pragma omp task depend(in : tile_token[0], word_token[0], done[0]) depend(inout : hidden_token[h])
          error->guard([&] { add_d_hidden(j, b, slot, h); });
        }
        for (int h = 0; wants_weight_ && h < weight_blocks; ++h) {
#pragma omp task depend(in : tile_token[0], done[0]) depend(inout : weight_token[h])
          error->guard([&] { add_d_weight(j, b, slot, h); });
        }
        if (outputs_.d_bias.data) {
          // d_weight's first chain of this tile has the order that these sums need, and costs nothing when it is alone.
#pragma omp task depend(in : tile_token[0], done[0]) depend(inout : weight_token[0])
          error->guard([&] { add_d_bias(j, b, slot); });
        }
      }
      if (weight_tiles_) {
#pragma omp task depend(iterator(h = 0                  \
                                 : weight_blocks),      \
                        inout                           \
                        : weight_token[h]) depend(inout \
                                                  : tokens.finished, word_token[0])
        error->guard([&] { finish_weight_tile(j); });
      }
    }
#pragma omp taskwait
  }

  typename BackwardBuffers<T>::PerThread& scratch() {
    return buffers_.threads[static_cast<size_t>(omp_get_thread_num())];
  }

  const RowBlock& block(int64_t b) const { return active_.blocks.blocks[static_cast<size_t>(b)]; }

  T* tile(int64_t j, int64_t b, int64_t slot) const {
    if (!pass_.chunk) return buffers_.slots[static_cast<size_t>(slot)].tile;
    return pass_.chunk_tile(active_.tile_block[static_cast<size_t>(b)], active_.chunk_begin, j);
  }

  gemm::Operand hidden(int64_t b, int64_t slot) const {
    const std::byte* gathered =
        pass_.chunk ? chunk_gathered(block(b)) : buffers_.slots[static_cast<size_t>(slot)].gathered;
    return hidden_operand(pass_.problem, active_.blocks, block(b), gathered);
  }

  std::byte* chunk_gathered(const RowBlock& rows) const {
    const int64_t row_bytes = grid_.hidden_size * static_cast<int64_t>(size_of(pass_.problem.hidden.dtype));
    return buffers_.gathered ? buffers_.gathered + rows.begin * row_bytes : nullptr;
  }

  // Logits (computed again unless they have stayed), then their gradient in place.
  void make_tile(int64_t j, int64_t b, int64_t slot) {
    const RowBlock& rows = block(b);
    auto& mine = scratch();
    T* logits = tile(j, b, slot);
    if (!pass_.chunk) {
      std::byte* gathered = buffers_.slots[static_cast<size_t>(slot)].gathered;
      if (!rows.contiguous) gather_tile(pass_.problem, active_.blocks, rows, gathered);
      const gemm::Operand operand = tile_operand(pass_.problem, active_.blocks, rows, gathered);
      compute_logits(pass_, rows, operand, j, mine.gemm, logits);
      // The gradients stand without holes, and so must the states that they are multiplied with.
      if (active_.blocks.has_holes(rows)) close_holes(pass_.problem, active_.blocks, rows, gathered);
    }
    const int64_t first = grid_.first_word(j);
    for (int64_t r = 0; r < rows.count; ++r) {
      mine.gradients[r] = buffers_.gradients[rows.begin + r];
      const int64_t column = mine.gradients[r].target - first;
      mine.gradients[r].target = column >= 0 && column < grid_.words(j) ? static_cast<int32_t>(column) : -1;
      mine.gradients[r].source_row = active_.blocks.places(rows)[static_cast<size_t>(r)];
    }
    const Problem& problem = pass_.problem;
    rows::GradientArgs<T> args;
    args.shape = {pass_.chunk ? active_.tile_block[static_cast<size_t>(b)].tile_rows : rows.tile_rows,
                  grid_.words(j),
                  grid_.tile_stride,
                  pass_.bias ? pass_.bias + first : nullptr,
                  static_cast<T>(problem.head.softcap),
                  problem.options.round_logits_to};
    args.logits = args.out = logits;
    args.count = rows.count;
    args.gradients = mine.gradients;
    args.entropy = entropy_;
    args.prior = prior_;
    args.prior_weights = problem.options.prior.empty() ? nullptr : problem.options.prior.data() + first;
    args.uniform_prior = 1.0 / static_cast<double>(problem.vocab_size);
    args.scratch = mine.row;
    pass_.context.kernels->template typed<T>().gradient(args);
  }

  // d_hidden [rows, components] (+)= tile [rows, words] · head [words, components]
  void add_d_hidden(int64_t j, int64_t b, int64_t slot, int64_t h) {
    const RowBlock& rows = block(b);
    auto& mine = scratch();
    const int64_t component = h * grid_.hidden_block;
    const int64_t columns = std::min(grid_.hidden_block, grid_.hidden_size - component);
    const auto order = active_.blocks.rows(rows);
    const bool stands_together = rows.contiguous && d_hidden_breaks_.same_piece(order.front(), order.back());
    const bool scattered = !hidden_apart_ && !stands_together;
    gemm::Product<T> product;
    product.m = rows.count;
    product.n = columns;
    product.k = grid_.words(j);
    product.a = {tile(j, b, slot), DTypeOf<T>::value, grid_.tile_stride, false};
    product.b = head_operand(pass_.problem.head, grid_.first_word(j), component, /*hidden_first=*/false);
    const bool adds = j > 0 || (!hidden_apart_ && outputs_.d_hidden_mode == WriteMode::kAccumulate);
    if (hidden_apart_) {
      product.c = buffers_.d_hidden + rows.begin * grid_.hidden_size + component;
      product.ldc = grid_.hidden_size;
    } else if (scattered) {
      product.c = mine.scatter;
      product.ldc = grid_.hidden_block;
    } else {
      const RowPlace<void*> first = d_hidden_row(pass_.problem, outputs_, active_.blocks.rows(rows).front());
      product.c = static_cast<T*>(first.data) + component;
      product.ldc = first.stride;
    }
    product.accumulate = adds && !scattered;
    pass_.context.gemm->multiply(product, *pass_.context.kernels, mine.gemm);
    if (!scattered) return;
    const T* from = mine.scatter;
    for (const int64_t row : active_.blocks.rows(rows)) {
      T* to = static_cast<T*>(d_hidden_row(pass_.problem, outputs_, row).data) + component;
      if (adds) {
        pass_.context.kernels->template typed<T>().add(from, columns, to);
      } else {
        std::copy_n(from, columns, to);
      }
      from += grid_.hidden_block;
    }
  }

  // Part of d_weight, or of the tile it is summed in, that holds words [word, ...) and components [component, ...).
  T* weight_part(int64_t j, int64_t component, int64_t& stride) const {
    const bool hidden_vocab = pass_.problem.head.layout == HeadLayout::kHiddenVocab;
    T* data = weight_tiles_ ? buffers_.d_weight[j % kWeightTiles] : static_cast<T*>(outputs_.d_weight.data);
    stride = !weight_tiles_ ? outputs_.d_weight.stride : hidden_vocab ? grid_.vocab_tile : grid_.hidden_size;
    const int64_t word = weight_tiles_ ? 0 : grid_.first_word(j);
    return data + (hidden_vocab ? component * stride + word : word * stride + component);
  }

  // d_weight (+)= tileᵀ · hidden, or its transpose
  void add_d_weight(int64_t j, int64_t b, int64_t slot, int64_t h) {
    const RowBlock& rows = block(b);
    const int64_t component = h * grid_.weight_block;
    const int64_t components = std::min(grid_.weight_block, grid_.hidden_size - component);
    gemm::Operand logits{tile(j, b, slot), DTypeOf<T>::value, grid_.tile_stride, false};
    gemm::Operand states = hidden(b, slot);
    states.data = core::element(states.data, states.dtype, component);
    gemm::Product<T> product;
    product.k = rows.count;
    if (pass_.problem.head.layout == HeadLayout::kHiddenVocab) {
      states.transposed = true;
      product.m = components;
      product.n = grid_.words(j);
      product.a = states;
      product.b = logits;
    } else {
      logits.transposed = true;
      product.m = grid_.words(j);
      product.n = components;
      product.a = logits;
      product.b = states;
    }
    product.c = weight_part(j, component, product.ldc);
    const bool first = b == 0 && begin_;
    product.accumulate = !first || (!weight_tiles_ && outputs_.d_weight_mode == WriteMode::kAccumulate);
    pass_.context.gemm->multiply(product, *pass_.context.kernels, scratch().gemm);
  }

  void add_d_bias(int64_t j, int64_t b, int64_t slot) {
    const int64_t first = grid_.first_word(j);
    T* sums = (pass_.bias_sums ? pass_.bias_sums : static_cast<T*>(outputs_.d_bias.data)) + first;
    const bool adds = b > 0 || !begin_ || (!pass_.bias_sums && outputs_.d_bias_mode == WriteMode::kAccumulate);
    pass_.context.kernels->template typed<T>().add_column_sums(tile(j, b, slot), grid_.tile_stride, block(b).count,
                                                               grid_.words(j), adds, sums);
  }

  void finish_weight_tile(int64_t j);
  void hand_on_d_hidden();

  const Pass<T>& pass_;
  const TileGrid& grid_;
  BackwardBuffers<T>& buffers_;
  const ActiveBlocks& active_;
  const Gradients& outputs_;
  bool begin_;
  bool hidden_apart_ = false;
  RowBreaks d_hidden_breaks_;
  bool weight_tiles_ = false;
  bool wants_weight_ = false;
  bool entropy_ = false;
  bool prior_ = false;
};

template <class T>
void hand_on_weight_tile(const Pass<T>& pass, const T* tile, int64_t j, const Gradients& outputs) {
  const TileGrid& grid = pass.run.grid;
  const bool hidden_vocab = pass.problem.head.layout == HeadLayout::kHiddenVocab;
  const int64_t words = grid.words(j);
  const int64_t rows = hidden_vocab ? grid.hidden_size : words;
  const int64_t cols = hidden_vocab ? words : grid.hidden_size;
  const int64_t stride = hidden_vocab ? grid.vocab_tile : grid.hidden_size;
  if (outputs.weight_sink) {
    outputs.weight_sink(grid.first_word(j), words, ConstMatrix(tile, rows, cols, stride));
    return;
  }
  const Matrix& out = outputs.d_weight;
  const int64_t offset = hidden_vocab ? grid.first_word(j) : grid.first_word(j) * out.stride;
  for (int64_t r = 0; r < rows; ++r) {
    pass.context.kernels->round(tile + r * stride, cols, outputs.d_weight_mode == WriteMode::kAccumulate,
                                core::element(out.data, out.dtype, offset + r * out.stride), out.dtype);
  }
}

template <class T>
void BackwardTasks<T>::finish_weight_tile(int64_t j) {
  hand_on_weight_tile(pass_, buffers_.d_weight[j % kWeightTiles], j, outputs_);
}

template <class T>
void BackwardTasks<T>::hand_on_d_hidden() {
  const auto& order = active_.blocks.order;
  const rows::RowKernels& kernels = *pass_.context.kernels;
  const bool accumulate = outputs_.d_hidden_mode == WriteMode::kAccumulate;
  const DType dtype = d_hidden_dtype(outputs_);
  for (size_t i = 0; i < order.size(); ++i) {
    const T* sums = buffers_.d_hidden + static_cast<int64_t>(i) * grid_.hidden_size;
    void* out = d_hidden_row(pass_.problem, outputs_, order[i]).data;
    if (dtype != DTypeOf<T>::value) {
      kernels.round(sums, grid_.hidden_size, accumulate, out, dtype);
    } else if (accumulate) {
      kernels.template typed<T>().add(sums, grid_.hidden_size, static_cast<T*>(out));
    } else {
      std::copy_n(sums, grid_.hidden_size, static_cast<T*>(out));
    }
  }
}

}  // namespace

template <class T>
void run_backward(const Pass<T>& pass, BackwardBuffers<T>& buffers, const ActiveBlocks& active, bool begin,
                  const TokenStats& stats, const TokenGrads& grads, const Gradients& outputs) {
  if (active.empty()) return;
  for (size_t i = 0; i < active.blocks.order.size(); ++i) {
    buffers.gradients[i] = row_gradient<T>(pass.problem, stats, grads, active.blocks.order[i]);
  }
  BackwardTasks<T>(pass, buffers, active, begin, grads, outputs).run();
}

template <class T>
void finish_backward(const Pass<T>& pass, BackwardBuffers<T>& buffers, const std::vector<bool>& wrote_rows,
                     bool wrote_any, const Gradients& outputs) {
  const bool zero_rows = outputs.wants_d_hidden() && outputs.d_hidden_mode == WriteMode::kOverwrite;
  for (int64_t row = 0; zero_rows && row < pass.problem.tokens; ++row) {
    if (wrote_rows[static_cast<size_t>(row)]) continue;
    const RowPlace<void*> place = d_hidden_row(pass.problem, outputs, row);
    core::fill_zero(Matrix(place.data, d_hidden_dtype(outputs), 1, pass.problem.hidden_size));
  }
  if (wrote_any) {
    if (pass.bias_sums) {
      const Vector& out = outputs.d_bias;
      pass.context.kernels->round(pass.bias_sums, out.size, outputs.d_bias_mode == WriteMode::kAccumulate, out.data,
                                  out.dtype);
    }
    return;
  }
  if (outputs.d_bias.data && outputs.d_bias_mode == WriteMode::kOverwrite) core::fill_zero(outputs.d_bias);
  if (outputs.d_weight.data && outputs.d_weight_mode == WriteMode::kOverwrite) core::fill_zero(outputs.d_weight);
  if (outputs.weight_sink) {
    const TileGrid& grid = pass.run.grid;
    std::fill_n(buffers.d_weight[0], grid.vocab_tile * grid.hidden_size, T{0});
    for (int64_t j = 0; j < grid.vocab_tiles(); ++j) hand_on_weight_tile(pass, buffers.d_weight[0], j, outputs);
  }
}

template void run_backward(const Pass<float>&, BackwardBuffers<float>&, const ActiveBlocks&, bool, const TokenStats&,
                           const TokenGrads&, const Gradients&);
template void run_backward(const Pass<double>&, BackwardBuffers<double>&, const ActiveBlocks&, bool, const TokenStats&,
                           const TokenGrads&, const Gradients&);
template void finish_backward(const Pass<float>&, BackwardBuffers<float>&, const std::vector<bool>&, bool,
                              const Gradients&);
template void finish_backward(const Pass<double>&, BackwardBuffers<double>&, const std::vector<bool>&, bool,
                              const Gradients&);

}  // namespace logitless::engine
