// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Runs a drawn call of one task: as a whole or as forward() and backward(), in one process or on a grid of
// ranks.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "generator/batch_part.h"
#include "generator/outputs.h"
#include "generator/reference_call.h"
#include "generator/task_tensors.h"
#include "logitless/error.h"
#include "logitless/workspace.h"
#include "record/types.h"
#include "support/result_columns.h"
#include "support/thread_ranks.h"

namespace logitless::testing {

/// The results of one run, except its outputs.
struct Ran {
  std::vector<Column> columns;
  std::vector<std::byte> bits;  ///< of all results
  Plan plan, planned;
  std::string refusal;
};

/// A call with all its inputs.
template <Task T>
struct Given {
  const Context& context;
  const Logits& logits;
  const T& task;
  const UpstreamNumbers& upstream;
  const logitless::Gradients& gradients;
  bool halves;
};

/// Runs it through C++.
template <Task T>
Ran run_given(const Given<T>& call) {
  const auto& [context, logits, task, upstream, gradients, halves] = call;
  Ran ran;
  if (!halves) {
    if constexpr (kRuns<T>) {
      ran.planned = plan(context, logits, task, gradients);
      const auto result = run(context, logits, task, gradients);
      ran.plan = result.plan;
      ran.columns = columns_of(result);
      ran.bits = bytes_of(result);
    }
  } else {
    const Forward<T> left = forward(context, logits, task);
    ran.columns = columns_of(left.result);
    ran.bits = bytes_of(left.result);
    ran.plan = gradients.any() ? backward(context, logits, task, left, upstream.template of<T>(), gradients)
                               : left.result.plan;
  }
  return ran;
}

/// The API that calls go through: C++, or what a test sets.
template <Task T>
inline Ran (*run_here)(const Given<T>&) = &run_given<T>;
/// If true, ignored rows are set to NaN.
inline bool poisons_rows = true;

template <Task T>
class CallRun {
 public:
  explicit CallRun(const DrawnCall& call)
      : call_((GuardedTensor::place_of_next = call.place, call)),
        random_(call.seed),
        student_(call_, call.hidden, offsets_of(call), random_),
        tensors_(call_, student_, random_) {}

 protected:
  /// Sets the options, and draws the task's tensors and ∂L/∂result. Throws InvalidInput for an option that
  /// the task does not accept.
  void set_task();
  ContextOptions context_options() const;
  bool halves() const { return call_.halves || !kRuns<T>; }
  /// Runs with this number of threads. If the library refuses the call, the result holds the message.
  Ran run(Outputs& outputs, int64_t threads);

  /// Returns the sizes of the vocabulary's slices or ranks' parts.
  std::vector<int64_t> cut(int64_t parts) const;
  /// Returns the slices of a rank.
  std::vector<int64_t> slices_of_part(int64_t part) const;

  DrawnCall call_;
  Random random_;
  Side student_;
  TaskTensors tensors_;
  T task_ = {};
  UpstreamNumbers upstream_;
  size_t least_ = 0;             ///< the budget for Budget::kLeast, once known
  std::vector<int64_t> slices_;  ///< of one process, if they differ from the call's

 private:
  void draw_upstream();
  Ran run_on_ranks(std::vector<Outputs>& outputs, const ContextOptions& options);
  UpstreamNumbers part_of(const UpstreamNumbers& whole, const BatchPart& batch, const T& task) const;
  Ran joined(std::vector<Ran>& ran, std::vector<Outputs>& outputs, const std::vector<int64_t>& parts,
             const std::vector<int64_t>& offsets) const;
  void join(std::vector<Outputs>& outputs, size_t r, int64_t first, int64_t count, const std::vector<int64_t>& offsets,
            Outputs& whole) const;

