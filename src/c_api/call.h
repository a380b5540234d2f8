// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The handles that the C API gives out.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "logitless/c_api.h"
#include "record/record.h"

struct logitless_context {
  logitless::record::ContextRecord record;
  std::string first_failure, failed_key;  ///< of a setter
};

struct logitless_call {
  std::array<std::shared_ptr<logitless::Communicator>, 2> ranks;  ///< they must outlive the record's calls
  std::unique_ptr<logitless::record::Record> record;
  std::string first_failure, failed_key;  ///< of a setter since the last verb, or of its context's
  std::string text;                       ///< of the last logitless_get_text()
};
