// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Adds a loss that the library does not have. It defines only the loss of one token and its derivative by
// that token's log-probability; the library handles plans, tiles, gradients and threads.
#include <cmath>
#include <cstdio>
#include <exception>
#include <random>
#include <vector>

#include "logitless/logitless.h"

// Focal loss (Lin et al. 2017, equation 4): the mean over N tokens of −(1 − p)^γ log p. Easy tokens get
// little weight.
class FocalLoss final : public logitless::TokenLoss {
 public:
  FocalLoss(double gamma, int64_t tokens) : gamma_(gamma), losses_(static_cast<size_t>(tokens)) {}
  logitless::StatsRequest needs() const override { return {}; }
  GradsFilled gradients() const override { return {}; }
  void evaluate(std::span<const int64_t> rows, const logitless::TokenStats& stats,
                logitless::TokenGrads& grads) override {
    for (const int64_t i : rows) {
      const double logp = stats.logp[i], p = std::exp(logp), miss = -std::expm1(logp), scale = 1.0 / losses_.size();
      const double weight = std::pow(miss, gamma_);
      losses_[i] = -weight * logp * scale;
      grads.logp[i] = (gamma_ * std::pow(miss, gamma_ - 1) * p * logp - weight) * scale;
    }
  }
  double loss() const {
    double sum = 0;
    for (const double loss : losses_) sum += loss;
    return sum;
  }

 private:
  double gamma_;
  std::vector<double> losses_;
};

int main() try {
  constexpr int64_t tokens = 64, hidden_size = 24, vocab = 500;
  std::mt19937 generator(1);
  std::normal_distribution<double> normal(0.0, 1.0);
  std::uniform_int_distribution<int64_t> token_id(0, vocab - 1);
  std::vector<double> hidden(tokens * hidden_size), weight(vocab * hidden_size), d_hidden(hidden.size());
  std::vector<int64_t> targets(tokens);
  for (double& value : hidden) value = normal(generator);
  for (double& value : weight) value = 0.5 * normal(generator);
  for (int64_t& target : targets) target = token_id(generator);

  const logitless::Context context;
  const logitless::LmHead head{.weight = logitless::view(weight.data(), {vocab, hidden_size})};
  const auto run = [&](const logitless::Gradients& gradients) {
    FocalLoss loss(2.0, tokens);
    const auto logits = logitless::Logits::of(logitless::view(hidden.data(), {tokens, hidden_size}), head);
    logitless::run(context, logits, logitless::CustomLoss{.targets = targets, .loss = &loss}, gradients);
    return loss.loss();
  };
  logitless::Gradients gradients;
  gradients.d_hidden = logitless::view(d_hidden.data(), {tokens, hidden_size});
  const double loss = run(gradients);

  // Move a little along the gradient, both ways: the loss must change by the gradient's squared length.
  double expected = 0;
  for (const double g : d_hidden) expected += g * g;
  const double step = 1e-3;
  const auto walk = [&](double by) {
    for (size_t i = 0; i < hidden.size(); ++i) hidden[i] += by * d_hidden[i];
    return run({});
  };
  const double ahead = walk(step), behind = walk(-2 * step);
  const double slope = (ahead - behind) / (2 * step);
  std::printf("focal loss %.6f, slope along its gradient %.9f, expected %.9f\n", loss, slope, expected);
  return std::abs(slope - expected) <= 1e-6 * expected ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "custom_loss: %s\n", error.what());
  return 1;
}
