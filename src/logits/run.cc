// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logits/run.h"

#include <omp.h>

#include <algorithm>
#include <cstring>

#include "core/checks.h"
#include "core/in_order.h"
#include "core/parallel.h"
#include "core/workspace.h"
#include "engine/context_state.h"
#include "engine/forward.h"
#include "engine/logit_rows.h"
#include "engine/row_gradients.h"
#include "engine/run.h"

namespace logitless::logits {
namespace {

// Rows of a block: few, because the block is read again for its gradient and should still be in the core's cache then.
constexpr int64_t kRowTile = 4;

template <class T>
class Sweep {
 public:
  Sweep(const Context& context, const Problem& problem, TokenLoss* loss)
      : problem_(problem),
        loss_(loss),
        plan_(context.options().plan),
        threads_(context.threads()),
        row_tile_(context.options().row_tile > 0 ? context.options().row_tile : kRowTile),
        vocab_tile_(std::min(context.options().vocab_tile > 0 ? context.options().vocab_tile : engine::kRowColumns,
                             problem.vocab_size)),
        rows_(*context.state().kernels, problem, nullptr, T{0}, vocab_tile_),
        measure_(measured()),
        workspace_(checked(measure_, context.options().workspace_bytes)),
        scratch_(take(workspace_)),
        stats_(engine::empty_stats(problem)) {
    if (loss) grads_ = engine::empty_grads(problem, *loss);
  }

  TokenStats run() {
    if (two_sweeps()) {
      for_each_block([&](int64_t begin, int64_t end) { fold(begin, end); });
      loss_->evaluate(problem_.active, stats_, grads_);
      for_each_block([&](int64_t begin, int64_t end) { write_gradient(begin, end); });
    } else {
      run_block_by_block();
    }
    return std::move(stats_);
  }

 private:
  // Whether all logits are read before the first gradient is made.
  bool two_sweeps() const {
    const bool coupled = loss_ && !loss_->groups().empty();
    if (plan_ == PlanKind::kAuto) return coupled;
    if (plan_ != PlanKind::kOnePass) return loss_ != nullptr;
    if (coupled)
      core::fail("plan = one_pass cannot run: the loss couples rows, so all are read before a gradient is made");
    return false;
  }

  int64_t blocks() const { return (problem_.tokens + row_tile_ - 1) / row_tile_; }
  int64_t block_end(int64_t begin) const { return std::min(begin + row_tile_, problem_.tokens); }

  template <class Work>
  void for_each_block(const Work& work) {
    core::parallel_for(threads_, blocks(), [&](int64_t b) { work(b * row_tile_, block_end(b * row_tile_)); });
  }

  // The loss sees the blocks in row order, and each block's gradient is made by the thread that has just read it.
  void run_block_by_block() {
    core::InOrder order(blocks());
    const auto on_rows = [this](void (Sweep::*step)(int64_t, int64_t)) {
      return [this, step](int64_t b) { (this->*step)(b * row_tile_, block_end(b * row_tile_)); };
    };
    core::parallel_team(threads_, [&](core::FirstError& error) {
      order.run(error, on_rows(&Sweep::fold), on_rows(&Sweep::evaluate), on_rows(&Sweep::write_gradient));
    });
  }

  std::span<const int64_t> active(int64_t begin, int64_t end) const {
    const auto first = std::lower_bound(problem_.active.begin(), problem_.active.end(), begin);
    return {first, std::lower_bound(first, problem_.active.end(), end)};
  }

  const typename engine::LogitRows<T>::Scratch& scratch() const {
    return scratch_[static_cast<size_t>(omp_get_thread_num())];
  }

  void fold(int64_t begin, int64_t end) {
    for (const int64_t row : active(begin, end)) {
      rows_.statistics(row, problem_.row(row), problem_.dtype, scratch(), stats_);
    }
  }

  void evaluate(int64_t begin, int64_t end) {
    const std::span<const int64_t> rows = active(begin, end);
    if (loss_ && !rows.empty()) loss_->evaluate(rows, stats_, grads_);
  }

  void write_gradient(int64_t begin, int64_t end) {
    if (!problem_.dlogits.data) return;
    const DType out = problem_.dlogits.dtype;
    int64_t next = begin;
    const auto zeros_until = [&](int64_t row) {
      for (; next < row; ++next) {
        std::memset(problem_.gradient_row(next), 0, static_cast<size_t>(problem_.vocab_size) * size_of(out));
      }
    };
    for (const int64_t row : active(begin, end)) {
      if (!engine::has_gradient(grads_, row)) continue;
      zeros_until(row);
      rows_.gradient(engine::row_gradient<T>(problem_, stats_, grads_, row), problem_.row(row), problem_.dtype,
                     problem_.gradient_row(row), out, scratch());
      next = row + 1;
    }
    zeros_until(end);
  }

  std::vector<typename engine::LogitRows<T>::Scratch> take(core::Workspace& workspace) const {
    const bool narrow = problem_.dtype != DTypeOf<T>::value;
    std::vector<typename engine::LogitRows<T>::Scratch> scratch;
    scratch.reserve(static_cast<size_t>(threads_));
    for (int t = 0; t < threads_; ++t)
      scratch.push_back(engine::LogitRows<T>::take_scratch(workspace, vocab_tile_, narrow));
    return scratch;
  }
  size_t measured() const {
    core::Workspace workspace;
    take(workspace);
    return workspace.peak();
  }
  size_t checked(size_t bytes, size_t budget) const {
    if (bytes > budget) {
      core::fail("workspace_bytes = ", budget, " is too small: ", threads_, " threads with tiles of ", vocab_tile_,
                 " words need ", bytes, " bytes");
    }
    return bytes;
  }

  const Problem& problem_;
  TokenLoss* loss_;
  PlanKind plan_;
  int threads_;
  int64_t row_tile_;
  int64_t vocab_tile_;
  engine::LogitRows<T> rows_;
  size_t measure_;
  core::Workspace workspace_;
  std::vector<typename engine::LogitRows<T>::Scratch> scratch_;  // one a thread
  TokenStats stats_;
  TokenGrads grads_;
};

}  // namespace

TokenStats run(const Context& context, const Problem& problem, TokenLoss* loss) {
  return problem.in_double() ? Sweep<double>(context, problem, loss).run() : Sweep<float>(context, problem, loss).run();
}

}  // namespace logitless::logits
