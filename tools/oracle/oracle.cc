// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "oracle/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "oracle/draws.h"
#include "oracle/token_mean.h"

namespace logitless::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace

// A 16-bit number is a multiple of its type's last place at this magnitude.
double round_to(double value, DType dtype) {
  if (dtype == DType::kFloat64) return value;
  if (dtype == DType::kFloat32) return static_cast<float>(value);
  const bool half = dtype == DType::kFloat16;
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), half ? -14 : -126);
  const double place = std::ldexp(1.0, exponent - (half ? 10 : 7));
  double multiple = std::floor(std::abs(value) / place);
  const double beyond = std::abs(value) / place - multiple;
  if (beyond > 0.5 || (beyond == 0.5 && std::fmod(multiple, 2) == 1)) multiple += 1;
  const double rounded = multiple * place;
  const double limit = half ? 65536 : 0x1p128;
  return std::copysign(rounded >= limit ? kInfinity : rounded, value);
}

double read_element(const void* data, DType dtype, int64_t at) {
  if (dtype == DType::kFloat64) return static_cast<const double*>(data)[at];
  if (dtype == DType::kFloat32) return static_cast<const float*>(data)[at];
  if (dtype == DType::kFloat16) {
    const int half = static_cast<const float16*>(data)[at].bits;
    const int exponent = half >> 10 & 31, mantissa = half & 1023;
    double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) magnitude = mantissa == 0 ? kInfinity : kNaN;
    return half & 0x8000 ? -magnitude : magnitude;
  }
  const uint32_t bits = static_cast<uint32_t>(static_cast<const bfloat16*>(data)[at].bits) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

int64_t read_id(const ConstTensor& ids, int64_t i) {
  const int64_t at =
      ids.axes == 1 ? i * ids.strides[0] : i / ids.sizes[1] * ids.strides[0] + i % ids.sizes[1] * ids.strides[1];
  return ids.dtype == DType::kInt32 ? static_cast<const int32_t*>(ids.data)[at]
                                    : static_cast<const int64_t*>(ids.data)[at];
}

std::vector<double> read_vector(const ConstTensor& vector) {
  std::vector<double> values(vector.count());
  for (int64_t i = 0; i < vector.count(); ++i) values[i] = read_element(vector.data, vector.dtype, i);
  return values;
}

namespace {

int64_t stored_entry(const HeadMatrices& head, int64_t entry) {
  return head.ids.empty() ? entry : head.ids[static_cast<size_t>(entry)];
}

double read_int8(const PackedMatrix& packed, int64_t row, int64_t col) {
  const int64_t group = packed.group > 0 ? packed.group : packed.cols;
  const auto* values = static_cast<const int8_t*>(packed.data) + row * packed.row_bytes.value_or(packed.cols);
  return static_cast<float>(values[col]) * packed.scales[(row * packed.cols + col) / group];
}

MatrixXd read_lora_a(const HeadMatrices& head) {
  const ConstMatrix& a = head.lora.a;
  return MatrixXd::NullaryExpr(a.rows, a.cols,
                               [&](int64_t k, int64_t h) { return read_element(a.data, a.dtype, k * a.stride + h); });
}

MatrixXd read_lora_b(const HeadMatrices& head, int64_t first_entry, int64_t entries) {
  const ConstMatrix& b = head.lora.b;
  return MatrixXd::NullaryExpr(entries, b.cols, [&](int64_t v, int64_t k) {
    return read_element(b.data, b.dtype, stored_entry(head, first_entry + v) * b.stride + k);
  });
}

}  // namespace

MatrixXd read_weight(const HeadMatrices& head, int64_t first_entry, int64_t entries) {
  const ConstMatrix& weight = head.weight;
  const bool is_vocab_hidden = head.layout == HeadLayout::kVocabHidden;
  if (head.packed.given() && head.packed.packing != Packing::kInt8) {
    throw std::invalid_argument("the oracle reads only int8 packed heads");
  }
  MatrixXd copy(entries, head.hidden_size());
#pragma omp parallel for schedule(static)
  for (int64_t v = 0; v < entries; ++v) {
    for (int64_t h = 0; h < copy.cols(); ++h) {
      const int64_t entry = stored_entry(head, first_entry + v);
      if (head.packed.given()) {
        copy(v, h) = read_int8(head.packed, entry, h);
        continue;
      }
      const int64_t row = is_vocab_hidden ? entry : h, col = is_vocab_hidden ? h : entry;
      copy(v, h) = read_element(weight.data, weight.dtype, row * weight.stride + col);
    }
  }
  if (head.lora.given()) {
    copy.noalias() += head.lora.scale * read_lora_b(head, first_entry, entries) * read_lora_a(head);
  }
  return copy;
}

