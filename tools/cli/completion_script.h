// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One function a shell: the script that completes the commands, options, file names and config keys of a tree.
#pragma once

#include <string>
#include <vector>

#include "cli/completion_tree.h"

namespace logitless::cli {

std::string bash_completion(const CommandTree& tree);
std::string fish_completion(const CommandTree& tree);
std::string zsh_completion(const CommandTree& tree);

/// What these functions share.
std::string joined(const std::vector<std::string>& words, const std::string& separator = " ");
std::string replaced(std::string text, const std::string& from, const std::string& to);
/// One word for a shell: in single quotes. (In fish a backslash needs one more.)
std::string single_quoted(const std::string& text);
std::vector<std::string> names_of(const std::vector<Flag>& flags);

}  // namespace logitless::cli
