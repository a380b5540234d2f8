// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "dense/dense.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/arena.h"
#include "core/checks.h"
#include "core/parallel.h"
#include "core/tensors.h"
#include "core/views.h"
#include "dense/products.h"
#include "planning/context_state.h"
#include "problem/hidden_problem.h"
#include "source/head.h"
#include "source/lora.h"

namespace logitless::dense {
namespace {

using core::fail;
using gemm::Operand;

// Vocabulary entries per step of backward() if gradients are converted: dL/dlogits that products read in a
// 16-bit type, or a weight's gradients that are stored in one. Takes 1 % of the logits' memory.
constexpr int64_t kEntries = 1024;

ContextOptions options_of(const ContextOptions& given) {
  ContextOptions options;
  options.threads = given.threads;
  options.gemm_backend = given.gemm_backend;
  options.simd_target = given.simd_target;
  options.ranks = given.ranks;
  return options;
}

// tanh within a few units of the last place, without branches, so that compilers vectorise it. The
// coefficients are Eigen's (generic_fast_tanh_float).
float bounded(float raw) {
  const float x = std::min(std::max(raw, -7.905311F), 7.905311F), x2 = x * x;
  float p = -2.76076847742355e-16F;
  for (const float c : {2.00018790482477e-13F, -8.60467152213735e-11F, 5.12229709037114e-08F, 1.48572235717979e-05F,
                        6.37261928875436e-04F, 4.89352455891786e-03F}) {
    p = p * x2 + c;
  }
  float q = 1.19825839466702e-06F;
  for (const float c : {1.18534705686654e-04F, 2.26843463243900e-03F, 4.89352518554385e-03F}) q = q * x2 + c;
  return x * p / q;
}
double bounded(double raw) { return std::tanh(raw); }

Operand transposed(Operand m) {
  m.transposed = !m.transposed;
  return m;
}

Operand operand(const ConstMatrix& m) { return {m.data, m.dtype, core::with_used_stride(m).stride, false}; }

}  // namespace

struct Projection::Work {
  Work(const Context& given, const Logits& model, const Gradients& gradients)
      : context(options_of(given.options())),
        state(detail::state_of(context)),
        precision(given.options().gradient_precision),
        multiply(context) {
    const problem::HiddenTensors tensors = problem::check_tensors(core::hidden_of(model), core::head_of(model.head));
    core::set_gradients(gradients, tensors.operands.head.layout, out);
    static_cast<problem::Shape&>(problem) = tensors.shape;
    static_cast<problem::HiddenOperands&>(problem) = tensors.operands;
    problem::check_outputs(problem, out);
    gradient_dtype = problem.sum_type();
    const std::string rule = ": dense takes only rows without gaps between sequences";
    if (!problem.hidden_places.is_matrix()) fail("hidden" + rule);
    if (out.d_hidden_batch_stride) fail("d_hidden" + rule);
    if (problem.head.lora.has_states()) fail("lora_states is set: dense takes lora_a");
    if (out.weight_sink) fail("weight_sink is set: dense has no tiles of d_weight");
    for (const WriteMode mode : {out.d_hidden_mode, out.d_weight_mode, out.d_bias_mode, out.d_lora_mode}) {
      if (mode != WriteMode::kOverwrite) fail("a gradient is accumulated: dense overwrites");
    }
  }
  virtual ~Work() = default;
  virtual void backward() = 0;