MatrixXd lora_gradients(const HeadMatrices& head, int64_t first_entry, const MatrixXd& d_weight, MatrixXd& d_a) {
  d_a.noalias() += head.lora.scale * read_lora_b(head, first_entry, d_weight.rows()).transpose() * d_weight;
  return head.lora.scale * d_weight * read_lora_a(head).transpose();
}

VectorXd read_bias(const HeadMatrices& head) {
  VectorXd bias = VectorXd::Zero(head.vocab_size());
  const std::vector<double> values = read_vector(head.bias);
  for (int64_t v = 0; v < bias.size() && !values.empty(); ++v) {
    bias[v] = values[static_cast<size_t>(stored_entry(head, v))];
  }
  return bias;
}

std::vector<int64_t> sequence_offsets(const HiddenStates& hidden) {
  if (!hidden.offsets.empty()) return {hidden.offsets.begin(), hidden.offsets.end()};
  std::vector<int64_t> offsets = {0};
  for (int64_t s = 0; s < hidden.sequences; ++s) offsets.push_back(offsets.back() + hidden.tokens() / hidden.sequences);
  return offsets;
}

Tokens read_tokens(std::span<const int64_t> offsets, int64_t vocab, const Targets& targets,
                   const TokenOptions& options) {
  Tokens result;
  result.offsets.assign(offsets.begin(), offsets.end());
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    for (int64_t i = offsets[s]; i < offsets[s + 1]; ++i) {
      const int64_t at = i + options.shift;
      const bool is_active = at < offsets[s + 1] && targets[at] != options.ignore_index;
      result.labels.push_back(is_active ? targets[at] : kNoLabel);
    }
  }
  result.temperature = VectorXd::Constant(result.tokens(), options.temperature);
  for (size_t i = 0; i < options.temperatures.size(); ++i) result.temperature[i] = options.temperatures[i];
  result.temperature_meaning = options.temperature_meaning;
  result.round_logits_to = options.round_logits_to;
  result.cross = VectorXd::Constant(vocab, 1.0 / static_cast<double>(vocab));
  return result;
}

Tokens read_tokens(std::span<const int64_t> offsets, int64_t vocab, const Targets& targets,
                   const CrossEntropy& options) {
  Tokens result = read_tokens(offsets, vocab, targets, options.token);
  for (size_t v = 0; v < options.class_weights.size(); ++v) {
    result.cross[v] = options.class_weights[v] / static_cast<double>(vocab);
  }
  return result;
}

MatrixXd read_hidden(const HiddenStates& hidden, const Tokens& tokens) {
  MatrixXd copy = MatrixXd::Zero(hidden.tokens(), hidden.hidden_size());
  for (int64_t i = 0; i < hidden.tokens(); ++i) {
    if (!tokens.is_active(i)) continue;
    const ConstMatrix& matrix = hidden.states;
    int64_t begin = i * matrix.stride;
    if (hidden.batch_stride) {
      const int64_t length = matrix.rows / hidden.sequences;
      begin = *hidden.batch_stride * (i / length) + matrix.stride * (i % length);
    }
    for (int64_t h = 0; h < copy.cols(); ++h) copy(i, h) = read_element(matrix.data, matrix.dtype, begin + h);
  }
  return copy;
}

namespace {

// Entries of the head in float64 at a time: 128 MiB at H = 4096.
constexpr int64_t kEntriesAtOnce = 4096;

template <class Visit>
void for_each_tile(int64_t entries, const Visit& visit) {
  for (int64_t first = 0; first < entries; first += kEntriesAtOnce) {
    visit(first, std::min(kEntriesAtOnce, entries - first));
  }
}

}  // namespace

MatrixXd read_products(const MatrixXd& hidden, const HeadMatrices& head) {
  MatrixXd products(hidden.rows(), head.vocab_size());
  for_each_tile(head.vocab_size(), [&](int64_t first, int64_t entries) {
    products.middleCols(first, entries).noalias() = hidden * read_weight(head, first, entries).transpose();
  });
  products.rowwise() += read_bias(head).transpose();
  return products;
}

MatrixXd parameter_gradients(const MatrixXd& hidden, const HeadMatrices& head, const MatrixXd& d_raw,
                             const ReceiveWeights& receive) {
  MatrixXd d_hidden = MatrixXd::Zero(hidden.rows(), hidden.cols());
  for_each_tile(head.vocab_size(), [&](int64_t first, int64_t entries) {
    const auto tile = d_raw.middleCols(first, entries);
    d_hidden.noalias() += tile * read_weight(head, first, entries);
    receive(first, tile.transpose() * hidden, tile.colwise().sum().transpose());
  });
  return d_hidden;
}

