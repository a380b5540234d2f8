// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace logitless::io {

/// Passes a text that yaml-cpp can build and any code can walk: one document at most, nested at most 64 levels deep, of
/// at most 100,000 values, aliases counted as what they stand for, and none inside of what it stands for. Throws
/// YamlProblem, or what yaml-cpp throws of a text that is not YAML. It is needed because YAML::LoadAll() never ends on
/// text such as ",", and because values that aliases multiply fill all memory once they are printed or copied.
void check_yaml(const std::string& text);

}  // namespace logitless::io
