// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

namespace logitless::cli {

/// From here on a read beyond the end of a mapped file ends this process with a line on standard error that names the
/// file, and with status 2, where the system would kill it without a word: somebody has cut the file short meanwhile.
/// Where it was shared memory that the system could not provide, the line says so and the status is 3.
void explain_bus_errors();

/// Takes that back. A child process dies of it, and its parent explains why.
void leave_bus_errors();

}  // namespace logitless::cli
