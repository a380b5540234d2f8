// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The library's OpenMP regions. What a region runs (a backend, a kernel, a caller's callback) may
// throw, and an exception that leaves a region ends the process: so every region is opened here, where the
// first exception is kept and thrown again behind it. A team may be smaller than asked for (OMP_THREAD_LIMIT,
// OMP_DYNAMIC, a region around it), but is never larger: omp_get_thread_num() is below `threads` in all of
// them.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "core/first_error.h"
#include "core/store.h"

namespace logitless::core {

/// Calls work(i) for every i in [0, count), in any order on a team of at most `threads`. Throws what the
/// first work that failed has thrown; the work that had not begun by then is left out.
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

/// Calls work(begin, end) for nearly equal parts of [0, count), one for each thread of a team of at most
/// `threads`. For one thread it opens no region.
template <class Work>
void parallel_ranges(int threads, int64_t count, const Work& work) {
  const int64_t parts = std::min<int64_t>(threads, count);
  if (parts > 1) {
    parallel_for(threads, parts, [&](int64_t part) { work(part * count / parts, (part + 1) * count / parts); });
  } else if (count > 0) {
    work(int64_t{0}, count);
  }
}

/// Calls work(error) on every thread of a team of at most `threads`. `work` runs what may throw by
/// error.guard(), so that threads that wait for each other all learn of it.
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

/// Calls submit(error) on the first thread of a team of at most `threads`, which runs the tasks that it
/// submits until all are done. The body of each task is run by error.guard(), and takes nothing from the
/// current store.
template <class Submit>
void parallel_tasks(int threads, const Submit& submit) {
  FirstError error;
#pragma omp parallel num_threads(threads)
  {
// This is not `single`, because libgomp 12 never frees the dependence table of a worker that submits tasks,
// only that of thread 0.
#pragma omp master
    submit(error);
  }
  error.rethrow();
}

/// Returns how many threads a region of `threads` gets here and now. Only the same thread, with the same
/// settings, gets as many next time, and under omp_get_dynamic() not even that.
inline int team_size(int threads) {
  int size = 1;
#pragma omp parallel num_threads(threads)
#pragma omp master
  size = omp_get_num_threads();
  return size;
}

}  // namespace logitless::core
