// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/common/profile.h"

#include "cli/common/task_call.h"

namespace logitless::cli {

ProfileShape profile_shape(const io::Config& config, const Job& job) {
  const bool fused = config.level == io::Level::kFused;
  return {job.tokens, fused ? job.hidden_size : 0, job.vocab_size, job.dtype, job.layout};
}

Profile::Profile(const std::string& path) : path_(io::profile_path(path)) {
  if (!path_.empty()) entries_ = io::read_profile(path_, path.empty() ? "LOGITLESS_PROFILE" : "--profile");
}

std::string Profile::apply(const Job& shape, io::Config& config) const {
  if (path_.empty()) return "";
  const std::string name = "profile " + path_ + ": ";
  const ContextOptions before = context_options_of(config);
  const auto [after, why_not] = io::use_profile(entries_, profile_shape(config, shape), before);
  if (!why_not.empty()) return name + "not used: " + why_not;
  std::string used;
  const auto set = [&](const std::string& key, const std::string& value) {
    io::set_key(config, path_, key + "=" + value);
    used += (used.empty() ? "" : " ") + key + "=" + value;
  };
  if (after.plan != before.plan) set("kernel.plan", name_of(after.plan));
  const auto rows = config.level == io::Level::kFused ? &ContextOptions::row_tile : &ContextOptions::row_block;
  if (after.*rows != before.*rows) set("kernel.time_block", std::to_string(after.*rows));
  if (after.vocab_tile != before.vocab_tile) set("kernel.block_size", std::to_string(after.vocab_tile));
  // Half a profile is a combination that nobody measured.
  std::string kept;
  if (before.*rows != 0) kept += "; kernel.time_block=" + std::to_string(before.*rows) + " is the config's and stays";
  if (before.vocab_tile != 0)
    kept += "; kernel.block_size=" + std::to_string(before.vocab_tile) + " is the config's and stays";
  return name + (used.empty() ? "leaves all as it is" : used) + kept;
}

std::vector<InputFile> input_files(const TensorPaths& tensors, const Profile& profile,
                                   const std::vector<std::string>& configs) {
  std::vector<InputFile> files = tensors.files();
  files.push_back({"the profile", profile.path()});
  for (const std::string& config : configs) files.push_back({"the config", config});
  return files;
}

}  // namespace logitless::cli
