// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench_table.h"

#include "cli/text_table.h"
#include "report/units.h"

namespace logitless::cli {

std::string table_of(const report::Point& point) {
  using report::human_bytes, report::human_seconds;
  TextTable table({"", "time", "spread", "first", "/ dense", "/ GEMM rate", "extra peak", "workspace", "plan"});
  const report::Measurement* dense = point.find_ok(report::kDense);
  for (const report::Measurement& m : point.measurements) {
    if (!m.ok()) {
      table.add({m.contender, "failed: " + m.error});
      continue;
    }
    table.add({m.contender, human_seconds(m.median_s), human_seconds(m.spread_s), human_seconds(m.first_s),
               dense ? report::time_ratio(m.median_s / dense->median_s) : "-",
               m.gemm_efficiency ? report::fixed(*m.gemm_efficiency, 3) : "-", human_bytes(m.extra_peak_bytes),
               human_bytes(m.workspace_bytes), m.plan});
  }
  return table.text();
}

}  // namespace logitless::cli
