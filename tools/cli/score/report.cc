// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/score/score.h"

#include "cli/common/output.h"

namespace logitless::cli {

std::string table_of(const ScoreReport& report) {
  const ScoreSummary& s = report.summary;
  std::string text = shape_text("score", report.config.model.name, report.job) + "\n" +
                     machine_text(report.environment) + "\n" + warnings_text(report.environment) + "\n";
  const auto line = [&](const char* name, const std::string& value) { text += format("%-16s ", name) + value + "\n"; };
  line("tokens", format("%lld of %lld", static_cast<long long>(s.tokens), static_cast<long long>(report.job.tokens)));
  if (s.nan_tokens > 0) line("NaN tokens", std::to_string(s.nan_tokens));
  line("cross-entropy", format("%.9g nats", s.cross_entropy));
  line("perplexity", format("%.9g", s.perplexity));
  line("bits per token", format("%.9g", s.bits_per_token));
  line("accuracy", format("%.6f", s.accuracy));
  if (report.rank) line("top-5 accuracy", format("%.6f", s.top5_accuracy));
  if (report.entropy) line("mean entropy", format("%.9g nats", s.mean_entropy));
  line("sequences",
       format("%lld, of which %lld greedy", static_cast<long long>(s.sequences), static_cast<long long>(s.greedy)));
  line("time", format("%.3f s", report.time_s));
  line("workspace", human_bytes(static_cast<int64_t>(report.plan.workspace_bytes)));
  line("plan", report.plan.describe());
  line("written", report.output_path + ": " + report.written);
  std::string unused;
  for (const std::string& key : keys_not_applied(report.config)) unused += (unused.empty() ? "" : ", ") + key;
  if (!unused.empty()) line("keys not used", unused);
  return text;
}

Json json_of(const ScoreReport& report) {
  const ScoreSummary& s = report.summary;
  Json json = {{"shape", shape_json(report.job)}, {"tokens", s.tokens},
               {"nan_tokens", s.nan_tokens},      {"cross_entropy", s.cross_entropy},
               {"perplexity", s.perplexity},      {"bits_per_token", s.bits_per_token},
               {"accuracy", s.accuracy}};
  if (report.rank) json["top5_accuracy"] = s.top5_accuracy;
  if (report.entropy) json["mean_entropy"] = s.mean_entropy;
  json["sequences"] = s.sequences;
  json["greedy_sequences"] = s.greedy;
  json["time_s"] = report.time_s;
  json["workspace_bytes"] = report.plan.workspace_bytes;
  json["plan"] = name_of(report.plan.kind);
  json["output"] = report.output_path;
  json["keys_not_applied"] = keys_not_applied(report.config);
  json["details"] = {{"plan", report.plan.describe()}};
  json["environment"] = environment_json(report.environment);
  return json;
}

}  // namespace logitless::cli
