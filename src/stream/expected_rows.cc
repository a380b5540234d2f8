// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "stream/expected_rows.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/integers.h"
#include "core/parallel.h"
#include "sink/store_sums.h"
#include "stats/row_gradients.h"
#include "stream/tile_tasks.h"

namespace logitless::stream {
namespace {

/// The tasks of the first pass.
template <class Types>
class ExpectedTasks : public TileTasks<Types, ExpectedTasks<Types>> {
 public:
  using Base = TileTasks<Types, ExpectedTasks<Types>>;
  using typename Base::Logit;
  using typename Base::Sum;
  static constexpr bool kInOrder = true;

  ExpectedTasks(const Pass<Types>& pass, planning::ExpectedBuffers<Types>& buffers, sink::Sinks<Sum> sinks,
                const ActiveBlocks& all, const fold::CallFolds<Types>& folds, stats::Columns& columns)
      : Base(pass, buffers, sinks, all, false), row_scales_(buffers.row_scales), folds_(folds), columns_(columns) {
    // A term is the gradient of a row with the factor -1, except for picks, whose term is 0.
    kernels::PickGradient<Logit>* picks = buffers.picks;
    for (size_t i = 0; i < all.blocks.order.size(); ++i) {
      const int64_t row = all.blocks.order[i];
      kernels::RowGradient<Logit> terms;
      terms.inverse_temperature = static_cast<Logit>(pass.problem.inverse_temperature(row));
      terms.softmax_scale = -1;
      terms.picks = picks;
      for (int64_t pick = pass.problem.pick_begin(row); pick < pass.problem.pick_end(row); ++pick, ++picks) {
        *picks = {pass.problem.picks.ids[static_cast<size_t>(pick)], 0};
      }
      terms.pick_count = static_cast<int32_t>(picks - terms.picks);
      buffers.gradients[i] = terms;
    }
  }

  void make_tile(int64_t j, int64_t b, int64_t slot) const { this->make_logits(j, b, slot); }

  // Folds the tile into the statistics of its rows, and replaces it by terms relative to their maxima so far.
  void settle_tile(int64_t j, int64_t b, int64_t slot) const {
    const planning::RowBlock& rows = this->block(b);
    const source::RowBlocks& blocks = this->active_.blocks;
    Logit* const scratch = this->scratch().row;
    fold::FoldPart<Logit> part;
    part.rows = blocks.rows(rows);
    part.place = rows.begin;
    part.thread = b;
    part.scratch = scratch;
    part.columns = &columns_;
    const Logit* data = this->logits(j, b, slot);
    const auto tile = this->pass_.tile(data, rows.tile_rows, blocks.first_place(rows), rows.count, j);
    const kernels::RowStats* stats = folds_.partials().softmax.of(0, rows.begin);
    double* const scales = scales_of(slot);
    for (const fold::Fold<Types>* fold : folds_.of(fold::Walk::kFirst)) {
      if (j == 0) fold->begin(part);
    }
    for (int64_t r = 0; r < rows.count; ++r) scales[r] = stats[r].max;
    for (const fold::Fold<Types>* fold : folds_.of(fold::Walk::kFirst)) fold->add(part, tile);
    kernels::RowGradient<Logit>* terms = this->buffers_.gradients + rows.begin;
    for (int64_t r = 0; r < rows.count; ++r) {
      const double before = scales[r], now = stats[r].max;
      scales[r] = before == now ? 1 : std::exp((before - now) * static_cast<double>(terms[r].inverse_temperature));
      // If all logits so far are -inf, there is no maximum to subtract.
      terms[r].max = static_cast<Logit>(now == -std::numeric_limits<double>::infinity() ? 0 : now);
    }
    this->pass_.tiles.gradient(this->pass_.tile(data, rows.tile_rows, 0, rows.tile_rows, j), blocks.places(rows), {},
                               terms, nullptr, scratch, this->gradient(j, b, slot));
    this->weigh_entries(j, b, slot);
  }

  bool first(const sink::Sink<Sum>&, int64_t j, int64_t) const { return j == 0; }
  sink::GradientPart part_of(int64_t j, int64_t b, int64_t slot) const {
    sink::GradientPart out = this->part(j, b, slot);
    out.row_scales = scales_of(slot);
    return out;
  }

 private:
  double* scales_of(int64_t slot) const { return row_scales_ + slot * this->grid_.row_tile; }

