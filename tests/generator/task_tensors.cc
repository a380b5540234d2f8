// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "generator/task_tensors.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "logitless/preference.h"

namespace logitless::testing {

TaskTensors::TaskTensors(const DrawnCall& call, Side& student, Random& random)
    : call_(call), student_(student), random_(random) {}

int64_t TaskTensors::draw_id() {
  int64_t id = below(random_, call_.vocab);
  while (student_.is_masked(id)) id = below(random_, call_.vocab);
  return id;
}

// Ids are [N] or [B, T], or every second entry of a table.
ConstTensor TaskTensors::ids_of(const std::vector<int64_t>& ids) {
  const DType dtype = type_of_ids();
  const int64_t step = call_.strided_ids ? 2 : 1;
  GuardedTensor& tensor =
      call_.packed || !call_.strided_ids
          ? tensors_.emplace_back(dtype, std::vector{static_cast<int64_t>(ids.size())}, std::vector{step})
          : tensors_.emplace_back(dtype, std::vector{call_.sequences, call_.time},
                                  std::vector{step * call_.time + 1, step});
  for (size_t i = 0; i < ids.size(); ++i) tensor.set(static_cast<int64_t>(i), static_cast<double>(ids[i]));
  tensor.keep();
  return tensor.view();
}

ConstTensor TaskTensors::draw_targets(const TokenOptions& token) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < call_.tokens(); ++i) {
    const bool ignored = call_.all_ignored || below(random_, 5) == 0;
    ids.push_back(ignored ? token.ignore_index : draw_id());
  }
  labels_of_rows_ = ids;
  if (token.shift != 0) labels_of_rows_.clear();  // the shift selects other rows
  return ids_of(ids);
}

ConstTensor TaskTensors::numbers(int64_t count, double mean, double deviation) {
  GuardedTensor& tensor = tensors_.emplace_back(GuardedTensor::vector(call_.numbers, count));
  tensor.fill([&](int64_t, int64_t) { return mean + deviation * normal_of(random_); });
  tensor.keep();
  return tensor.view();
}

ConstTensor TaskTensors::log_probabilities(double deviation, bool per_sequence) {
  const double typical = -std::log(static_cast<double>(call_.vocab));
  if (!per_sequence) return numbers(call_.tokens(), typical, deviation);
  return numbers(call_.sequences, typical * static_cast<double>(call_.time), deviation);
}

void TaskTensors::set_token(TokenOptions& token) {
  if (!call_.temperatures) return;
  for (int64_t i = 0; i < call_.tokens(); ++i) {
    temperatures_.push_back(0.5 + 0.25 * static_cast<double>(below(random_, 8)));
  }
  all_temperatures_ = temperatures_;
  token.temperatures = temperatures_;
}

std::span<const float> TaskTensors::draw_weights() {
  for (int64_t v = 0; v < call_.vocab; ++v) weights_.push_back(0.25F * static_cast<float>(below(random_, 8)));
  return weights_;
}
std::span<const uint8_t> TaskTensors::draw_mask() {
  for (int64_t i = 0; i < call_.tokens(); ++i) mask_.push_back(!call_.all_ignored && below(random_, 4) != 0);
  return mask_;
}

// Draws factors of losses, some of them 0: one per token, [N] or [B, T], or one per sequence.
GuardedTensor& TaskTensors::draw_factors(bool per_sequence) {
  const bool in_batch = !per_sequence && !call_.packed && call_.strided_ids;
  GuardedTensor& factors = tensors_.emplace_back(
      in_batch ? GuardedTensor::rows(call_.numbers, call_.sequences, call_.time)
               : GuardedTensor::vector(call_.numbers, per_sequence ? call_.sequences : call_.tokens()));
  factors.fill([&](int64_t, int64_t) { return 0.5 * static_cast<double>(below(random_, 4)); });
  factors.keep();
  return factors;
}

