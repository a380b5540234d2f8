// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "gemm/gemm.h"

#include "gemm/onednn.h"
#include "gemm/openblas.h"
#include "gemm/tile_backend.h"

namespace logitless::gemm {
namespace {

// The best comes first. What runs follows from the build, the CPU and OpenBLAS's kernels: a choice by timing
// would change bits from run to run.
std::vector<const Backend*> backends() {
  std::vector<const Backend*> found = {&openblas_backend()};
#ifdef LOGITLESS_ONEDNN
  if (const Backend* onednn = onednn_backend()) found.insert(found.begin(), onednn);
#endif
  for (const Backend* tiles : {bfmmla_backend(), amx_backend()}) {
    if (tiles) found.insert(found.begin(), tiles);
  }
  return found;
}

}  // namespace

std::vector<std::string_view> backend_names() {
  std::vector<std::string_view> names;
  for (const Backend* backend : backends()) names.push_back(backend->name());
  return names;
}

const Backend* find_backend(std::string_view name) {
  // Who asks for it by name keeps other libraries out of the process's settings: oneDNN fixes the instruction
  // set that it may use when it is first asked for it.
  if (name == openblas_backend().name()) return &openblas_backend();
  for (const Backend* backend : backends()) {
    if (name == "auto" || name == backend->name()) return backend;
  }
  return nullptr;
}

const Backend& float32_backend() {
#ifdef LOGITLESS_ONEDNN
  if (onednn_multiplies(DType::kFloat32)) return *onednn_backend();
#endif
  return openblas_backend();
}

}  // namespace logitless::gemm
