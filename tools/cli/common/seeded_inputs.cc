// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Draws the inputs of a config from its seed, for every task and level.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "cli/common/inputs.h"
#include "cli/common/task_call.h"
#include "io/seeded_inputs.h"

namespace logitless::cli {
namespace {

using io::Config;
using io::Error;
using io::SeededNumbers;

// Standard deviation of the seeded logits. At 4, the likeliest of 150,000 entries has a probability of 0.1 to
// 0.3, as in real text. Near-uniform logits would hide errors of the softmax.
constexpr double kLogitDeviation = 4;

// Standard deviation of the change that a LoRA of scale 1 makes to the logits.
constexpr double kLoraDeviation = 1;

// Standard deviations, in nats, of seeded log-probabilities. A reference and a teacher are drawn around the
// policy itself, a sampler around the old policy.
constexpr double kReferenceDeviation = 0.25;
constexpr double kSamplerDeviation = 0.1;

// Standard deviation of the logarithms of soft targets and of a teacher's probabilities on a set.
constexpr double kShareDeviation = 2;

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

int64_t tokens_of(const Config& config) {
  return static_cast<int64_t>(tensor_bytes("batch_size x seq_len", config.batch_size, config.seq_len, 1));
}

// Returns the policy's own log-probabilities of the seeded targets. Other policies are drawn around them.
std::vector<double> own_logps(const Config& config, const Job& job) {
  return TaskRun(config, job).token_logps(Context(context_options_of(config)));
}

// Returns plausible log-probabilities of another policy: `logps` plus N(0, deviation²), at most 0.
std::vector<double> moved(const Config& config, const char* name, double deviation, std::vector<double> logps) {
  const SeededNumbers numbers(config.seed, name);
  for (size_t i = 0; i < logps.size(); ++i) {
    logps[i] = std::min(logps[i] + deviation * numbers.normal(static_cast<int64_t>(i)), 0.0);
  }
  return logps;
}

// Adds [n] or [n, width] values. Element i is make(numbers, i). The numbers are seeded by `drawn_as`, or by
// the tensor's name if that is null.
template <class T>
void add_drawn(const Config& config, const char* name, const char* axes, int64_t n, const auto& make, Inputs& inputs,
               int64_t width = 1, const char* drawn_as = nullptr) {
  const SeededNumbers numbers(config.seed, drawn_as ? drawn_as : name);
  auto* values = reinterpret_cast<T*>(inputs.add(name, axes, DTypeOf<T>::value, n, width));
  for (int64_t i = 0; i < n * width; ++i) values[i] = static_cast<T>(make(numbers, i));
}

double normal_of(const SeededNumbers& numbers, int64_t i) { return numbers.normal(i); }

void add_seeded_mask(const Config& config, Inputs& inputs) {
  if (config.ignored_fraction == 0) return;
  const auto counts = [&](const auto& numbers, int64_t i) { return numbers.uniform(i) >= config.ignored_fraction; };
  add_drawn<uint8_t>(config, "mask", "N", inputs.job.tokens, counts, inputs);
}

// Adds another policy's log-probabilities, drawn around `logps`.
void add_moved(const Config& config, const char* name, double deviation, const std::vector<double>& logps,
               Inputs& inputs) {
  inputs.add_values(name, "N", moved(config, name, deviation, logps));
}

// One overload per task. Adds the inputs that the task reads, except the targets.

void add_seeded_batch(const Config&, const auto& /*task*/, Inputs&) {}

void add_seeded_batch(const Config& config, const PolicyLoss& options, Inputs& inputs) {
  const Job& job = inputs.job;
  const io::PolicyConfig& policy = config.policy;
  add_seeded_mask(config, inputs);
  const bool each = policy.advantage_per_token;
  add_drawn<double>(config, "advantages", each ? "N" : "B", each ? job.tokens : job.sequences, normal_of, inputs);
  if (options.loss_type == PolicyLossType::kTopr || options.positive_nll_weight != 0) {
    add_drawn<double>(config, "scores", "B", job.sequences, normal_of, inputs);
  }
  const bool taught = options.teacher_weight != 0;
  const bool sampled = options.sampler_correction != SamplerCorrection::kNone || options.m2_threshold ||
                       options.sampler_penalty != 0 || (taught && options.teacher_against == TeacherAgainst::kSampling);
  if (policy.on_policy && options.beta == 0 && !sampled && !taught) return;
  const std::vector<double> own = own_logps(config, job);
  const std::vector<double> old = policy.on_policy ? own : moved(config, "old_logps", policy.log_ratio_deviation, own);
  if (!policy.on_policy) inputs.add_values("old_logps", "N", old);
  if (options.beta != 0) add_moved(config, "ref_logps", kReferenceDeviation, own, inputs);
  if (taught) add_moved(config, "teacher_logps", kReferenceDeviation, own, inputs);
  if (sampled) add_moved(config, "sampling_logps", kSamplerDeviation, old, inputs);
}

void add_seeded_reference(const Config& config, Inputs& inputs) {
  add_moved(config, "ref_logps", kReferenceDeviation, own_logps(config, inputs.job), inputs);
}

void add_seeded_batch(const Config& config, const PreferenceLoss& task, Inputs& inputs) {
  if (std::ranges::any_of(task.loss_type, needs_reference)) add_seeded_reference(config, inputs);
}

void add_seeded_batch(const Config& config, const KtoLoss& task, Inputs& inputs) {
  add_seeded_reference(config, inputs);
  const int64_t sequences = inputs.job.sequences;
  // The first two labels differ.
  const auto label = [](const auto& numbers, int64_t i) { return i == 1 ? ~numbers.word(0) & 1 : numbers.word(i) & 1; };
  add_drawn<uint8_t>(config, "labels", "B", sequences, label, inputs);
  if (task.loss_type == KtoLossType::kA2po) {
    add_drawn<double>(config, "reward_targets", "B", sequences, normal_of, inputs);
  }
  if (!config.kto.kl_baseline || task.loss_type != KtoLossType::kKto) return;
  // Mismatched completions have far lower log-probabilities. The reference's are lower still, so that the
  // baseline is not 0.
  const std::vector<double> far(static_cast<size_t>(sequences), -10.0 * static_cast<double>(config.seq_len));
  const std::vector<double> further(far.size(), far[0] - 2);
  inputs.add_values("kl_logps", "J", moved(config, "kl_logps", 1, far));
  inputs.add_values("kl_ref_logps", "J", moved(config, "kl_ref_logps", 1, further));
}

// Adds K ids per token, one from each of K equal parts of the vocabulary. Ignored tokens get an empty set.
void add_seeded_ids(const Config& config, Inputs& inputs) {
  const Job& job = inputs.job;
  const int64_t size = config.sets.ids;
  if (size > job.vocab_size) {
    throw Error(config.place_of("sets.ids") + " is " + std::to_string(size) + ", but the vocabulary has " +
                std::to_string(job.vocab_size) + " entries");
  }
  const auto id = [&](const SeededNumbers& numbers, int64_t e) {
    const int64_t part = e % size, begin = job.vocab_size * part / size;
    return begin + numbers.below(e, job.vocab_size * (part + 1) / size - begin);
  };
  const auto count = [&](const SeededNumbers& numbers, int64_t i) {
    return numbers.uniform(i) < config.ignored_fraction ? 0 : size;
  };
  add_drawn<int64_t>(config, "set_ids", "NK", job.tokens, id, inputs, size);
  add_drawn<int64_t>(config, "set_counts", "N", job.tokens, count, inputs, 1, "ignored");
}

// Adds `width` numbers per token: the softmax of normal values, scaled to sum to between 0.5 and 1.
template <class T>
void add_seeded_shares(const Config& config, const char* name, const char* axes, int64_t width, const auto& make,
                       Inputs& inputs) {
  const int64_t tokens = inputs.job.tokens;
  const SeededNumbers normals(config.seed, "set_values"), masses(config.seed, "set_mass");
  auto* values = reinterpret_cast<T*>(inputs.add(name, axes, DTypeOf<T>::value, tokens, width));
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < tokens; ++i) {
    double sum = 0;
    for (int64_t e = i * width; e < (i + 1) * width; ++e) sum += std::exp(kShareDeviation * normals.normal(e));
    const double log_share = std::log((1 + masses.uniform(i)) / 2 / sum);
    for (int64_t e = i * width; e < (i + 1) * width; ++e) {
      values[e] = static_cast<T>(make(kShareDeviation * normals.normal(e) + log_share));
    }
  }
}

void add_seeded_batch(const Config& config, const SetDistillation&, Inputs& inputs) {
  add_seeded_ids(config, inputs);
  const auto logp_itself = [](double logp) { return logp; };
  add_seeded_shares<double>(config, "set_values", "NK", config.sets.ids, logp_itself, inputs);
}

void add_seeded_batch(const Config& config, const SoftCrossEntropy&, Inputs& inputs) {
  const auto exp = [](double logp) { return std::exp(logp); };
  const Job& job = inputs.job;
  if (config.sets.dense) {
    check_available(tensor_bytes("soft_rows", job.tokens, job.vocab_size, sizeof(double)), "the soft targets");
    if (job.dtype == DType::kFloat64) {
      add_seeded_shares<double>(config, "soft_rows", "NW", job.vocab_size, exp, inputs);
    } else {
      add_seeded_shares<float>(config, "soft_rows", "NW", job.vocab_size, exp, inputs);
    }
    add_seeded_mask(config, inputs);
    return;
  }
  add_seeded_ids(config, inputs);
  add_seeded_shares<double>(config, "set_values", "NK", config.sets.ids, exp, inputs);
}

void add_seeded_batch(const Config& config, const IdLogps&, Inputs& inputs) {
  add_seeded_ids(config, inputs);
  const auto tokens = static_cast<double>(inputs.job.tokens);
  // The size of the gradients of a mean over tokens.
  const auto upstream = [&](const SeededNumbers& numbers, int64_t e) { return numbers.normal(e) / tokens; };
  add_drawn<double>(config, "set_values", "NK", inputs.job.tokens, upstream, inputs, config.sets.ids);
}

// Returns the seeded head rounded to 8-bit integers, with one scale per vocabulary entry.
LmHead packed_head(const Config& config, SeededValues values, Inputs& inputs) {
  const int64_t rows = inputs.job.stored_entries, cols = inputs.job.hidden_size;
  auto* packed = reinterpret_cast<int8_t*>(inputs.add("lm_head", "VH", DType::kUInt8, rows, cols));
  auto* scales = reinterpret_cast<float*>(inputs.add("scales", "V1", DType::kFloat32, rows, 1));
  if (values != SeededValues::kZeros) {
    std::vector<float> drawn(static_cast<size_t>(rows * cols));
    const double deviation = kLogitDeviation / std::sqrt(static_cast<double>(cols));
    SeededNumbers(config.seed, "lm_head").fill(DType::kFloat32, deviation, rows, cols, drawn.data());
    for (int64_t v = 0; v < rows; ++v) {
      const std::span<const float> row(&drawn[static_cast<size_t>(v * cols)], static_cast<size_t>(cols));
      for (const float x : row) scales[v] = std::max(scales[v], std::abs(x) / 127);
      for (const float x : row) *packed++ = static_cast<int8_t>(std::nearbyint(x / scales[v]));
    }
  }
  const Job& job = inputs.job;
  return {.weight = job["lm_head"].view,
          .packing = config.model.packing,
          .scales = job["scales"].view,
          .softcap = config.model.softcap};
}

// With kZeros nothing is drawn: memory is zero until it is written.
void add_seeded_model(const Config& config, SeededValues values, Inputs& inputs) {
  Job& job = inputs.job;
  const bool taught = job.teacher_size > 0;
  // Adds vectors of normal values.
  const auto add = [&](const char* name, const char* axes, DType dtype, double scale, int64_t vectors, int64_t length,
                       bool transposed = false) {
    std::byte* out = inputs.add(name, axes, dtype, transposed ? length : vectors, transposed ? vectors : length);
    if (values == SeededValues::kZeros) return;
    SeededNumbers(config.seed, name).fill(dtype, scale, vectors, length, out, transposed);
  };
  if (config.level == io::Level::kLogits) {
    check_available(tensor_bytes("logits", job.tokens, job.vocab_size, size_of(job.dtype)), "the logits");
    add("logits", "NV", job.dtype, kLogitDeviation, job.tokens, job.vocab_size);
    return;
  }
  // A vocabulary entry has the same values in both layouts.
  const auto add_head = [&](const char* name, DType dtype, int64_t size) {
    const bool wide = job.layout == HeadLayout::kHiddenVocab;
    add(name, wide ? "HV" : "VH", dtype, kLogitDeviation / std::sqrt(static_cast<double>(size)), job.stored_entries,
        size, wide);
  };
  const auto bytes_of = [&](DType dtype, int64_t size) {
    return tensor_bytes("hidden", job.tokens, size, size_of(dtype)) +
           tensor_bytes("lm_head", size, job.stored_entries, size_of(dtype));
  };
  const uint64_t of_lora = tensor_bytes("lora_a", job.lora_rank, job.hidden_size, size_of(job.lora_dtype)) +
                           tensor_bytes("lora_b", job.lora_rank, job.stored_entries, size_of(job.lora_dtype));
  check_available(
      bytes_of(job.dtype, job.hidden_size) + (taught ? bytes_of(job.teacher_dtype, job.teacher_size) : 0) + of_lora,
      "the inputs");
  add("hidden", "NH", job.dtype, 1, job.tokens, job.hidden_size);
  if (config.model.packing) {
    job.head = packed_head(config, values, inputs);
  } else {
    add_head("lm_head", job.dtype, job.hidden_size);
  }
  if (config.model.bias) add("bias", "V", job.dtype, 0.5, job.stored_entries, 1);
  if (job.lora_rank > 0) {
    add("lora_a", "RH", job.lora_dtype, 1 / std::sqrt(static_cast<double>(job.hidden_size)), job.lora_rank,
        job.hidden_size);
    add("lora_b", "VR", job.lora_dtype, kLoraDeviation / std::sqrt(static_cast<double>(job.lora_rank)),
        job.stored_entries, job.lora_rank);
  }
  if (!taught) return;
  add("teacher_hidden", "NH", job.teacher_dtype, 1, job.tokens, job.teacher_size);
  add_head("teacher_lm_head", job.teacher_dtype, job.teacher_size);
  if (config.teacher.bias) add("teacher_bias", "V", job.teacher_dtype, 0.5, job.stored_entries, 1);
}

}  // namespace