  // Returns uninitialised memory, which lives as long as this.
  template <class T>
  T* take(int64_t elements) {
    constexpr size_t kAligned = 128;  // bytes that an Arena may skip at both ends
    const size_t size = static_cast<size_t>(elements) * sizeof(T);
    bytes += size;
    return memory.emplace_back(size + kAligned).take<T>(elements);
  }
  // Returns a view of [N, V] with the sequences of the hidden states.
  Tensor view(void* data) const {
    if (problem.sequences == 0 || problem.tokens == 0)
      return {data, problem.sum_type(), {problem.tokens, problem.entries}};
    return {data, problem.sum_type(), {problem.sequences, problem.tokens / problem.sequences, problem.entries}};
  }
  // Returns [entries, components] of a head: in place, or an unpacked or gathered copy.
  Operand weight_of(const HeadMatrices& head) {
    const source::Head weight(head);
    if (head.ids.empty() && !head.packed.given()) {
      Operand in_place = operand(head.weight);
      in_place.transposed = head.layout == HeadLayout::kHiddenVocab;
      return in_place;
    }
    const int64_t cols = weight.components();
    const auto element = static_cast<int64_t>(size_of(weight.dtype()));
    std::byte* const all = take<std::byte>(weight.entries() * cols * element);
    core::parallel_ranges(multiply.threads(), weight.entries(), [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) weight.copy_entry(*state.kernels, e, all + e * cols * element);
    });
    return {all, weight.dtype(), cols, false};
  }

  const Context context;
  const detail::ContextState& state;
  const GradientPrecision precision;
  Products multiply;
  problem::HiddenProblem problem;
  GradientMatrices out;
  std::deque<core::Arena> memory;
  size_t bytes = 0;
  void *logits = nullptr, *d_logits = nullptr;  // [N, V]
  DType gradient_dtype = DType::kFloat32;       // type in which products read dL/dlogits
};

template <class Sum>
struct Projection::WorkIn final : Projection::Work {
  static constexpr DType kSum = DTypeOf<Sum>::value;

  WorkIn(const Context& given, const Logits& model, const Gradients& gradients, std::optional<DType>* round_to)
      : Work(given, model, gradients) {
    d_logits = logits = logits_;
    multiply(Product{n_, v_, h_, states_, transposed(weight_), logits_, v_, false});
    if (r_ > 0) {
      multiply(Product{n_, r_, h_, states_, transposed(lora_a_), lora_states_, r_, false});
      scale(lora_states_);
      multiply(Product{n_, v_, r_, of_lora(lora_states_), transposed(lora_b_), logits_, v_, true});
    }
    if (problem.head.bias.data || cap_ > 0) finish_logits(round_to);
    if (cap_ > 0 && out.any()) d_logits = take<Sum>(n_ * v_);
  }

  void backward() override {
    if (!out.any()) return;
    if (reads_bfloat16()) gradient_dtype = DType::kBFloat16;
    const bool in_parts = is_narrow() || is_apart(out.d_weight) || is_apart(out.d_lora_b);
    const int64_t step = in_parts ? std::min(kEntries, v_) : v_;
    if (is_narrow()) narrow_ = take<bfloat16>(n_ * step);
    const Matrix d_hidden = sums_of(out.d_hidden), d_lora_a = sums_of(out.d_lora_a);
    const bool through_lora = r_ > 0 && (d_hidden.data || d_lora_a.data);
    const Matrix d_lora_states = through_lora ? Matrix(take<Sum>(n_ * r_), n_, r_) : Matrix();
    Sum* const d_weight = is_apart(out.d_weight) ? take<Sum>(step * h_) : nullptr;
    Sum* const d_lora_b = is_apart(out.d_lora_b) ? take<Sum>(step * r_) : nullptr;
    Sum* const d_bias = is_apart(out.d_bias) ? take<Sum>(v_) : static_cast<Sum*>(out.d_bias.data);
    for (int64_t first = 0; first < v_; first += step) {
      const int64_t count = std::min(step, v_ - first);
      const Operand part = gradients(first, count);
      if (d_bias) add_rows(part, count, d_bias + first);
      add_states(part, first, count, weight_, d_hidden);
      add_states(part, first, count, lora_b_, d_lora_states);
      make_weight(part, first, count, states_, problem.head.layout, out.d_weight, d_weight);
      make_weight(part, first, count, of_lora(lora_states_), HeadLayout::kVocabHidden, out.d_lora_b, d_lora_b);
    }
    if (through_lora) {
      const Operand behind = of_lora(scale(static_cast<Sum*>(d_lora_states.data)));
      if (d_hidden.data) multiply(Product{n_, h_, r_, behind, lora_a_, sums(d_hidden), d_hidden.stride, true});
      if (d_lora_a.data) {
        multiply(Product{r_, h_, n_, transposed(behind), states_, sums(d_lora_a), d_lora_a.stride, false});
      }
    }
    if (is_apart(out.d_hidden)) store(sums(d_hidden), out.d_hidden);
    if (is_apart(out.d_lora_a)) store(sums(d_lora_a), out.d_lora_a);
    if (is_apart(out.d_bias)) store(d_bias, Matrix(out.d_bias.data, out.d_bias.dtype, 1, v_));
  }

