// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/inputs.h"
#include "support/views.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace logitless::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool is_hidden_vocab(const InputSpec& spec) { return spec.layout == HeadLayout::kHiddenVocab; }

HostTensor head_tensor(const InputSpec& spec, DType dtype) {
  return is_hidden_vocab(spec) ? HostTensor(dtype, spec.hidden, spec.vocab, spec.padding)
                               : HostTensor(dtype, spec.vocab, spec.hidden, spec.padding);
}

HostTensor hidden_tensor(const InputSpec& spec, DType dtype, Rows places) {
  return HostTensor(dtype, spec.tokens, spec.hidden, spec.padding, places, spec.sequences);
}

// Fills the gaps between strided targets: not an entry of any vocabulary, and not ignore_index.
constexpr int64_t kNoEntry = 123456789;

// Returns the number of sequences of equal length in strided targets. Packed sequences may have any length.
int64_t target_sequences(const InputSpec& spec) { return spec.offsets.empty() ? spec.sequences : 1; }

std::vector<int64_t> lay_out(const std::vector<int64_t>& ids, const InputSpec& spec) {
  if (!spec.strided_targets || ids.empty()) return ids;
  const int64_t sequences = target_sequences(spec);
  const auto time = static_cast<int64_t>(ids.size()) / sequences, batch_stride = 2 * (time + 1);
  std::vector<int64_t> table(static_cast<size_t>((sequences - 1) * batch_stride + 2 * (time - 1) + 1), kNoEntry);
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    table[static_cast<size_t>(row / time * batch_stride + row % time * 2)] = ids[i];
  }
  return table;
}

// Returns the vocabulary entry that each row favours.
std::vector<int64_t> favourites(const InputSpec& spec) {
  std::mt19937_64 random(spec.seed * 7919 + 1);
  std::vector<int64_t> ids(spec.tokens);
  for (int64_t& id : ids) id = static_cast<int64_t>(random() % static_cast<uint64_t>(spec.vocab));
  return ids;
}

std::vector<int64_t> make_targets(const InputSpec& spec, const std::vector<int64_t>& favourite) {
  std::mt19937_64 random(spec.seed * 7919 + 2);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<int64_t> targets(spec.tokens);
  for (int64_t t = 0; t < spec.tokens; ++t) {
    const int64_t row = t - spec.shift;  // the row that predicts target t
    const bool favoured = row >= 0 && uniform(random) < 0.5;
    targets[t] = favoured ? favourite[row] : static_cast<int64_t>(random() % static_cast<uint64_t>(spec.vocab));
    if (!spec.targets.empty()) targets[t] = spec.targets[t % spec.targets.size()];
    if (uniform(random) < spec.ignored) targets[t] = spec.ignore_index;
  }
  return targets;
}

std::vector<bool> rows_without_part(const InputSpec& spec, const std::vector<int64_t>& targets) {
  std::vector<int64_t> ends;  // of the sequences
  if (spec.offsets.empty()) {
    const int64_t length = spec.tokens / spec.sequences;
    for (int64_t i = length; length > 0 && i <= spec.tokens; i += length) ends.push_back(i);
  } else {
    ends = spec.offsets;
  }
  std::vector<bool> without(spec.tokens, false);
  for (int64_t i = 0; i < spec.tokens; ++i) {
    const int64_t at = i + spec.shift;
    without[i] = at >= *std::upper_bound(ends.begin(), ends.end(), i) || targets[at] == spec.ignore_index;
  }
  return without;
}

}  // namespace

