// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Includes the whole public C++ API except mpi.h, which needs another library. The C API is
/// c_api.h.
#pragma once

#include "logitless/context.h"
#include "logitless/cross_entropy.h"
#include "logitless/distillation.h"
#include "logitless/divergence.h"
#include "logitless/dtype.h"
#include "logitless/environment.h"
#include "logitless/error.h"
#include "logitless/gradients.h"
#include "logitless/id_sets.h"
#include "logitless/logits.h"
#include "logitless/names.h"
#include "logitless/packed.h"
#include "logitless/plan.h"
#include "logitless/policy.h"
#include "logitless/preference.h"
#include "logitless/ranks.h"
#include "logitless/run.h"
#include "logitless/set_distillation.h"
#include "logitless/soft_targets.h"
#include "logitless/tensor.h"
#include "logitless/token_stats.h"
#include "logitless/version.h"
#include "logitless/workspace.h"
