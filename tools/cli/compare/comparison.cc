// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/compare/comparison.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "cli/common/gates.h"
#include "cli/compare/outputs.h"
#include "cli/measure/runner.h"
#include "cli/measure/turns.h"
#include "cli/ranks/part.h"
#include "timing/statistics.h"

namespace logitless::cli {
namespace {

// By default the ranks of one machine share its cores, unless mpirun has bound each rank to its own.
int threads_per_rank(const io::Config& config, const RankGrid& grid) {
  if (config.kernel.threads > 0) return config.kernel.threads;
  if (std::getenv("OMP_NUM_THREADS")) return omp_get_max_threads();
  const int own = omp_get_num_procs();
  const bool bound = own < sysconf(_SC_NPROCESSORS_ONLN);
  return bound ? own : std::max(1, own / grid.ranks_on_this_machine());
}

size_t bytes_of(const Job& job) {
  size_t sum = 0;
  for (const auto& [name, tensor] : job.tensors) sum += tensor.bytes();
  return sum;
}

double ratio(double a, double b) { return b > 0 ? a / b : std::nan(""); }

class Comparison {
 public:
  Comparison(const CompareOptions& options, const io::Config& config, RankGrid& grid, const OnTurn& on_turn)
      : options_(options), config_(config), grid_(grid), on_turn_(on_turn) {}

  Json run() {
    grid_.together([&] { read(); });
    grid_.together([&] { add_contenders(); });
    // The tested contender runs first: if the system does not permit a reset of the peak, a peak is exact
    // only if it is above all earlier ones.
    for (int turn = 0; turn < options_.repeat; ++turn) {
      for (Runner* runner : {forward_ ? &*forward_ : nullptr, &*tested_, reference_ ? &*reference_ : nullptr}) {
        grid_.together([&] {
          if (runner) run_turn(*runner, turn);
        });
      }
    }
    on_turn_("", "comparing");
    if (over_ranks()) gather_results();
    std::string line;
    if (over_ranks()) grid_.together([&] { line = line_of(rank_json()); });
    const std::vector<RankGrid::Bytes> lines = grid_.gather(std::as_bytes(std::span(line)));
    Json report;
    grid_.together([&] {
      if (grid_.is_root()) report = report_json(lines);
    });
    return report;
  }

 private:
  bool over_ranks() const { return grid_.size() > 1; }

  // Every rank draws or reads everything and keeps its part; rank 0 keeps the whole as well.
  void read() {
    on_turn_("", options_.tensors.given() ? "reading the tensors" : "drawing the inputs");
    const HeadFiles heads = over_ranks() ? HeadFiles::kSafetensors : HeadFiles::kSafetensorsOrGguf;
    whole_ = read_inputs(config_, options_.tensors, SeededValues::kRandom, heads);
    if (!over_ranks()) return;
    threads_ = threads_per_rank(config_, grid_);
    if (config_.kernel.threads == 0) io::set_key(config_, "mpirun", "threads=" + std::to_string(threads_));
    part_ = part_of(config_, whole_.job, grid_.place());
    own_ = inputs_of(whole_.job, part_);
    if (!grid_.is_root()) whole_ = {};
  }

  void add_contenders() {
    Job tested = over_ranks() ? own_.job : whole_.job;
    add_memory(tested, 2);
    tested_.emplace(config_.settings, Contender{.name = over_ranks() ? "ranks" : "fused"}, tested, &grid_);
    if (over_ranks()) {
      forward_.emplace(config_.settings, Contender{.name = "ranks, forward", .forward_only = true}, tested, &grid_);
    }
    tested_->warm_up();
    if (!grid_.is_root()) return;
    Contender alone = {.name = "dense", .dense = true};
    if (config_.backward.mode != BackwardMode::kExact) alone.assignments = {"backward.mode=exact"};
    if (over_ranks()) {
      const int threads = std::min(threads_ * grid_.ranks_on_this_machine(), omp_get_num_procs());
      alone = {.name = "one process", .assignments = {"threads=" + std::to_string(threads)}};
    }
    Job job = whole_.job;
    add_memory(job, 1);
    reference_.emplace(config_.settings, alone, job);
    reference_->warm_up();
    collected_ = tested;
    if (!over_ranks()) return;
    collected_ = whole_.job;
    add_memory(collected_, 1);
  }
  // `copies`: how many sets of outputs must fit into memory, this one included.
  void add_memory(Job& job, int copies) {
    for (Memory& memory : add_outputs(config_, job, copies)) memory_.push_back(std::move(memory));
    job.touch();
  }