TokenStatistics::TokenStatistics(int64_t tokens)
    : argmax(tokens, -1), rank(tokens, 0), top_ids(tokens), top_logps(tokens), drawn_ids(tokens), drawn_logps(tokens) {
  max = log_sum = logp = lse = entropy = cross = outside = square_sum = VectorXd::Zero(tokens);
}

double raw_logit(const Tokens& tokens, double sum) {
  return tokens.round_logits_to ? round_to(sum, *tokens.round_logits_to) : sum;
}

double final_logit(const Tokens& tokens, int64_t row, double raw) {
  const double capped = tokens.softcap > 0 ? tokens.softcap * std::tanh(raw / tokens.softcap) : raw;
  return capped / tokens.logit_divisor(row);
}

void add_row_statistics(const Tokens& tokens, int64_t row, const Eigen::Ref<const VectorXd>& a,
                        TokenStatistics& stats) {
  const int64_t vocab = tokens.vocab();
  int64_t best = 0;
  bool defined = true;
  for (int64_t v = 0; v < vocab; ++v) {
    if (a[v] > a[best]) best = v;
    if (std::isnan(a[v]) || a[v] == kInfinity) defined = false;
  }
  if (!defined || a[best] == -kInfinity) {
    for (VectorXd* statistic : {&stats.max, &stats.log_sum, &stats.logp, &stats.lse, &stats.entropy, &stats.cross,
                                &stats.outside, &stats.square_sum}) {
      (*statistic)[row] = kNaN;
    }
    return;
  }
  double rest = 0;  // Σ exp without the largest term: log1p keeps its digits if that term is nearly all
  for (int64_t v = 0; v < vocab; ++v) {
    if (v != best) rest += std::exp(a[v] - a[best]);
  }
  const double log_sum = std::log1p(rest);
  double mean_shifted = 0, cross = 0;
  for (int64_t v = 0; v < vocab; ++v) {
    const double shifted = a[v] - a[best], log_p = shifted - log_sum, p = std::exp(log_p);
    if (p > 0) mean_shifted += p * shifted;
    stats.square_sum[row] += p * p;
    if (tokens.cross[v] > 0) cross += tokens.cross[v] * log_p;
  }
  stats.argmax[row] = best;
  stats.rank[row] = 1 + (a.array() > a[tokens.labels[row]]).count();
  stats.max[row] = a[best];
  stats.log_sum[row] = log_sum;
  stats.lse[row] = a[best] + log_sum;
  stats.logp[row] = ((a[tokens.labels[row]] - a[best]) - log_sum) / tokens.logp_divisor(row);
  const auto logp_of = [&](int64_t v) { return ((a[v] - a[best]) - log_sum) / tokens.logp_divisor(row); };
  if (tokens.top_k > 0 || tokens.draws.draws > 0) {
    std::vector<int64_t> ids(static_cast<size_t>(vocab));
    std::iota(ids.begin(), ids.end(), int64_t{0});
    std::sort(ids.begin(), ids.end(), [&](int64_t u, int64_t v) { return a[u] != a[v] ? a[u] > a[v] : u < v; });
    stats.top_ids[row].assign(ids.begin(), ids.begin() + std::min(tokens.top_k, vocab));
    std::ranges::transform(stats.top_ids[row], std::back_inserter(stats.top_logps[row]), logp_of);
    if (tokens.draws.draws > 0) stats.drawn_ids[row] = draw_ids(tokens, row, a, ids);
    std::ranges::transform(stats.drawn_ids[row], std::back_inserter(stats.drawn_logps[row]), logp_of);
  }
  stats.entropy[row] = log_sum - mean_shifted;
  stats.cross[row] = cross;
  // Log-sum-exp of the other entries, because 1 - p has no digits left as p nears 1.
  const int64_t label = tokens.labels[row];
  double other = -kInfinity, sum = 0;
  for (int64_t v = 0; v < vocab; ++v) {
    if (v != label) other = std::max(other, a[v]);
  }
  for (int64_t v = 0; v < vocab; ++v) {
    if (v != label && other > -kInfinity) sum += std::exp(a[v] - other);
  }
  stats.outside[row] = sum > 0 ? ((other - a[best]) + std::log(sum)) - log_sum : -kInfinity;
}

double LogitGradientFormula::others_share(int64_t row, double log_p) const {
  return log_p == -kInfinity ? 0 : std::exp(log_p - stats_.outside[row]);
}

