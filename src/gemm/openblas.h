// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "gemm/routine.h"

namespace logitless::gemm {

const Routine& openblas_float32();

/// Compute a product that is not empty, on the threads that OpenBLAS is set to. The operands have the type of
/// C.
void multiply_by_openblas(const Product<float>& product);
void multiply_by_openblas(const Product<double>& product);
/// See Backend::internal_bytes(); `element` is the size of an operand's elements.
size_t openblas_internal_bytes(int64_t m, int64_t n, int64_t k, size_t element);
/// See Backend::max_threads() and Backend::single_threaded_region().
int openblas_max_threads();
std::shared_ptr<void> single_threaded_openblas();

/// Returns the name of the kernels that run in this process.
std::string_view openblas_core();
/// Describes the process's OpenBLAS. `products` names the types that it multiplies, for the warning that its
/// kernels are narrower than the CPU's vectors.
Description openblas_description(std::string_view products);

}  // namespace logitless::gemm
