// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The code of docs/cpp.md, as one program that checks itself. The page quotes the code between [name] and
// [/name].
#include <Eigen/Core>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include "logitless/logitless.h"

namespace {

constexpr double kTolerance = 1e-5;  // as in `logitless compare` for float32
constexpr int64_t kBatch = 4, kTime = 128, kHidden = 64, kVocab = 6000, kTokens = kBatch * kTime;

// [before]
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

double head_before(const Matrix& x, const Matrix& w, const std::vector<int64_t>& targets, Matrix& d_x, Matrix& d_w) {
  Matrix logits = x * w.transpose();  // [N, V], and their gradient in the same place
  const float share = 1.0f / static_cast<float>(x.rows());
  double loss = 0;
  for (Eigen::Index i = 0; i < x.rows(); ++i) {
    auto row = logits.row(i);
    row = (row.array() - row.maxCoeff()).exp();
    row /= row.sum();
    loss -= share * std::log(row[targets[i]]);
    row[targets[i]] -= 1;
    row *= share;
  }
  d_x = logits * w;
  d_w = logits.transpose() * x;
  return loss;
}
// [/before]

// [after]
double head_after(const logitless::Context& context, const Matrix& x, const Matrix& w,
                  const std::vector<int64_t>& targets, Matrix& d_x, Matrix& d_w) {
  const auto hidden = logitless::view(x.data(), {x.rows(), x.cols()});
  const auto weight = logitless::view(w.data(), {w.rows(), w.cols()});
  d_x.resizeLike(x);
  d_w.resizeLike(w);
  logitless::Gradients gradients;
  gradients.d_hidden = logitless::view(d_x.data(), {d_x.rows(), d_x.cols()});
  gradients.d_weight = logitless::view(d_w.data(), {d_w.rows(), d_w.cols()});
  const logitless::CrossEntropy task = {.targets = targets};
  return logitless::run(context, logitless::Logits::of(hidden, weight), task, gradients).loss;
}
// [/after]

void check(bool good, const char* what) {
  if (!good) throw std::runtime_error(what);
}

double relative_distance(const Matrix& a, const Matrix& b) { return (a - b).norm() / b.norm(); }

struct Model {
  Matrix x = Matrix(kTokens, kHidden), w = Matrix(kVocab, kHidden);
  std::vector<int64_t> targets;

  Model() {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    std::uniform_int_distribution<int64_t> token_id(0, kVocab - 1);
    for (float& value : x.reshaped()) value = normal(generator);
    for (float& value : w.reshaped()) value = 0.1f * normal(generator);
    for (int64_t i = 0; i < kTokens; ++i) targets.push_back(token_id(generator));
  }

