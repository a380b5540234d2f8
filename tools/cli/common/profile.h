// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/common/inputs.h"
#include "io/config.h"
#include "io/profile_file.h"

namespace logitless::cli {

/// The profile that a command uses: the file of --profile, or else of the environment variable LOGITLESS_PROFILE.
class Profile {
 public:
  /// `path` as --profile gives it, or empty. Throws io::Error where the file is no profile.
  explicit Profile(const std::string& path);

  /// Empty where none is asked for.
  const std::string& path() const { return path_; }

  /// Sets kernel.plan, kernel.time_block and kernel.block_size as the entry of this shape says, where `config` leaves
  /// them to the library. Returns what came of it, for the user; empty where no profile is asked for.
  std::string apply(const Job& shape, io::Config& config) const;

 private:
  std::string path_;
  std::vector<io::ProfileEntry> entries_;
};

/// What a profile looks up.
ProfileShape profile_shape(const io::Config& config, const Job& job);

/// What a command reads, for check_output_files(). Of `configs` any may be empty.
std::vector<InputFile> input_files(const TensorPaths& tensors, const Profile& profile,
                                   const std::vector<std::string>& configs);

}  // namespace logitless::cli