LogitGradient LogitGradientFormula::at(int64_t row, int64_t entry, double raw) const {
  const double log_p = (final_logit(tokens_, row, raw) - stats_.max[row]) - stats_.log_sum[row];
  const double p = std::exp(log_p);
  const double g_logp = grads_.logp[row] / tokens_.logp_divisor(row);
  // 1 - p as -expm1(log p): its digits matter when p is nearly 1.
  double d = g_logp * (entry == tokens_.labels[row] ? -std::expm1(log_p) : -p);
  d += grads_.lse[row] * p;
  if (p > 0) d -= grads_.entropy[row] * p * (log_p + stats_.entropy[row]);
  d += 2 * grads_.square_sum[row] * p * (p - stats_.square_sum[row]);
  d += grads_.cross[row] * (tokens_.cross[entry] - p * cross_sum_);
  if (grads_.outside[row] != 0) {
    // The entry's probability among the others, minus its probability among all.
    if (entry != tokens_.labels[row]) d += grads_.outside[row] * others_share(row, log_p);
    d -= grads_.outside[row] * p;
  }
  if (std::isnan(log_p)) d = kNaN;
  LogitGradient result;
  if (tokens_.softcap > 0) {
    const double e = std::exp(-2 * std::abs(raw) / tokens_.softcap);
    result.slope = 4 * e / ((1 + e) * (1 + e));
  }
  result.d_final = d;
  result.d_raw = d * result.slope / tokens_.logit_divisor(row);
  return result;
}

LossWeights loss_weights(const Tokens& tokens, const CrossEntropy& options) {
  const TokenMean mean = token_mean(options, tokens.labels);
  std::vector<double> counts;
  for (const int64_t label : tokens.labels) {
    const double count = options.class_weights.empty() || label == kNoLabel ? 1 : options.class_weights[label];
    counts.push_back(label == kNoLabel ? 0 : count);
  }
  const VectorXd weights = to_eigen(mean.weights);
  const VectorXd nll = to_eigen(mean_divisors(mean, counts, tokens.offsets));
  const VectorXd z = to_eigen(mean_divisors(mean, tokens.labels, tokens.offsets));
  return {options.loss_scale * weights.cwiseQuotient(nll), options.loss_scale * weights.cwiseQuotient(z), weights};
}

Loss compute_cross_entropy(const Tokens& tokens, const TokenStatistics& stats, const CrossEntropy& options,
                           std::span<const double> upstream) {
  const double smoothing = options.label_smoothing;
  const LossWeights weights = loss_weights(tokens, options);
  Loss result;
  result.metrics.accuracy = result.metrics.mean_entropy = 0;
  result.grads = TokenGradients(tokens.tokens());
  result.per_token_loss.assign(tokens.tokens(), 0.0);
  double correct = 0, entropy = 0;
  for (int64_t i = 0; i < tokens.tokens(); ++i) {
    if (!tokens.is_active(i)) continue;
    const double class_weight = options.class_weights.empty() ? 1.0 : options.class_weights[tokens.labels[i]];
    // A term with factor 0 is left out: with a masked vocabulary entry it would be 0 · ∞.
    const auto times = [](double factor, double value) { return factor == 0 ? 0 : factor * value; };
    double nll = times((1 - smoothing) * class_weight, -stats.logp[i]) + times(smoothing, -stats.cross[i]);
    double z = options.z_loss > 0 ? options.z_loss * stats.lse[i] * stats.lse[i] : 0.0;
    const double p = options.dft ? std::exp(stats.logp[i]) : 1;
    nll *= p;
    z *= p;

    result.metrics.tokens += 1;
    result.metrics.mean_nll += -stats.logp[i];
    correct += stats.argmax[i] == tokens.labels[i] ? 1 : 0;
    entropy += stats.entropy[i];
    if (weights.token[i] == 0) continue;  // even if its loss is infinite
    result.loss += times(weights.nll[i], nll) + weights.z[i] * z;
    result.per_token_loss[i] = options.loss_scale * weights.token[i] * (nll + z);
    result.metrics.z_loss += weights.z[i] * z;

    const double up = p * (upstream.empty() ? 1.0 : upstream.size() == 1 ? upstream[0] : upstream[i]);
    result.grads.logp[i] = -up * weights.nll[i] * (1 - smoothing) * class_weight;
    result.grads.cross[i] = -up * weights.nll[i] * smoothing;
    if (options.z_loss > 0) result.grads.lse[i] = up * weights.z[i] * 2 * options.z_loss * stats.lse[i];
  }
  if (result.metrics.tokens > 0) {
    const auto count = static_cast<double>(result.metrics.tokens);
    result.metrics.mean_nll /= count;
    result.metrics.accuracy = correct / count;
    result.metrics.mean_entropy = entropy / count;
  }
  result.metrics.perplexity = std::exp(result.metrics.mean_nll);
  return result;
}

LossTruth cross_entropy_truth(const Tokens& tokens, const TokenStatistics& stats, const CrossEntropy& options) {
  Loss loss = compute_cross_entropy(tokens, stats, options);
  return {loss.loss, std::move(loss.per_token_loss), std::move(loss.grads)};
}

}  // namespace logitless::oracle
