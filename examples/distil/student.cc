// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "student.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>

#include "dense/dense.h"
#include "figures.h"
#include "memory.h"

namespace {

constexpr int kValidateEvery = 20;  // steps

logitless::ConstTensor view(const RowMatrix& matrix) {
  return logitless::view(matrix.data(), {matrix.rows(), matrix.cols()});
}

logitless::LmHead head_of(const Parameters& parameters) {
  logitless::LmHead head{.weight = view(parameters.head_weight)};
  head.bias = logitless::view(parameters.head_bias.data(), {parameters.head_bias.size()});
  return head;
}

logitless::Context context_for(const DistilOptions& options) {
  logitless::ContextOptions context;
  context.threads = options.threads;
  context.workspace_bytes = static_cast<size_t>(options.workspace_mib) << 20;
  return logitless::Context(context);
}

double median_after_first(const std::vector<StepReport>& steps, double StepReport::*seconds) {
  std::vector<double> values;
  for (size_t i = steps.size() > 1 ? 1 : 0; i < steps.size(); ++i) values.push_back(steps[i].*seconds);
  return median(values);
}

}  // namespace

const char* name_of(Objective objective) {
  switch (objective) {
    case Objective::kHard:
      return "hard";
    case Objective::kFused:
      return "fused";
    case Objective::kDense:
      return "dense";
  }
  return "";
}

int64_t trained_tokens(const TeacherFile& teacher) { return teacher.tokens() * 5 / 6; }

Student::Student(const TeacherFile& teacher, const DistilOptions& options, Objective objective)
    : teacher_(teacher),
      options_(options),
      objective_(objective),
      shape_{teacher.vocabulary(), options.context, options.embedding, options.hidden},
      generator_(options.seed),
      parameters_(initial_parameters(shape_, options.seed)),
      gradients_(zero_gradients(shape_, true)),
      adamw_(parameters_.tensors()),
      trunk_(shape_),
      context_(context_for(options)) {
  for (std::span<float> gradient : gradients_.tensors()) make_resident(gradient);
}

/// Position i corresponds to hidden row i: the words up to ids[i] predict ids[i + 1].
Batch Student::batch_at(const std::vector<int64_t>& positions) const {
  Batch batch;
  batch.context_length = shape_.context;
  for (const int64_t position : positions) {
    for (int64_t at = position - shape_.context + 1; at <= position; ++at) {
      batch.context.push_back(at < 0 ? 0 : teacher_.ids[static_cast<size_t>(at)]);
    }
    batch.targets.push_back(teacher_.ids[static_cast<size_t>(position + 1)]);
  }
  return batch;
}

/// The part to copy: the student's head, the loss and all gradients in one call.
double Student::run_head(const RowMatrix& hidden, const Batch& batch) {
  RowMatrix& d_weight = gradients_.head_weight;
  logitless::Gradients out;
  out.d_hidden = logitless::view(d_hidden_.data(), {d_hidden_.rows(), d_hidden_.cols()});
  out.d_weight = logitless::view(d_weight.data(), {d_weight.rows(), d_weight.cols()});
  out.d_bias = logitless::view(gradients_.head_bias.data(), {gradients_.head_bias.size()});
  const auto logits = logitless::Logits::of(view(hidden), head_of(parameters_));

  if (objective_ == Objective::kHard) {
    const logitless::CrossEntropyResult result =
        logitless::run(context_, logits, logitless::CrossEntropy{.targets = batch.targets}, out);
    plan_ = result.plan;
    return result.loss;
  }
  // The two heads differ in width but share a vocabulary. Without targets, all rows count.
  const auto teacher = logitless::Logits::of(view(teacher_hidden_), view(teacher_.lm_head));
  const logitless::Distillation task = {.teacher = teacher};
  const logitless::DistillationResult result = objective_ == Objective::kDense
                                                   ? logitless::dense::run(context_, logits, task, out)
                                                   : logitless::run(context_, logits, task, out);
  plan_ = result.plan;
  return result.loss;
}

