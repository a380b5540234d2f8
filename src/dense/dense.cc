// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The opponent: everything in memory, every GEMM as large and as parallel as the BLAS likes it.
#include "dense/dense.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "core/checks.h"
#include "core/parallel.h"
#include "core/views.h"
#include "core/workspace.h"
#include "engine/context_state.h"
#include "engine/forward.h"
#include "engine/logit_rows.h"
#include "engine/row_gradients.h"
#include "engine/rows_of_hidden.h"
#include "engine/run.h"
#include "logitless/dense.h"

namespace logitless {
namespace dense {
namespace {

using engine::Problem;

// Words of d_weight that are summed apart when it is narrower than its sums.
constexpr int64_t kNarrowWords = 4096;

template <class T>
class Dense {
 public:
  Dense(const Context& context, const Problem& problem, const Gradients& outputs)
      : state_(context.state()),
        problem_(problem),
        outputs_(outputs),
        threads_(context.threads()),
        v_(problem.vocab_size) {
    core::Workspace measure;
    take(measure);
    workspace_bytes_ = measure.peak();
  }

  Plan plan() const {
    Plan plan;
    plan.kind = PlanKind::kDense;
    plan.tokens = plan.row_tile = plan.chunk_rows = problem_.tokens;
    plan.active_rows = static_cast<int64_t>(problem_.active.size());
    plan.hidden_size = plan.hidden_block = problem_.hidden_size;
    plan.vocab_size = plan.vocab_tile = v_;
    plan.threads = threads_;
    plan.workspace_bytes = workspace_bytes_;
    return plan;
  }

  TokenStats forward() {
    workspace_ = std::make_unique<core::Workspace>(workspace_bytes_);
    take(*workspace_);
    multiply({problem_.tokens, v_, problem_.hidden_size, hidden(), engine::head_operand(problem_.head, 0, 0, true),
              logits_, v_, false});
    TokenStats stats = engine::empty_stats(problem_);
    const auto count = static_cast<int64_t>(problem_.active.size());
    core::parallel_for(threads_, count, [&](int64_t a) {
      const int64_t row = problem_.active[static_cast<size_t>(a)];
      walker().statistics(row, logits_ + row * v_, DTypeOf<T>::value, scratch(), stats);
    });
    return stats;
  }

  void backward(const TokenStats& stats, const TokenGrads& grads) {
    core::parallel_for(threads_, problem_.tokens, [&](int64_t row) { make_gradient(row, stats, grads); });
    if (outputs_.wants_d_hidden()) d_hidden();
    if (outputs_.d_weight.data) d_weight();
    if (outputs_.d_bias.data) d_bias();
  }

 private:
  void take(core::Workspace& workspace) {
    const DType x = problem_.hidden.dtype, w = problem_.head.weight.dtype, sums = DTypeOf<T>::value;
    const int64_t n = problem_.tokens, h = problem_.hidden_size;
    logits_ = workspace.take<T>(n * v_);
    size_t bytes = state_.gemm->scratch_bytes(n, v_, h, x, w);
    bytes = std::max(bytes, state_.gemm->scratch_bytes(n, h, v_, sums, w));
    bytes =
        std::max({bytes, state_.gemm->scratch_bytes(v_, h, n, sums, x), state_.gemm->scratch_bytes(h, v_, n, x, sums)});
    gemm_ = workspace.take_bytes(bytes);
    rows_ = workspace.take<T>(engine::kRowColumns * threads_);
    sums_ = workspace.take<T>(elements_of_sums());
    if (!hidden_is_matrix()) {
      gathered_ = workspace.take<std::byte>(n * h * static_cast<int64_t>(size_of(x)));
      if (gathered_) engine::gather_rows(problem_, all_rows(), gathered_);
    }
    bias_ = engine::widened_bias<T>(workspace, workspace_ ? state_.kernels : nullptr, problem_);
  }

  // Outputs narrower than their sums are summed apart, one after another.
  bool is_narrow(DType out) const { return out != DTypeOf<T>::value; }
  int64_t elements_of_sums() const {
    const int64_t h = problem_.hidden_size;
    int64_t most = 0;
    const auto sum = [&](bool wanted, DType out, int64_t elements) {
      if (wanted && is_narrow(out)) most = std::max(most, elements);
    };
    if (outputs_.wants_d_hidden() && !writes_d_hidden_in_place()) most = problem_.tokens * h;
    sum(outputs_.d_weight.data, outputs_.d_weight.dtype, std::min(v_, kNarrowWords) * h);
    sum(outputs_.d_bias.data, outputs_.d_bias.dtype, v_);
    return most;
  }

