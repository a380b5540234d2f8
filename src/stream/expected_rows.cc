// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Gradients of states from expected rows (expected_sums.h). With the factors of stats::row_gradient()
//     d_hidden_i = Σ_picks g_k w_k − g E_i + g_cross Σ_v q_v w_v
//
// Because E_i excludes the picks, nothing cancels when the p of a target is near 1. The sums of a LoRA's rows
// give the gradient of its states in the same way; d_lora_a and the LoRA's part of d_hidden follow from it.
#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "core/parallel.h"
#include "sink/lora_sink.h"
#include "sink/store_sums.h"
#include "stats/row_gradients.h"
#include "stats/statistics.h"
#include "stream/expected_sums.h"
#include "stream/gradient_way.h"

namespace logitless::stream {
namespace {

/// The mean row of a head is summed in this many parts of the vocabulary.
constexpr int64_t kMeanParts = 16;

/// The buffers for computing gradients of states: hidden states, followed by a LoRA's states,
/// Source::width() components in total.
template <class Sum>
struct StatesBuffers {
  struct PerThread {
    double* total = nullptr;      // [width]
    Sum* sums = nullptr;          // [width]: total in the type of the sums
    Sum* entry = nullptr;         // [width]: the rows of an entry, or a row of a LoRA's a
    std::byte* stored = nullptr;  // [components]: a row in its stored type
    Sum* states = nullptr;        // [components]: a row of a product's states, if the head has a softcap
    kernels::PickGradient<double>* picks = nullptr;
  };
  core::Array<PerThread> threads;
  double* mean = nullptr;  // [1 + kMeanParts, width], if `cross` has gradients
  // If d_lora_a is requested:
  Sum* lora_states = nullptr;  // [chunk_rows, r]: scale · dU
  std::optional<sink::LoraAGradients<Sum>> a_gradients;

  template <class Types>
  StatesBuffers(core::Arena& arena, const Pass<Types>& pass) : threads(static_cast<size_t>(pass.run.plan.threads)) {
    const HiddenProblem& problem = pass.problem;
    const int64_t most = widest_states(pass.source), width = pass.source.width();
    for (PerThread& thread : threads) {
      thread.total = arena.take<double>(width);
      thread.sums = arena.take<Sum>(width);
      thread.entry = arena.take<Sum>(width);
      if (problem.head.softcap > 0) thread.states = arena.take<Sum>(most);
      thread.stored = static_cast<std::byte*>(arena.take_bytes(static_cast<size_t>(most) * sizeof(double)));
      thread.picks = arena.take<kernels::PickGradient<double>>(problem.most_picks());
    }
    if (problem.request.cross) mean = arena.take<double>((1 + kMeanParts) * width);
    if (!pass.outputs.d_lora_a.data) return;
    lora_states = arena.take<Sum>(pass.run.plan.chunk_rows * problem.head.lora.rank());
    a_gradients.emplace(*pass.context.kernels, *pass.run.gemm, problem, pass.outputs, pass.run.plan.threads);
    a_gradients->take_lasting(arena);
    a_gradients->take(arena);
  }
};

/// Returns why d_hidden cannot be computed from expected rows; empty: it can.
std::string_view no_expected_rows(const problem::HiddenProblem& problem, const TokenLoss::GradsFilled& filled) {
  if (problem.divergence) return "the call has a teacher, which needs a second pass over the logits";
  if (filled.entropy) return "the loss has a gradient of the entropy, which is not linear in the probabilities";
  if (filled.outside || filled.divergence || filled.square_sum)
    return "the loss has a gradient of statistics other than logp, lse and cross";
  if (filled.cross && !problem.request.cross) return "the loss has a gradient of cross but does not request it";
  if (filled.cross && problem.cross.rows) return "the loss has per-row weights";
  if (filled.cross && problem.head.softcap > 0) return "the loss has vocabulary weights and the head has a softcap";
  if (problem.head.softcap > 0 && problem.options.round_logits_to) return "the head has a softcap and rounded logits";
  return {};
}

std::vector<float>& of_type(ExpectedRows& rows, float) { return rows.f32; }
std::vector<double>& of_type(ExpectedRows& rows, double) { return rows.f64; }
const std::vector<float>& of_type(const ExpectedRows& rows, float) { return rows.f32; }
const std::vector<double>& of_type(const ExpectedRows& rows, double) { return rows.f64; }

template <class Types>
class ExpectedRowWay final : public GradientWay<Types> {
 public:
  using Sum = typename Types::Sum;

  explicit ExpectedRowWay(const Pass<Types>& pass) : pass_(pass) {}

  void take_lasting(core::Arena& arena) override {
    if (pass_.run.forward) sums_.emplace(arena, pass_, pass_.run.backward);
  }
  bool walks() const override { return pass_.run.forward; }
  void take_walk(core::Arena& arena, fold::CallFolds<Types>& folds) override { walk_.emplace(arena, pass_, folds); }
  void walk(fold::CallFolds<Types>& folds, stats::Columns& columns) override {
    if (!pass_.run.backward) {
      Sum* const rows = of_type(columns.stats.expected, Sum()).data();
      for (size_t p = 0; p < products().size(); ++p) sums_->set_out(p, rows + first_component(p), width());
    }
    sums_->walk(*walk_, folds, columns);
    walk_.reset();
  }

