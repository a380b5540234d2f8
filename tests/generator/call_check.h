// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Runs a drawn call of one task, and holds it to its reference and to what the library promises.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "generator/batch_part.h"
#include "generator/outputs.h"
#include "generator/reference_call-inl.h"
#include "generator/task_tensors.h"
#include "logitless/error.h"
#include "logitless/workspace.h"
#include "record/types.h"
#include "support/result_columns.h"
#include "support/thread_ranks.h"

namespace logitless::testing {

/// What one run left, beside its outputs.
struct Ran {
  std::vector<Column> columns;
  std::vector<std::byte> bits;  ///< of everything that is returned
  Plan plan, planned;
  std::string refusal;
};

template <Task T>
class CallCheck {
 public:
  explicit CallCheck(const DrawnCall& call)
      : call_(call),
        random_(call.seed),
        student_(call_, call.hidden, offsets_of(call), random_),
        tensors_(call_, student_, random_) {}

  Verdict check();

 private:
  void set_options();
  void draw_upstream();
  ContextOptions context_options() const;
  Ran run(Outputs& outputs, int64_t threads);
  Ran run_ranks_of(std::vector<Outputs>& outputs, ContextOptions options);
  Ran run_one(const Context& context, const Logits& logits, const T& task, const UpstreamNumbers& upstream,
              const Gradients& gradients);
  UpstreamNumbers part_of(const UpstreamNumbers& whole, const BatchPart& batch, const T& task) const;
  Ran joined(std::vector<Ran>& ran, std::vector<Outputs>& outputs, const std::vector<int64_t>& parts,
             const std::vector<int64_t>& offsets) const;
  void join(std::vector<Outputs>& outputs, size_t r, int64_t first, int64_t count, const std::vector<int64_t>& offsets,
            Outputs& whole) const;
  /// The sizes of the slices, or of the ranks' parts, of the vocabulary.
  std::vector<int64_t> cut(int64_t parts) const;
  std::string plan_fault(const Ran& ran) const;
  std::string least_budget_fault();
  std::string result_fault(const Ran& ran, Outputs& outputs);
  std::string column_fault(const std::vector<Column>& got, const std::vector<ReferenceResult>& references) const;
  std::string gradient_fault(const Plan& plan, Outputs& outputs, const std::vector<ReferenceResult>& references,
                             const ReferenceCall<T>& reference);
  void perturb(const Side& side, uint64_t pattern, oracle::MatrixXd& raw) const;
  std::string refusal_fault(const std::string& message, Outputs& outputs) const;

  DrawnCall call_;
  Random random_;
  Side student_;
  TaskTensors tensors_;
  T task_ = {};
  UpstreamNumbers upstream_;
  oracle::MatrixXd slope_;  ///< dc/dr
  Workspace workspace_;
  size_t least_ = 0;
};

template <Task T>
void CallCheck<T>::set_options() {
  static const T kDefaults = {};
  record::Keys keys(T::kName);
  keys.add_all(task_, kDefaults);
  for (const auto& [name, text] : call_.options) keys.set(name, std::string_view(text));
  tensors_.set(task_);
  tensors_.poison_rows();
}

template <Task T>
void CallCheck<T>::draw_upstream() {
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
  }
}

template <Task T>
ContextOptions CallCheck<T>::context_options() const {
  ContextOptions options;
  options.plan = call_.plan;
  options.row_tile = call_.row_tile, options.vocab_tile = call_.vocab_tile, options.row_block = call_.row_block;
  options.gradient_precision = call_.precision;
  if (call_.plain_kernels) options.simd_target = "plain";
  if (call_.other_backend) options.gemm_backend = gemm_backends().back();
  if (call_.budget == Budget::kSmall) options.workspace_bytes = size_t{48} << 10;
  if (call_.budget == Budget::kLeast && least_ > 0) options.workspace_bytes = least_;
  if (call_.slices > 1) options.ranks.slices = cut(call_.slices);
  return options;
}

// Uneven, and the second of three is empty. An empty list of ids would be all of them.
template <Task T>
std::vector<int64_t> CallCheck<T>::cut(int64_t parts) const {
  const int64_t vocab = student_.vocab();
  if (parts == 1) return {vocab};
  if (call_.vocab_ids && parts == 3) return {1, 1, vocab - 2};
  if (call_.vocab_ids) return {1, vocab - 1};
  if (parts == 2) return {vocab / 3, vocab - vocab / 3};
  return {vocab / 2, 0, vocab - vocab / 2};
}

