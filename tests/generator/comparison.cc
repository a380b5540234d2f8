// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "generator/comparison.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <sstream>

namespace logitless::testing {
namespace {

using oracle::MatrixXd;

/// A matrix, an error bound, and the sizes of the summed terms.
struct Bounded {
  MatrixXd value, bound, size;
};

// The allowed error relative to the effect of moved logits. A float64 call has the same error as its
// reference.
double movement(const DrawnCall& call) { return call.states == DType::kFloat64 ? 16 : 6; }

double largest_of(DType type) {
  return type == DType::kFloat16   ? 65504
         : type == DType::kFloat64 ? std::numeric_limits<double>::max()
                                   : std::numeric_limits<float>::max();
}

/// The expected value of an output's element.
struct Element {
  double exact, tolerance;
};
Element element_of(const DrawnCall& call, const GuardedTensor& got, const GuardedTensor& before, const Bounded& want,
                   int64_t i) {
  const double before_call = before.given() ? before.get(i) : 0;
  const double held = std::isnan(before_call) ? 0 : before_call;
  const double exact = want.value.data()[i] + held;
  double tolerance = want.bound.data()[i] + half_ulp(std::fabs(exact) + want.bound.data()[i], got.dtype()) + 1e-30;
  // Each data rank rounds its part before the parts are summed.
  if (call.data_ranks > 1) {
    tolerance += static_cast<double>(call.data_ranks) * half_ulp(want.size.data()[i] + std::fabs(held), got.dtype());
  }
  if (call.accumulate) {
    const auto parts = static_cast<double>(2 + call.tokens() + call.vocab);
    tolerance += parts * unit_of(call.states) * (std::fabs(held) + want.size.data()[i]);
  }
  return {exact, tolerance};
}

// Returns how an output differs from a gradient, or an empty string.
std::string output_fault(const char* name, const DrawnCall& call, const GuardedTensor& got, const GuardedTensor& before,
                         const Bounded& want) {
  const int64_t cols = got.cols();
  for (int64_t i = 0; i < got.count(); ++i) {
    const auto [exact, tolerance] = element_of(call, got, before, want, i);
    const double value = got.get(i);
    if (value == exact || (std::isnan(exact) && std::isnan(value))) continue;
    if (std::fabs(value - exact) <= tolerance) continue;
    if (std::isinf(value) && std::fabs(exact) + tolerance > largest_of(got.dtype())) continue;
    std::ostringstream text;
    text.precision(10);
    text << name << '[' << i / cols << ", " << i % cols << "] is " << value << ", not " << exact << " +- " << tolerance;
    return text.str();
  }
  return "";
}

// Returns how far a certified gradient's error exceeds its bound, in the Frobenius norm, or an empty string.
std::string certified_fault(const char* name, const DrawnCall& call, const GuardedTensor& got,
                            const GuardedTensor& before, const Bounded& want, double bound) {
  double off = 0, room = 0;
  for (int64_t i = 0; i < got.count(); ++i) {
    const auto [exact, tolerance] = element_of(call, got, before, want, i);
    if (!std::isfinite(exact) || !std::isfinite(tolerance)) return "";
    off += std::pow(got.get(i) - exact, 2);
    room += std::pow(tolerance, 2);
  }
  if (std::sqrt(off) <= bound + std::sqrt(room)) return "";
  return name + (" is off by " + std::to_string(std::sqrt(off))) + ", certified is " + std::to_string(bound);
}

/// dL/dr and its error, and the gradients computed from it by matrix products.
class Gradients64 {
 public:
  Gradients64(const DrawnCall& call, const Side& student, const Plan& plan, const References& references)
      : call_(call), student_(student), unit_(unit_of(call.states)), d_raw_(d_raw_of(references)) {
    rounding_ = 4 * unit_;
    if (plan.gradient_dtype == DType::kBFloat16) rounding_ = plan.gradient_terms == 2 ? 0x1p-15 : 0x1p-8;
    const auto terms = static_cast<double>(d_raw_.value.rows() + d_raw_.value.cols() + call.lora_rank + 4);
    relative_ = rounding_ + sum_error(terms, unit_);
  }