  double* row_scales_;
  const fold::CallFolds<Types>& folds_;
  stats::Columns& columns_;
};

std::vector<float>& of_type(ExpectedRows& rows, float) { return rows.f32; }
std::vector<double>& of_type(ExpectedRows& rows, double) { return rows.f64; }
const std::vector<float>& of_type(const ExpectedRows& rows, float) { return rows.f32; }
const std::vector<double>& of_type(const ExpectedRows& rows, double) { return rows.f64; }

}  // namespace

std::string_view no_expected_rows(const problem::HiddenProblem& problem, const TokenLoss::GradsFilled& filled) {
  if (problem.divergence) return "the call has a teacher, beside which logits are walked twice";
  if (filled.entropy) return "the loss has a gradient of the entropy, which is not linear in the probabilities";
  if (filled.outside || filled.divergence)
    return "the loss has a gradient of other statistics than logp, lse and cross";
  if (filled.cross && !problem.request.cross) return "the loss has a gradient of cross, which it does not ask for";
  if (filled.cross && problem.cross.rows) return "the loss has weights of each row";
  if (filled.cross && problem.head.softcap > 0) return "the loss has weights of the vocabulary, and the head a softcap";
  if (problem.head.softcap > 0 && problem.options.round_logits_to) return "the head has a softcap of rounded logits";
  return {};
}

template <class Types>
ExpectedRowSums<Types>::ExpectedRowSums(core::Arena& arena, const Pass<Types>& pass, const GradientMatrices& outputs)
    : pass_(pass), outputs_(outputs) {
  if (!pass.run.sums_expected_rows()) return;
  sums_.emplace(arena, *pass.context.kernels, pass.problem, pass.source, pass.run, outputs);
}

template <class Types>
void ExpectedRowSums<Types>::walk(core::Arena& arena, fold::CallFolds<Types>& folds, stats::Columns& columns) {
  const planning::RunPlan& run = pass_.run;
  planning::ExpectedBuffers<Types> buffers(arena, pass_.problem, pass_.source, run, folds);
  if (run.blocks.blocks.empty()) return;
  if (run.expected_rows == planning::ExpectedRowsIn::kLeft) {
    Sum* const rows = of_type(columns.stats.expected, Sum()).data();
    for (const source::Product& product : products()) {
      const Matrix out(rows + first_component(product), pass_.problem.tokens, product.states.cols(), width());
      sums_->of_product[index_of(product)]->set_out(problem::matrix_rows(out));
    }
  }
  ActiveBlocks all;
  all.blocks = run.blocks;
  folds.partials().begin(fold::Walk::kFirst, 0, static_cast<int64_t>(all.blocks.order.size()));
  ExpectedTasks<Types>(pass_, buffers, std::span(sums_->all).first(sums_->count), all, folds, columns).run();
  for (const source::Product& product : products())
    sums_->of_product[index_of(product)]->put_back(all.blocks.order, run.plan.threads);
  const kernels::RowStats* stats = folds.partials().softmax.of(0, 0);
  core::parallel_ranges(run.plan.threads, static_cast<int64_t>(all.blocks.order.size()),
                        [&](int64_t begin, int64_t end) {
                          for (int64_t place = begin; place < end; ++place) {
                            const int64_t row = all.blocks.order[static_cast<size_t>(place)];
                            sums_->max[place] = stats[place].max;
                            for (const fold::Partials* partials : folds.partials().of(fold::Walk::kFirst)) {
                              partials->combine(row, place);
                            }
                          }
                        });
}

// Returns the factor that turns the summed terms into probabilities.
template <class Types>
double ExpectedRowSums<Types>::scale_of(int64_t place, const TokenStats& stats) const {
  if (!sums_ || pass_.run.expected_rows == planning::ExpectedRowsIn::kGiven) return 1;
  const int64_t row = pass_.run.blocks.order[static_cast<size_t>(place)];
  const auto i = static_cast<size_t>(row);
  const double max = sums_->max[place];
  const double shift = max == stats.max_logit[i]                         ? 0
                       : max == -std::numeric_limits<double>::infinity() ? max
                                                                         : max - stats.max_logit[i];
  return std::exp(shift * pass_.problem.inverse_temperature(row) - stats.log_sum[i]);
}

template <class Types>
void ExpectedRowSums<Types>::leave(TokenStats& stats) const {
  std::vector<Sum>& rows = of_type(stats.expected, Sum());
  const auto count = static_cast<int64_t>(pass_.run.blocks.order.size());
  core::parallel_ranges(pass_.run.plan.threads, count, [&](int64_t begin, int64_t end) {
    for (int64_t place = begin; place < end; ++place) {
      const double scale = scale_of(place, stats);
      Sum* const row = rows.data() + pass_.run.blocks.order[static_cast<size_t>(place)] * width();
      for (int64_t c = 0; c < width(); ++c) row[c] = static_cast<Sum>(row[c] * scale);
    }
  });
}

// Returns the index of a product's first component among the components of all products.
template <class Types>
int64_t ExpectedRowSums<Types>::first_component(const source::Product& product) const {
  return index_of(product) == 0 ? 0 : products().front().states.cols();
}

template <class Types>
const typename Types::Sum* ExpectedRowSums<Types>::sums(const source::Product& product, int64_t place,
                                                        const TokenStats& stats) const {
  const int64_t row = pass_.run.blocks.order[static_cast<size_t>(place)];
  if (sums_) return sums_->of_product[index_of(product)]->sums(place, row);
  return of_type(stats.expected, Sum()).data() + row * width() + first_component(product);
}

// Copies a row of a head in the type of the sums.
template <class Types>
void ExpectedRowSums<Types>::copy_entry(const source::Head& head, int64_t entry,
                                        const typename Buffers::PerThread& mine, Sum* to) const {
  const kernels::RowKernels& kernels = *pass_.context.kernels;
  if (head.dtype() == DTypeOf<Sum>::value) return head.copy_entry(kernels, entry, to);
  head.copy_entry(kernels, entry, mine.stored);
  kernels.values(mine.stored, head.dtype(), head.components(), to);
}

// Returns the rows of a vocabulary entry from all products, concatenated, in the thread's scratch.
template <class Types>
auto ExpectedRowSums<Types>::entry_row(int64_t entry, const typename Buffers::PerThread& mine) const -> const Sum* {
  for (const source::Product& product : products()) {
    copy_entry(product.head, entry, mine, mine.entry + first_component(product));
  }
  return mine.entry;
}

// Returns the derivative of the softcap at the logit of a vocabulary entry, whose row is given. Recomputes
// the logit, because a capped logit near the softcap has too few digits left.
template <class Types>
double ExpectedRowSums<Types>::softcap_slope(int64_t row, int64_t entry, const Sum* of_entry,
                                             const typename Buffers::PerThread& mine) const {
  const double softcap = pass_.problem.head.softcap;
  if (!(softcap > 0)) return 1;
  const std::array<int64_t, 1> rows = {row};
  double logit = pass_.tiles.bias(entry);
  for (const source::Product& product : products()) {
    const gemm::Operand from = product.states.operand(rows, nullptr);
    const int64_t cols = product.states.cols();
    const Sum* const states = pass_.context.kernels->values(from.data, from.dtype, cols, mine.states);
    for (int64_t c = 0; c < cols; ++c) logit += static_cast<double>(states[c]) * static_cast<double>(*of_entry++);
  }
  const double cosh = std::cosh(logit / softcap);
  return 1 / (cosh * cosh);
}

// Sums the head's rows of this call, each times its cross weight: first within kMeanParts parts of the
// vocabulary, then over the parts in order.
template <class Types>
void ExpectedRowSums<Types>::make_mean(const Buffers& buffers) const {
  const problem::HiddenProblem& problem = pass_.problem;
  const int64_t components = width(), entries = problem.entries;
  core::parallel_for(pass_.run.plan.threads, planning::kMeanParts, [&](int64_t part) {
    const auto& mine = buffers.threads[static_cast<size_t>(omp_get_thread_num())];
    double* const sums = buffers.mean + (1 + part) * components;
    std::fill_n(sums, components, 0.0);
    for (int64_t v = part * entries / planning::kMeanParts; v < (part + 1) * entries / planning::kMeanParts; ++v) {
      const double weight = problem.cross_weight(0, problem.first_entry + v);
      if (weight == 0) continue;
      const Sum* const of_entry = entry_row(v, mine);
      for (int64_t c = 0; c < components; ++c) sums[c] += weight * static_cast<double>(of_entry[c]);
    }
  });
  std::fill_n(buffers.mean, components, 0.0);
  for (int64_t part = 1; part <= planning::kMeanParts; ++part) {
    for (int64_t c = 0; c < components; ++c) buffers.mean[c] += buffers.mean[part * components + c];
  }
}

// Computes a row's gradients of states from its sums.
template <class Types>
void ExpectedRowSums<Types>::settle(int64_t place, const TokenStats& stats, const TokenGrads& grads,
                                    const Buffers& buffers, Sum* lora_states) const {
  const problem::HiddenProblem& problem = pass_.problem;
  const kernels::RowKernels& kernels = *pass_.context.kernels;
  const int64_t row = pass_.run.blocks.order[static_cast<size_t>(place)], h = problem.hidden_size;
  const auto& mine = buffers.threads[static_cast<size_t>(omp_get_thread_num())];
  const auto g = stats::row_gradient<double>(problem, stats, grads, row, mine.picks);
  const double scale = -g.softmax_scale * scale_of(place, stats);
  double* to = mine.total;
  for (const source::Product& product : products()) {
    const Sum* const of_row = sums(product, place, stats);
    for (int64_t c = 0; c < product.states.cols(); ++c) *to++ = scale * static_cast<double>(of_row[c]);
  }
  for (int32_t k = 0; k < g.pick_count; ++k) {
    const int64_t id = g.picks[k].id, entry = id - problem.first_entry;
    if (entry < 0 || entry >= problem.entries || (k > 0 && g.picks[k - 1].id == id)) continue;
    double factor = g.picks[k].gradient;
    if (g.cross_scale != 0) factor -= g.cross_scale * problem.cross_weight(row, id);
    const Sum* const of_entry = entry_row(entry, mine);
    factor *= softcap_slope(row, entry, of_entry, mine);
    for (int64_t c = 0; c < width(); ++c) mine.total[c] += factor * static_cast<double>(of_entry[c]);
  }
  if (g.cross_scale != 0) {
    for (int64_t c = 0; c < width(); ++c) mine.total[c] += g.cross_scale * buffers.mean[c];
  }
  const LoraMatrices& lora = problem.head.lora;
  if (lora.given() && !lora.has_states()) settle_behind_lora(mine, lora_states);
  for (int64_t c = 0; c < width(); ++c) mine.sums[c] = static_cast<Sum>(mine.total[c]);
  const problem::Rows<Matrix> out = problem::d_hidden_rows(problem, outputs_);
  sink::store_sums(kernels, mine.sums, h, outputs_.d_hidden_mode, out.place(row).data, out.dtype);
  const Matrix& d_states = outputs_.d_lora_states;
  if (!d_states.data) return;
  sink::store_sums(kernels, mine.sums + h, width() - h, outputs_.d_lora_mode,
                   problem::matrix_rows(d_states).place(row).data, d_states.dtype);
}

// Adds scale · dU a to a row's d_hidden, for the row's dU; stores scale · dU in `lora_states` unless that is
// null.
template <class Types>
void ExpectedRowSums<Types>::settle_behind_lora(const typename Buffers::PerThread& mine, Sum* lora_states) const {
  const LoraMatrices& lora = pass_.problem.head.lora;
  const source::Head a{HeadMatrices(lora.a)};
  const double* const d_states = mine.total + pass_.problem.hidden_size;
  for (int64_t k = 0; k < a.entries(); ++k) {
    const double factor = lora.scale * d_states[k];
    copy_entry(a, k, mine, mine.entry);
    for (int64_t c = 0; c < a.components(); ++c) mine.total[c] += factor * static_cast<double>(mine.entry[c]);
    if (lora_states) lora_states[k] = static_cast<Sum>(factor);
  }
}

template <class Types>
void ExpectedRowSums<Types>::make_gradients(core::Arena& arena, const TokenStats& stats,
                                            const TokenGrads& grads) const {
  const problem::HiddenProblem& problem = pass_.problem;
  const int threads = pass_.run.plan.threads;
  Buffers buffers(arena, {*pass_.context.kernels, *pass_.run.gemm, problem, pass_.source}, outputs_, pass_.run);
  if (stats::gradient_summands(grads).cross) make_mean(buffers);
  core::Array<bool> has_gradient(static_cast<size_t>(problem.tokens), false);
  core::Array<int64_t> rows, places;
  const core::Array<int64_t>& order = pass_.run.blocks.order;
  rows.reserve(order.size());
  places.reserve(order.size());
  for (size_t place = 0; place < order.size(); ++place) {
    if (!stats::has_gradient(problem, grads, order[place])) continue;
    has_gradient[static_cast<size_t>(order[place])] = true;
    rows.push_back(order[place]);
    places.push_back(static_cast<int64_t>(place));
  }
  core::parallel_for(threads, static_cast<int64_t>(rows.size()), [&](int64_t i) {
    Sum* const lora_states = buffers.behind ? buffers.lora_states + i * problem.head.lora.rank() : nullptr;
    settle(places[static_cast<size_t>(i)], stats, grads, buffers, lora_states);
  });
  if (buffers.behind) {
    buffers.behind->add(rows, buffers.lora_states, nullptr, threads);
    buffers.behind->finish();
  }
  const auto clear = [&](const problem::Rows<Matrix>& out, WriteMode mode) {
    sink::clear_other_rows(out, mode, [&](int64_t row) { return has_gradient[static_cast<size_t>(row)]; });
  };
  clear(problem::d_hidden_rows(problem, outputs_), outputs_.d_hidden_mode);
  if (outputs_.d_lora_states.data) clear(problem::matrix_rows(outputs_.d_lora_states), outputs_.d_lora_mode);
}

template class ExpectedRowSums<kernels::FloatTiles>;
template class ExpectedRowSums<kernels::DoubleTiles>;
template class ExpectedRowSums<kernels::BFloat16Tiles>;

}  // namespace logitless::stream