template <Task T>
Ran CallCheck<T>::run_one(const Context& context, const Logits& logits, const T& task, const UpstreamNumbers& upstream,
                          const Gradients& gradients) {
  Ran ran;
  const bool halves = call_.halves || !kHasLoss<T>;
  if (!halves) {
    ran.planned = plan(context, logits, task, gradients);
    const auto result = logitless::run(context, logits, task, gradients);
    ran.plan = result.plan;
    ran.columns = columns_of(result);
    ran.bits = bytes_of(result);
  } else {
    const Forward<T> left = forward(context, logits, task);
    ran.columns = columns_of(left.result);
    ran.bits = bytes_of(left.result);
    ran.plan = gradients.any() ? backward(context, logits, task, left, upstream.of<T>(), gradients) : left.result.plan;
  }
  return ran;
}

// Ranks form a grid: rank d * vocab_ranks + v has the d-th part of the batch, and the v-th of the vocabulary.
template <Task T>
Ran CallCheck<T>::run_ranks_of(std::vector<Outputs>& outputs, ContextOptions options) {
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
    if (along > 1) own.ranks.data = &of_data[v].of(static_cast<int>(d));
    own.ranks.sum_d_weight = along > 1 && !call_.finished;
    // The first of two has one sequence.
    BatchPart batch(call_, offsets, d == 0 ? 0 : 1, along == 1 ? call_.sequences : d == 0 ? 1 : call_.sequences - 1);
    T task = task_;
    if (tensors_.other()) tensors_.set_other(task, first, parts[v]);
    UpstreamNumbers upstream = upstream_;
    if (along > 1) {
      task = batch.cut_task(task);
      upstream = part_of(upstream_, batch, task);
    }
    const Gradients gradients = batch.cut(outputs[r].views(first, parts[v]));
    ran[r] = run_one(Context(own), batch.cut(student_.logits(first, parts[v])), task, upstream, gradients);
  });
  // A rank whose fault it is throws the reason, the others a RankError.
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

// Returns what belongs to the tokens of `batch`.
template <Task T>
UpstreamNumbers CallCheck<T>::part_of(const UpstreamNumbers& whole, const BatchPart& batch, const T& task) const {
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
  for (auto* rows : {&part.grads.logp, &part.grads.lse, &part.grads.entropy, &part.grads.cross, &part.grads.outside}) {
    cut_rows(*rows);
  }
  return part;
}

