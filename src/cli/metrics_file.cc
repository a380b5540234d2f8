// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/metrics_file.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "io/error.h"

namespace logitless::cli {

MetricsFile::MetricsFile(const std::string& path) : path_(path), out_(path, std::ios::trunc) { check(); }

void MetricsFile::write(int64_t step, const std::string& name, double value) {
  using Json = nlohmann::ordered_json;
  const Json line = {{"step", step}, {"name", name}, {"value", std::isfinite(value) ? Json(value) : Json(nullptr)}};
  out_ << line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n" << std::flush;
  check();
}

void MetricsFile::check() const {
  if (!out_) throw io::Error("--metrics " + path_ + ": cannot be written: " + std::strerror(errno));
}

}  // namespace logitless::cli