void Inputs::add_targets(const std::vector<int64_t>& targets, bool wide) {
  if (wide) return add_values("targets", "N", targets);
  std::vector<int32_t> narrow;
  for (const int64_t target : targets) narrow.push_back(static_cast<int32_t>(target));
  add_values("targets", "N", narrow);
}

void Inputs::choose_entries(const Config& config, const std::string& spec) {
  const char* const flag = "--vocab-ids";
  const std::string key = "model.vocab_ids";
  const std::vector<int64_t>& of_config = config.model.vocab_ids;
  if (spec.empty() && of_config.empty()) return;
  const std::string place = of_config.empty() ? flag : config.place_of(key);
  if (config.level == io::Level::kLogits) throw Error(place + " chooses entries of a head, and level logits has none");
  if (config.parallel.ranks() > 1) throw Error(place + " chooses entries of a head, which is not supported over ranks");
  if (!spec.empty() && !of_config.empty())
    throw Error(place + " is set, and " + flag + " was given: use one of the two");
  const std::vector<int64_t> ids =
      spec.empty() ? of_config
                   : io::read_integers(*files.open(flag, spec, {"vocab_ids", io::TensorClass::kInteger, 1}).tensor);
  if (ids.empty()) throw Error(place + ": must have at least one entry");
  for (size_t k = 0; k < ids.size(); ++k) {
    if (ids[k] >= 0 && ids[k] < job.stored_entries) continue;
    throw Error(place + ": entry " + std::to_string(k) + " is " + std::to_string(ids[k]) + ", outside the head's " +
                std::to_string(job.stored_entries) + " entries (ids begin at 0)");
  }
  job.vocab_size = static_cast<int64_t>(ids.size());
  add_values("vocab_ids", "K", ids);
}