  // A forward call returns its sums as expected values.
  void begin_statistics(stats::Columns& columns) override {
    if (pass_.run.backward) return;
    stats::make_expected_rows(pass_.problem, static_cast<size_t>(pass_.problem.tokens * width()), columns);
  }
  void finish_statistics(TokenStats& stats) override {
    if (pass_.run.backward) return;
    std::vector<Sum>& rows = of_type(stats.expected, Sum());
    const auto count = static_cast<int64_t>(order().size());
    core::parallel_ranges(pass_.run.plan.threads, count, [&](int64_t begin, int64_t end) {
      for (int64_t place = begin; place < end; ++place) {
        const int64_t of_row = order()[static_cast<size_t>(place)];
        const double scale = sums_->scale_of(place, of_row, stats);
        Sum* const row = rows.data() + of_row * width();
        for (int64_t c = 0; c < width(); ++c) row[c] = static_cast<Sum>(row[c] * scale);
      }
    });
  }

  void take(core::Arena& arena) override { buffers_.emplace(arena, pass_); }

  // Computes all gradients of states, but not the head's.
  bool make(int64_t, const TokenStats& stats, const TokenGrads& grads) override {
    const problem::HiddenProblem& problem = pass_.problem;
    const int threads = pass_.run.plan.threads;
    StatesBuffers<Sum>& buffers = *buffers_;
    if (stats::gradient_summands(grads).cross) make_mean();
    core::Array<bool> has_gradient(static_cast<size_t>(problem.tokens), false);
    core::Array<int64_t> rows, places;
    rows.reserve(order().size());
    places.reserve(order().size());
    for (size_t place = 0; place < order().size(); ++place) {
      if (!stats::has_gradient(problem, grads, order()[place])) continue;
      has_gradient[static_cast<size_t>(order()[place])] = true;
      rows.push_back(order()[place]);
      places.push_back(static_cast<int64_t>(place));
    }
    core::parallel_for(threads, static_cast<int64_t>(rows.size()), [&](int64_t i) {
      Sum* const lora_states = buffers.a_gradients ? buffers.lora_states + i * problem.head.lora.rank() : nullptr;
      make_row(places[static_cast<size_t>(i)], stats, grads, lora_states);
    });
    if (buffers.a_gradients) {
      buffers.a_gradients->add(rows, buffers.lora_states, nullptr, threads);
      buffers.a_gradients->finish();
    }
    const auto clear = [&](const problem::Rows<Matrix>& out, WriteMode mode) {
      sink::clear_other_rows(out, mode, [&](int64_t row) { return has_gradient[static_cast<size_t>(row)]; });
    };
    clear(problem::d_hidden_rows(problem, pass_.outputs), pass_.outputs.d_hidden_mode);
    if (pass_.outputs.d_lora_states.data)
      clear(problem::matrix_rows(pass_.outputs.d_lora_states), pass_.outputs.d_lora_mode);
    return false;
  }

 private:
  using PerThread = typename StatesBuffers<Sum>::PerThread;

  std::span<const source::Product> products() const { return pass_.source.differentiated(); }
  int64_t width() const { return pass_.source.width(); }
  const core::Array<int64_t>& order() const { return pass_.run.blocks.order; }
  // Returns the index of a product's first component among the components of all products.
  int64_t first_component(size_t product) const { return product == 0 ? 0 : products().front().states.cols(); }

  const Sum* sums(size_t product, int64_t place, int64_t row, const TokenStats& stats) const {
    if (sums_) return sums_->of(product, place, row);
    return of_type(stats.expected, Sum()).data() + row * width() + first_component(product);
  }

  // Copies a row of a head, converted to the type of the sums.
  void copy_entry(const source::Head& head, int64_t entry, const PerThread& mine, Sum* to) const {
    const kernels::RowKernels& kernels = *pass_.context.kernels;
    if (head.dtype() == DTypeOf<Sum>::value) return head.copy_entry(kernels, entry, to);
    head.copy_entry(kernels, entry, mine.stored);
    kernels.values(mine.stored, head.dtype(), head.components(), to);
  }

  // Returns the rows of a vocabulary entry from all products, concatenated, in the thread's scratch.
  const Sum* entry_row(int64_t entry, const PerThread& mine) const {
    for (size_t p = 0; p < products().size(); ++p) {
      copy_entry(products()[p].head, entry, mine, mine.entry + first_component(p));
    }
    return mine.entry;
  }