 private:
  using Product = gemm::Product<Sum>;

  bool reads_bfloat16() const {
    return states_.dtype == DType::kBFloat16 && weight_.dtype == DType::kBFloat16 &&
           precision == GradientPrecision::kNative && state.gemm->reads(states_.dtype, weight_.dtype);
  }
  bool is_narrow() const { return gradient_dtype != kSum; }

  // Returns true for an output in a 16-bit type, whose sums need memory of their own.
  template <class Output>
  static bool is_apart(const Output& to) {
    return to.data && core::is_narrow<Sum>(to.dtype);
  }
  Matrix sums_of(const Matrix& to) {
    return is_apart(to) ? Matrix(take<Sum>(to.rows * to.cols), to.rows, to.cols) : to;
  }
  static Sum* sums(const Matrix& m) { return static_cast<Sum*>(m.data); }
  void store(const Sum* from, const Matrix& to) const {
    for_rows(to.rows, [&](int64_t row) {
      void* const at = core::element(to.data, to.dtype, row * to.stride);
      state.kernels->round(from + row * to.cols, to.cols, false, at, to.dtype);
    });
  }

  Operand of_lora(const Sum* states) const { return {states, kSum, r_, false}; }
  Sum* scale(Sum* states) const {
    for (int64_t i = 0; i < n_ * r_; ++i) states[i] *= static_cast<Sum>(problem.head.lora.scale);
    return states;
  }

