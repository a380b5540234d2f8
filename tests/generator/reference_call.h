// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What a drawn call is held to: the same task on finished float64 logits, in the plain kernels, one row after
// the other. The products, the head and its LoRA, the softcap and all their gradients are Eigen's. The
// float64 call is held to the oracle itself.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "core/tensors.h"
#include "generator/result_numbers.h"
#include "generator/side.h"
#include "logitless/run.h"
#include "oracle/distillation_oracle.h"
#include "oracle/policy_oracle.h"
#include "oracle/preference_oracle.h"
#include "oracle/set_distillation_oracle.h"
#include "oracle/set_oracle.h"
#include "oracle/tiled_truth.h"
#include "oracle/views.h"

namespace logitless::testing {

/// ∂L/∂result, as the task takes it.
struct UpstreamNumbers {
  double one = 1;
  std::vector<double> each;  ///< of IdLogps, or of the tokens of a loss
  TokenGrads grads;          ///< of TokenStatistics

  /// Multiplies the gradients of a loss.
  void scale_rows(oracle::MatrixXd& d) const {
    for (int64_t i = 0; i < d.rows(); ++i) d.row(i) *= of_row(i);
  }
  double of_row(int64_t i) const { return each.empty() ? one : each[static_cast<size_t>(i)]; }

  template <Task T>
  Upstream of() const {
    if (std::is_same_v<T, IdLogps> || !each.empty()) return each;
    if constexpr (std::is_same_v<T, TokenStatistics>) return grads;
    return one;
  }
};

/// Results, and dL/dc of the capped logits.
struct ReferenceResult {
  std::vector<Column> columns;
  oracle::MatrixXd d_capped;  ///< [N, V]
};

/// The call that each pair of raw logits is given to.
template <Task T>
class ReferenceCall {
 public:
  ReferenceCall(const DrawnCall& call, const T& task, const Side& student, const Side* other,
                const UpstreamNumbers& upstream)
      : call_(call), task_(task), student_(student), other_(other), upstream_(upstream) {
    task_.token.round_logits_to = std::nullopt;
    if constexpr (std::is_same_v<T, Distillation>) task_.teacher_round_logits_to = std::nullopt;
    if constexpr (std::is_same_v<T, SoftCrossEntropy>) {
      if (!task.targets.weights.given() && task.targets.rows.dtype == DType::kFloat32) {
        dense_.resize(call.tokens(), call.vocab);
        for (int64_t i = 0; i < dense_.size(); ++i) {
          dense_.data()[i] = oracle::read_element(task.targets.rows.data, DType::kFloat32, i);
        }
        task_.targets.rows = view(dense_.data(), {dense_.rows(), dense_.cols()});
      }
    }
  }

  /// Returns what is made of the raw logits. A pattern other than 0 moves capped logits by their rounding.
  ReferenceResult run(const oracle::MatrixXd& raw, const oracle::MatrixXd& other_raw, uint64_t pattern) {
    cap(raw, other_raw, pattern);
    ReferenceResult result;
    result.d_capped = oracle::MatrixXd::Zero(raw.rows(), raw.cols());
    logitless::Gradients gradients;
    gradients.d_logits = writable(result.d_capped);
    const Logits logits = given(capped_);
    if constexpr (kHasLoss<T>) {
      result.columns = columns_of(logitless::run(context(), logits, task_, gradients));
      upstream_.scale_rows(result.d_capped);
    } else {
      const Forward<T> forward = logitless::forward(context(), logits, task_);
      backward(context(), logits, task_, forward, upstream_.of<T>(), gradients);
      result.columns = columns_of(forward.result);
    }
    return result;
  }

  /// Returns how the float64 call differs from the oracle; empty: it does not. After run().
  std::string difference_from_oracle(const ReferenceResult& got);

 private:
  static Context context() {
    ContextOptions options;
    options.threads = 1;
    options.simd_target = "plain";
    return Context(options);
  }
  Tensor writable(oracle::MatrixXd& matrix) const {
    if (call_.packed) return view(matrix.data(), {matrix.rows(), matrix.cols()});
    return view(matrix.data(), {call_.sequences, call_.time, matrix.cols()});
  }
  Logits given(oracle::MatrixXd& matrix) const {
    Logits logits = Logits::given(writable(matrix));
    if (call_.packed) logits.offsets = student_.offsets;
    return logits;
  }
  void cap(const oracle::MatrixXd& raw, const oracle::MatrixXd& other_raw, uint64_t pattern);
  void add_terms_of_sets(const std::vector<int64_t>& labels, std::span<const int64_t> offsets);
  /// Turns finished logits into hidden states and a head that has an entry of them in each column: what is
  /// -inf goes into the bias.
  HeadMatrices masked_head(oracle::MatrixXd& logits);
  /// Returns the task with the log-probabilities of a reference model in its place: the oracle takes these.
  T with_logps_of_reference();
  oracle::MatrixXd oracle_gradient(double& loss);

