// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/profile_flag.h"

#include "cli/task_call.h"

namespace logitless::cli {
namespace {

// What an entry sets where the config leaves it open.
std::vector<std::string> settings_of(const io::ProfileEntry& entry, const io::KernelConfig& kernel) {
  std::vector<std::string> settings;
  if (entry.plan != PlanKind::kAuto && kernel.plan == PlanKind::kAuto)
    settings.push_back(std::string("kernel.plan=") + name_of(entry.plan));
  if (entry.row_tile > 0 && kernel.time_block == 0)
    settings.push_back("kernel.time_block=" + std::to_string(entry.row_tile));
  if (entry.vocab_tile > 0 && kernel.block_size == 0)
    settings.push_back("kernel.block_size=" + std::to_string(entry.vocab_tile));
  return settings;
}

}  // namespace

ProfileShape profile_shape(const io::Config& config, const Job& job) {
  const bool fused = config.level == io::Level::kFused;
  return {job.tokens, fused ? job.hidden_size : 0, job.vocab_size, job.dtype, job.layout};
}

Profile::Profile(const std::string& path) : path_(io::profile_path(path)) {
  if (!path_.empty()) entries_ = io::read_profile(path_);
}

std::string Profile::apply(const Job& shape, io::Config& config) const {
  if (path_.empty()) return "";
  const std::string name = "profile " + path_ + ": ";
  if (config.kernel.dense_backward) return name + "not used: kernel.bwd_impl dense has no plan and no tiles";
  const ContextOptions options = context_options_of(config);
  const io::ProfileChoice choice = io::choose_entry(entries_, io::machine_of(Context(options)),
                                                    profile_shape(config, shape), options.workspace_bytes);
  if (!choice.entry) return name + "not used: " + choice.why_none;
  std::string used;
  for (const std::string& setting : settings_of(*choice.entry, config.kernel)) {
    io::set_key(config, path_, setting);
    used += (used.empty() ? "" : " ") + setting;
  }
  return name + (used.empty() ? "leaves all as it is" : used);
}

}  // namespace logitless::cli