void TaskTensors::set_token_weights(auto& task) {
  if (!call_.per_token && task.mean_over != MeanOver::kTokenWeights) return;
  token_weights_ = &draw_factors(false);
  task.token_weights = token_weights_->view();
}

void TaskTensors::set(CrossEntropy& task) {
  set_token(task.token);
  task.targets = draw_targets(task.token);
  if (call_.weights_of_entries) task.class_weights = draw_weights();
  set_token_weights(task);
}

void TaskTensors::set(TokenStatistics& task) {
  set_token(task.token);
  if (call_.targets) task.targets = draw_targets(task.token);
  if (call_.weights_of_entries) task.request.cross_weights = draw_weights();
}

void TaskTensors::set(CustomLoss& task) {
  set_token(task.token);
  task.targets = draw_targets(task.token);
  task.loss = &loss_.emplace(call_, draw_weights());
}

void TaskTensors::set(PolicyLoss& task) {
  set_token(task.token);
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < call_.tokens(); ++i) ids.push_back(draw_id());
  if (call_.mask) task.mask = draw_mask();
  labels_of_rows_ = ids;
  for (size_t i = 0; i < mask_.size(); ++i) {
    if (mask_[i] == 0) labels_of_rows_[i] = -100, ids[i] = -7;  // these ids are not read
  }
  task.chosen_ids = ids_of(ids);
  if (call_.kept) task.kept = draw_kept(ids);
  task.advantages = numbers(call_.per_token ? call_.tokens() : call_.sequences, 0, 1);
  task.advantages_per = call_.per_token ? EntriesPer::kToken : EntriesPer::kSequence;
  if (call_.old_logps) task.old_logps = log_probabilities(0.5);
  if (task.beta != 0) task.ref_logps = log_probabilities(0.5);
  const bool sampled = task.sampler_correction != SamplerCorrection::kNone ||
                       task.teacher_against == TeacherAgainst::kSampling || task.m2_threshold ||
                       task.sampler_penalty != 0;
  if (sampled) task.sampling_logps = log_probabilities(0.5);
  if (task.teacher_weight != 0) task.teacher_logps = log_probabilities(0.5);
  if (task.loss_type == PolicyLossType::kTopr || task.positive_nll_weight != 0) {
    task.scores = numbers(call_.sequences, 0, 1);
  }
}

// Draws the chosen id of each row and up to two others.
IdSets TaskTensors::draw_kept(const std::vector<int64_t>& chosen) {
  std::vector<int64_t> ids;
  std::vector<int64_t>& offsets = places_.emplace_back(std::vector<int64_t>{0});
  for (const int64_t id : chosen) {
    const size_t first = ids.size();
    if (id >= 0) ids.push_back(id);
    for (int64_t more = id < 0 ? 0 : below(random_, 3); more > 0; --more) {
      const int64_t other = draw_id();
      if (std::find(ids.begin() + static_cast<ptrdiff_t>(first), ids.end(), other) == ids.end()) ids.push_back(other);
    }
    offsets.push_back(static_cast<int64_t>(ids.size()));
  }
  GuardedTensor& tensor = tensors_.emplace_back(GuardedTensor::vector(type_of_ids(), std::ssize(ids)));
  tensor.fill([&](int64_t, int64_t e) { return static_cast<double>(ids[static_cast<size_t>(e)]); });
  tensor.keep();
  return IdSets(tensor.view(), offsets);
}

// Draws the reference model or the teacher.
Side& TaskTensors::draw_other() {
  DrawnCall own = call_;
  own.lora_scale = 0.25;
  if (call_.other_differs) {
    own.bias = !call_.bias || call_.values == Values::kMasked;
    own.softcap = call_.softcap > 0 || own.values == Values::kMasked ? 0 : 5;
    if (call_.states == DType::kFloat32) own.states = own.head = DType::kBFloat16;
    own.lora_rank = 0;
  }
  if (call_.teacher_logits && call_.task == Distillation::kName) own.finished = true, own.softcap = 0;
  return other_.emplace(own, student_.x.cols() + (call_.packing ? 0 : 2), student_.offsets, random_);
}