  const DrawnCall& call_;
  T task_;
  const Side& student_;
  const Side* other_;
  const UpstreamNumbers& upstream_;
  oracle::MatrixXd capped_, other_capped_, dense_, identity_;
  oracle::VectorXd masks_;
  std::vector<double> logps_of_reference_;

 public:
  std::optional<DType> rounding, other_rounding;  ///< of the raw logits
  oracle::MatrixXd slope;                         ///< dc/dr of the last run
  /// [N]: what the terms of a row's gradients add up to, of which rounding is a share.
  oracle::VectorXd terms;
};

template <Task T>
void ReferenceCall<T>::cap(const oracle::MatrixXd& raw, const oracle::MatrixXd& other_raw, uint64_t pattern) {
  Random random(pattern);
  const double unit = pattern == 0 ? 0 : 16 * unit_of(call_.states);
  const auto cap_one = [&](const oracle::MatrixXd& from, double softcap, std::optional<DType> type,
                           oracle::MatrixXd& to, oracle::MatrixXd* slopes) {
    to = from;
    if (slopes) *slopes = oracle::MatrixXd::Ones(from.rows(), from.cols());
    for (int64_t k = 0; k < from.size(); ++k) {
      double r = from.data()[k];
      if (type) r = oracle::round_to(r, *type);
      if (softcap > 0) {
        const double t = std::tanh(r / softcap);
        r = softcap * t;
        if (slopes) slopes->data()[k] = 1 - t * t;
      }
      const double error = std::isfinite(r) ? unit * (1 + std::fabs(r)) : 0;
      to.data()[k] = random() % 2 == 0 ? r + error : r - error;
    }
  };
  cap_one(raw, call_.finished ? 0 : call_.softcap, rounding, capped_, &slope);
  if (!other_) return;
  cap_one(other_raw, call_.finished ? 0 : other_->call.softcap, other_rounding, other_capped_, nullptr);
  // A reference has hidden states and a head.
  if constexpr (requires { task_.reference; }) {
    logitless::LmHead head = head_of(masked_head(other_capped_));
    task_.reference = Logits::of(writable(other_capped_), head);
    if (call_.packed) task_.reference.offsets = student_.offsets;
  }
  if constexpr (std::is_same_v<T, Distillation>) task_.teacher = Logits::given(writable(other_capped_));
}

template <Task T>
HeadMatrices ReferenceCall<T>::masked_head(oracle::MatrixXd& logits) {
  const int64_t vocab = logits.cols();
  identity_ = oracle::MatrixXd::Identity(vocab, vocab);
  masks_ = oracle::VectorXd::Zero(vocab);
  for (int64_t k = 0; k < logits.size(); ++k) {
    if (!std::isinf(logits.data()[k])) continue;
    masks_[k % vocab] = logits.data()[k];
    logits.data()[k] = 0;
  }
  HeadMatrices head(ConstMatrix(identity_.data(), vocab, vocab));
  head.bias = ConstVector(masks_.data(), vocab);
  return head;
}

// Bounds the slopes of a set's cells by their logarithms.
template <Task T>
void ReferenceCall<T>::add_terms_of_sets(const std::vector<int64_t>& labels, std::span<const int64_t> offsets) {
  if constexpr (std::is_same_v<T, SetDistillation>) {
    const std::vector<double> divisors =
        oracle::mean_divisors({task_.reduction, task_.mean_over, task_.num_items_in_batch}, labels, offsets);
    const oracle::RowIds sets = oracle::read_sets(task_.teacher.sets, capped_.rows());
    terms = oracle::VectorXd::Zero(capped_.rows());
    for (int64_t i = 0; i < capped_.rows(); ++i) {
      const auto row = static_cast<size_t>(i);
      const double own = task_.token.temperatures.empty() ? task_.token.temperature : task_.token.temperatures[row];
      const oracle::VectorXd log_s = oracle::log_softmax(capped_.row(i).transpose(), own);
      double most = 4;
      for (const int64_t id : sets[row]) most = std::max(most, 4 - log_s[id]);
      const double squared = task_.temperature_squared ? own * own : 1;
      const double weight = task_.divergence_weight * squared + task_.hard_weight;
      if (divisors[row] > 0) terms[i] = std::fabs(task_.loss_scale) * weight * most / own / divisors[row];
    }
  }
}

template <class M>
HiddenStates states_view(M& matrix, const DrawnCall& call, const std::vector<int64_t>& offsets) {
  const ConstMatrix states(matrix.data(), matrix.rows(), matrix.cols());
  return call.packed ? HiddenStates(states, offsets) : HiddenStates(states, call.sequences);
}

// Losses of the tokens' statistics.
template <Task T>
oracle::LossTruth loss_truth(const T& task, const std::vector<int64_t>& offsets, const oracle::Tokens& tokens,
                             const oracle::TokenStatistics& stats) {
  if constexpr (std::is_same_v<T, CrossEntropy>) return oracle::cross_entropy_truth(tokens, stats, task);
  if constexpr (std::is_same_v<T, PolicyLoss>) return oracle::policy_truth(offsets, stats, task);
  if constexpr (std::is_same_v<T, PreferenceLoss>) {
    return oracle::preference_truth(offsets, tokens, stats, task);
  }
  if constexpr (std::is_same_v<T, KtoLoss>) return oracle::kto_truth(offsets, tokens, stats, task);
}

template <Task T>
T ReferenceCall<T>::with_logps_of_reference() {
  T task = task_;
  if constexpr (requires { task.reference; }) {
    if (!other_) return task;
    oracle::MatrixXd logits = other_capped_;
    logits.rowwise() += masks_.transpose();
    const Targets targets = core::targets_of("targets", task.targets);
    const oracle::Tokens tokens = oracle::read_tokens(offsets_of(call_), logits.cols(), targets, task.token);
    const FinishedLogits model(logits.data(), 1, logits.rows(), logits.cols());
    const oracle::VectorXd logps = oracle::LogitsTruth(model, tokens, size_t{1} << 28).compute_statistics().logp;
    logps_of_reference_.assign(logps.begin(), logps.end());
    task.reference = {};
    task.ref_logps = logps_of_reference_;
    task.ref_logps_per = EntriesPer::kToken;
  }
  return task;
}

template <Task T>
oracle::MatrixXd ReferenceCall<T>::oracle_gradient(double& loss) {
  const std::vector<int64_t> offsets = offsets_of(call_);
  const int64_t vocab = capped_.cols();
  if constexpr (std::is_same_v<T, SoftCrossEntropy>) {
    const oracle::SetLogits logits{capped_, 0, task_.token};
    const oracle::SoftTruth soft = oracle::compute_soft_cross_entropy(logits, task_.targets, task_);
    loss = soft.loss;
    terms = soft.gamma.cwiseAbs().rowwise().sum();
    oracle::MatrixXd d(capped_.rows(), vocab);
    for (int64_t i = 0; i < d.rows(); ++i) {
      d.row(i) = oracle::d_raw_logits(logits, i, {}, soft.gamma.row(i).transpose()).transpose();
    }
    return d;
  } else if constexpr (std::is_same_v<T, SetDistillation>) {
    const Targets targets = core::targets_of("targets", task_.targets);
    const std::vector<int64_t> labels = targets.size > 0
                                            ? oracle::read_tokens(offsets, vocab, targets, task_.token).labels
                                            : std::vector<int64_t>(static_cast<size_t>(capped_.rows()), 0);
    const auto truth = oracle::set_distillation_truth({capped_, 0, task_.token}, task_.teacher, labels, offsets, task_);
    loss = truth.loss;
    add_terms_of_sets(labels, offsets);
    return truth.d_raw;
  } else if constexpr (std::is_same_v<T, Distillation>) {
    oracle::MatrixXd student = capped_, teacher = other_capped_;
    const HeadMatrices head = masked_head(student);
    masked_head(teacher);
    const auto truth =
        oracle::distillation_rows({states_view(student, call_, student_.offsets), head,
                                   TeacherMatrices(states_view(teacher, call_, student_.offsets), head, {}),
                                   core::targets_of("targets", task_.targets), task_});
    loss = truth.loss;
    terms = oracle::VectorXd::Zero(capped_.rows());
    const oracle::DivergenceFormula formula(task_);
    for (int64_t i = 0; i < capped_.rows(); ++i) {
      if (!truth.takes_part[static_cast<size_t>(i)]) continue;
      const double own =
          task_.token.temperatures.empty() ? task_.token.temperature : task_.token.temperatures[static_cast<size_t>(i)];
      const oracle::VectorXd log_s = oracle::log_softmax(truth.capped.row(i).transpose(), own);
      const oracle::VectorXd log_t =
          oracle::log_softmax(truth.teacher_capped.row(i).transpose(), task_.teacher_temperature.value_or(own));
      for (int64_t v = 0; v < vocab; ++v) {
        const double slope_of = formula.slope(log_s[v], log_t[v], truth.acceptance[static_cast<size_t>(i)]);
        if (std::isfinite(slope_of)) terms[i] += std::fabs(slope_of * truth.scale[static_cast<size_t>(i)] / own);
      }
      // The engine's slopes have constants that cancel.
      terms[i] += 2 * truth.scale[static_cast<size_t>(i)] / own;
    }
    return truth.d_raw;
  } else {
    const Targets targets = [&] {
      if constexpr (requires { task_.chosen_ids; }) return core::targets_of("chosen_ids", task_.chosen_ids);
      if constexpr (requires { task_.targets; }) return core::targets_of("targets", task_.targets);
    }();
    oracle::Tokens tokens = [&] {
      if constexpr (std::is_same_v<T, PolicyLoss>) return oracle::read_tokens(offsets, vocab, task_);
      if constexpr (std::is_same_v<T, CrossEntropy>) return oracle::read_tokens(offsets, vocab, targets, task_);
      if constexpr (!std::is_same_v<T, PolicyLoss> && !std::is_same_v<T, CrossEntropy>) {
        return oracle::read_tokens(offsets, vocab, targets, task_.token);
      }
    }();
    if constexpr (std::is_same_v<T, PreferenceLoss>) oracle::drop_half_pairs(offsets, tokens);
    const oracle::LogitsTruth truth(FinishedLogits(capped_.data(), 1, capped_.rows(), vocab), tokens, size_t{1} << 12);
    const oracle::TokenStatistics stats = truth.compute_statistics();
    const oracle::LossTruth made = loss_truth(with_logps_of_reference(), offsets, truth.tokens(), stats);
    loss = made.loss;
    oracle::MatrixXd d = oracle::MatrixXd::Zero(capped_.rows(), vocab);
    truth.compute_logit_gradients(stats, made.grads, [&](int64_t first, const oracle::MatrixXd& tile) {
      d.middleCols(first, tile.cols()) = tile;
    });
    return d;
  }
}

template <Task T>
std::string ReferenceCall<T>::difference_from_oracle(const ReferenceResult& got) {
  if constexpr (std::is_same_v<T, IdLogps> || std::is_same_v<T, TokenStatistics>) {
    return "";
  } else {
    if constexpr (requires { task_.kept; }) {
      if (task_.kept.ids.given()) return "";  // The oracle's log-probabilities are of the whole vocabulary.
    }
    if (capped_.size() == 0) return "";
    double loss = 0;
    oracle::MatrixXd d = oracle_gradient(loss);
    upstream_.scale_rows(d);
    const double scale = capped_.unaryExpr([](double v) { return std::isfinite(v) ? std::fabs(v) : 0; }).maxCoeff();
    const double relative = 1e-9 * (1 + scale);
    for (const Column& column : got.columns) {
      if (column.name != "loss") continue;
      const double value = column.values[0];
      if (std::isnan(loss) != std::isnan(value) || std::fabs(loss - value) > relative * (1 + std::fabs(loss))) {
        return "loss " + std::to_string(value) + ", the oracle says " + std::to_string(loss);
      }
    }
    const double most = d.cwiseAbs().maxCoeff();
    for (int64_t k = 0; k < d.size(); ++k) {
      const double want = d.data()[k], value = got.d_capped.data()[k];
      if (std::isnan(want) && std::isnan(value)) continue;
      if (!(std::fabs(want - value) <= relative * (1 + std::fabs(want) + most))) {
        return "the gradient of logit " + std::to_string(k) + " is " + std::to_string(value) + ", the oracle says " +
               std::to_string(want);
      }
    }
    return "";
  }
}

}  // namespace logitless::testing
