// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "c_api/status.h"
#include "logitless/fields.h"

using namespace logitless;

namespace {

// Returns the name of the value, and NULL where it has none. `last` is C's last constant.
template <Named Enum, int32_t last>
const char* name_at(int32_t value) {
  static_assert(kNamesOf<Enum>.size() == last + 1);
  return value < 0 || value > last ? nullptr : name_of(static_cast<Enum>(value));
}

static_assert(kNamesOf<HeadLayout>.size() == LOGITLESS_VOCAB_HIDDEN + 1);
static_assert(static_cast<int>(Packing::kQ4K) == LOGITLESS_Q4_K);
static_assert(kNamesOf<WriteMode>.size() == LOGITLESS_ACCUMULATE + 1);
static_assert(kNamesOf<EntriesPer>.size() == LOGITLESS_PER_TOKEN + 1);
static_assert(kNamesOf<TemperatureMeaning>.size() == LOGITLESS_SCALE_LOGP + 1);
static_assert(kNamesOf<NormaliseOver>.size() == LOGITLESS_OVER_SET + 1);
static_assert(kNamesOf<Reduction>.size() == LOGITLESS_NO_REDUCTION + 1);
static_assert(kNamesOf<MeanOver>.size() == LOGITLESS_OVER_SEQUENCE_MEANS + 1);
static_assert(kNamesOf<SequenceLogps>.size() == LOGITLESS_LOGPS_ARE_AVERAGES + 1);
static_assert(static_cast<int>(Divergence::kAcceptance) == LOGITLESS_ACCEPTANCE);
static_assert(static_cast<int>(DType::kBFloat16) == LOGITLESS_BFLOAT16);
static_assert(static_cast<int>(DType::kFloat64) == LOGITLESS_FLOAT64);
static_assert(static_cast<int>(PolicyVariant::kKlCov) == LOGITLESS_KL_COV);
static_assert(static_cast<int>(PairedLoss::kSigmoidNorm) == LOGITLESS_SIGMOID_NORM);

}  // namespace

const char* logitless_dtype_name(int32_t dtype) { return name_at<DType, LOGITLESS_FLOAT16>(dtype); }
const char* logitless_plan_kind_name(int32_t kind) { return name_at<PlanKind, LOGITLESS_PLAN_EXPECTED_ROW>(kind); }
const char* logitless_gradient_precision_name(int32_t precision) {
  return name_at<GradientPrecision, LOGITLESS_PRECISION_FLOAT32>(precision);
}
const char* logitless_backward_mode_name(int32_t mode) {
  return name_at<BackwardMode, LOGITLESS_BACKWARD_CERTIFIED>(mode);
}
const char* logitless_packing_name(int32_t packing) { return name_at<Packing, LOGITLESS_NF4>(packing); }
const char* logitless_policy_variant_name(int32_t variant) { return name_at<PolicyVariant, LOGITLESS_KL_COV>(variant); }
const char* logitless_kl_estimator_name(int32_t estimator) {
  return name_at<KlEstimator, LOGITLESS_K3_PLUS>(estimator);
}
const char* logitless_policy_aggregation_name(int32_t aggregation) {
  return name_at<PolicyAggregation, LOGITLESS_SEQ_MEAN_TOKEN_SUM_NORM>(aggregation);
}
const char* logitless_trust_region_name(int32_t region) {
  return name_at<TrustRegion, LOGITLESS_TRUST_REGION_KL>(region);
}
const char* logitless_importance_level_name(int32_t level) {
  return name_at<ImportanceLevel, LOGITLESS_SEQUENCE_RATIO>(level);
}
const char* logitless_sampler_correction_name(int32_t correction) {
  return name_at<SamplerCorrection, LOGITLESS_GEOMETRIC_MASK>(correction);
}
const char* logitless_teacher_against_name(int32_t against) {
  return name_at<TeacherAgainst, LOGITLESS_AGAINST_SAMPLING>(against);
}
const char* logitless_preference_loss_name(int32_t loss) {
  return name_at<PairedLoss, LOGITLESS_SIGMOID_NORM>(loss);
}
const char* logitless_f_divergence_name(int32_t divergence) {
  return name_at<FDivergence, LOGITLESS_F_ALPHA>(divergence);
}
const char* logitless_unpaired_loss_name(int32_t loss) { return name_at<UnpairedLoss, LOGITLESS_A2PO>(loss); }
const char* logitless_divergence_name(int32_t divergence) {
  return name_at<Divergence, LOGITLESS_LK_HYBRID>(divergence);
}
const char* logitless_outside_set_name(int32_t outside) {
  return name_at<OutsideSet, LOGITLESS_OUTSIDE_GENERALISED>(outside);
}
int logitless_needs_reference(int32_t loss) {
  return logitless_preference_loss_name(loss) && needs_reference(static_cast<PairedLoss>(loss));
}