  // One GEMM takes one matrix: rows that stand in two of them, or in sequences apart, are copied together.
  bool hidden_is_matrix() const { return problem_.hidden_second.rows == 0 && problem_.hidden_places.is_matrix(); }
  gemm::Operand hidden() const {
    const DType dtype = problem_.hidden.dtype;
    if (!hidden_is_matrix()) return {gathered_, dtype, problem_.hidden_size, false};
    return {problem_.hidden.data, dtype, problem_.hidden_places.row_stride, false};
  }
  std::vector<int64_t> all_rows() const {
    std::vector<int64_t> rows(static_cast<size_t>(problem_.tokens));
    std::iota(rows.begin(), rows.end(), int64_t{0});
    return rows;
  }
  bool writes_d_hidden_in_place() const {
    return !is_narrow(outputs_.d_hidden.dtype) && problem_.hidden_second.rows == 0 &&
           engine::d_hidden_places(problem_, outputs_).is_matrix();
  }

  void multiply(const gemm::Product<T>& product) const {
    state_.gemm->multiply_parallel(product, *state_.kernels, gemm_, threads_);
  }
  const rows::TypedKernels<T>& kernels() const { return state_.kernels->typed<T>(); }
  typename engine::LogitRows<T>::Scratch scratch() const {
    return {rows_ + engine::kRowColumns * omp_get_thread_num(), nullptr};
  }
  engine::LogitRows<T> walker() const {
    return {*state_.kernels, problem_, bias_, static_cast<T>(problem_.head.softcap), engine::kRowColumns};
  }

  void make_gradient(int64_t row, const TokenStats& stats, const TokenGrads& grads) const {
    T* logits = logits_ + row * v_;
    if (problem_.targets[static_cast<size_t>(row)] < 0 || !engine::has_gradient(grads, row)) {
      std::fill_n(logits, v_, T{0});
      return;
    }
    walker().gradient(engine::row_gradient<T>(problem_, stats, grads, row), logits, DTypeOf<T>::value, logits,
                      DTypeOf<T>::value, scratch());
  }

  void d_hidden() const {
    gemm::Product<T> product{problem_.tokens,
                             problem_.hidden_size,
                             v_,
                             {logits_, DTypeOf<T>::value, v_, false},
                             engine::head_operand(problem_.head, 0, 0, false),
                             nullptr,
                             0,
                             false};
    if (writes_d_hidden_in_place()) {
      Matrix out = outputs_.d_hidden;
      out.stride = engine::d_hidden_places(problem_, outputs_).row_stride;
      return write(product, out, 0, outputs_.d_hidden_mode);
    }
    product.c = sums_;
    product.ldc = product.n;
    multiply(product);
    for (int64_t row = 0; row < problem_.tokens; ++row) {
      store(sums_ + row * product.n, product.n, outputs_.d_hidden_mode,
            engine::d_hidden_row(problem_, outputs_, row).data, engine::d_hidden_dtype(outputs_));
    }
  }

  void d_weight() const {
    const Matrix& out = outputs_.d_weight;
    const bool hidden_vocab = problem_.head.layout == HeadLayout::kHiddenVocab;
    const int64_t step = is_narrow(out.dtype) ? kNarrowWords : v_;
    for (int64_t first = 0; first < v_; first += step) {
      const int64_t words = std::min(step, v_ - first);
      gemm::Operand states = hidden();
      states.transposed = hidden_vocab;
      const gemm::Operand logits{logits_ + first, DTypeOf<T>::value, v_, !hidden_vocab};
      gemm::Product<T> product;
      product.m = hidden_vocab ? problem_.hidden_size : words;
      product.n = hidden_vocab ? words : problem_.hidden_size;
      product.k = problem_.tokens;
      product.a = hidden_vocab ? states : logits;
      product.b = hidden_vocab ? logits : states;
      write(product, out, hidden_vocab ? first : first * out.stride, outputs_.d_weight_mode);
    }
  }