void Inputs::add_seeded_vectors(const Config& config, bool token_weights) {
  const auto weight = [](const SeededNumbers& numbers, int64_t i) { return 0.5 + numbers.uniform(i); };
  if (config.class_weights) add_drawn<float>(config, "class_weights", "W", job.vocab_size, weight, *this);
  if (token_weights) add_drawn<double>(config, "token_weights", "N", job.tokens, weight, *this);
  if (config.temperature.per_token()) {
    const auto& [low, high] = config.temperature;
    const auto temperature = [&, low = low, high = high](const SeededNumbers& numbers, int64_t i) {
      return low + (high - low) * numbers.uniform(i);
    };
    add_drawn<double>(config, "temperatures", "N", job.tokens, temperature, *this);
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
  for (const char* key : {"model.lora.scale", "model.lora.dtype"}) {
    if (config.is_set(key) && !config.is_set("model.lora.rank")) {
      throw Error(config.place_of(key) + " needs model.lora.rank: the head has no LoRA");
    }
  }
  const io::ModelConfig& model = config.model;
  const size_t element = size_of(model.dtype);
  const int64_t tokens = tokens_of(config);
  if (fused) {
    tensor_bytes("hidden", tokens, model.hidden_size, element);
    tensor_bytes("lm_head", model.hidden_size, model.vocab_size, element);
    tensor_bytes("teacher_lm_head", config.teacher.hidden_size, model.vocab_size, sizeof(double));
    tensor_bytes("lora_a", model.lora.rank, model.hidden_size, sizeof(double));
    tensor_bytes("lora_b", model.lora.rank, model.vocab_size, sizeof(double));
  }
  tensor_bytes("logits", tokens, model.vocab_size, element);
}

Job seeded_shape(const Config& config) {
  Job job;
  job.tokens = tokens_of(config);
  job.sequences = config.batch_size;
  job.hidden_size = config.model.hidden_size;
  job.stored_entries = config.model.vocab_size;
  const std::vector<int64_t>& chosen = config.model.vocab_ids;
  job.vocab_size = chosen.empty() ? job.stored_entries : static_cast<int64_t>(chosen.size());
  job.dtype = config.model.dtype;
  job.layout = config.model.layout;
  job.lora_rank = config.model.lora.rank;
  job.lora_scale = config.model.lora.scale;
  job.lora_dtype = config.model.lora.dtype.value_or(job.dtype);
  if (config.runs<Distillation>()) {
    job.teacher_size = config.teacher.hidden_size > 0 ? config.teacher.hidden_size : job.hidden_size;
    job.teacher_dtype = config.teacher.dtype.value_or(job.dtype);
  }
  return job;
}

Inputs make_seeded_inputs(const Config& config, SeededValues values) {
  check_seeded(config);
  Inputs inputs;
  Job& job = inputs.job;
  job = seeded_shape(config);
  add_seeded_model(config, values, inputs);
  inputs.choose_entries(config);
  const SeededNumbers entries(config.seed, "targets"), ignored(config.seed, "ignored");
  // policy_loss has a mask instead.
  const double fraction = config.runs<PolicyLoss>() ? 0 : config.ignored_fraction;
  const int64_t ignore_index = config.of<CrossEntropy>().token.ignore_index;
  std::vector<int64_t> targets;
  for (int64_t i = 0; i < job.tokens; ++i) {
    targets.push_back(ignored.uniform(i) < fraction ? ignore_index : entries.below(i, job.vocab_size));
  }
  const bool wide = job.vocab_size > kMaxInt32 || ignore_index > kMaxInt32 || ignore_index < -kMaxInt32;
  inputs.add_targets(targets, wide);
  inputs.add_seeded_vectors(config, config.has_token_weights());
  io::for_each_task([&]<class Task> {
    if (config.runs<Task>()) add_seeded_batch(config, config.of<Task>(), inputs);
  });
  return inputs;
}

}  // namespace logitless::cli
