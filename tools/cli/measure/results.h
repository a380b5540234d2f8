// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What a call has computed: its loss, and the outputs of its job.
#pragma once

#include <map>
#include <string>

#include "cli/common/task_call.h"

namespace logitless::cli {

struct Results {
  const Job& job;
  const TaskResult& result;
};

struct Difference {
  double max_abs = 0;
  double rel_l2 = 0;
};

/// By tensor, of those that both have: losses, d_hidden, d_weight and d_bias.
using Differences = std::map<std::string, Difference>;

/// b's are held against a's.
Differences differences_of(const Results& a, const Results& b);

/// {max_abs, rel_l2} by tensor, as differences travel in an answer, and back.
Json differences_json(const Differences& differences);
Differences differences_of(const Json& json);

/// The loss and the gradients, as FILES of the command's page describes them. Throws io::Error.
void write_results(const std::string& path, const Results& results);

}  // namespace logitless::cli