  void run_turn(Runner& runner, int turn) {
    on_turn_(runner.name(), turn_text(runner.name(), turn, options_.repeat));
    runner.run(true);
  }

  // Gathers the outputs of all ranks on rank 0, in collected_ and losses_.
  void gather_results() {
    const GridPlace place = grid_.place();
    const auto gather = [&](std::span<const std::byte> mine, bool contributes, const auto& use) {
      const std::vector<RankGrid::Bytes> all = grid_.gather(contributes ? mine : mine.first(0));
      grid_.together([&] {
        for (size_t r = 0; r < all.size(); ++r) {
          if (!all[r].empty()) use(part_of(config_, whole_.job, grid_.place_of(static_cast<int>(r))), all[r]);
        }
      });
    };
    for (const std::string name : kGradients) {
      const bool contributes = name == "d_hidden" ? place.vocab == 0 : place.data == 0;
      gather(tested_->job()[name].as_bytes(), contributes,
             [&](const RankPart& part, const auto& bytes) { put_output(name, part, bytes, collected_); });
    }
    losses_.resize(grid_.is_root() ? reference_->result().per_token_loss.size() : 0);
    gather(std::as_bytes(std::span(tested_->result().per_token_loss)), place.vocab == 0,
           [&](const RankPart& part, const auto& bytes) {
             for (size_t i = 0; i < part.tokens.size(); ++i) {
               std::memcpy(&losses_[static_cast<size_t>(part.tokens[i])], &bytes[i * sizeof(double)], sizeof(double));
             }
           });
  }

