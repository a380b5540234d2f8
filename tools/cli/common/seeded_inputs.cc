// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Inputs that a config's seed draws, for every task and level.
#include <algorithm>
#include <limits>
#include <string_view>

#include "cli/common/inputs.h"
#include "cli/common/task_call.h"
#include "io/seeded_inputs.h"

namespace logitless::cli {
namespace {

using io::Config;
using io::Error;

// How far the seeded log-probabilities of other policies lie from those that they are drawn around, in nats.
constexpr double kReferenceDeviation = 0.25;
constexpr double kSamplerDeviation = 0.1;

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

int64_t tokens_of(const Config& config) {
  return static_cast<int64_t>(tensor_bytes("batch_size x seq_len", config.batch_size, config.seq_len, 1));
}

// The policy's own log-probabilities of the seeded targets: what the other policies are drawn around.
std::vector<double> own_logps(const Config& config, const Job& job) {
  return TaskCall(config, job).token_logps(Context(context_options_of(config)));
}

std::vector<double> moved(const Config& config, io::SeededPolicy which, double deviation, std::vector<double> logps) {
  io::move_seeded_logps(config.seed, which, deviation, logps);
  return logps;
}

void add_seeded_policy_batch(const Config& config, Inputs& inputs) {
  const Job& job = inputs.job;
  const io::PolicyConfig& policy = config.policy;
  const auto n = static_cast<size_t>(job.tokens);
  if (config.ignored_fraction > 0) {
    std::vector<uint8_t> mask(n);
    io::fill_seeded_mask(config.seed, config.ignored_fraction, mask);
    inputs.add_values(TensorId::kMask, "mask", mask);
  }
  std::vector<double> advantages(policy.advantage_per_token ? n : static_cast<size_t>(job.sequences));
  io::fill_seeded_advantages(config.seed, advantages);
  inputs.add_values(TensorId::kAdvantages, "advantages", advantages);

  const bool sampled = policy.options.sampler_correction != SamplerCorrection::kNone;
  if (policy.on_policy && policy.options.beta == 0 && !sampled) return;
  const std::vector<double> own = own_logps(config, job);
  const std::vector<double> old =
      policy.on_policy ? own : moved(config, io::SeededPolicy::kOld, policy.log_ratio_deviation, own);
  if (!policy.on_policy) inputs.add_values(TensorId::kOldLogps, "old_logps", old);
  if (policy.options.beta != 0) {
    inputs.add_values(TensorId::kRefLogps, "ref_logps",
                      moved(config, io::SeededPolicy::kReference, kReferenceDeviation, own));
  }
  if (sampled) {
    inputs.add_values(TensorId::kSamplingLogps, "sampling_logps",
                      moved(config, io::SeededPolicy::kSampler, kSamplerDeviation, old));
  }
}

void add_seeded_reference(const Config& config, Inputs& inputs) {
  inputs.add_values(TensorId::kRefLogps, "ref_logps",
                    moved(config, io::SeededPolicy::kReference, kReferenceDeviation, own_logps(config, inputs.job)));
}

void add_seeded_kto_batch(const Config& config, Inputs& inputs) {
  add_seeded_reference(config, inputs);
  const auto sequences = static_cast<size_t>(inputs.job.sequences);
  std::vector<uint8_t> labels(sequences);
  io::fill_seeded_labels(config.seed, labels);
  inputs.add_values(TensorId::kLabels, "labels", labels);
  if (!config.kto.kl_baseline) return;
  // Log-probabilities of mismatched completions are far below. The reference's are lower, so that the baseline is not
  // 0.
  const std::vector<double> far(sequences, -10.0 * static_cast<double>(config.seq_len));
  const std::vector<double> further(sequences, far[0] - 2);
  inputs.add_values(TensorId::kKlLogps, "kl_logps", moved(config, io::SeededPolicy::kMismatched, 1, far));
  inputs.add_values(TensorId::kKlRefLogps, "kl_ref_logps",
                    moved(config, io::SeededPolicy::kMismatchedReference, 1, further));
}

bool needs_reference(const Config& config) {
  const auto& terms = config.preference.terms;
  return std::any_of(terms.begin(), terms.end(),
                     [](const PreferenceTerm& t) { return logitless::needs_reference(t.loss); });
}

void add_seeded_batch(const Config& config, Inputs& inputs) {
  if (config.task == io::Task::kGrpo) add_seeded_policy_batch(config, inputs);
  if (config.task == io::Task::kDpo && needs_reference(config)) add_seeded_reference(config, inputs);
  if (config.task == io::Task::kKto) add_seeded_kto_batch(config, inputs);
}

// Memory is zero until it is written.
void add_seeded_model(const Config& config, SeededValues values, Inputs& inputs) {
  const Job& job = inputs.job;
  const bool random = values == SeededValues::kRandom;
  const size_t element = size_of(job.dtype);
  if (config.level == io::Level::kLogits) {
    const uint64_t bytes = tensor_bytes("logits", job.tokens, job.vocab_size, element);
    check_available(bytes, "the logits");
    std::byte* logits = inputs.add(TensorId::kLogits, "logits", bytes);
    if (random) io::fill_seeded_logits(config.seed, job.dtype, job.tokens, job.vocab_size, logits);
    return;
  }
  const uint64_t hidden_bytes = tensor_bytes("hidden", job.tokens, job.hidden_size, element);
  const uint64_t head_bytes = tensor_bytes("lm_head", job.hidden_size, job.vocab_size, element);
  check_available(hidden_bytes + head_bytes, "the inputs");
  std::byte* hidden = inputs.add(TensorId::kHidden, "hidden", hidden_bytes);
  std::byte* head = inputs.add(TensorId::kWeight, "lm_head", head_bytes);
  if (random) {
    io::fill_seeded_hidden(config.seed, job.dtype, job.tokens, job.hidden_size, hidden);
    io::fill_seeded_head(config.seed, job.dtype, job.layout, job.hidden_size, job.vocab_size, head);
  }
  if (config.model.bias) {
    std::byte* bias = inputs.add(TensorId::kBias, "bias", tensor_bytes("bias", job.vocab_size, 1, element));
    if (random) io::fill_seeded_bias(config.seed, job.dtype, job.vocab_size, bias);
  }
}

}  // namespace

std::byte* Inputs::add(TensorId id, const std::string& name, uint64_t bytes) {
  memory.emplace_back(name, bytes);
  job[id] = memory.back().tensor();
  return job[id].writable();
}

io::TensorHandle Inputs::open(const std::string& spec, const io::TensorWish& wish) {
  io::TensorHandle handle = io::find_tensor(spec, wish);
  files.push_back(handle.file);
  return handle;
}

void Inputs::check_files() const {
  for (const auto& file : files) file->check_size();
}

void Inputs::add_targets(const std::vector<int64_t>& targets, bool wide) {
  job.wide_targets = wide;
  if (wide) return add_values(TensorId::kTargets, "targets", targets);
  std::vector<int32_t> narrow;
  for (const int64_t target : targets) narrow.push_back(static_cast<int32_t>(target));
  add_values(TensorId::kTargets, "targets", narrow);
}

void Inputs::add_what_the_config_draws(const Config& config) {
  if (config.class_weights) {
    const uint64_t bytes = tensor_bytes("class_weights", job.vocab_size, 1, sizeof(float));
    auto* weights = reinterpret_cast<float*>(add(TensorId::kClassWeights, "class_weights", bytes));
    io::fill_seeded_class_weights(config.seed, {weights, static_cast<size_t>(job.vocab_size)});
  }
  if (config.temperature.per_token()) {
    const uint64_t bytes = tensor_bytes("temperatures", job.tokens, 1, sizeof(double));
    auto* temperatures = reinterpret_cast<double*>(add(TensorId::kTemperatures, "temperatures", bytes));
    io::fill_seeded_temperatures(config.seed, config.temperature.low, config.temperature.high,
                                 {temperatures, static_cast<size_t>(job.tokens)});
  }
}

void check_seeded(const Config& config) {
  const bool fused = config.level == io::Level::kFused;
  for (const char* key : {"model.hidden_size", "model.vocab_size"}) {
    const bool needed = fused || std::string_view(key) == "model.vocab_size";
    if (needed && !config.is_set(key)) {
      throw Error(std::string(key) +
                  " is not given: name a config such as configs/tiny.yaml, set it with --set, or give real tensors");
    }
  }
  const io::ModelConfig& model = config.model;
  const size_t element = size_of(model.dtype);
  const int64_t tokens = tokens_of(config);
  if (fused) {
    tensor_bytes("hidden", tokens, model.hidden_size, element);
    tensor_bytes("lm_head", model.hidden_size, model.vocab_size, element);
  }
  tensor_bytes("logits", tokens, model.vocab_size, element);
}

Job seeded_shape(const Config& config) {
  Job job;
  job.tokens = tokens_of(config);
  job.sequences = config.batch_size;
  job.hidden_size = config.model.hidden_size;
  job.vocab_size = config.model.vocab_size;
  job.dtype = config.model.dtype;
  job.layout = config.model.layout;
  return job;
}

Inputs make_seeded_inputs(const Config& config, SeededValues values) {
  check_seeded(config);
  Inputs inputs;
  Job& job = inputs.job;
  job = seeded_shape(config);
  add_seeded_model(config, values, inputs);
  std::vector<int64_t> targets(static_cast<size_t>(job.tokens));
  const bool masked = config.task == io::Task::kGrpo;  // a mask, not ignored targets, leaves tokens out
  io::fill_seeded_targets(config.seed, job.vocab_size, masked ? 0 : config.ignored_fraction, config.ignore_index,
                          targets);
  const bool wide = job.vocab_size > kMaxInt32 || config.ignore_index > kMaxInt32 || config.ignore_index < -kMaxInt32;
  inputs.add_targets(targets, wide);
  inputs.add_what_the_config_draws(config);
  add_seeded_batch(config, inputs);
  return inputs;
}

}  // namespace logitless::cli
