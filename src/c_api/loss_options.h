// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// These read what the C API's losses are given beside tensors. They throw InvalidInput for a structure of
// an unknown size and a value that no enumeration has; what is wrong otherwise, the C++ functions say.
#pragma once

#include "logitless/c_api.h"
#include "logitless/cross_entropy.h"
#include "logitless/policy.h"
#include "logitless/preference.h"

namespace logitless::c_api {

CrossEntropyOptions options_of(const logitless_cross_entropy_options* given);
PolicyBatch batch_of(const logitless_policy_batch* given);
PolicyOptions options_of(const logitless_policy_options* given);
Reference reference_of(const logitless_reference* given);
PreferenceOptions options_of(const logitless_preference_options* given);
KtoBatch batch_of(const logitless_kto_batch* given);
KtoOptions options_of(const logitless_kto_options* given);

}  // namespace logitless::c_api
