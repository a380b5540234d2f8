// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "c_api/status.h"
#include "logitless/context.h"
#include "logitless/dtype.h"
#include "logitless/plan.h"
#include "logitless/policy.h"
#include "logitless/preference.h"
#include "logitless/tensors.h"
#include "logitless/token_stats.h"

using logitless::DType;
using logitless::GradientPrecision;
using logitless::ImportanceLevel;
using logitless::KlEstimator;
using logitless::PlanKind;
using logitless::SamplerCorrection;

namespace {

template <class Enum>
const char* name_up_to(int32_t value, Enum last) {
  if (value < 0 || value > static_cast<int32_t>(last)) return nullptr;
  return name_of(static_cast<Enum>(value));
}

static_assert(static_cast<int>(PlanKind::kDense) == LOGITLESS_PLAN_DENSE);
static_assert(static_cast<int>(GradientPrecision::kFloat32) == LOGITLESS_PRECISION_FLOAT32);
static_assert(static_cast<int>(logitless::HeadLayout::kVocabHidden) == LOGITLESS_VOCAB_HIDDEN);
static_assert(static_cast<int>(logitless::WriteMode::kAccumulate) == LOGITLESS_ACCUMULATE);
static_assert(static_cast<int>(logitless::EntriesPer::kToken) == LOGITLESS_PER_TOKEN);
static_assert(static_cast<int>(logitless::TemperatureMeaning::kScaleLogp) == LOGITLESS_SCALE_LOGP);
static_assert(static_cast<int>(logitless::PolicyVariant::kPpo) == LOGITLESS_PPO);
static_assert(static_cast<int>(KlEstimator::kK3) == LOGITLESS_K3);
static_assert(static_cast<int>(ImportanceLevel::kSequence) == LOGITLESS_SEQUENCE_RATIO);
static_assert(static_cast<int>(SamplerCorrection::kSequenceMask) == LOGITLESS_SEQUENCE_MASK);
static_assert(static_cast<int>(logitless::PreferenceLoss::kCpo) == LOGITLESS_CPO);

}  // namespace

const char* logitless_dtype_name(int32_t dtype) { return name_up_to(dtype, DType::kFloat16); }
const char* logitless_plan_kind_name(int32_t kind) { return name_up_to(kind, PlanKind::kDense); }
const char* logitless_gradient_precision_name(int32_t precision) {
  return name_up_to(precision, GradientPrecision::kFloat32);
}
const char* logitless_policy_variant_name(int32_t variant) {
  return name_up_to(variant, logitless::all_policy_variants().back());
}
const char* logitless_kl_estimator_name(int32_t estimator) { return name_up_to(estimator, KlEstimator::kK3); }
const char* logitless_importance_level_name(int32_t level) { return name_up_to(level, ImportanceLevel::kSequence); }
const char* logitless_sampler_correction_name(int32_t correction) {
  return name_up_to(correction, SamplerCorrection::kSequenceMask);
}
const char* logitless_preference_loss_name(int32_t loss) {
  return name_up_to(loss, logitless::all_preference_losses().back());
}
int logitless_needs_reference(int32_t loss) {
  return logitless_preference_loss_name(loss) && needs_reference(static_cast<logitless::PreferenceLoss>(loss));
}