  Workspace workspace_;
};

template <Task T>
void CallRun<T>::set_task() {
  static const T kDefaults = {};
  record::Keys keys(T::kName);
  keys.add_all(task_, kDefaults);
  for (const auto& [name, text] : call_.options) keys.set(name, std::string_view(text));
  tensors_.set(task_);
  if (poisons_rows) tensors_.poison_rows();
  draw_upstream();
}

template <Task T>
void CallRun<T>::draw_upstream() {
  if (call_.halves) upstream_.one = -1.75;
  if constexpr (requires { task_.reduction; }) {
    if (call_.halves && call_.upstream_of_each && task_.reduction == Reduction::kNone) {
      for (int64_t i = 0; i < call_.tokens(); ++i) upstream_.each.push_back(i % 4 == 1 ? 0 : normal_of(random_));
    }
  }
  if constexpr (std::is_same_v<T, IdLogps>) {
    for (int64_t e = 0; e < task_.sets.entries(); ++e) upstream_.each.push_back(normal_of(random_));
  } else if constexpr (std::is_same_v<T, TokenStatistics>) {
    const auto draw = [&](std::vector<double>& to) {
      for (int64_t i = 0; i < call_.tokens(); ++i) to.push_back(i % 4 == 1 ? 0 : normal_of(random_));
    };
    draw(upstream_.grads.logp);
    draw(upstream_.grads.lse);
    if (task_.request.entropy) draw(upstream_.grads.entropy);
    if (task_.request.cross) draw(upstream_.grads.cross);
    if (task_.request.outside) draw(upstream_.grads.outside);
    if (task_.request.square_sum) draw(upstream_.grads.square_sum);
  }
}

template <Task T>
ContextOptions CallRun<T>::context_options() const {
  ContextOptions options;
  options.plan = call_.plan;
  options.row_tile = call_.row_tile, options.vocab_tile = call_.vocab_tile, options.row_block = call_.row_block;
  options.gradient_precision = call_.precision;
  const auto choose = [](int64_t number, const std::vector<std::string>& of, std::string& choice) {
    if (number > 0) choice = of[static_cast<size_t>(number - 1) % of.size()];
  };
  static const std::vector<std::string> kBackends = gemm_backends(), kTargets = simd_targets();
  choose(call_.backend, kBackends, options.gemm_backend);
  choose(call_.kernels, kTargets, options.simd_target);
  if (call_.budget == Budget::kSmall) options.workspace_bytes = size_t{48} << 10;
  if (call_.budget == Budget::kLeast && least_ > 0) options.workspace_bytes = least_;
  if (!slices_.empty()) {
    options.ranks.slices = slices_;
  } else if (call_.slices > 1 && call_.vocab_ranks == 1) {
    options.ranks.slices = cut(call_.slices);
  }
  return options;
}

// Parts are uneven, and the second of three is empty. With ids no part is empty, because an empty list would
// mean all entries.
template <Task T>
std::vector<int64_t> CallRun<T>::cut(int64_t parts) const {
  const int64_t vocab = student_.vocab();
  if (parts == 1) return {vocab};
  if (call_.vocab_ids && parts == 3) return {1, 1, vocab - 2};
  if (call_.vocab_ids) return {1, vocab - 1};
  if (parts == 2) return {vocab / 3, vocab - vocab / 3};
  return {vocab / 2, 0, vocab - vocab / 2};
}

template <Task T>
std::vector<int64_t> CallRun<T>::slices_of_part(int64_t part) const {
  if (call_.slices == 1) return {part};
  if (call_.slices == 2) return {part / 2, part - part / 2};
  return {part / 2, 0, part - part / 2};
}

// Ranks form a grid: rank d * vocab_ranks + v has the d-th part of the batch and the v-th part of the
// vocabulary.
template <Task T>
Ran CallRun<T>::run_on_ranks(std::vector<Outputs>& outputs, const ContextOptions& options) {
  const auto across = static_cast<size_t>(call_.vocab_ranks), along = static_cast<size_t>(call_.data_ranks);
  const std::vector<int64_t> parts = cut(call_.vocab_ranks);
  std::deque<ThreadGroup> of_vocab, of_data;
  for (size_t d = 0; d < along; ++d) of_vocab.emplace_back(static_cast<int>(across));
  for (size_t v = 0; v < across; ++v) of_data.emplace_back(static_cast<int>(along));
  std::vector<Ran> ran(across * along);
  const std::vector<int64_t> offsets = offsets_of(call_);
  const auto errors = run_ranks(static_cast<int>(ran.size()), [&](int rank) {
    const size_t r = static_cast<size_t>(rank), d = r / across, v = r % across;
    const int64_t first = std::accumulate(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(v), int64_t{0});
    ContextOptions own = options;
    if (across > 1) own.ranks.vocab = &of_vocab[d].of(static_cast<int>(v));
    if (across > 1 && call_.slices > 1) own.ranks.slices = slices_of_part(parts[v]);
    if (along > 1) own.ranks.data = &of_data[v].of(static_cast<int>(d));
    own.ranks.sum_d_weight = along > 1 && !call_.finished;
    // The first of two data ranks has one sequence.
    BatchPart batch(call_, offsets, d == 0 ? 0 : 1, along == 1 ? call_.sequences : d == 0 ? 1 : call_.sequences - 1);
    T task = task_;
    if (tensors_.other()) tensors_.set_other(task, first, parts[v]);
    UpstreamNumbers upstream = upstream_;
    if (along > 1) {
      task = batch.cut_task(task);
      upstream = part_of(upstream_, batch, task);
    }
    const logitless::Gradients gradients = batch.cut(outputs[r].views(first, parts[v]));
    ran[r] =
        run_here<T>({Context(own), batch.cut(student_.logits(first, parts[v])), task, upstream, gradients, halves()});
  });
  // The rank that caused an error throws the reason, the others a RankError.
  std::exception_ptr left;
  for (const auto& error : errors) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const RankError&) {
      left = error;
    }
  }
  if (left) std::rethrow_exception(left);
  return joined(ran, outputs, parts, offsets);
}