Inputs::Inputs(const InputSpec& input_spec)
    : spec(input_spec),
      hidden(hidden_tensor(spec, spec.dtype, spec.hidden_rows)),
      weight(head_tensor(spec, spec.dtype)),
      bias(spec.bias ? HostTensor(spec.dtype, 1, spec.vocab) : HostTensor()) {
  std::mt19937_64 random(spec.seed);
  std::normal_distribution<double> normal(0, 1);
  std::uniform_real_distribution<double> uniform(0, 1);
  // With normal hidden states, each logit without the bias has this standard deviation.
  const double spread = spec.peaked ? 3.0 : 0.2;
  for (int64_t v = 0; v < spec.vocab; ++v) {
    for (int64_t h = 0; h < spec.hidden; ++h) {
      set_weight(v, h, normal(random) * spread / std::sqrt(static_cast<double>(spec.hidden)));
    }
    if (spec.bias) bias.set(0, v, normal(random) * spread / 3);
  }
  const std::vector<int64_t> favourite = favourites(spec);
  const std::vector<int64_t> ids = make_targets(spec, favourite);
  const std::vector<bool> without = rows_without_part(spec, ids);
  for (int64_t i = 0; i < spec.tokens; ++i) {
    double norm = 0;
    for (int64_t h = 0; h < spec.hidden; ++h) norm += std::pow(weight_at(favourite[i], h), 2);
    // Raises the favourite's logit by up to 14, compared with 150 others at about 8: rows vary from flat to
    // nearly certain.
    const double push = spec.peaked && norm > 0 ? 14 * uniform(random) / norm : 0.0;
    for (int64_t h = 0; h < spec.hidden; ++h) {
      const double value = normal(random) + push * weight_at(favourite[i], h);
      set_hidden(i, h, spec.poison && without[i] ? kNaN : value);
    }
  }
  targets = lay_out(ids, spec);
}

HiddenStates Inputs::hidden_view() const {
  HiddenStates view(hidden.view(), spec.sequences);
  if (!spec.offsets.empty()) view.offsets = spec.offsets;
  view.batch_stride = hidden.batch_stride();
  return view;
}

LmHead Inputs::head_view() const {
  LmHead head(weight.view(), spec.layout);
  if (spec.bias) head.bias = bias.vector_view();
  head.softcap = spec.softcap;
  return head;
}

Targets Inputs::targets_view() const {
  if (!spec.strided_targets) return Targets(std::span<const int64_t>(targets));
  const int64_t batch = target_sequences(spec), time = spec.tokens / batch;
  return Targets(targets.data(), batch, time, 2 * (time + 1), 2);
}

double Inputs::weight_at(int64_t entry, int64_t column) const {
  return is_hidden_vocab(spec) ? weight.get(column, entry) : weight.get(entry, column);
}

void Inputs::set_weight(int64_t entry, int64_t column, double value) {
  if (is_hidden_vocab(spec)) {
    weight.set(column, entry, value);
  } else {
    weight.set(entry, column, value);
  }
}

void Inputs::set_hidden(int64_t row, int64_t column, double value) { hidden.set(row, column, value); }

std::vector<double> random_temperatures(int64_t tokens, uint64_t seed) {
  std::mt19937_64 random(seed * 7919 + 3);
  std::uniform_real_distribution<double> exponent(-0.5, 0.7);
  std::vector<double> values(tokens);
  for (double& value : values) value = std::pow(10.0, exponent(random));
  return values;
}

std::vector<float> random_class_weights(int64_t vocab, uint64_t seed) {
  std::mt19937_64 random(seed * 7919 + 4);
  std::uniform_real_distribution<float> uniform(0, 2);
  std::vector<float> values(vocab);
  for (float& value : values) value = random() % 8 == 0 ? 0.0f : uniform(random);
  values[0] = 1;  // so that not all are 0 for a vocabulary of one entry
  return values;
}

std::vector<double> random_token_gradients(int64_t tokens, uint64_t seed) {
  std::mt19937_64 random(seed * 7919 + 5);
  std::normal_distribution<double> normal(0, 1);
  std::vector<double> values(tokens);
  for (double& value : values) value = random() % 3 == 0 ? 0.0 : normal(random);
  return values;
}

