// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The reference of a drawn call: the same task on finished float64 logits, in the plain kernels, one row
// after another. Eigen computes the products, the head and its LoRA, the softcap and all their gradients. The
// float64 call is compared with the oracle itself (oracle_call.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "generator/result_numbers.h"
#include "generator/side.h"
#include "logitless/run.h"
#include "oracle/distillation_oracle.h"
#include "oracle/views.h"

namespace logitless::testing {

/// ∂L/∂result, in the form that the task takes.
struct UpstreamNumbers {
  double one = 1;
  std::vector<double> each;  ///< for IdLogps, or per token of a loss
  TokenGrads grads;          ///< for TokenStatistics

  /// Multiplies a loss's gradients by ∂L/∂loss.
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

/// How far a pattern moves logits, as a share of their error. Later patterns use smaller and smaller parts of
/// the error, because a function may have another value in between.
inline double amplitude_of(uint64_t pattern) {
  if (pattern > 40) return std::ldexp(1, -2 - static_cast<int>(pattern % 6));
  return pattern <= 4 ? 1 : 0.25 * static_cast<double>(1 + pattern % 4);
}

/// Whether run() computes the task's gradients.
template <Task T>
inline constexpr bool kRuns = kHasLoss<T> || std::is_same_v<T, CustomLoss>;

/// Results, and dL/dc of the capped logits.
struct ReferenceResult {
  std::vector<Column> columns;
  oracle::MatrixXd d_capped;  ///< [N, V]
  oracle::MatrixXd slope;     ///< [N, V]: dc/dr
};

struct OracleNumbers;

/// Runs the task on given raw logits.
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

  /// Returns the results for the raw logits. A pattern other than 0 also moves capped logits by their
  /// rounding.
  ReferenceResult run(const oracle::MatrixXd& raw, const oracle::MatrixXd& other_raw, uint64_t pattern) {
    ReferenceResult result;
    cap(raw, other_raw, pattern, result.slope);
    result.d_capped = oracle::MatrixXd::Zero(raw.rows(), raw.cols());
    logitless::Gradients gradients;
    gradients.d_logits = writable(result.d_capped);
    const Logits logits = given(capped_);
    if constexpr (kRuns<T>) {
      result.columns = columns_of(logitless::run(context(), logits, task_, gradients));
      upstream_.scale_rows(result.d_capped);
    } else {
      const Forward<T> forward = logitless::forward(context(), logits, task_);
      backward(context(), logits, task_, forward, upstream_.of<T>(), gradients);
      result.columns = columns_of(forward.result);
    }
    return result;
  }

  /// Call after run(). Returns how the float64 call differs from the oracle, or an empty string.
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
  void cap(const oracle::MatrixXd& raw, const oracle::MatrixXd& other_raw, uint64_t pattern, oracle::MatrixXd& slope);
  void add_terms_of_sets(std::vector<int64_t> labels, std::span<const int64_t> offsets);
  void add_terms_of_cross();
  void add_terms_of_divergence(const oracle::DistillationTruth& truth);
  /// Converts finished logits to hidden states and a head with one logits column per entry; -inf goes into
  /// the bias.
  HeadMatrices masked_head(oracle::MatrixXd& logits, oracle::VectorXd& masks);
  OracleNumbers oracle_numbers();
  template <class Loss>
  OracleNumbers oracle_of_tokens(Loss task);

  const DrawnCall& call_;
  T task_;
  const Side& student_;
  const Side* other_;
  const UpstreamNumbers& upstream_;
  oracle::MatrixXd capped_, other_capped_, dense_, identity_;
  oracle::VectorXd masks_;

 public:
  std::optional<DType> rounding, other_rounding;  ///< of the raw logits
  /// [N]: the sizes of the terms that a row's gradients sum, to which rounding is relative.
  oracle::VectorXd terms;
};

template <Task T>
void ReferenceCall<T>::cap(const oracle::MatrixXd& raw, const oracle::MatrixXd& other_raw, uint64_t pattern,
                           oracle::MatrixXd& slope) {
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
        if (slopes) slopes->data()[k] = std::pow(std::cosh(r / softcap), -2);  // 1 − tanh² would cancel
        r = softcap * std::tanh(r / softcap);
      }
      const double error = std::isfinite(r) ? amplitude_of(pattern) * unit * (1 + std::fabs(r)) : 0;
      to.data()[k] = random() % 2 == 0 ? r + error : r - error;
    }
  };
  cap_one(raw, call_.finished ? 0 : call_.softcap, rounding, capped_, &slope);
  if (!other_) return;
  cap_one(other_raw, call_.finished ? 0 : other_->call.softcap, other_rounding, other_capped_, nullptr);
  // A reference needs hidden states and a head.
  if constexpr (requires { task_.reference; }) {
    logitless::LmHead head = head_of(masked_head(other_capped_, masks_));
    task_.reference = Logits::of(writable(other_capped_), head);
    if (call_.packed) task_.reference.offsets = student_.offsets;
  }
  if constexpr (std::is_same_v<T, Distillation>) task_.teacher = Logits::given(writable(other_capped_));
}

template <Task T>
HeadMatrices ReferenceCall<T>::masked_head(oracle::MatrixXd& logits, oracle::VectorXd& masks) {
  const int64_t vocab = logits.cols();
  identity_ = oracle::MatrixXd::Identity(vocab, vocab);
  masks = oracle::VectorXd::Zero(vocab);
  for (int64_t k = 0; k < logits.size(); ++k) {
    if (!std::isinf(logits.data()[k])) continue;
    masks[k % vocab] = logits.data()[k];
    logits.data()[k] = 0;
  }
  HeadMatrices head(ConstMatrix(identity_.data(), vocab, vocab));
  head.bias = ConstVector(masks.data(), vocab);
  return head;
}

}  // namespace logitless::testing