StepReport Student::step() {
  const auto start = std::chrono::steady_clock::now();
  StepReport report;
  report.step = ++step_;
  // A plain remainder, because std::uniform_int_distribution differs between standard libraries.
  std::vector<int64_t> positions(static_cast<size_t>(options_.batch_tokens));
  const auto trained = static_cast<uint64_t>(trained_tokens(teacher_));
  for (int64_t& position : positions) position = static_cast<int64_t>(generator_() % trained);
  const Batch batch = batch_at(positions);
  if (objective_ != Objective::kHard) {
    teacher_hidden_.resize(batch.tokens(), teacher_.hidden.cols());
    for (int64_t i = 0; i < batch.tokens(); ++i) {
      teacher_hidden_.row(i) = teacher_.hidden.row(positions[static_cast<size_t>(i)]);
    }
  }
  const RowMatrix& hidden = trunk_.forward(parameters_, batch);
  d_hidden_.resize(hidden.rows(), hidden.cols());

  std::optional<PeakMeter> meter;
  if (step_ == 1) {
    // The output must not count as the head's memory.
    make_resident({d_hidden_.data(), static_cast<size_t>(d_hidden_.size())});
    meter.emplace();
  }
  const auto head_start = std::chrono::steady_clock::now();
  report.loss = run_head(hidden, batch);
  report.head_seconds = seconds_since(head_start);
  if (meter) head_extra_bytes_ = meter->extra_peak();

  trunk_.backward(parameters_, batch, d_hidden_, gradients_);
  const auto gradients = gradients_.tensors();
  adamw_.begin_step(options_.learning_rate);
  for (size_t tensor = 0; tensor < gradients.size(); ++tensor) adamw_.update_all(tensor, gradients[tensor]);
  report.seconds = seconds_since(start);
  return report;
}

double Student::validation_loss() const {
  std::vector<int64_t> positions(static_cast<size_t>(teacher_.tokens() - trained_tokens(teacher_)));
  std::iota(positions.begin(), positions.end(), trained_tokens(teacher_));
  const Batch batch = batch_at(positions);
  Trunk trunk(shape_);
  const RowMatrix& hidden = trunk.forward(parameters_, batch);
  // Fused for every objective, so that all figures are computed the same way.
  return logitless::run(context_for(options_), logitless::Logits::of(view(hidden), head_of(parameters_)),
                        logitless::CrossEntropy{.targets = batch.targets})
      .loss;
}

double teacher_loss(const TeacherFile& teacher, const DistilOptions& options) {
  const int64_t first = trained_tokens(teacher), count = teacher.tokens() - first;
  const auto hidden = logitless::view(teacher.hidden.row(first).data(), {count, teacher.hidden.cols()});
  return logitless::run(context_for(options), logitless::Logits::of(hidden, view(teacher.lm_head)),
                        logitless::CrossEntropy{.targets = logitless::view(teacher.ids.data() + first + 1, {count})})
      .loss;
}

std::vector<double> DistilRun::losses() const {
  std::vector<double> result;
  for (const StepReport& step : steps) result.push_back(step.loss);
  return result;
}

double DistilRun::median_seconds() const { return median_after_first(steps, &StepReport::seconds); }
double DistilRun::median_head_seconds() const { return median_after_first(steps, &StepReport::head_seconds); }

DistilRun distil(const TeacherFile& teacher, const DistilOptions& options, Objective objective,
                 const std::function<void(const DistilRun&)>& on_validation) {
  Student student(teacher, options, objective);
  DistilRun run;
  const auto validate = [&] {
    run.validation.push_back({static_cast<int>(run.steps.size()), student.validation_loss()});
    on_validation(run);
  };
  validate();
  for (int step = 1; step <= options.steps; ++step) {
    run.steps.push_back(student.step());
    if (step % kValidateEvery == 0 || step == options.steps) validate();
  }
  run.head_extra_bytes = student.head_extra_bytes();
  run.workspace_bytes = static_cast<int64_t>(student.plan().workspace_bytes);
  run.plan = student.plan().describe();
  return run;
}
