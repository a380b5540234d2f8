// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "logitless/blas.h"

int main(int argc, char** argv) {
  logitless::use_best_blas_kernels();
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
