// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "gemm/gemm.h"

#include "gemm/openblas.h"

namespace logitless::gemm {
namespace {

// The best stands first. A backend that needs a library which may be missing is added here under its CMake
// option.
std::vector<const Backend*> backends() { return {&openblas_backend()}; }

}  // namespace

std::vector<std::string_view> backend_names() {
  std::vector<std::string_view> names;
  for (const Backend* backend : backends()) names.push_back(backend->name());
  return names;
}

const Backend* find_backend(std::string_view name) {
  for (const Backend* backend : backends()) {
    if (name == "auto" || name == backend->name()) return backend;
  }
  return nullptr;
}

}  // namespace logitless::gemm