  logitless::ConstTensor hidden() const { return logitless::view(x.data(), {kBatch, kTime, kHidden}); }
  logitless::ConstTensor weight() const { return logitless::view(w.data(), {kVocab, kHidden}); }
  logitless::Logits logits() const { return logitless::Logits::of(hidden(), weight()); }
};

/// The inputs of a policy or preference loss for a batch.
struct Rewards {
  std::vector<float> advantages = {1.0f, -0.5f, 0.25f, -0.25f};
  std::vector<uint8_t> answer = std::vector<uint8_t>(kTokens, 1);
};

std::vector<double> log_probabilities(const logitless::Context& context, const Model& model) {
  const logitless::Logits logits = model.logits();
  const std::vector<int64_t>& targets = model.targets;
  // [logps]
  const logitless::TokenStatistics task = {
      .targets = targets, .token = {.temperature = 0.7}, .request = {.entropy = true}};
  const logitless::TokenStats stats = logitless::run(context, logits, task).stats;
  // stats.logp[i], stats.entropy[i]: one entry per token
  // [/logps]
  check(stats.entropy.size() == stats.logp.size(), "one entropy per token");
  return stats.logp;
}

double policy_step(const logitless::Context& context, const Model& model, const Rewards& rewards,
                   const std::vector<double>& old_logps, const logitless::Gradients& gradients) {
  const logitless::Logits logits = model.logits();
  const std::vector<int64_t>& ids = model.targets;
  const std::vector<float>& advantages = rewards.advantages;
  const std::vector<uint8_t>& mask = rewards.answer;
  // [grpo]
  logitless::PolicyLoss task;
  task.chosen_ids = ids;         // [N]
  task.advantages = advantages;  // [B] or [N]
  task.old_logps = old_logps;    // [N]; omit if on-policy
  task.mask = mask;              // [N], 0 = prompt or padding
  task.loss_type = logitless::PolicyLossType::kGrpo;
  task.token.temperature = 0.7;  // the sampler's
  const logitless::PolicyResult result = logitless::run(context, logits, task, gradients);
  // result.loss, result.metrics.clip_fraction, result.per_token_logps
  // [/grpo]
  check(std::abs(result.metrics.mean_ratio - 1) < 1e-6, "the old policy is the new one");
  return result.loss;
}

double preference_step(const logitless::Context& context, const Model& model, const Model& reference_model,
                       const logitless::Gradients& gradients) {
  const logitless::ConstTensor hidden = model.hidden(), weight = model.weight();
  const logitless::ConstTensor ref_hidden = reference_model.hidden(), ref_weight = reference_model.weight();
  const std::vector<int64_t>& targets = model.targets;
  // [dpo]
  // [2B, T, H]: the chosen answers, then the rejected ones. Targets of prompts and padding are -100.
  const auto logits = logitless::Logits::of(hidden, weight);
  logitless::PreferenceLoss task;
  task.targets = targets;
  task.reference = logitless::Logits::of(ref_hidden, ref_weight);  // or task.ref_logps, computed earlier
  task.beta = 0.1;
  const logitless::PreferenceResult result = logitless::run(context, logits, task, gradients);
  // result.loss, result.metrics.margin, result.metrics.accuracy
  // [/dpo]
  return result.loss;
}

double loss_of_logits(const logitless::Context& context, std::vector<float>& logits,
                      const std::vector<int64_t>& targets) {
  // [logits]
  const auto view = logitless::view(logits.data(), {kBatch, kTime, kVocab});
  const logitless::CrossEntropy task = {.targets = targets};
  // The gradient is written in place, or into a separate buffer.
  const double loss = logitless::run(context, logitless::Logits::given(view), task, {.d_logits = view}).loss;
  // [/logits]
  return loss;
}

void autograd(const logitless::Context& context, const Model& model, const logitless::Gradients& gradients) {
  const logitless::Logits logits = model.logits();
  const logitless::CrossEntropy task = {.targets = model.targets};
  // [autograd]
  const auto saved = logitless::forward(context, logits, task);  // saved.result.loss
  // ... later, with dL/dloss, here 1:
  logitless::backward(context, logits, task, saved, 1.0, gradients);
  // [/autograd]
}

void fused_optimizer_step(const logitless::Context& context, Model& model, float learning_rate) {
  const logitless::Logits logits = model.logits();
  const logitless::CrossEntropy task = {.targets = model.targets};
  Matrix& w = model.w;
  // [sink]
  logitless::Gradients gradients;
  gradients.weight_sink = [&](int64_t first, int64_t count, const logitless::ConstTensor& tile) {
    // Rows [first, first + count) of d_weight; nothing reads these rows of the head afterwards.
    for (int64_t v = 0; v < count; ++v) {
      const float* gradient = static_cast<const float*>(tile.data) + v * tile.strides[0];
      for (int64_t h = 0; h < w.cols(); ++h) w(first + v, h) -= learning_rate * gradient[h];
    }
  };
  logitless::run(context, logits, task, gradients);
  // [/sink]
}

void print_plan(const logitless::Logits& logits, const logitless::CrossEntropy& task,
                const logitless::Gradients& gradients) {
  // [plan]
  for (const size_t mebibytes : {256, 3}) {
    const logitless::Context context({.workspace_bytes = mebibytes << 20});
    const logitless::Plan plan = logitless::plan(context, logits, task, gradients);
    std::printf("%s\n", plan.describe().c_str());
  }
  // [/plan]
}

void keep_memory(const logitless::Logits& logits, const logitless::CrossEntropy& task,
                 const logitless::Gradients& gradients) {
  // [workspace]
  logitless::Workspace workspace;  // outlives the calls
  const logitless::Context context({.workspace = &workspace});
  for (int step = 0; step < 3; ++step) logitless::run(context, logits, task, gradients);
  // [/workspace]
}

void check_cross_entropy(const logitless::Context& context, const Model& model, const logitless::Gradients& gradients,
                         Matrix& d_x, Matrix& d_w) {
  const Matrix &x = model.x, &w = model.w;
  const std::vector<int64_t>& targets = model.targets;
  Matrix want_d_x, want_d_w;
  // [check]
  const double want = head_before(x, w, targets, want_d_x, want_d_w);
  const double loss = head_after(context, x, w, targets, d_x, d_w);
  std::printf("loss: before %.7f, after %.7f\n", want, loss);
  std::printf("relative L2 distance: d_hidden %.1e, d_weight %.1e\n", (d_x - want_d_x).norm() / want_d_x.norm(),
              (d_w - want_d_w).norm() / want_d_w.norm());

  const auto seconds = [](const auto& call) {  // of a second call: the first one starts threads
    const auto start = std::chrono::steady_clock::now();
    call();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::printf("seconds: before %.3f, after %.3f\n", seconds([&] { head_before(x, w, targets, want_d_x, want_d_w); }),
              seconds([&] { head_after(context, x, w, targets, d_x, d_w); }));
  // [/check]
  check(std::abs(loss - want) < kTolerance, "the losses agree");
  check(relative_distance(d_x, want_d_x) < kTolerance && relative_distance(d_w, want_d_w) < kTolerance,
        "the gradients agree");

  d_x.setZero();
  d_w.setZero();
  autograd(context, model, gradients);
  check(relative_distance(d_x, want_d_x) < kTolerance && relative_distance(d_w, want_d_w) < kTolerance,
        "gradients that come later agree");

  Model trained = model;
  fused_optimizer_step(context, trained, 0.5f);
  check(relative_distance(trained.w, model.w - 0.5f * want_d_w) < 1e-6, "the sink saw the whole gradient");

  Matrix logits = model.x * model.w.transpose();
  std::vector<float> values(logits.data(), logits.data() + logits.size());
  check(std::abs(loss_of_logits(context, values, model.targets) - want) < kTolerance,
        "the loss of finished logits agrees");
}

}  // namespace

int main() try {
  // [context]
  const logitless::Context context({.workspace_bytes = size_t{256} << 20});  // make it once and keep it
  // [/context]
  const Model model;
  Matrix d_x(kTokens, kHidden), d_w(kVocab, kHidden);
  logitless::Gradients gradients;
  gradients.d_hidden = logitless::view(d_x.data(), {d_x.rows(), d_x.cols()});
  gradients.d_weight = logitless::view(d_w.data(), {d_w.rows(), d_w.cols()});
  check_cross_entropy(context, model, gradients, d_x, d_w);
  print_plan(model.logits(), {.targets = model.targets}, gradients);
  keep_memory(model.logits(), {.targets = model.targets}, gradients);

  const std::vector<double> logps = log_probabilities(context, model);
  std::printf("GRPO loss, on-policy: %.6f\n", policy_step(context, model, {}, logps, gradients));
  const double dpo = preference_step(context, model, model, gradients);
  std::printf("DPO loss against itself: %.6f\n", dpo);
  check(std::abs(dpo - std::log(2.0)) < 1e-6, "a policy has no margin over itself");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "getting_started: %s\n", error.what());
  return 1;
}
