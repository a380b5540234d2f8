// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logitless/plan.h"

#include <cstdio>

namespace logitless {

std::string Plan::describe() const {
  char text[256];
  if (active_rows == 0) return std::string(name_of(kind)) + ": no active rows";
  const int used = std::snprintf(text, sizeof text, "%s: %lld of %lld rows in chunks of %lld, ", name_of(kind),
                                 static_cast<long long>(active_rows), static_cast<long long>(tokens),
                                 static_cast<long long>(chunk_rows));
  char* rest = text + used;
  const size_t left = sizeof text - static_cast<size_t>(used);
  const double mebibytes = static_cast<double>(workspace_bytes) / (1 << 20);
  if (row_block > 0) {
    std::snprintf(rest, left, "blocks of %lld, %.1f MiB workspace", static_cast<long long>(row_block), mebibytes);
  } else {
    std::snprintf(rest, left, "tiles %lld x %lld, %d alive, %.1f MiB workspace", static_cast<long long>(row_tile),
                  static_cast<long long>(vocab_tile), tiles_alive, mebibytes);
  }
  std::string out = text;
  if (!gemm_library.empty()) out += ", " + gemm_library;
  if (gradient_dtype == DType::kBFloat16 && kind != PlanKind::kForwardOnly) {
    out += gradient_terms == 2 ? ", gradients multiplied as two bfloat16" : ", gradients multiplied as bfloat16";
  }
  if (kind == PlanKind::kTwoPass && stored_entries > 0) {
    std::snprintf(text, sizeof text, ", %lld entries stored", static_cast<long long>(stored_entries));
    out += text;
  }
  if (kept_share < 1) {
    std::snprintf(text, sizeof text, ", gradients of %.3g %% of the segments", 100 * kept_share);
    out += text;
  }
  return out;
}

}  // namespace logitless