// Returns the part that belongs to the tokens of `batch`.
template <Task T>
UpstreamNumbers CallRun<T>::part_of(const UpstreamNumbers& whole, const BatchPart& batch, const T& task) const {
  UpstreamNumbers part = whole;
  const auto cut_rows = [&](std::vector<double>& values) {
    const std::span<const double> rows = batch.cut(std::span<const double>(values));
    values = std::vector<double>(rows.begin(), rows.end());
  };
  if constexpr (std::is_same_v<T, IdLogps>) {
    const auto size = static_cast<int64_t>(part.each.size()) - task.sets.entries();
    const bool is_first = task.sets.ids.data == task_.sets.ids.data;
    const auto begin = whole.each.begin() + (is_first ? 0 : size);
    part.each.assign(begin, begin + task.sets.entries());
  } else {
    cut_rows(part.each);
  }
  for (auto* rows : {&part.grads.logp, &part.grads.lse, &part.grads.entropy, &part.grads.cross, &part.grads.outside,
                     &part.grads.square_sum}) {
    cut_rows(*rows);
  }
  return part;
}

// Joins the results of the ranks, and copies all outputs to the first rank.
template <Task T>
Ran CallRun<T>::joined(std::vector<Ran>& ran, std::vector<Outputs>& outputs, const std::vector<int64_t>& parts,
                       const std::vector<int64_t>& offsets) const {
  const auto across = static_cast<size_t>(call_.vocab_ranks);
  std::vector<Outputs> apart = outputs;
  Ran whole = ran[0];
  for (size_t r = 1; r < ran.size(); ++r) {
    const size_t d = r / across, v = r % across;
    const size_t same_tokens = d * across;
    if (ran[r].bits != ran[same_tokens].bits) throw std::logic_error("ranks of a vocabulary return other results");
    for (size_t c = 0; v == 0 && c < whole.columns.size(); ++c) {
      std::vector<double>& values = whole.columns[c].values;
      const std::vector<double>& more = ran[r].columns[c].values;
      if (!whole.columns[c].of_batch) {
        values.insert(values.end(), more.begin(), more.end());
      } else if (std::memcmp(values.data(), more.data(), values.size() * sizeof(double)) != 0) {
        throw std::logic_error("ranks of a batch have another " + whole.columns[c].name);
      }
    }
    whole.bits.insert(whole.bits.end(), ran[r].bits.begin(), ran[r].bits.end());
    const int64_t first = std::accumulate(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(v), int64_t{0});
    join(apart, r, first, parts[v], offsets, outputs[0]);
  }
  return whole;
}

