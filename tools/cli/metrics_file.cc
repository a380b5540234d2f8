// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/metrics_file.h"

#include <cerrno>
#include <cstring>
#include <iostream>

#include "cli/report_text.h"
#include "io/error.h"

namespace logitless::cli {

MetricsFile::MetricsFile(const std::string& path) : path_(path), out_(path == "-" ? std::cout : file_) {
  if (path != "-") file_.open(path, std::ios::trunc);
  check();
}

void MetricsFile::write(int64_t step, const std::string& name, double value) {
  const nlohmann::ordered_json line = {{"step", step}, {"name", name}, {"value", number(value)}};
  out_ << line.dump() + "\n" << std::flush;
  check();
}

void MetricsFile::check() const {
  if (!out_) throw io::Error("--metrics " + path_ + ": cannot be written: " + std::strerror(errno));
}

}  // namespace logitless::cli