  // Returns the derivative of the softcap at the logit of a vocabulary entry, whose row is given. Recomputes
  // the logit, because a capped logit near the softcap has too few digits left.
  double softcap_slope(int64_t row, int64_t entry, const Sum* of_entry, const PerThread& mine) const {
    const double softcap = pass_.problem.head.softcap;
    if (!(softcap > 0)) return 1;
    const std::array<int64_t, 1> rows = {row};
    double logit = pass_.tiles->bias(entry);
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
  void make_mean() const {
    const problem::HiddenProblem& problem = pass_.problem;
    const int64_t components = width(), entries = problem.entries;
    core::parallel_for(pass_.run.plan.threads, kMeanParts, [&](int64_t part) {
      const auto& mine = buffers_->threads[static_cast<size_t>(omp_get_thread_num())];
      double* const sums = buffers_->mean + (1 + part) * components;
      std::fill_n(sums, components, 0.0);
      for (int64_t v = part * entries / kMeanParts; v < (part + 1) * entries / kMeanParts; ++v) {
        const double weight = problem.cross_weight(0, problem.first_entry + v);
        if (weight == 0) continue;
        const Sum* const of_entry = entry_row(v, mine);
        for (int64_t c = 0; c < components; ++c) sums[c] += weight * static_cast<double>(of_entry[c]);
      }
    });
    std::fill_n(buffers_->mean, components, 0.0);
    for (int64_t part = 1; part <= kMeanParts; ++part) {
      for (int64_t c = 0; c < components; ++c) buffers_->mean[c] += buffers_->mean[part * components + c];
    }
  }

  // Computes a row's gradients of states from its sums.
  void make_row(int64_t place, const TokenStats& stats, const TokenGrads& grads, Sum* lora_states) const {
    const problem::HiddenProblem& problem = pass_.problem;
    const kernels::RowKernels& kernels = *pass_.context.kernels;
    const int64_t row = order()[static_cast<size_t>(place)], h = problem.hidden_size;
    const auto& mine = buffers_->threads[static_cast<size_t>(omp_get_thread_num())];
    const auto g = stats::row_gradient<double>(problem, stats, grads, row, mine.picks);
    const double scale = -g.softmax_scale * (sums_ ? sums_->scale_of(place, row, stats) : 1);
    double* to = mine.total;
    for (size_t p = 0; p < products().size(); ++p) {
      const Sum* const of_row = sums(p, place, row, stats);
      for (int64_t c = 0; c < products()[p].states.cols(); ++c) *to++ = scale * static_cast<double>(of_row[c]);
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
      for (int64_t c = 0; c < width(); ++c) mine.total[c] += g.cross_scale * buffers_->mean[c];
    }
    const LoraMatrices& lora = problem.head.lora;
    if (lora.given() && !lora.has_states()) add_lora(mine, lora_states);
    for (int64_t c = 0; c < width(); ++c) mine.sums[c] = static_cast<Sum>(mine.total[c]);
    const problem::Rows<Matrix> out = problem::d_hidden_rows(problem, pass_.outputs);
    sink::store_sums(kernels, mine.sums, h, pass_.outputs.d_hidden_mode, out.place(row).data, out.dtype);
    const Matrix& d_states = pass_.outputs.d_lora_states;
    if (!d_states.data) return;
    sink::store_sums(kernels, mine.sums + h, width() - h, pass_.outputs.d_lora_mode,
                     problem::matrix_rows(d_states).place(row).data, d_states.dtype);
  }

  // Adds scale · dU a to a row's d_hidden, for the row's dU; stores scale · dU in `lora_states` unless that
  // is null.
  void add_lora(const PerThread& mine, Sum* lora_states) const {
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

  const Pass<Types>& pass_;
  std::optional<ExpectedSums<Types>> sums_;  // set if this call computes the sums
  std::optional<ExpectedBuffers<Types>> walk_;
  std::optional<StatesBuffers<Sum>> buffers_;
};

void ask(const CallOnHidden& call, planning::Computation& computation) {
  const PlanKind plan = call.options.plan;
  if (call.problem.over_picks || (plan != PlanKind::kAuto && plan != PlanKind::kExpectedRow)) return;
  const std::string_view why = computation.backward && !call.outputs.wants_d_hidden()
                                   ? "d_hidden is not requested"
                                   : no_expected_rows(call.problem, call.filled);
  const bool whole = computation.forward && computation.backward, required = whole && plan == PlanKind::kExpectedRow;
  if (required && !why.empty()) core::fail("plan = expected_row cannot run: ", why);
  // forward() can return expected rows for backward() to use, but computes them only if the plan option asks
  // for them.
  const bool is_half = call.keeps_expected_rows && !call.shared.cut;
  const bool offered = whole || (is_half && (!computation.forward || plan == PlanKind::kExpectedRow));
  computation.expected_rows = why.empty() && offered;
}

template <class Types>
WayOfRun<Types> make_way(const Pass<Types>& pass) {
  return pass.run.expected_rows() ? core::make_shared<ExpectedRowWay<Types>>(pass) : nullptr;
}

}  // namespace

const WayKind kExpectedRowGradients = {
    ask, {make_way<kernels::FloatTiles>, make_way<kernels::DoubleTiles>, make_way<kernels::BFloat16Tiles>}};

}  // namespace logitless::stream