  /// Returns whether numbers overflow the type of the sums; the outputs may then be anything.
  bool overflows() const {
    const auto number = [](double v) { return std::isnan(v) ? 0 : v; };
    return d_raw_.size.size() > 0 && unit_ > 0x1p-50 && !(d_raw_.size.unaryExpr(number).maxCoeff() < 1e30);
  }
  bool adapted() const { return call_.lora_rank > 0 && !call_.lora_states; }
  const Bounded& d_logits() const { return d_raw_; }
  Bounded d_hidden() const {
    MatrixXd w = student_.w, w_size = student_.w.cwiseAbs();
    if (adapted()) {
      w += kScale * student_.b * student_.a;
      w_size += kScale * student_.b.cwiseAbs() * student_.a.cwiseAbs();
    }
    return product(d_raw_, w, w_size);
  }
  Bounded d_weight() const { return product(turned(d_raw_), student_.x, student_.x.cwiseAbs()); }
  Bounded d_bias() const {
    const MatrixXd ones = MatrixXd::Ones(d_raw_.value.rows(), 1);
    return turned(product(turned(d_raw_), ones, ones));
  }
  Bounded d_lora_b() const {
    if (!adapted()) return product(turned(d_raw_), student_.rows, student_.rows.cwiseAbs());
    const MatrixXd a = student_.a.transpose();
    return scaled(product(turned(d_raw_), student_.x * a, student_.x.cwiseAbs() * a.cwiseAbs()));
  }
  Bounded d_lora_states() const { return product(d_raw_, student_.b, student_.b.cwiseAbs()); }
  Bounded d_lora_a() const {
    const Bounded of_rows = d_weight();
    const MatrixXd b = student_.b.transpose(), b_size = b.cwiseAbs();
    return scaled({b * of_rows.value, b_size * of_rows.bound, b_size * of_rows.size});
  }

 private:
  static constexpr double kScale = 0.5;  ///< of the LoRA

  Bounded d_raw_of(const References& references) const {
    const MatrixXd& d_capped = references.results[0].d_capped;
    Bounded out{d_capped.cwiseProduct(references.results[0].slope), {}, {}};
    out.bound = 64 * unit_ * out.value.cwiseAbs();
    for (const ReferenceResult& moved : references.results) {
      out.bound = out.bound.cwiseMax(movement(call_) * (moved.d_capped - d_capped).cwiseAbs());
      // A logit that rounds the other way also has another slope.
      const MatrixXd d_raw = moved.d_capped.cwiseProduct(moved.slope);
      out.bound = out.bound.cwiseMax(movement(call_) * (d_raw - out.value).cwiseAbs());
    }
    for (int64_t i = 0; i < references.terms.size(); ++i) {
      out.bound.row(i).array() += 32 * unit_ * references.terms[i];
    }
    // float32 holds smaller probabilities than 2⁻¹²⁶ as 0.
    if (unit_ > 0x1p-50) out.bound.colwise() += 0x1p-126 * d_capped.cwiseAbs().rowwise().sum();
    // The slope of a softcap depends on its logit.
    if (call_.softcap > 0 && !call_.finished) {
      out.bound += d_capped.cwiseAbs().cwiseProduct(student_.raw_error) * (4 / call_.softcap);
    }
    out.size = out.value.cwiseAbs() + out.bound;
    return out;
  }
  static Bounded turned(const Bounded& of) { return {of.value.transpose(), of.bound.transpose(), of.size.transpose()}; }
  // The products with a and b are rounded too.
  static Bounded scaled(const Bounded& of) { return {kScale * of.value, 2 * of.bound, of.size}; }
  Bounded product(const Bounded& d, const MatrixXd& by, const MatrixXd& by_size) const {
    // Rounding residuals of a row are corrected with a mean row.
    if (by.rows() == 0)
      return {MatrixXd::Zero(d.value.rows(), by.cols()), MatrixXd::Zero(d.value.rows(), by.cols()),
              MatrixXd::Zero(d.value.rows(), by.cols())};
    const MatrixXd put_back = rounding_ * d.size.rowwise().sum() * by_size.colwise().maxCoeff();
    const MatrixXd size = d.size * by_size;
    return {d.value * by, d.bound * by_size + relative_ * size + put_back, size};
  }