// Puts together what the ranks have left: outputs of all in those of the first.
template <Task T>
Ran CallCheck<T>::joined(std::vector<Ran>& ran, std::vector<Outputs>& outputs, const std::vector<int64_t>& parts,
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
void CallCheck<T>::join(std::vector<Outputs>& outputs, size_t r, int64_t first, int64_t count,
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
      if (mine[k]->bytes() != outputs[other].all()[k]->bytes()) throw std::logic_error("ranks have other gradients");
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
Ran CallCheck<T>::run(Outputs& outputs, int64_t threads) {
  ContextOptions options = context_options();
  options.threads = static_cast<int>(threads);
  if (call_.reuse) options.workspace = &workspace_;
  try {
    if (call_.vocab_ranks * call_.data_ranks == 1) {
      return run_one(Context(options), student_.logits(), task_, upstream_, outputs.views(0, student_.vocab()));
    }
    std::vector<Outputs> each;
    for (int64_t r = 0; r < call_.vocab_ranks * call_.data_ranks; ++r) each.emplace_back(call_, student_);
    // What a head's gradients are added to is summed over the batch, too.
    for (size_t r = static_cast<size_t>(call_.vocab_ranks); call_.accumulate && r < each.size(); ++r) {
      for (GuardedTensor* out : {&each[r].d_weight, &each[r].d_bias, &each[r].d_lora_a, &each[r].d_lora_b}) {
        for (int64_t i = 0; out->given() && i < out->count(); ++i) out->set(i, 0);
      }
    }
    Ran ran = run_ranks_of(each, options);
    const auto from = each[0].all(), to = outputs.all();
    for (size_t k = 0; k < to.size(); ++k) *to[k] = *from[k];
    return ran;
  } catch (const InvalidInput& error) {
    Ran refused;
    refused.refusal = error.what();
    return refused;
  }
}

template <Task T>
std::string CallCheck<T>::plan_fault(const Ran& ran) const {
  if (!kHasLoss<T> || call_.halves) return "";
  std::string fault;
  visit_fields(
      FieldsOf<Plan>(),
      [&](const Field& field, const auto& planned, const auto& made) {
        const std::string name = field.name;
        if (name == "least_workspace_bytes" || name == "kept_share" || name == "noise_estimate") return;
        if (name == "d_hidden_bound" || name == "d_weight_bound") return;
        if (planned != made) fault = "plan() said " + name + " = " + text_of(planned) + ", the call " + text_of(made);
      },
      ran.planned, ran.plan);
  const size_t budget = context_options().workspace_bytes;
  const auto parts = static_cast<size_t>(call_.slices);
  if (fault.empty() && ran.plan.workspace_bytes > budget * parts && parts == 1) {
    fault = "workspace_bytes = " + std::to_string(ran.plan.workspace_bytes) + " is above the budget";
  }
  return fault;
}

template <Task T>
std::string CallCheck<T>::least_budget_fault() {
  if (call_.budget != Budget::kLeast || !kHasLoss<T> || call_.halves || call_.vocab_ranks * call_.data_ranks > 1)
    return "";
  Outputs outputs(call_, student_);
  ContextOptions options = context_options();
  options.threads = static_cast<int>(call_.threads);
  const auto plan_with = [&](size_t bytes) {
    options.workspace_bytes = bytes;
    return plan(Context(options), student_.logits(), task_, outputs.views(0, student_.vocab()));
  };
  try {
    least_ = plan_with(size_t{1} << 30).least_workspace_bytes;
  } catch (const InvalidInput&) {
    return "";  // The call itself is refused, too.
  }
  try {
    if (least_ > 1) plan_with(least_ - 1);
    return least_ > 1 ? "a budget of one byte less than " + std::to_string(least_) + " is accepted" : "";
  } catch (const InvalidInput&) {
    return "";
  }
}

template <Task T>
void CallCheck<T>::perturb(const Side& side, uint64_t pattern, oracle::MatrixXd& raw) const {
  raw = side.raw;
  if (pattern == 0) return;
  Random random(pattern);
  const double unit = unit_of(call_.states);
  for (int64_t k = 0; k < raw.size(); ++k) {
    const double value = raw.data()[k];
    if (std::isinf(value)) continue;
    const double error = side.raw_error.data()[k] + 16 * unit * (1 + std::fabs(value));
    raw.data()[k] += random() % 2 == 0 ? error : -error;
  }
}

template <Task T>
std::string CallCheck<T>::column_fault(const std::vector<Column>& got,
                                       const std::vector<ReferenceResult>& references) const {
  const std::vector<Column>& want = references[0].columns;
  const double unit = unit_of(call_.states);
  for (size_t c = 0; c < want.size(); ++c) {
    const auto fault = [&](size_t i, double tolerance) {
      std::ostringstream text;
      text.precision(10);
      text << want[c].name << '[' << i << "] is " << got[c].values[i] << ", not " << want[c].values[i] << " +- "
           << tolerance;
      return text.str();
    };
    if (got[c].values.size() != want[c].values.size()) return want[c].name + " has another size";
    for (size_t i = 0; i < want[c].values.size(); ++i) {
      const double exact = want[c].values[i], value = got[c].values[i];
      double deviation = 0;
      bool settled = true;
      for (const ReferenceResult& other : references) {
        const double moved = other.columns[c].values[i];
        if (std::isnan(moved) != std::isnan(exact) || std::isinf(moved) != std::isinf(exact)) settled = false;
        if (std::isfinite(moved)) deviation = std::max(deviation, std::fabs(moved - exact));
      }
      if (!settled || (std::isnan(exact) && std::isnan(value)) || exact == value) continue;
      if (want[c].whole) {
        if (deviation == 0 && call_.values != Values::kTies) return fault(i, 0);
        continue;
      }
      const double sums = 32 + static_cast<double>(call_.vocab + call_.tokens()) / 4;
      const double tolerance = 6 * deviation + sums * unit * (1 + std::fabs(exact));
      if (!(std::fabs(value - exact) <= tolerance)) return fault(i, tolerance);
    }
  }
  return "";
}

/// Returns how an output differs from a gradient and its bound; empty: it does not.
std::string output_fault(const char* name, const DrawnCall& call, const GuardedTensor& got, const GuardedTensor& before,
                         const oracle::MatrixXd& want, const oracle::MatrixXd& bound, const oracle::MatrixXd& size);

template <Task T>
std::string CallCheck<T>::gradient_fault(const Plan& plan, Outputs& outputs,
                                         const std::vector<ReferenceResult>& references,
                                         const ReferenceCall<T>& reference) {
  using oracle::MatrixXd;
  const double unit = unit_of(call_.states);
  const MatrixXd& slope = slope_;
  const MatrixXd g = references[0].d_capped.cwiseProduct(slope);
  MatrixXd g_bound = 64 * unit * g.cwiseAbs();
  for (const ReferenceResult& other : references) {
    g_bound = g_bound.cwiseMax(6 * (other.d_capped - references[0].d_capped).cwiseAbs());
  }
  for (int64_t i = 0; i < reference.terms.size(); ++i) {
    g_bound.row(i).array() += 32 * unit * reference.terms[i] * std::fabs(upstream_.of_row(i));
  }
  // The slope of a softcap moves with its logit.
  if (call_.softcap > 0 && !call_.finished) {
    g_bound += references[0].d_capped.cwiseAbs().cwiseProduct(student_.raw_error) * (4 / call_.softcap);
  }
  const MatrixXd g_size = g.cwiseAbs() + g_bound;
  // What overflows the type of the sums may become anything.
  if (unit > 0x1p-50 && !(g_size.unaryExpr([](double v) { return std::isnan(v) ? 0 : v; }).maxCoeff() < 1e30))
    return "";
  const Outputs fresh(call_, student_);
  const auto compare = [&](const char* name, const GuardedTensor& got, const GuardedTensor& before,
                           const MatrixXd& want, const MatrixXd& bound, const MatrixXd& size) {
    return got.given() ? output_fault(name, call_, got, before, want, bound, size) : "";
  };
  if (call_.finished) {
    const GuardedTensor& got = call_.in_place ? student_.finished : outputs.d_logits;
    return compare("d_logits", got, fresh.d_logits, g, g_bound, g_size);
  }
  double rounding = 4 * unit;
  if (plan.gradient_dtype == DType::kBFloat16) rounding = plan.gradient_terms == 2 ? 0x1p-15 : 0x1p-8;
  const double relative = rounding + sum_error(static_cast<double>(g.rows() + g.cols() + call_.lora_rank + 4), unit);
  const MatrixXd x_size = student_.x.cwiseAbs();
  MatrixXd w = student_.w, w_size = student_.w.cwiseAbs();
  const bool adapted = call_.lora_rank > 0 && !call_.lora_states;
  constexpr double kScale = 0.5;
  if (adapted) {
    w += kScale * student_.b * student_.a;
    w_size += kScale * student_.b.cwiseAbs() * student_.a.cwiseAbs();
  }
  // What rounding leaves of a row is put back with a mean row.
  const auto put_back = [&](const MatrixXd& sums, const MatrixXd& rows) -> MatrixXd {
    return rounding * sums.rowwise().sum() * rows.colwise().maxCoeff();
  };
  const MatrixXd gt = g.transpose(), gt_size = g_size.transpose(), gt_bound = g_bound.transpose();
  std::string fault =
      compare("d_hidden", outputs.d_hidden, fresh.d_hidden, g * w,
              g_bound * w_size + relative * g_size * w_size + put_back(g_size, w_size), g_size * w_size);
  const auto head = [&](const char* name, const GuardedTensor& got, const GuardedTensor& before, const MatrixXd& want,
                        const MatrixXd& of, double factor) {
    if (!fault.empty()) return;
    fault = compare(name, got, before, want, factor * (gt_bound * of + relative * gt_size * of + put_back(gt_size, of)),
                    gt_size * of);
  };
  head("d_weight", outputs.d_weight, fresh.d_weight, gt * student_.x, x_size, 1);
  const MatrixXd ones = MatrixXd::Ones(g.rows(), 1);
  head("d_bias", outputs.d_bias, fresh.d_bias, (gt * ones).transpose(), ones, 1);
  if (call_.lora_rank == 0 || !fault.empty()) return fault;
  if (!adapted) {
    head("d_lora_b", outputs.d_lora_b, fresh.d_lora_b, gt * student_.rows, student_.rows.cwiseAbs(), 1);
    const MatrixXd b_size = student_.b.cwiseAbs();
    if (!fault.empty()) return fault;
    return compare("d_lora_states", outputs.d_lora_states, fresh.d_lora_states, g * student_.b,
                   g_bound * b_size + relative * g_size * b_size + put_back(g_size, b_size), g_size * b_size);
  }
  const MatrixXd xa = student_.x * student_.a.transpose(), xa_size = x_size * student_.a.cwiseAbs().transpose();
  head("d_lora_b", outputs.d_lora_b, fresh.d_lora_b, kScale * gt * xa, xa_size, 2);
  if (!fault.empty()) return fault;
  const MatrixXd bt = student_.b.transpose(), bt_size = bt.cwiseAbs();
  const MatrixXd of_rows = gt_bound * x_size + relative * gt_size * x_size + put_back(gt_size, x_size);
  return compare("d_lora_a", outputs.d_lora_a, fresh.d_lora_a, kScale * bt * (gt * student_.x), 2 * bt_size * of_rows,
                 bt_size * gt_size * x_size);
}

template <Task T>
std::string CallCheck<T>::result_fault(const Ran& ran, Outputs& outputs) {
  const Side* const other = tensors_.other();
  ReferenceCall<T> reference(call_, task_, student_, other, upstream_);
  reference.rounding = task_.token.round_logits_to;
  if constexpr (requires { task_.reference; }) reference.other_rounding = task_.token.round_logits_to;
  if constexpr (std::is_same_v<T, Distillation>) reference.other_rounding = task_.teacher_round_logits_to;
  std::vector<ReferenceResult> references;
  oracle::MatrixXd raw, other_raw;
  const auto add = [&](uint64_t pattern) {
    perturb(student_, pattern, raw);
    if (other) perturb(*other, pattern == 0 ? 0 : pattern + 1000, other_raw);
    references.push_back(reference.run(raw, other_raw, pattern));
    if (pattern == 0) slope_ = reference.slope;
  };
  add(0);
  std::string fault = reference.difference_from_oracle(references[0]);
  if (!fault.empty()) return "float64: " + fault;
  // A difference is looked at again with more perturbations: something may jump nearby.
  uint64_t patterns = 0;
  for (const uint64_t more : {4, 40}) {
    while (patterns < more) add(++patterns);
    fault = column_fault(ran.columns, references);
    if (fault.empty() && call_.backward == BackwardMode::kExact) {
      fault = gradient_fault(ran.plan, outputs, references, reference);
    }
    if (fault.empty()) break;
  }
  return fault;
}

template <Task T>
std::string CallCheck<T>::refusal_fault(const std::string& message, Outputs& outputs) const {
  if (!outputs.unchanged() || !student_.unchanged()) return "refused, but something was written: " + message;
  bool named = false;
  const auto look = [&](const Field& field, const auto&...) {
    named = named || message.find(field.name) != std::string::npos;
  };
  visit_flat(FieldsOf<T>(), look, task_);
  visit_fields(TensorsOf<T>(), look, task_);
  visit_fields(FieldsOf<Logits>(), look, Logits());
  visit_fields(FieldsOf<Gradients>(), look, Gradients());
  visit_fields(FieldsOf<BackwardOptions>(), look, BackwardOptions());
  visit_fields(FieldsOf<ContextOptions>(), look, ContextOptions());
  if (message.find("weight_sink") != std::string::npos || message.find("vocab") != std::string::npos) named = true;
  return named ? "" : "refused without the name of an argument: " + message;
}

template <Task T>
Verdict CallCheck<T>::check() {
  Outputs outputs(call_, student_);
  try {
    set_options();
  } catch (const InvalidInput& error) {
    return {refusal_fault(error.what(), outputs), error.what()};
  }
  draw_upstream();
  if (std::string fault = least_budget_fault(); !fault.empty()) return {fault, ""};
  const Ran ran = run(outputs, call_.threads);
  if (!ran.refusal.empty()) return {refusal_fault(ran.refusal, outputs), ran.refusal};
  const auto faults = [&]() -> std::string {
    if (!outputs.complaint.empty()) return outputs.complaint;
    if (!outputs.borders_intact()) return "an output was written outside of its view";
    if (!tensors_.unchanged() || (!call_.in_place && !student_.unchanged())) return "an input was written";
    if (std::string fault = plan_fault(ran); !fault.empty()) return fault;
    if (std::string fault = result_fault(ran, outputs); !fault.empty()) return fault;
    const std::vector<std::byte> first = outputs.bytes();
    student_.finished.put_back();
    Outputs again(call_, student_);
    const Ran other_team = run(again, call_.threads == 1 ? 3 : 1);
    if (!other_team.refusal.empty()) return "another team: " + other_team.refusal;
    if (other_team.bits != ran.bits) return "another team has other results";
    if (again.bytes() != first) return "another team has other gradients";
    return "";
  };
  return {faults(), ""};
}

}  // namespace logitless::testing
