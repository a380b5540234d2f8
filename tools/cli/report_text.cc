// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/report_text.h"

#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace logitless::cli {

using Json = nlohmann::ordered_json;

namespace {

const char* layout_name(HeadLayout layout) {
  return layout == HeadLayout::kVocabHidden ? "vocab_hidden" : "hidden_vocab";
}

}  // namespace

std::string format(const char* pattern, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof(text), pattern, arguments);
  va_end(arguments);
  return text;
}

std::string shape_text(const std::string& what, const std::string& model, const Job& job) {
  return what + (model.empty() ? "" : ", " + model) +
         format(": %lld tokens, hidden %lld, vocab %lld, %s, %s", static_cast<long long>(job.tokens),
                static_cast<long long>(job.hidden_size), static_cast<long long>(job.vocab_size), name_of(job.dtype),
                layout_name(job.layout));
}

Json shape_json(const Job& job) {
  return {{"tokens", job.tokens},
          {"hidden", job.hidden_size},
          {"vocab", job.vocab_size},
          {"dtype", name_of(job.dtype)},
          {"layout", layout_name(job.layout)}};
}

std::string machine_text(const Environment& e) {
  return format("%s, %d threads, %s, %s %s", e.cpu.c_str(), e.threads, e.simd_target.c_str(), e.gemm_backend.c_str(),
                e.blas_core.c_str());
}

std::string warnings_text(const Environment& environment) {
  std::string text;
  for (const std::string& warning : environment.warnings) text += "warning: " + warning + "\n";
  return text;
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string dump(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace logitless::cli
