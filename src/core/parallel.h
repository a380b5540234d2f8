// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The library's OpenMP regions. Code in a region (a backend, a kernel, a caller's callback) may throw, but an
// exception that escapes from a region ends the process. So these functions open all regions: they store the
// first exception and throw it after the region. A team may be smaller than requested (OMP_THREAD_LIMIT,
// OMP_DYNAMIC, an outer region) but never larger: omp_get_thread_num() is always below `threads`.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "core/first_error.h"
#include "core/store.h"

namespace logitless::core {

/// Calls work(i) for every i in [0, count), in any order, on a team of at most `threads`. Throws the first
/// exception of the work; work that has not begun by then is skipped.
template <class Work>
void parallel_for(int threads, int64_t count, const Work& work) {
  FirstError error;
  Store* const store = current_store();
#pragma omp parallel num_threads(threads)
  {
    const StoreScope scope(store);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < count; ++i) error.guard([&] { work(i); });
  }
  error.rethrow();
}

/// Calls work(begin, end) for nearly equal parts of [0, count), one per thread of a team of at most
/// `threads`. Opens no region for a single part.
template <class Work>
void parallel_ranges(int threads, int64_t count, const Work& work) {
  const int64_t parts = std::min<int64_t>(threads, count);
  if (parts > 1) {
    parallel_for(threads, parts, [&](int64_t part) { work(part * count / parts, (part + 1) * count / parts); });
  } else if (count > 0) {
    work(int64_t{0}, count);
  }
}

/// Calls work(error) on every thread of a team of at most `threads`. `work` wraps code that may throw in
/// error.guard(), so that threads that wait for each other all notice a failure.
template <class Work>
void parallel_team(int threads, const Work& work) {
  FirstError error;
  Store* const store = current_store();
#pragma omp parallel num_threads(threads)
  {
    const StoreScope scope(store);
    error.guard([&] { work(error); });
  }
  error.rethrow();
}

/// Calls submit(error) on the first thread of a team of at most `threads`, which runs the submitted tasks
/// until all are done. Each task's body runs in error.guard(), and may not allocate from the current store.
template <class Submit>
void parallel_tasks(int threads, const Submit& submit) {
  FirstError error;
#pragma omp parallel num_threads(threads)
  {
// Not `single`, because libgomp 12 frees the dependence table only of thread 0, not of a worker that submits
// tasks.
#pragma omp master
    submit(error);
  }
  error.rethrow();
}

/// Returns the team size that a region of `threads` threads gets now. Only the same thread with the same
/// settings gets the same size again, and not even then under omp_get_dynamic().
inline int team_size(int threads) {
  int size = 1;
#pragma omp parallel num_threads(threads)
#pragma omp master
  size = omp_get_num_threads();
  return size;
}

}  // namespace logitless::core
