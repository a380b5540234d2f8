// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/measure/runner.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/common/output.h"
#include "dense/dense.h"
#include "timing/statistics.h"

namespace logitless::cli {
namespace {

ContextOptions options_of(const io::Config& config, const Contender& contender, RankGrid* grid) {
  ContextOptions options = context_options_of(config);
  if (contender.dense) options.plan = config.level == io::Level::kLogits ? PlanKind::kTwoPass : PlanKind::kAuto;
  if (grid) options.ranks = grid->ranks();
  return options;
}

// Returns how often a call computes its logits: once if it keeps them, else once per pass over the
// vocabulary. The divergence of two heads takes one more pass after the statistics. Expected rows compute
// d_hidden in the first pass and need another one for d_weight.
int walks_of(const Plan& plan, bool two_heads, bool d_weight) {
  if (plan.kind == PlanKind::kTwoPass) return two_heads ? 3 : 2;
  if (plan.kind == PlanKind::kExpectedRow) return d_weight ? 2 : 1;
  return plan.kind == PlanKind::kForwardOnly && two_heads ? 2 : 1;
}

// Counts the products of a call at level fused: the logits of each head, and one product per gradient. Dense
// computes all rows, the library only those that are not ignored.
double flops_of(const Plan& plan, const Job& job, bool dense, bool forward_only) {
  const int gradients = forward_only ? 0 : job.has("d_hidden") + job.has("d_weight");
  const int walks = dense ? 1 : walks_of(plan, job.teacher_size > 0, !forward_only && job.has("d_weight"));
  const int64_t rows = dense ? job.tokens : plan.active_rows;
  if (plan.kept_share < 1) {
    const double of_kept = plan.kept_share * (1 + plan.gradient_terms * gradients);
    return 2.0 * static_cast<double>(rows) * static_cast<double>(job.vocab_size) *
           static_cast<double>(job.hidden_size) * (1 + of_kept);
  }
  // Every product with the head has a counterpart for the LoRA; d_hidden and d_lora_a share theirs.
  const bool needs_d_states = job.has("d_hidden") || job.has("d_lora_a");
  const int of_lora = forward_only ? 0 : needs_d_states + job.has("d_lora_b");
  const auto columns =
      static_cast<double>((walks + plan.gradient_terms * gradients) * job.hidden_size +
                          (walks + plan.gradient_terms * of_lora) * job.lora_rank + walks * job.teacher_size);
  return 2.0 * static_cast<double>(rows) * static_cast<double>(job.vocab_size) * columns;
}

}  // namespace

io::Config contender_config(std::vector<std::string> settings, const Contender& contender) {
  settings.insert(settings.end(), contender.assignments.begin(), contender.assignments.end());
  return io::load_config(std::nullopt, settings);
}

Json failed_contender(const std::string& name, const std::string& message) {
  return {{"name", name}, {"status", "error"}, {"message", message}};
}

Runner::Runner(const std::vector<std::string>& settings, const Contender& contender, const Job& job, RankGrid* grid)
    : contender_(contender),
      job_(job),
      config_(contender_config(settings, contender)),
      grid_(grid),
      context_(options_of(config_, contender, grid)),
      call_(config_, job_) {}

void Runner::warm_up() const { cli::warm_up(context_, job_.dtype, is_dense()); }

std::string Runner::plan_name() const { return is_dense() ? "dense" : name_of(result_.plan.kind); }

std::string Runner::plan_text() const {
  const Plan& plan = result_.plan;
  if (!is_dense()) return plan.describe();
  return "dense: " + std::to_string(plan.tokens) + " x " + std::to_string(plan.vocab_size) + " logits in memory, " +
         human_bytes(static_cast<int64_t>(plan.workspace_bytes)) + " workspace, " + plan.gemm_library;
}

void Runner::run(bool timed) {
  call_.reset();
  if (grid_) grid_->take_exchanges();
  const Measured measured = measure([&] { result_ = call_.run(context_, contender_.forward_only, is_dense()); });
  if (!first_s_) first_s_ = measured.time_s;
  if (!timed) return;
  times_s_.push_back(measured.time_s);
  extra_peaks_.push_back(static_cast<double>(measured.extra_peak_bytes));
  peak_method_ = std::max(peak_method_, measured.peak_method);
  if (grid_) exchanges_.push_back(grid_->take_exchanges());
}

double Runner::median_s() const { return timing::median(times_s_); }
int64_t Runner::extra_peak_bytes() const { return std::llround(timing::median(extra_peaks_)); }

Json Runner::json(const std::optional<double>& gemm_rate) const {
  if (failed()) return failed_contender(name(), contender_.error);
  Json json = {{"name", name()},       {"status", "ok"},         {"loss", result_.loss},
               {"first_s", *first_s_}, {"median_s", median_s()}, {"spread_s", timing::spread(times_s_)},
               {"times_s", times_s_}};
  const double flops =
      gemm_rate && !config_.within_sets() ? flops_of(result_.plan, job_, is_dense(), contender_.forward_only) : 0;
  if (flops > 0) json["gemm_efficiency"] = flops / median_s() / *gemm_rate;
  json["extra_peak_bytes"] = extra_peak_bytes();
  json["extra_peak_spread_bytes"] = std::llround(timing::spread(extra_peaks_));
  if (peak_method_ != PeakMethod::kReset) json["extra_peak_method"] = describe(peak_method_);
  json["workspace_bytes"] = result_.plan.workspace_bytes;
  if (config_.backward.mode != BackwardMode::kExact) {
    json["kept_share"] = result_.plan.kept_share;
    json["noise_estimate"] = result_.plan.noise_estimate;
  }
  json["plan"] = config_.level == io::Level::kFused ? plan_name() : name_of(context_.options().plan);
  return json;
}

void warm_up(const Context& context, DType dtype, bool dense) {
  constexpr int64_t kTokens = 64, kHidden = 64, kVocab = 512;
  ContextOptions options = context.options();
  const ContextOptions defaults;
  options.workspace_bytes = defaults.workspace_bytes;  // these limits are for another shape
  options.plan = defaults.plan;
  options.row_tile = options.vocab_tile = 0;
  options.ranks = {};
  const size_t element = size_of(dtype);
  const std::vector<std::byte> hidden(kTokens * kHidden * element), weight(kHidden * kVocab * element);
  std::vector<std::byte> d_hidden(hidden.size()), d_weight(weight.size());
  const std::vector<int64_t> targets(kTokens);
  Gradients gradients;
  gradients.d_hidden = Tensor(d_hidden.data(), dtype, {kTokens, kHidden});
  gradients.d_weight = transposed(Tensor(d_weight.data(), dtype, {kHidden, kVocab}));
  const LmHead head{.weight = transposed(ConstTensor(weight.data(), dtype, {kHidden, kVocab}))};
  const Logits logits = Logits::of(ConstTensor(hidden.data(), dtype, {kTokens, kHidden}), head);
  const CrossEntropy task{.targets = targets};
  dense ? dense::run(Context(options), logits, task, gradients) : run(Context(options), logits, task, gradients);
}

}  // namespace logitless::cli