  template <class Use>
  void for_rows(int64_t rows, const Use& use) const {
    core::parallel_ranges(multiply.threads(), rows, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) use(row);
    });
  }

  // Adds the bias to the products. Under a softcap, also rounds the sums if requested, and caps them.
  void finish_logits(std::optional<DType>* round_to) const {
    const bool rounds = cap_ > 0 && round_to && *round_to;
    const DType rounded = rounds ? **round_to : kSum;
    if (rounds && kSum == DType::kFloat64)
      fail("round_logits_to is set: dense does not round float64 logits under a softcap");
    std::vector<Sum> bias(problem.head.bias.data ? static_cast<size_t>(v_) : 0);
    for (size_t v = 0; v < bias.size(); ++v) {
      bias[v] = static_cast<Sum>(core::read(problem.head.bias, static_cast<int64_t>(v)));
    }
    for_rows(n_, [&](int64_t row) {
      Sum* const all = logits_ + row * v_;
      for (size_t v = 0; v < bias.size(); ++v) all[v] += bias[v];
      for (int64_t first = 0; rounds && first < v_; first += kEntries) {
        const int64_t count = std::min(kEntries, v_ - first);
        std::array<uint16_t, kEntries> part;
        state.kernels->round(all + first, count, false, part.data(), rounded);
        state.kernels->widen(part.data(), rounded, count, reinterpret_cast<float*>(all + first));
      }
      for (int64_t v = 0; cap_ > 0 && v < v_; ++v) all[v] = cap_ * bounded(all[v] / cap_);
    });
    if (rounds) round_to->reset();
  }

  // Returns dL/d(products) of vocabulary entries [first, first + count), in the type that products read.
  Operand gradients(int64_t first, int64_t count) {
    Sum* const all = static_cast<Sum*>(d_logits) + first;
    if (cap_ > 0 || is_narrow()) {
      for_rows(n_, [&](int64_t row) {
        Sum* const of_row = all + row * v_;
        const Sum* const capped = logits_ + first + row * v_;
        for (int64_t v = 0; cap_ > 0 && v < count; ++v) {
          const Sum share = capped[v] / cap_;
          of_row[v] *= 1 - share * share;
        }
        if (is_narrow()) state.kernels->round(of_row, count, false, narrow_ + row * count, gradient_dtype);
      });
    }
    return is_narrow() ? Operand{narrow_, gradient_dtype, count, false} : Operand{all, kSum, v_, false};
  }

  void add_rows(const Operand& part, int64_t count, Sum* to) const {
    core::parallel_ranges(multiply.threads(), count, [&](int64_t begin, int64_t end) {
      if constexpr (std::is_same_v<Sum, float>) {
        if (is_narrow()) {
          const auto* const from = static_cast<const bfloat16*>(part.data) + begin;
          return state.kernels->bf16.add_column_sums(from, part.stride, n_, end - begin, false, to + begin);
        }
      }
      const Sum* const from = static_cast<const Sum*>(part.data) + begin;
      state.kernels->typed<Sum>().add_column_sums(from, part.stride, n_, end - begin, false, to + begin);
    });
  }

  // Adds the contribution of a part to the gradient of a product's states.
  void add_states(const Operand& part, int64_t first, int64_t count, Operand weight, const Matrix& to) {
    if (!to.data) return;
    weight.data = core::element(weight.data, weight.dtype, weight.transposed ? first : first * weight.stride);
    multiply(Product{n_, to.cols, count, part, weight, sums(to), to.stride, first > 0});
  }

  // Computes the gradient of a product's head for the vocabulary entries of a part. The sums are in `apart`,
  // or in the output if that is null.
  void make_weight(const Operand& part, int64_t first, int64_t count, const Operand& states, HeadLayout kind,
                   const Matrix& to, Sum* apart) {
    if (!to.data) return;
    const source::Layout layout(kind);
    Matrix here = layout.entries_of(to, first, count);
    if (apart) here = Matrix(apart, here.rows, here.cols);
    const Operand rows = layout.is_hidden_vocab() ? states : part, columns = layout.is_hidden_vocab() ? part : states;
    multiply(Product{here.rows, here.cols, n_, transposed(rows), columns, sums(here), here.stride, false});
    if (apart) store(apart, layout.entries_of(to, first, count));
  }

  const int64_t n_ = problem.tokens, v_ = problem.entries, h_ = problem.hidden_size, r_ = problem.head.lora.rank();
  const Sum cap_ = static_cast<Sum>(problem.head.softcap);
  const Operand states_ = operand(problem.hidden), weight_ = weight_of(problem.head);
  const Operand lora_a_ = operand(problem.head.lora.a);
  const Operand lora_b_ = r_ > 0 ? weight_of(source::lora_head(problem.head)) : Operand();
  Sum* const logits_ = take<Sum>(n_ * v_);       // the logits
  Sum* const lora_states_ = take<Sum>(n_ * r_);  // scale · x aᵀ
  bfloat16* narrow_ = nullptr;                   // [N, kEntries]
};

Projection::Projection(const Context& context, const Logits& model, const Gradients& gradients,
                       std::optional<DType>* round_to) {
  if (model.hidden.dtype == DType::kFloat64) {
    work_ = std::make_unique<WorkIn<double>>(context, model, gradients, round_to);
  } else {
    work_ = std::make_unique<WorkIn<float>>(context, model, gradients, round_to);
  }
}
Projection::~Projection() = default;

const Context& Projection::context() const { return work_->context; }

Logits Projection::logits() const {
  return Logits{.offsets = work_->problem.offsets, .finished = work_->view(work_->logits)};
}

Gradients Projection::d_logits() const {
  return work_->out.any() ? Gradients{.d_logits = work_->view(work_->d_logits)} : Gradients();
}

void Projection::backward() { work_->backward(); }

size_t Projection::bytes() const { return work_->bytes; }

void Projection::complete(Plan& plan) const {
  const problem::HiddenProblem& problem = work_->problem;
  plan.kind = work_->out.any() ? PlanKind::kOnePass : PlanKind::kForwardOnly;
  plan.hidden_size = problem.hidden_size;
  plan.gemm_library = work_->state.gemm->library_of(problem.hidden.dtype, source::Head(problem.head).dtype());
  plan.gradient_dtype = work_->gradient_dtype;
  plan.workspace_bytes += work_->bytes;
}

}  // namespace logitless::dense
