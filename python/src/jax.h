// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

namespace logitless::python {

namespace nb = nanobind;

/// Defines jax_targets(), the handlers that logitless.jax registers; jax_attributes(); and jax_slice_bytes().
void define_jax_targets(nb::module_& m);

}  // namespace logitless::python