  const DrawnCall& call_;
  const Side& student_;
  double unit_, rounding_ = 0, relative_ = 0;
  Bounded d_raw_;
};

}  // namespace

std::string column_fault(const DrawnCall& call, const std::vector<Column>& got, const References& references) {
  const std::vector<Column>& want = references.results[0].columns;
  const double unit = unit_of(call.states);
  for (size_t c = 0; c < want.size(); ++c) {
    const auto fault = [&](size_t i, double tolerance) {
      std::ostringstream text;
      text.precision(10);
      text << want[c].name << '[' << i << "] is " << got[c].values[i] << ", not " << want[c].values[i] << " +- "
           << tolerance;
      return text.str();
    };
    if (got[c].values.size() != want[c].values.size()) return want[c].name + " has another size";
    // If both numbers are close to 0 or to 1, float32 cannot tell which is larger.
    const bool extreme = call.values == Values::kCertain || call.values == Values::kLarge;
    if (extreme && (want[c].name == "accuracy" || want[c].name.ends_with("agreement"))) continue;
    for (size_t i = 0; i < want[c].values.size(); ++i) {
      const double exact = want[c].values[i], value = got[c].values[i];
      double deviation = 0;
      bool settled = true;
      for (const ReferenceResult& other : references.results) {
        const double moved = other.columns[c].values[i];
        if (std::isnan(moved) != std::isnan(exact) || std::isinf(moved) != std::isinf(exact)) settled = false;
        if (std::isfinite(moved)) deviation = std::max(deviation, std::fabs(moved - exact));
      }
      if (!settled || (std::isnan(exact) && std::isnan(value)) || exact == value) continue;
      if (want[c].whole) {
        if (deviation == 0 && call.values != Values::kTies) return fault(i, 0);
        continue;
      }
      const double sums = 32 + static_cast<double>(call.vocab + call.tokens()) / 4;
      const double tolerance = movement(call) * deviation + sums * unit * (1 + std::fabs(exact));
      if (!(std::fabs(value - exact) <= tolerance)) return fault(i, tolerance);
    }
  }
  return "";
}

std::string gradient_fault(const DrawnCall& call, const Side& student, const Plan& plan, Outputs& outputs,
                           const References& references) {
  const Gradients64 gradients(call, student, plan, references);
  if (gradients.overflows()) return "";
  // With chosen segments, the plan says whether the gradients are exact.
  const bool exact = call.backward == BackwardMode::kExact || plan.kept_share == 1;
  if (!exact && call.backward == BackwardMode::kSampled) return "";
  Side untouched = student;
  const Outputs fresh(call, untouched);
  std::string fault;
  const auto compare = [&](const char* name, const GuardedTensor& got, const GuardedTensor& before,
                           const std::function<Bounded()>& want) {
    if (fault.empty() && got.given()) fault = output_fault(name, call, got, before, want());
  };
  if (!exact) {
    if (outputs.d_hidden.given()) {
      fault = certified_fault("d_hidden", call, outputs.d_hidden, fresh.d_hidden, gradients.d_hidden(),
                              plan.d_hidden_bound);
    }
    if (fault.empty() && outputs.d_weight.given()) {
      fault = certified_fault("d_weight", call, outputs.d_weight, fresh.d_weight, gradients.d_weight(),
                              plan.d_weight_bound);
    }
    return fault;
  }
  if (call.finished) {
    const GuardedTensor& got = call.in_place ? student.finished : outputs.d_logits;
    compare("d_logits", got, fresh.d_logits, [&] { return gradients.d_logits(); });
  }
  compare("d_hidden", outputs.d_hidden, fresh.d_hidden, [&] { return gradients.d_hidden(); });
  compare("d_weight", outputs.d_weight, fresh.d_weight, [&] { return gradients.d_weight(); });
  compare("d_bias", outputs.d_bias, fresh.d_bias, [&] { return gradients.d_bias(); });
  compare("d_lora_a", outputs.d_lora_a, fresh.d_lora_a, [&] { return gradients.d_lora_a(); });
  compare("d_lora_b", outputs.d_lora_b, fresh.d_lora_b, [&] { return gradients.d_lora_b(); });
  compare("d_lora_states", outputs.d_lora_states, fresh.d_lora_states, [&] { return gradients.d_lora_states(); });
  return fault;
}

}  // namespace logitless::testing