GradientOutputs::GradientOutputs(Inputs& inputs, const RunSpec& run) : inputs_(inputs), run_(run) {
  const InputSpec& spec = inputs.spec;
  run_.d_bias = run.d_bias && spec.bias;
  const DType dtype = run.gradient_dtype.value_or(spec.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32);
  const DType sink_dtype = spec.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  if (run.d_hidden) d_hidden_ = hidden_tensor(spec, dtype, run.d_hidden_rows);
  if (run.d_weight) d_weight_ = head_tensor(spec, run.sink ? sink_dtype : dtype);
  if (run_.d_bias) d_bias_ = HostTensor(dtype, 1, spec.vocab);
  if (!run.accumulate) return;
  for (HostTensor* output : {&d_hidden_, &d_weight_, &d_bias_}) {
    if (output == &d_weight_ && run.sink) continue;
    for (int64_t row = 0; row < output->rows(); ++row) {
      for (int64_t col = 0; col < output->cols(); ++col) output->set(row, col, held(row, col));
    }
  }
}

double GradientOutputs::held(int64_t row, int64_t col) const {
  // A few small powers of 2 and their sums, which are exact in bf16.
  return run_.accumulate ? static_cast<double>((row * 3 + col * 5) % 17 - 8) / 64 : 0.0;
}

Gradients GradientOutputs::gradients() {
  Gradients gradients;
  if (run_.d_hidden) gradients.d_hidden = d_hidden_.output();
  gradients.d_hidden_batch_stride = d_hidden_.batch_stride();
  if (run_.d_bias) gradients.d_bias = d_bias_.vector_output();
  if (run_.d_weight && !run_.sink) gradients.d_weight = d_weight_.output();
  if (run_.d_weight && run_.sink) {
    next_entry_ = 0;
    gradients.weight_sink = [this](int64_t first, int64_t count, const ConstMatrix& tile) {
      receive(first, count, tile);
    };
  }
  const WriteMode mode = run_.accumulate ? WriteMode::kAccumulate : WriteMode::kOverwrite;
  gradients.d_hidden_mode = gradients.d_weight_mode = gradients.d_bias_mode = mode;
  return gradients;
}

void GradientOutputs::receive(int64_t first, int64_t count, const ConstMatrix& tile) {
  const InputSpec& spec = inputs_.spec;
  const bool hidden_vocab = is_hidden_vocab(spec);
  const int64_t rows = hidden_vocab ? spec.hidden : count;
  const int64_t cols = hidden_vocab ? count : spec.hidden;
  if (first != next_entry_) {
    complaints_ +=
        "tile at vocabulary entry " + std::to_string(first) + ", expected " + std::to_string(next_entry_) + "; ";
  }
  if (count < 1 || first + count > spec.vocab)
    complaints_ += "tile of " + std::to_string(count) + " vocabulary entries; ";
  if (tile.rows != rows || tile.cols != cols || tile.stride < cols || tile.dtype != d_weight_.dtype()) {
    complaints_ +=
        "tile of " + std::to_string(tile.rows) + " x " + std::to_string(tile.cols) + " " + name_of(tile.dtype) + "; ";
    return;
  }
  next_entry_ = first + count;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t at = r * tile.stride + c;
      const double value = tile.dtype == DType::kFloat64 ? static_cast<const double*>(tile.data)[at]
                                                         : static_cast<const float*>(tile.data)[at];
      d_weight_.set(hidden_vocab ? r : first + r, hidden_vocab ? first + c : c, value);
    }
  }
  if (!run_.sink_overwrites_weight) return;
  for (int64_t v = first; v < first + count; ++v) {
    for (int64_t h = 0; h < spec.hidden; ++h) inputs_.set_weight(v, h, kNaN);
  }
}

std::vector<std::byte> GradientOutputs::bytes() const {
  std::vector<std::byte> all;
  for (const HostTensor* output : {&d_hidden_, &d_weight_, &d_bias_}) {
    if (output->cols() == 0) continue;
    all.insert(all.end(), output->bytes().begin(), output->bytes().end());
  }
  return all;
}

}  // namespace logitless::testing
