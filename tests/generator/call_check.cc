// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares a drawn call with its reference, and checks the library's other promises.
#include <bit>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "generator/call_run.h"
#include "generator/comparison.h"
#include "generator/oracle_call.h"

namespace logitless::testing {
namespace {

template <Task T>
class CallCheck : private CallRun<T> {
 public:
  using CallRun<T>::CallRun;
  Verdict check();
  std::vector<std::byte> bytes();

 private:
  using Base = CallRun<T>;
  using Base::call_, Base::student_, Base::tensors_, Base::task_, Base::upstream_, Base::least_, Base::slices_;

  std::string plan_fault(const Ran& ran) const;
  std::string least_budget_fault();
  std::string result_fault(const Ran& ran, Outputs& outputs);
  std::string halves_fault(const Ran& ran, const std::vector<std::byte>& gradients);
  std::string one_process_fault(const Ran& ran, const std::vector<std::byte>& gradients);
  std::string refusal_fault(const std::string& message, Outputs& outputs) const;
  void move_logits(const Side& side, uint64_t pattern, oracle::MatrixXd& raw) const;
};

template <Task T>
std::string CallCheck<T>::plan_fault(const Ran& ran) const {
  if (!kRuns<T> || call_.halves) return "";
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
  // Logits of sets of ids alone have a single plan. Without gradients, a divergence may run in one pass.
  const bool other = std::is_same_v<T, SetDistillation> || call_.kept ||
                     (std::is_same_v<T, Distillation> && ran.plan.kind == PlanKind::kOnePass);
  const bool chosen = other || call_.plan == PlanKind::kAuto || call_.plan == ran.plan.kind;
  if (!chosen && ran.plan.kind != PlanKind::kForwardOnly) fault = "ran another plan than that of the context";
  const size_t budget = this->context_options().workspace_bytes;
  const auto parts = static_cast<size_t>(call_.slices);
  if (fault.empty() && ran.plan.workspace_bytes > budget * parts && parts == 1) {
    fault = "workspace_bytes = " + std::to_string(ran.plan.workspace_bytes) + " is above the budget";
  }
  return fault;
}

template <Task T>
std::string CallCheck<T>::least_budget_fault() {
  if (call_.budget != Budget::kLeast || !kRuns<T> || call_.halves || call_.vocab_ranks * call_.data_ranks > 1)
    return "";
  Outputs outputs(call_, student_);
  ContextOptions options = this->context_options();
  options.threads = static_cast<int>(call_.threads);
  const auto plan_with = [&](size_t bytes) {
    options.workspace_bytes = bytes;
    return plan(Context(options), student_.logits(), task_, outputs.views(0, student_.vocab()));
  };
  try {
    least_ = plan_with(size_t{1} << 30).least_workspace_bytes;
  } catch (const InvalidInput&) {
    return "";  // the call itself is refused too
  }
  try {
    if (least_ > 1) plan_with(least_ - 1);
    return least_ > 1 ? "a budget of one byte less than " + std::to_string(least_) + " is accepted" : "";
  } catch (const InvalidInput&) {
    return "";
  }
}

template <Task T>
void CallCheck<T>::move_logits(const Side& side, uint64_t pattern, oracle::MatrixXd& raw) const {
  raw = side.raw;
  if (pattern == 0) return;
  Random random(pattern);
  const double unit = unit_of(call_.states);
  for (int64_t k = 0; k < raw.size(); ++k) {
    const double value = raw.data()[k];
    if (std::isinf(value)) continue;
    const double error = side.raw_error.data()[k] + 16 * unit * (1 + std::fabs(value));
    // Logits that are exact and equal stay equal.
    if (call_.values == Values::kWhole) random.seed(pattern + std::bit_cast<uint64_t>(value));
    raw.data()[k] += amplitude_of(pattern) * (random() % 2 == 0 ? error : -error);
  }
}

template <Task T>
std::string CallCheck<T>::result_fault(const Ran& ran, Outputs& outputs) {
  const Side* const other = tensors_.other();
  T known = task_;
  if (call_.temperatures) known.token.temperatures = tensors_.all_temperatures();
  ReferenceCall<T> reference(call_, known, student_, other, upstream_);
  reference.rounding = task_.token.round_logits_to;
  if constexpr (requires { task_.reference; }) reference.other_rounding = task_.token.round_logits_to;
  if constexpr (std::is_same_v<T, Distillation>) reference.other_rounding = task_.teacher_round_logits_to;
  References references;
  oracle::MatrixXd raw, other_raw;
  const auto add = [&](uint64_t pattern) {
    move_logits(student_, pattern, raw);
    if (other) move_logits(*other, pattern == 0 ? 0 : pattern + 1000, other_raw);
    references.results.push_back(reference.run(raw, other_raw, pattern));
  };
  add(0);
  std::string fault = reference.difference_from_oracle(references.results[0]);
  if (!fault.empty()) return "float64: " + fault;
  references.terms = reference.terms;
  for (int64_t i = 0; i < references.terms.size(); ++i) references.terms[i] *= std::fabs(upstream_.of_row(i));
  // Check a difference again with more patterns, because a function may jump nearby.
  uint64_t patterns = 0;
  for (const uint64_t more : {4, 40, 100}) {
    while (patterns < more) add(++patterns);
    fault = column_fault(call_, ran.columns, references);
    // A rank's or slice's plan only says whether its own part is exact.
    const bool cut = call_.slices * call_.vocab_ranks * call_.data_ranks > 1;
    if (fault.empty() && (call_.backward == BackwardMode::kExact || !cut)) {
      fault = gradient_fault(call_, student_, ran.plan, outputs, references);
    }
    if (fault.empty()) break;
  }
  return fault;
}

// forward() and backward() must have the bits of two pass in one call. A small budget or sampling may give
// them other tiles.
template <Task T>
std::string CallCheck<T>::halves_fault(const Ran& ran, const std::vector<std::byte>& gradients) {
  const bool same_tiles = call_.budget == Budget::kDefault && call_.backward == BackwardMode::kExact;
  if (!kHasLoss<T> || call_.halves || call_.in_place || call_.plan != PlanKind::kTwoPass || !same_tiles) return "";
  call_.halves = true;
  Outputs outputs(call_, student_);
  const Ran apart = this->run(outputs, call_.threads);
  call_.halves = false;
  if (!apart.refusal.empty()) return "forward() and backward(): " + apart.refusal;
  if (apart.bits != ran.bits) return "forward() has other results";
  return outputs.bytes() == gradients ? "" : "backward() has other gradients";
}

// Ranks of a vocabulary must have the bits of one process with the same slices.
template <Task T>
std::string CallCheck<T>::one_process_fault(const Ran& ran, const std::vector<std::byte>& gradients) {
  if (call_.vocab_ranks == 1 || call_.data_ranks > 1 || call_.budget != Budget::kDefault) return "";
  for (const int64_t part : this->cut(call_.vocab_ranks)) {
    for (const int64_t slice : this->slices_of_part(part)) slices_.push_back(slice);
  }
  call_.vocab_ranks = 1;
  Outputs outputs(call_, student_);
  const Ran one = this->run(outputs, call_.threads);
  if (!one.refusal.empty()) return "slices in one process: " + one.refusal;
  if (!std::equal(one.bits.begin(), one.bits.end(), ran.bits.begin())) return "ranks and slices have other results";
  return outputs.bytes() == gradients ? "" : "ranks and slices have other gradients";
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
  visit_fields(FieldsOf<Gradients>(), look, logitless::Gradients());
  visit_fields(FieldsOf<BackwardOptions>(), look, BackwardOptions());
  visit_fields(FieldsOf<ContextOptions>(), look, ContextOptions());
  if (message.find("weight_sink") != std::string::npos || message.find("vocab") != std::string::npos) named = true;
  return named ? "" : "refused without the name of an argument: " + message;
}

template <Task T>
Verdict CallCheck<T>::check() {
  Outputs outputs(call_, student_);
  try {
    this->set_task();
  } catch (const InvalidInput& error) {
    return {refusal_fault(error.what(), outputs), error.what()};
  }
  if (std::string fault = least_budget_fault(); !fault.empty()) return {fault, ""};
  const Ran ran = this->run(outputs, call_.threads);
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
    const Ran other_team = this->run(again, call_.threads == 1 ? 3 : 1);
    if (!other_team.refusal.empty()) return "another team: " + other_team.refusal;
    if (other_team.bits != ran.bits) return "another team has other results";
    if (again.bytes() != first) return "another team has other gradients";
    if (std::string fault = halves_fault(ran, first); !fault.empty()) return fault;
    return one_process_fault(ran, first);
  };
  return {faults(), ""};
}

template <Task T>
std::vector<std::byte> CallCheck<T>::bytes() {
  Outputs outputs(call_, student_);
  try {
    this->set_task();
  } catch (const InvalidInput&) {
    return {};
  }
  least_budget_fault();
  Ran ran = this->run(outputs, call_.threads);
  if (!ran.refusal.empty()) return {};
  const std::vector<std::byte> gradients = outputs.bytes();
  ran.bits.insert(ran.bits.end(), gradients.begin(), gradients.end());
  return ran.bits;
}

template <Task T>
Verdict check_task(const DrawnCall& call) {
  try {
    return CallCheck<T>(call).check();
  } catch (const std::exception& error) {
    return {std::string("threw ") + error.what(), ""};
  }
}

}  // namespace

Verdict check(const DrawnCall& call) {
  Verdict verdict{"no such task", ""};
  AllTasks::each([&]<class T>() {
    if (call.task == T::kName) verdict = check_task<T>(call);
  });
  return verdict;
}

std::vector<std::byte> bytes_of_call(const DrawnCall& call) {
  std::vector<std::byte> bytes;
  AllTasks::each([&]<class T>() {
    if (call.task == T::kName) bytes = CallCheck<T>(call).bytes();
  });
  return bytes;
}

}  // namespace logitless::testing