template <class Task>
void TaskTensors::set_reference(Task& task) {
  if (call_.model_as_reference) {
    task.reference = draw_other().logits();
  } else {
    task.ref_logps_per = call_.per_token ? EntriesPer::kToken : EntriesPer::kSequence;
    task.ref_logps = log_probabilities(1, !call_.per_token);
  }
}

void TaskTensors::set(PreferenceLoss& task) {
  set_token(task.token);
  task.targets = draw_targets(task.token);
  if (std::ranges::any_of(task.loss_type, needs_reference)) set_reference(task);
  labels_of_rows_.clear();  // half of a pair may be ignored
}

void TaskTensors::set(KtoLoss& task) {
  set_token(task.token);
  task.targets = draw_targets(task.token);
  set_reference(task);
  for (int64_t s = 0; s < call_.sequences; ++s) labels_.push_back(below(random_, 2) == 0);
  task.labels = labels_;
  if (task.loss_type == KtoLossType::kKto && call_.mask) {
    task.kl_logps = numbers(3, -5, 1);
    task.kl_ref_logps = numbers(3, -6, 1);
  }
  if (task.loss_type == KtoLossType::kA2po) task.reward_targets = numbers(call_.sequences, 0, 1);
  if (!call_.weights_of_entries) return;
  task.sequence_weights = draw_factors(true).view();
}

// Draws rows of one to three ids, and one row without ids.
IdSets TaskTensors::draw_sets(bool distinct) {
  std::vector<int64_t> ids;
  std::vector<int64_t>& offsets = places_.emplace_back(std::vector<int64_t>{0});
  labels_of_rows_.clear();
  int64_t allowed = 0;
  for (int64_t v = 0; v < call_.vocab; ++v) allowed += student_.is_masked(v) ? 0 : 1;
  for (int64_t i = 0; i < call_.tokens(); ++i) {
    const int64_t count = i % 5 == 3 || call_.all_ignored ? 0 : 1 + below(random_, std::min<int64_t>(3, allowed - 1));
    const size_t first = ids.size();
    while (static_cast<int64_t>(ids.size() - first) < count) {
      const int64_t id = draw_id();
      const bool repeated = std::find(ids.begin() + static_cast<ptrdiff_t>(first), ids.end(), id) != ids.end();
      if (!distinct || !repeated) ids.push_back(id);
    }
    offsets.push_back(static_cast<int64_t>(ids.size()));
    labels_of_rows_.push_back(count == 0 ? -100 : 0);
  }
  const DType dtype = type_of_ids();
  GuardedTensor& tensor =
      tensors_.emplace_back(call_.padded_sets ? GuardedTensor::rows(dtype, call_.tokens(), 3)
                                              : GuardedTensor::vector(dtype, static_cast<int64_t>(ids.size())));
  // Entries after a row's count are not token ids.
  for (int64_t i = 0; i < call_.tokens(); ++i) {
    const int64_t first = offsets[static_cast<size_t>(i)], count = offsets[static_cast<size_t>(i) + 1] - first;
    for (int64_t k = 0; k < count; ++k) {
      const auto id = static_cast<double>(ids[static_cast<size_t>(first + k)]);
      call_.padded_sets ? tensor.set(i, k, id) : tensor.set(0, first + k, id);
    }
  }
  tensor.keep();
  if (!call_.padded_sets) return IdSets(tensor.view(), offsets);
  std::vector<int64_t>& counts = places_.emplace_back();
  for (size_t i = 1; i < offsets.size(); ++i) counts.push_back(offsets[i] - offsets[i - 1]);
  return IdSets::padded(tensor.view(), counts);
}