  // The product into `out` from element `offset` on.
  void write(gemm::Product<T> product, const Matrix& out, int64_t offset, WriteMode mode) const {
    if (!is_narrow(out.dtype)) {
      product.c = static_cast<T*>(out.data) + offset;
      product.ldc = out.stride;
      product.accumulate = mode == WriteMode::kAccumulate;
      multiply(product);
      return;
    }
    product.c = sums_;
    product.ldc = product.n;
    multiply(product);
    for (int64_t r = 0; r < product.m; ++r) {
      store(product.c + r * product.n, product.n, mode, core::element(out.data, out.dtype, offset + r * out.stride),
            out.dtype);
    }
  }

  // `count` sums to where they belong, in the type of the output.
  void store(const T* sums, int64_t count, WriteMode mode, void* to, DType dtype) const {
    if (is_narrow(dtype)) {
      state_.kernels->round(sums, count, mode == WriteMode::kAccumulate, to, dtype);
    } else if (mode == WriteMode::kAccumulate) {
      kernels().add(sums, count, static_cast<T*>(to));
    } else {
      std::copy_n(sums, count, static_cast<T*>(to));
    }
  }

  void d_bias() const {
    const Vector& out = outputs_.d_bias;
    if (!is_narrow(out.dtype)) {
      kernels().add_column_sums(logits_, v_, problem_.tokens, v_, outputs_.d_bias_mode == WriteMode::kAccumulate,
                                static_cast<T*>(out.data));
      return;
    }
    kernels().add_column_sums(logits_, v_, problem_.tokens, v_, false, sums_);
    state_.kernels->round(sums_, v_, outputs_.d_bias_mode == WriteMode::kAccumulate, out.data, out.dtype);
  }

  const detail::ContextState& state_;
  const Problem& problem_;
  const Gradients& outputs_;
  int threads_;
  int64_t v_;
  size_t workspace_bytes_ = 0;
  std::unique_ptr<core::Workspace> workspace_;
  T* logits_ = nullptr;  // [N, V], then their gradients
  void* gemm_ = nullptr;
  T* rows_ = nullptr;  // [threads, kRowColumns]
  T* sums_ = nullptr;  // [elements_of_sums()]
  const T* bias_ = nullptr;
  std::byte* gathered_ = nullptr;  // [N, H] of hidden's type, where hidden is no matrix
};

// Calls `body` with a Dense of the type that the problem is summed in.
template <class Body>
auto with_dense(const Context& context, const Problem& problem, const Gradients& outputs, Plan* plan,
                const Body& body) {
  if (outputs.weight_sink) core::fail("weight_sink is set: plan dense has no tiles to hand out");
  const auto call = [&](auto dense) {
    if (plan) *plan = dense.plan();
    return body(dense);
  };
  return problem.in_double() ? call(Dense<double>(context, problem, outputs))
                             : call(Dense<float>(context, problem, outputs));
}

}  // namespace

TokenStats run_stats(const Context& context, const Problem& problem, Plan* plan) {
  return with_dense(context, problem, {}, plan, [](auto& dense) { return dense.forward(); });
}

TokenStats run_loss(const Context& context, const Problem& problem, TokenLoss& loss, const Gradients& outputs,
                    Plan* plan) {
  return with_dense(context, problem, outputs, plan, [&](auto& dense) {
    TokenStats stats = dense.forward();
    TokenGrads grads = engine::empty_grads(problem, loss);
    loss.evaluate(problem.active, stats, grads);
    if (outputs.any()) dense.backward(stats, grads);
    return stats;
  });
}

void run_gradients(const Context& context, const Problem& problem, const TokenStats& stats, const TokenGrads& grads,
                   const Gradients& outputs, Plan* plan) {
  with_dense(context, problem, outputs, plan, [&](auto& dense) {
    dense.forward();
    dense.backward(stats, grads);
  });
}

Plan plan(const Context& context, const Problem& problem, const Gradients& outputs) {
  return with_dense(context, problem, outputs, nullptr, [](auto& dense) { return dense.plan(); });
}

}  // namespace dense

CrossEntropyResult dense_cross_entropy(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                       const Targets& targets, const CrossEntropyOptions& options,
                                       const Gradients& gradients) {
  ContextOptions dense = context.options();
  dense.plan = PlanKind::kDense;
  return cross_entropy(Context(dense), hidden, head, targets, options, gradients);
}

}  // namespace logitless
