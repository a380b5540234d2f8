// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/distillation.h"

#include "core/check_fields.h"
#include "loss/divergence_options.h"
#include "loss/math.h"

namespace logitless::loss {
namespace {

// Returns whether cross-entropy and divergence use the same softmax.
bool shares_softmax(const Distillation& options) {
  return options.hard_weight == 0 ||
         (options.token.temperatures.empty() && options.token.temperature == options.hard_temperature);
}

}  // namespace

void check_distillation_options(const Distillation& options, const ConstTensor& targets, int64_t tokens) {
  core::check_fields(options);
  check_divergence_options(options, targets, tokens);
  core::fail_if(options.hard_weight == 0 && options.hard_temperature != Distillation().hard_temperature,
                "hard_temperature = ", options.hard_temperature, " is set but hard_weight = 0");
}

problem::Task distillation_task(const Distillation& options) {
  problem::Task task;
  task.options = options.token;
  problem::DivergenceTask& divergence = task.divergence.emplace();
  divergence.kind = options.loss_type;
  divergence.parameter = divergence_parameter(options);
  divergence.student = {options.token.temperature, options.token.temperatures};
  divergence.teacher = divergence.student;
  if (options.teacher_temperature) divergence.teacher = {*options.teacher_temperature, {}};
  divergence.entropy = options.want_entropy;
  divergence.argmax = options.want_agreement;
  divergence.shares_softmax = shares_softmax(options);
  if (!divergence.shares_softmax) {
    task.options.temperature = options.hard_temperature;
    task.options.temperatures = {};
  }
  task.request.entropy = options.want_entropy && divergence.shares_softmax;
  task.request.argmax = options.want_agreement;
  return task;
}

DistillationLoss::DistillationLoss(const Distillation& options, std::span<const int64_t> offsets,
                                   const problem::TokenProblem& problem, ranks::Totals totals)
    : ReducedLoss(problem, mean_options(options), offsets, totals), options_(options) {}

void DistillationLoss::evaluate(std::span<const int64_t> rows, const TokenStats&, TokenGrads& grads) {
  for (const int64_t row : rows) {
    const auto i = static_cast<size_t>(row);
    if (token_weight(i) == 0) continue;
    const double scale = mean_.factor(i) * options_.loss_scale * upstream(i) * token_weight(i);
    grads.divergence[i] = divergence_weight(options_, row) * scale;
    grads.logp[i] = options_.hard_weight == 0 ? 0 : -options_.hard_weight * scale;
  }
}

DistillationResult DistillationLoss::result(const TokenStats& stats, const Plan& plan) const {
  DistillationResult out;
  out.plan = plan;
  out.per_token_loss.assign(static_cast<size_t>(problem_.tokens), 0);
  if (options_.want_agreement) out.per_token_agreement.assign(static_cast<size_t>(problem_.tokens), 0);
  DistillationMetrics& metrics = out.metrics;
  const bool hard = options_.hard_weight != 0;
  double tokens = 0, divergence = 0, acceptance = 0, nll = 0, agreement = 0, entropy = 0, teacher_entropy = 0;
  for (const int64_t row : problem_.active()) {
    const auto i = static_cast<size_t>(row);
    double loss = weighted(divergence_weight(options_, row), stats.divergence.value[i]);
    if (hard) loss -= options_.hard_weight * stats.logp[i];
    out.per_token_loss[i] = weighted(options_.loss_scale * token_weight(i), loss);
    out.loss += weighted(mean_.factor(i), out.per_token_loss[i]);
    ++tokens;
    divergence += stats.divergence.value[i];
    acceptance += stats.divergence.overlap[i];
    if (hard) nll -= stats.logp[i];
    if (options_.want_agreement) {
      out.per_token_agreement[i] = stats.argmax[i] >= 0 && stats.argmax[i] == stats.divergence.teacher_argmax[i];
      agreement += out.per_token_agreement[i];
    }
    if (!options_.want_entropy) continue;
    entropy += stats.divergence.entropy[i];
    teacher_entropy += stats.divergence.teacher_entropy[i];
  }
  totals_.sum({&tokens, &divergence, &acceptance, &nll, &agreement, &entropy, &teacher_entropy, &out.loss});
  const double share = reciprocal_or_zero(tokens);
  metrics.tokens = static_cast<int64_t>(tokens);
  metrics.mean_divergence = divergence * share;
  metrics.mean_acceptance = acceptance * share;
  if (hard) metrics.mean_nll = nll * share;
  if (options_.want_agreement) metrics.agreement = agreement * share;
  if (options_.want_entropy) {
    metrics.mean_entropy = entropy * share;
    metrics.mean_teacher_entropy = teacher_entropy * share;
  }
  out.per_token_divergence = stats.divergence.value;
  out.per_token_acceptance = stats.divergence.overlap;
  if (hard) out.per_token_logps = stats.logp;
  out.per_token_entropy = stats.divergence.entropy;
  out.per_token_teacher_entropy = stats.divergence.teacher_entropy;
  return out;
}

}  // namespace logitless::loss
