// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "metrics.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

MetricsFile::MetricsFile(const std::string& path) : path_(path), file_(path) {
  if (!file_) throw std::runtime_error("--metrics " + path_ + ": cannot be written");
}

void MetricsFile::write(int64_t step, const std::string& name, double value) {
  const nlohmann::ordered_json line = {{"step", step}, {"name", name}, {"value", value}};
  file_ << line.dump() << '\n' << std::flush;
  if (!file_) throw std::runtime_error("--metrics " + path_ + ": cannot be written");
}

void write_step(MetricsFile& file, const std::string& prefix, const StepReport& report, const TrainOptions& options) {
  file.write(report.step, prefix + "loss", report.loss);
  file.write(report.step, prefix + "learning_rate", learning_rate_at(report.step, options));
  file.write(report.step, prefix + "tokens_per_s", static_cast<double>(options.batch_tokens) / report.seconds);
  file.write(report.step, prefix + "head_ms", 1e3 * report.head_seconds);
}

void write_summary(MetricsFile& file, const std::string& prefix, const TrainSummary& summary,
                   const TrainOptions& options) {
  const auto write = [&](const char* name, double value) { file.write(options.steps, prefix + name, value); };
  write("final_loss", summary.final_loss);
  write("unigram_entropy", summary.unigram_entropy);
  write("peak_bytes", static_cast<double>(summary.peak_bytes));
  write("head_extra_peak_bytes", static_cast<double>(summary.head_extra_bytes));
  write("workspace_bytes", static_cast<double>(summary.workspace_bytes));
}
