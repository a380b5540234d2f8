// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <nanobind/stl/pair.h>

#include <algorithm>

#include "communicator.h"
#include "logitless/error.h"
#include "weight_sink.h"

namespace logitless::python {
namespace {

// Python itself refuses to write out what has thousands of digits.
std::string shown(nb::handle number) {
  const nb::object bits = number.attr("bit_length")();
  if (nb::cast<int64_t>(bits) <= 256) return nb::str(number).c_str();
  return std::string("an int of ") + nb::str(bits).c_str() + " bits";
}

}  // namespace

nb::handle Keywords::find(const char* key) {
  known_.emplace_back(key);
  const nb::handle value = PyDict_GetItemString(given_.ptr(), key);
  return value.is_valid() && !value.is_none() ? value : nb::handle();
}

void Keywords::take_bound(const char* key, std::optional<double>& out) {
  known_.emplace_back(key);
  const nb::handle value = PyDict_GetItemString(given_.ptr(), key);
  if (!value.is_valid()) return;
  out = value.is_none() ? std::nullopt : std::optional<double>(cast<double>(key, value));
}

void Keywords::refuse(const char* key, nb::handle value, const char* wanted) const {
  std::string message = std::string(of_) + ": " + key;
  if (PyLong_Check(value.ptr())) {
    message += " = " + shown(value);
  } else {
    message += std::string(" is a ") + nb::str(value.type().attr("__name__")).c_str();
  }
  if (wanted) message += std::string(": it must be ") + wanted;
  throw nb::type_error(message.c_str());
}

void Keywords::refuse_int(const char* key, nb::handle value, const std::string& rule) const {
  throw InvalidInput(std::string(of_) + ": " + key + " = " + shown(value) + ": " + rule);
}

void Keywords::refuse_name(const char* key, const std::string& value, const std::string& known) {
  throw InvalidInput(std::string(key) + " = '" + value + "' is none of " + known);
}

void Keywords::check_all_known() const {
  if (given_.size() == 0) return;
  const nb::list keys = given_.keys();
  for (const nb::handle key : keys) {
    const std::string name = nb::str(key).c_str();
    if (std::find(known_.begin(), known_.end(), name) == known_.end()) {
      nb::raise_type_error("%s has no argument '%s'", of_, name.c_str());
    }
  }
}

const char* name_of(HeadLayout layout) { return layout == HeadLayout::kVocabHidden ? "vocab_hidden" : "hidden_vocab"; }
const char* name_of(Reduction reduction) {
  return reduction == Reduction::kMean ? "mean" : reduction == Reduction::kSum ? "sum" : "none";
}
const char* name_of(TemperatureMeaning meaning) {
  return meaning == TemperatureMeaning::kScaleLogits ? "scale_logits" : "scale_logp";
}
const char* name_of(EntriesPer entries) {
  return entries == EntriesPer::kBySize ? "by_size" : entries == EntriesPer::kSequence ? "sequence" : "token";
}

namespace {

// "float32" and its like.
void take_dtype(Keywords& keywords, const char* key, std::optional<DType>& out) {
  DType dtype = DType::kFloat32;
  if (!keywords.find(key)) return;
  keywords.take_name(key, dtype, DType::kFloat16);
  out = dtype;
}

ConstVector take_vector(Keywords& keywords, Arrays& arrays, const char* key) {
  const nb::handle value = keywords.find(key);
  return value ? arrays.vector(value, key) : ConstVector();
}

template <class T>
std::span<const T> take_span(Keywords& keywords, Arrays& arrays, const char* key) {
  const nb::handle value = keywords.find(key);
  return value ? arrays.span<T>(value, key) : std::span<const T>();
}

}  // namespace

TokenOptions take_token_options(Keywords& keywords, Arrays& arrays) {
  TokenOptions out;
  keywords.take("ignore_index", out.ignore_index);
  keywords.take("shift", out.shift);
  keywords.take("temperature", out.temperature);
  out.temperatures = take_span<double>(keywords, arrays, "temperatures");
  keywords.take_name("temperature_meaning", out.temperature_meaning, TemperatureMeaning::kScaleLogp);
  take_dtype(keywords, "round_logits_to", out.round_logits_to);
  return out;
}

StatsRequest take_request(Keywords& keywords, Arrays& arrays) {
  StatsRequest out;
  keywords.take("entropy", out.entropy);
  keywords.take("cross", out.cross);
  keywords.take("argmax", out.argmax);
  keywords.take("rank", out.rank);
  out.cross_weights = take_span<float>(keywords, arrays, "cross_weights");
  return out;
}

CrossEntropyOptions take_cross_entropy_options(Keywords& keywords, Arrays& arrays) {
  CrossEntropyOptions out;
  out.token = take_token_options(keywords, arrays);
  keywords.take_name("reduction", out.reduction, Reduction::kNone);
  keywords.take("label_smoothing", out.label_smoothing);
  keywords.take("z_loss", out.z_loss);
  out.class_weights = take_span<float>(keywords, arrays, "class_weights");
  keywords.take("loss_scale", out.loss_scale);
  keywords.take("normaliser", out.normaliser);
  keywords.take("want_accuracy", out.want_accuracy);
  keywords.take("want_entropy", out.want_entropy);
  return out;
}

PolicyOptions take_policy_options(Keywords& keywords, Arrays& arrays) {
  PolicyOptions out;
  out.token = take_token_options(keywords, arrays);
  keywords.take_name("variant", out.variant, PolicyVariant::kPpo);
  keywords.take_name("importance_sampling_level", out.importance_sampling_level, ImportanceLevel::kSequence);
  keywords.take("epsilon_low", out.epsilon_low);
  keywords.take("epsilon_high", out.epsilon_high);
  keywords.take("delta", out.delta);
  keywords.take_bound("log_ratio_clamp", out.log_ratio_clamp);
  keywords.take("beta", out.beta);
  keywords.take_name("kl_estimator", out.kl_estimator, KlEstimator::kK3);
  keywords.take("use_bias_correction_kl", out.use_bias_correction_kl);
  keywords.take("entropy_bonus", out.entropy_bonus);
  keywords.take("top_entropy_quantile", out.top_entropy_quantile);
  keywords.take("off_policy_mask_threshold", out.off_policy_mask_threshold);
  keywords.take_name("sampler_correction", out.sampler_correction, SamplerCorrection::kSequenceMask);
  keywords.take("sampler_clip_min", out.sampler_clip_min);
  keywords.take_bound("sampler_clip_max", out.sampler_clip_max);
  keywords.take("num_items_in_batch", out.num_items_in_batch);
  keywords.take("max_completion_length", out.max_completion_length);
  keywords.take("sapo_temperature_pos", out.sapo_temperature_pos);
  keywords.take("sapo_temperature_neg", out.sapo_temperature_neg);
  keywords.take("vespo_k_pos", out.vespo_k_pos);
  keywords.take("vespo_lambda_pos", out.vespo_lambda_pos);
  keywords.take("vespo_k_neg", out.vespo_k_neg);
  keywords.take("vespo_lambda_neg", out.vespo_lambda_neg);
  keywords.take("loss_scale", out.loss_scale);
  keywords.take("want_entropy", out.want_entropy);
  return out;
}

PreferenceOptions take_preference_options(Keywords& keywords, Arrays& arrays) {
  PreferenceOptions out;
  std::vector<std::pair<std::string, double>> terms;
  keywords.take("terms", terms);
  if (!terms.empty()) out.terms.clear();
  for (const auto& [name, weight] : terms) {
    PreferenceTerm term{PreferenceLoss::kSigmoid, weight};
    nb::dict one;
    one["loss"] = name;
    Keywords(one, "terms").take_name("loss", term.loss, PreferenceLoss::kCpo);
    out.terms.push_back(term);
  }
  keywords.take("beta", out.beta);
  keywords.take("label_smoothing", out.label_smoothing);
  keywords.take("average_log_prob", out.average_log_prob);
  keywords.take("discopop_tau", out.discopop_tau);
  keywords.take("simpo_gamma", out.simpo_gamma);
  keywords.take("nll_weight", out.nll_weight);
  out.token = take_token_options(keywords, arrays);
  keywords.take("loss_scale", out.loss_scale);
  keywords.take("want_entropy", out.want_entropy);
  return out;
}

KtoOptions take_kto_options(Keywords& keywords, Arrays& arrays) {
  KtoOptions out;
  keywords.take("beta", out.beta);
  keywords.take("desirable_weight", out.desirable_weight);
  keywords.take("undesirable_weight", out.undesirable_weight);
  keywords.take("average_log_prob", out.average_log_prob);
  out.token = take_token_options(keywords, arrays);
  keywords.take("loss_scale", out.loss_scale);
  keywords.take("want_entropy", out.want_entropy);
  return out;
}

PolicyBatch take_policy_batch(Keywords& keywords, Arrays& arrays) {
  PolicyBatch out;
  if (const nb::handle ids = keywords.find("chosen_ids")) out.chosen_ids = arrays.targets(ids, "chosen_ids");
  out.advantages = take_vector(keywords, arrays, "advantages");
  out.old_logps = take_vector(keywords, arrays, "old_logps");
  out.ref_logps = take_vector(keywords, arrays, "ref_logps");
  out.sampling_logps = take_vector(keywords, arrays, "sampling_logps");
  out.mask = take_span<uint8_t>(keywords, arrays, "mask");
  keywords.take_name("advantages_per", out.advantages_per, EntriesPer::kToken);
  return out;
}

Reference take_reference(Keywords& keywords, Arrays& arrays) {
  Reference out;
  out.logps = take_vector(keywords, arrays, "ref_logps");
  keywords.take_name("ref_logps_per", out.logps_per, EntriesPer::kToken);
  if (const nb::handle hidden = keywords.find("ref_hidden")) out.hidden = arrays.hidden(hidden, "ref_hidden");
  if (keywords.find("ref_weight")) out.head = take_head(keywords, arrays, "ref_", nullptr);
  return out;
}

KtoBatch take_kto_batch(Keywords& keywords, Arrays& arrays) {
  KtoBatch out;
  if (const nb::handle ids = keywords.find("targets")) out.targets = arrays.targets(ids, "targets");
  out.labels = take_span<uint8_t>(keywords, arrays, "labels");
  out.reference = take_reference(keywords, arrays);
  out.kl_logps = take_vector(keywords, arrays, "kl_logps");
  out.kl_ref_logps = take_vector(keywords, arrays, "kl_ref_logps");
  return out;
}

ContextOptions take_context_options(Keywords& keywords) {
  ContextOptions out;
  keywords.take("threads", out.threads);
  keywords.take("workspace_bytes", out.workspace_bytes);
  Workspace* workspace = nullptr;
  keywords.take("workspace", workspace);
  out.workspace = workspace;
  keywords.take_name("plan", out.plan, PlanKind::kDense);
  keywords.take("row_tile", out.row_tile);
  keywords.take("vocab_tile", out.vocab_tile);
  keywords.take("row_block", out.row_block);
  keywords.take("gemm_backend", out.gemm_backend);
  keywords.take_name("gradient_precision", out.gradient_precision, GradientPrecision::kFloat32);
  keywords.take("simd_target", out.simd_target);
  PythonCommunicator *vocab = nullptr, *data = nullptr;
  keywords.take("vocab_ranks", vocab);
  keywords.take("data_ranks", data);
  out.ranks.vocab = vocab;
  out.ranks.data = data;
  keywords.take("sum_d_weight", out.ranks.sum_d_weight);
  keywords.take("slices", out.ranks.slices);
  keywords.take("sum_d_hidden", out.ranks.sum_d_hidden);
  return out;
}

LmHead take_head(Keywords& keywords, Arrays& arrays, const char* prefix, bool* transposed) {
  const auto name = [&](const char* key) { return std::string(prefix) + key; };
  const std::string weight = name("weight"), layout = name("layout"), bias = name("bias"), softcap = name("softcap");
  const nb::handle given = keywords.find(weight.c_str());
  if (!given) throw InvalidInput(weight + " is missing");
  HeadLayout stated = HeadLayout::kVocabHidden;
  // The enumerators stand in this order.
  static_assert(static_cast<int>(HeadLayout::kVocabHidden) == 1);
  keywords.take_name(layout.c_str(), stated, HeadLayout::kVocabHidden);
  bool flipped = false;
  LmHead out(arrays.matrix(given, weight.c_str(), &flipped), stated);
  // A transposed view is the other layout as it stands.
  if (flipped) out.layout = stated == HeadLayout::kVocabHidden ? HeadLayout::kHiddenVocab : HeadLayout::kVocabHidden;
  if (transposed) *transposed = flipped;
  if (const nb::handle vector = keywords.find(bias.c_str())) out.bias = arrays.vector(vector, bias.c_str());
  keywords.take(softcap.c_str(), out.softcap);
  return out;
}

CallTensors::CallTensors(Keywords& keywords, Arrays& arrays) {
  bool accumulate = false;
  keywords.take("accumulate", accumulate);
  if (const nb::handle logits = keywords.find("logits")) {
    logits_ = arrays.logits(logits, "logits");
    if (const nb::handle out = keywords.find("d_logits")) d_logits_ = arrays.d_logits(out, "d_logits");
    if (accumulate) throw InvalidInput("accumulate = True: the gradient of logits is overwritten");
    return;
  }
  const nb::handle hidden = keywords.find("hidden");
  if (!hidden) throw InvalidInput("hidden is missing: give hidden and weight, or logits");
  hidden_ = arrays.hidden(hidden, "hidden");
  if (const nb::handle second = keywords.find("hidden_second")) {
    const HiddenStates other = arrays.hidden(second, "hidden_second");
    hidden_.second = other.states;
    hidden_.second_batch_stride = other.batch_stride;
  }
  hidden_.offsets = take_span<int64_t>(keywords, arrays, "offsets");
  bool transposed = false;
  head_ = take_head(keywords, arrays, "", &transposed);
  if (const nb::handle out = keywords.find("d_hidden")) {
    gradients_.d_hidden = arrays.d_hidden(out, "d_hidden", gradients_.d_hidden_batch_stride);
  }
  if (const nb::handle out = keywords.find("d_hidden_second")) {
    gradients_.d_hidden_second = arrays.d_hidden(out, "d_hidden_second", gradients_.d_hidden_second_batch_stride);
  }
  if (const nb::handle out = keywords.find("d_weight")) {
    gradients_.d_weight = arrays.output(out, "d_weight", transposed);
  }
  if (const nb::handle out = keywords.find("d_bias")) gradients_.d_bias = arrays.vector_output(out, "d_bias");
  if (const nb::handle sink = keywords.find("weight_sink")) {
    gradients_.weight_sink = sink_of(sink, transposed);
  }
  if (accumulate) {
    gradients_.d_hidden_mode = gradients_.d_weight_mode = gradients_.d_bias_mode = WriteMode::kAccumulate;
  }
}

}  // namespace logitless::python
