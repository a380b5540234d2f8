// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Runs calls in which every allocation fails once. Programs must compile failing_allocation.cc in.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "support/failing_allocation.h"
#include "support/result_columns.h"

namespace logitless::testing {

/// The outcomes of the failures.
struct Outcomes {
  int64_t allocations = 0, thrown = 0, survived = 0;
};

/// Makes each allocation of `call()` fail in turn, alone and with all following ones. Expects that the caller
/// catches std::bad_alloc, that nothing leaks, and that the next call gives the usual results. `outputs()`
/// returns the bytes that the call writes, in addition to its result. The first calls start the team and
/// allocate the BLAS's buffers.
template <class Call, class Outputs>
void fail_each_allocation(const std::string& name, const Call& call, const Outputs& outputs) {
  SCOPED_TRACE(name);
  using Result = decltype(call());
  const auto left_by = [&](const Result& result) {
    std::vector<std::byte> bytes = bytes_of(result);
    const std::vector<std::byte> written = outputs();
    bytes.insert(bytes.end(), written.begin(), written.end());
    return bytes;
  };
  call();
  const std::vector<std::byte> expected = left_by(call());
  Outcomes outcomes;
  for (const Failing failing : {Failing::kOne, Failing::kAllAfter}) {
    for (int64_t index = 0;; ++index) {
      const int64_t before = blocks_alive();
      AllocationsSeen seen;
      std::string other;
      {
        Result result;
        bool thrown = true;
        fail_allocation(index, failing);
        try {
          result = call();
          thrown = false;
        } catch (const std::bad_alloc&) {
        } catch (const std::exception& error) {
          stop_failing();
          other = error.what();
        }
        seen = stop_failing();
        ASSERT_EQ(other, "") << "allocation " << index;
        if (seen.failed == 0) {
          ASSERT_FALSE(thrown);
          outcomes.allocations = seen.allocations;
          break;
        }
        // std::stable_sort continues without its buffer, and a workspace frees a column if it cannot record
        // it.
        if (!thrown) {
          ASSERT_TRUE(left_by(result) == expected) << "allocation " << index;
        }
        (thrown ? outcomes.thrown : outcomes.survived) += 1;
      }
      ASSERT_EQ(blocks_alive(), before) << "allocation " << index << " left blocks behind";
      ASSERT_TRUE(left_by(call()) == expected) << "the call after allocation " << index << " failed has other bits";
    }
  }
  EXPECT_GT(outcomes.thrown, 10);
  std::printf("%s: %lld allocations, %lld failures thrown, %lld survived\n", name.c_str(),
              static_cast<long long>(outcomes.allocations), static_cast<long long>(outcomes.thrown),
              static_cast<long long>(outcomes.survived));
}

}  // namespace logitless::testing
