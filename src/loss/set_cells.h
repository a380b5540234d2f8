// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Divergences of a student's and a teacher's masses in a few cells: token ids, and possibly one cell for all
// others.
#pragma once

#include <cstdint>
#include <span>

#include "logitless/divergence.h"

namespace logitless::loss {

/// A divergence with its parameter: β, λ or w.
struct CellDivergence {
  Divergence kind = Divergence::kForwardKl;
  double parameter = 0;
};

/// The properties of the masses of a row's cells.
enum class CellMasses {
  kDistributions,  // both sum to 1: the value is a sum of terms that are never below 0
  kAny,            // the plain sum, whose terms have either sign
  kGeneralised,    // x log(x / y) − x + y in place of x log(x / y), for masses that do not sum to 1
};

/// Returns the divergence of the masses with logarithms `student` and `teacher`, and sets slopes[k] to its
/// partial derivative by student[k]. Cells in which neither has mass contribute 0.
double divergence_of_cells(const CellDivergence& divergence, CellMasses masses, std::span<const double> student,
                           std::span<const double> teacher, std::span<double> slopes);

}  // namespace logitless::loss