template <Task T>
void CallRun<T>::join(std::vector<Outputs>& outputs, size_t r, int64_t first, int64_t count,
                      const std::vector<int64_t>& offsets, Outputs& whole) const {
  const auto across = static_cast<size_t>(call_.vocab_ranks);
  const size_t d = r / across, v = r % across;
  const auto mine = outputs[r].all(), theirs = whole.all();
  const std::vector<GuardedTensor*> of_tokens = {&outputs[r].d_hidden, &outputs[r].d_lora_states, &outputs[r].d_logits};
  const std::vector<GuardedTensor*> of_head = {&outputs[r].d_weight, &outputs[r].d_bias, &outputs[r].d_lora_b};
  const auto has = [](const std::vector<GuardedTensor*>& list, const GuardedTensor* one) {
    return std::ranges::find(list, one) != list.end();
  };
  for (size_t k = 0; k < mine.size(); ++k) {
    if (!mine[k]->given()) continue;
    const auto must_equal = [&](size_t other) {
      if (!std::ranges::equal(mine[k]->bytes(), outputs[other].all()[k]->bytes()))
        throw std::logic_error("ranks have other gradients");
    };
    if (has(of_tokens, mine[k])) {
      if (v > 0) must_equal(d * across);
      if (v == 0) theirs[k]->copy_rows(*mine[k], offsets[d], offsets.back() - offsets[d]);
    } else if (has(of_head, mine[k])) {
      if (d > 0 && !call_.accumulate) must_equal(v);
      if (d == 0) theirs[k]->copy_entries(*mine[k], first, count);
    } else if (!call_.accumulate) {
      must_equal(0);
    }
  }
}

template <Task T>
Ran CallRun<T>::run(Outputs& outputs, int64_t threads) {
  ContextOptions options = context_options();
  options.threads = static_cast<int>(threads);
  if (call_.reuse) options.workspace = &workspace_;
  try {
    if (call_.vocab_ranks * call_.data_ranks == 1) {
      Ran ran = run_here<T>(
          {Context(options), student_.logits(), task_, upstream_, outputs.views(0, student_.vocab()), halves()});
      if (call_.sink_overwrites) student_.weight.put_back();
      return ran;
    }
    std::vector<Outputs> each;
    for (int64_t r = 0; r < call_.vocab_ranks * call_.data_ranks; ++r) each.emplace_back(call_, student_);
    // The initial values of accumulated gradients are summed over the batch too.
    for (size_t r = static_cast<size_t>(call_.vocab_ranks); call_.accumulate && r < each.size(); ++r) {
      for (GuardedTensor* out : {&each[r].d_weight, &each[r].d_bias, &each[r].d_lora_a, &each[r].d_lora_b}) {
        for (int64_t i = 0; out->given() && i < out->count(); ++i) out->set(i, 0);
      }
    }
    Ran ran = run_on_ranks(each, options);
    if (call_.sink_overwrites) student_.weight.put_back();
    const auto from = each[0].all(), to = outputs.all();
    for (size_t k = 0; k < to.size(); ++k) *to[k] = *from[k];
    return ran;
  } catch (const InvalidInput& error) {
    Ran refused;
    refused.refusal = error.what();
    return refused;
  }
}

}  // namespace logitless::testing