// Returns a tensor with one number per id of the sets. Entries after a row's count stay NaN.
GuardedTensor& TaskTensors::numbers_of(const IdSets& sets) {
  return tensors_.emplace_back(call_.padded_sets ? GuardedTensor::rows(call_.numbers, call_.tokens(), 3)
                                                 : GuardedTensor::vector(call_.numbers, sets.entries()));
}
void TaskTensors::for_each_id(const IdSets& sets,
                              const std::function<void(int64_t entry, int64_t count)>& visit) const {
  for (int64_t i = 0; i < call_.tokens(); ++i) {
    const auto row = static_cast<size_t>(i);
    const int64_t first = sets.offsets.empty() ? 3 * i : sets.offsets[row];
    const int64_t count = sets.offsets.empty() ? sets.counts[row] : sets.offsets[row + 1] - first;
    for (int64_t k = 0; k < count; ++k) visit(first + k, count);
  }
}

void TaskTensors::set(IdLogps& task) {
  set_token(task.token);
  task.sets = draw_sets(false);
}

void TaskTensors::set(SoftCrossEntropy& task) {
  set_token(task.token);
  set_token_weights(task);
  if (call_.dense_targets) {
    const DType dtype = call_.states == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    GuardedTensor& rows = tensors_.emplace_back(GuardedTensor::rows(dtype, call_.tokens(), call_.vocab));
    rows.fill(
        [&](int64_t, int64_t v) { return student_.is_masked(v) ? 0 : 0.125 * static_cast<double>(below(random_, 4)); });
    rows.keep();
    task.targets = SoftTargets(rows.view());
    if (!call_.mask) return;
    task.targets.mask = draw_mask();
    for (const uint8_t counts : mask_) labels_of_rows_.push_back(counts == 0 ? -100 : 0);
    return;
  }
  const IdSets sets = draw_sets(false);
  GuardedTensor& weights = numbers_of(sets);
  for_each_id(sets, [&](int64_t e, int64_t) { weights.set(e, 0.125 * static_cast<double>(1 + below(random_, 4))); });
  weights.keep();
  task.targets = SoftTargets(sets, weights.view());
}

void TaskTensors::set(SetDistillation& task) {
  set_token(task.token);
  task.teacher.sets = draw_sets(true);
  const std::vector<int64_t> of_sets = labels_of_rows_;
  GuardedTensor& logps = numbers_of(task.teacher.sets);
  // Probabilities that sum to at most 0.91, and are never 1 / n: a student with n ties would meet a kink.
  for_each_id(task.teacher.sets, [&](int64_t e, int64_t count) {
    const double share = (0.11 + 0.2 * static_cast<double>(below(random_, 5))) / static_cast<double>(count);
    logps.set(e, std::log(share));
  });
  logps.keep();
  task.teacher.logps = logps.view();
  if (task.hard_weight != 0 || call_.mask) task.targets = draw_targets(task.token);
  for (size_t i = 0; i < labels_of_rows_.size(); ++i) {
    if (of_sets[i] == -100) labels_of_rows_[i] = -100;
  }
  set_token_weights(task);
}

void TaskTensors::set(Distillation& task) {
  set_token(task.token);
  task.teacher = draw_other().logits();
  if (task.hard_weight != 0 || call_.mask) task.targets = draw_targets(task.token);
  set_token_weights(task);
}

void TaskTensors::poison_rows() {
  for (size_t i = 0; i < labels_of_rows_.size(); ++i) {
    if (labels_of_rows_[i] >= 0 && labels_of_rows_[i] < call_.vocab) continue;
    student_.poison(static_cast<int64_t>(i));
    if (!temperatures_.empty()) temperatures_[i] = std::numeric_limits<double>::quiet_NaN();
    if (token_weights_) token_weights_->set(static_cast<int64_t>(i), std::numeric_limits<double>::quiet_NaN());
    if (other_) other_->poison(static_cast<int64_t>(i));
  }
  if (token_weights_) token_weights_->keep();
}

bool TaskTensors::unchanged() const {
  return std::ranges::all_of(tensors_, [](const GuardedTensor& tensor) { return tensor.unchanged(); }) &&
         (!other_ || other_->unchanged());
}

}  // namespace logitless::testing
