// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "gemm/gemm.h"

namespace logitless::gemm {

const Backend& openblas_backend();

/// These compute a product, which is not empty and whose operands have the type of C, on the threads that
/// OpenBLAS is set to.
void multiply_by_openblas(const Product<float>& product);
void multiply_by_openblas(const Product<double>& product);

/// Describes the process's OpenBLAS. `products` names those that it computes, for the warning that its
/// kernels are narrower than the CPU.
Description openblas_description(std::string_view products);

}  // namespace logitless::gemm