  // Returns a hash, to compare outputs that must be equal on several ranks.
  static size_t digest_of(std::span<const std::byte> bytes) {
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

  Json rank_json() const {
    const Job& job = tested_->job();
    const auto digest = [&](const char* name) { return digest_of(job[name].as_bytes()); };
    const auto exchanges = [&](Traffic Exchanges::*group) {
      std::vector<double> seconds;
      for (const Exchanges& run : tested_->exchanges()) seconds.push_back((run.*group).seconds);
      return Json{{"bytes_sent", (tested_->exchanges().back().*group).bytes}, {"time_s", timing::median(seconds)}};
    };
    return {{"rank", grid_.rank()},
            {"vocab_rank", grid_.place().vocab},
            {"data_rank", grid_.place().data},
            {"vocab", part_.entries},
            {"tokens", job.tokens},
            {"loss", tested_->result().loss},
            {"digest_of_vocab", {digest("d_weight"), digest("d_bias"), digest("d_lora_a"), digest("d_lora_b")}},
            {"digest_of_tokens",
             {digest("d_hidden"), digest("d_lora_a"),
              digest_of(std::as_bytes(std::span(tested_->result().per_token_loss)))}},
            {"tensor_bytes", bytes_of(job)},
            {"extra_peak_bytes", tested_->extra_peak_bytes()},
            {"workspace_bytes", tested_->result().plan.workspace_bytes},
            {"time_s", tested_->median_s()},
            {"forward_alone_s", forward_->median_s()},
            {"vocab_exchanges", exchanges(&Exchanges::vocab)},
            {"data_exchanges", exchanges(&Exchanges::data)}};
  }

  // Returns the results of a contender over all its runs.
  static Json contender_json(const Runner& runner) {
    return {{"time_s", runner.median_s()},
            {"extra_peak_bytes", runner.extra_peak_bytes()},
            {"workspace_bytes", runner.result().plan.workspace_bytes},
            {"loss", runner.result().loss},
            {"plan", runner.plan_name()},
            {"threads", runner.context().threads()},
            {"tensor_bytes", bytes_of(runner.job())}};
  }
  void add_details(const std::string& name, const Runner& runner, Json& details) const {
    details[name + "_plan"] = runner.plan_text();
    for (const auto& [metric, value] : runner.result().metrics) details[name + "_metrics"][metric] = value;
    details[name + "_times_s"] = runner.times_s();
    details[name + "_extra_peaks_bytes"] =
        std::vector<int64_t>(runner.extra_peaks().begin(), runner.extra_peaks().end());
  }

  // Counts the ranks whose outputs differ from the first rank with the same share.
  double unequal_ranks(const Json& each) const {
    double count = 0;
    for (const Json& rank : each) {
      const size_t same_vocab = rank["vocab_rank"];
      const size_t same_tokens = rank["data_rank"].get<size_t>() * static_cast<size_t>(config_.parallel.vocab);
      count += rank["digest_of_vocab"] != each[same_vocab]["digest_of_vocab"] ||
               rank["digest_of_tokens"] != each[same_tokens]["digest_of_tokens"];
    }
    return count;
  }

  // Returns one summary of all ranks: the maximum of each time and size, and the loss that is farthest from
  // the reference.
  Json ranks_json(const std::vector<RankGrid::Bytes>& lines) const {
    Json json = contender_json(*tested_), each = Json::array();
    for (const auto& line : lines) {
      const auto* text = reinterpret_cast<const char*>(line.data());
      each.push_back(Json::parse(text, text + line.size()));
    }
    const double want = reference_->result().loss;
    for (const char* key : {"time_s", "extra_peak_bytes", "workspace_bytes", "tensor_bytes"}) {
      for (const Json& rank : each) {
        if (rank[key].get<double>() > json[key].get<double>()) json[key] = rank[key];
      }
    }
    for (const Json& rank : each) {
      const double loss = number_of(rank["loss"]), most = std::abs(number_of(json["loss"]) - want);
      if (!std::isnan(most) && !(std::abs(loss - want) <= most)) json["loss"] = loss;
    }
    json["each"] = each;
    return json;
  }

  Json report_json(const std::vector<RankGrid::Bytes>& lines) {
    whole_.files.check();
    const std::string names[] = {over_ranks() ? "one_process" : "dense", over_ranks() ? "ranks" : "fused"};
    const TaskResult& want = reference_->result();
    const Json alone = contender_json(*reference_);
    const Json tested = over_ranks() ? ranks_json(lines) : contender_json(*tested_);
    const double loss_abs = std::abs(number_of(tested["loss"]) - want.loss);
    const Differences differences =
        differences_of({reference_->job(), want.per_token_loss},
                       {collected_, over_ranks() ? losses_ : tested_->result().per_token_loss});
    const io::TermSpacing spacing = io::term_spacing(want.plan, tested_->result().plan);
    std::vector<io::Gate> gates =
        gates_of(config_, reference_->job(), want.metric("tokens"), spacing, loss_abs, differences);
    if (over_ranks()) gates.push_back(io::make_gate("unequal_ranks", unequal_ranks(tested["each"]), 0));
    if (!options_.output_path.empty()) write_outputs(options_.output_path, collected_, tested_->result().loss);
    if (!options_.dense_path.empty()) write_outputs(options_.dense_path, reference_->job(), want.loss);

    Json details = {{"gradient_dtype", name_of(collected_.gradient_dtype)},
                    {"extra_peak_method", describe(tested_->peak_method())}};
    add_details(names[0], *reference_, details);
    add_details(names[1], *tested_, details);
    Json report = {{"task", config_.task}, {"shape", shape_json(collected_)}};
    if (over_ranks()) report["parallel"] = {{"vocab", config_.parallel.vocab}, {"data", config_.parallel.data}};
    const auto ratio_of = [&](const char* key) { return ratio(alone[key].get<double>(), tested[key].get<double>()); };
    report.update({{names[0], alone},
                   {names[1], tested},
                   {"diff", difference_json(loss_abs, differences, collected_)},
                   {"ratio", {{"time", ratio_of("time_s")}, {"extra_peak", ratio_of("extra_peak_bytes")}}},
                   {"gates", gates_json(gates)},
                   {"gates_not_applied", gates_not_applied(config_, gates)},
                   {"pass", all_pass(gates)},
                   {"details", details},
                   {"environment", environment_json(describe_environment(reference_->context()))}});
    return report;
  }

  const CompareOptions& options_;
  io::Config config_;
  RankGrid& grid_;
  const OnTurn& on_turn_;

  Inputs whole_, own_;  // whole_ is kept on rank 0 only; own_ is a rank's part
  RankPart part_;
  int threads_ = 0;             // of a rank
  std::vector<Memory> memory_;  // of outputs
  std::optional<Runner> forward_, tested_;
  std::optional<Runner> reference_;  // on rank 0
  Job collected_;                    // the outputs of the tested contender, gathered from ranks
  std::vector<double> losses_;       // per-token losses gathered from ranks: [N]
};

}  // namespace

Json compare_contenders(const CompareOptions& options, const io::Config& config, RankGrid& grid,
                        const OnTurn& on_turn) {
  return options.tensors.naming_flags([&] { return Comparison(options, config, grid, on_turn).run(); });
}

}  // namespace logitless::cli
