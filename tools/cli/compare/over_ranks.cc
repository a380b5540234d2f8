// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless compare` under mpirun: one process and ranks take turns on the same input.
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cli/common/task_call.h"
#include "cli/compare/agreement.h"
#include "cli/compare/compare.h"
#include "cli/measure/one_call.h"
#include "cli/measure/results.h"
#include "cli/measure/turns.h"
#include "cli/ranks/grid.h"
#include "cli/ranks/part.h"
#include "logitless/context.h"
#include "report/units.h"
#include "timing/statistics.h"

namespace logitless::cli {
namespace {

constexpr TensorId kGradients[] = {TensorId::kDHidden, TensorId::kDWeight, TensorId::kDBias};

// Where nobody says how many threads a rank has, those of one machine share its cores, unless mpirun has
// bound each to its own.
int threads_of_a_rank(const io::Config& config, const RankGrid& grid) {
  if (config.threads > 0) return config.threads;
  if (std::getenv("OMP_NUM_THREADS")) return omp_get_max_threads();
  const int own = omp_get_num_procs();
  const bool bound = own < sysconf(_SC_NPROCESSORS_ONLN);
  return bound ? own : std::max(1, own / grid.ranks_on_this_machine());
}

// What a contender's calls took.
struct Times {
  std::vector<double> seconds, extra_peaks;
  PeakMethod peak_method = PeakMethod::kReset;

  void add(const Measured& measured) {
    peak_method = std::max(peak_method, measured.peak_method);
    seconds.push_back(measured.time_s);
    extra_peaks.push_back(static_cast<double>(measured.extra_peak_bytes));
  }
  double median_s() const { return timing::median(seconds); }
  int64_t extra_peak_bytes() const { return std::llround(timing::median(extra_peaks)); }
};

struct Exchanges {
  std::vector<double> seconds;
  uint64_t bytes = 0;  // of the last call; all are the same

  void add(const Traffic& traffic) {
    seconds.push_back(traffic.seconds);
    bytes = traffic.bytes;
  }
  Json json() const { return {{"bytes_sent", bytes}, {"time_s", timing::median(seconds)}}; }
};

std::string threads_text(int threads) { return std::to_string(threads) + (threads == 1 ? " thread" : " threads"); }

size_t bytes_of(const Job& job) {
  size_t sum = 0;
  for (const TensorBytes& tensor : job.tensors) sum += tensor.bytes;
  return sum;
}

// One rank's side of the comparison. Every rank calls the same functions in the same order.
class RankComparison {
 public:
  RankComparison(const CompareOptions& options, const io::Config& config, RankGrid& grid)
      : options_(options), config_(config), grid_(grid), root_(grid.rank() == 0) {}

  int run() {
    Progress progress(root_ && !options_.quiet);
    grid_.together([&] { check(); });
    progress.phase(options_.tensors.given() ? "reading the tensors" : "drawing the inputs");
    grid_.together([&] { read(); });
    progress.note(note_);
    for (int turn = 0; turn < options_.repeat; ++turn) {
      const std::string which = format(", turn %d of %d", turn + 1, options_.repeat);
      progress.phase("one process" + which);
      grid_.together([&] {
        if (root_) run_alone();
      });
      progress.phase("ranks" + which);
      grid_.together([&] { forward_times_.add(measure([&] { call_->run(*context_, true); })); });
      take_traffic();
      grid_.together([&] { rank_times_.add(measure([&] { result_ = call_->run(*context_); })); });
      const auto [vocab, data] = take_traffic();
      vocab_exchanges_.add(vocab);
      data_exchanges_.add(data);
    }
    progress.phase("comparing");
    gather_results();
    std::string line;
    grid_.together([&] { line = line_of(rank_json()); });
    const std::vector<std::vector<std::byte>> lines = grid_.gather(std::as_bytes(std::span(line)));
    bool agrees = false;
    grid_.together([&] {
      if (root_) agrees = report(lines, progress);
    });
    return !root_ || agrees ? 0 : 1;
  }

 private:
  void check() {
    if (grid_.size() != config_.parallel.ranks()) {
      throw io::Error(
          format("parallel.vocab = %d and parallel.data = %d are %d ranks, and there %s: mpirun -n %d "
                 "logitless compare ...",
                 config_.parallel.vocab, config_.parallel.data, config_.parallel.ranks(),
                 grid_.size() == 1 ? "is 1" : format("are %d", grid_.size()).c_str(), config_.parallel.ranks()));
    }
    config_.threads = threads_of_a_rank(config_, grid_);
    profile_.emplace(options_.profile_path);
    if (!root_) return;
    check_output_files({{"-o", options_.output_path}, {"--json", options_.json_path}},
                       input_files(options_.tensors, *profile_, {options_.config.path().value_or("")}));
  }

  // Every rank draws or reads all, and keeps its part; rank 0 keeps all.
  void read() {
    whole_ = read_inputs(config_, options_.tensors);
    note_ = profile_->apply(whole_.job, config_);
    part_ = part_of(config_, whole_.job, grid_.place());
    own_ = inputs_of(whole_.job, part_);
    memory_ = add_outputs(config_, own_.job);
    own_.job.touch();
    ContextOptions options = context_options_of(config_);
    options.ranks = grid_.ranks();
    context_.emplace(options);
    call_.emplace(config_, own_.job);
    if (!root_) {
      whole_ = {};
      return;
    }
    alone_job_ = ranks_job_ = whole_.job;
    int copies = 2;  // that have no memory yet
    for (Job* job : {&alone_job_, &ranks_job_}) {
      for (Memory& memory : add_outputs(config_, *job, copies--)) memory_.push_back(std::move(memory));
      job->touch();
    }
    alone_config_ = config_;
    alone_config_.threads = std::min(config_.threads * grid_.ranks_on_this_machine(), omp_get_num_procs());
    alone_.emplace(context_options_of(alone_config_));
    warm_up(*alone_, alone_job_.dtype);
  }

  void run_alone() {
    const TaskRun call(alone_config_, alone_job_);
    alone_times_.add(measure([&] { alone_result_ = call.run(*alone_); }));
  }

  std::pair<Traffic, Traffic> take_traffic() { return {grid_.take_vocab_traffic(), grid_.take_data_traffic()}; }

  // Puts together on rank 0 what the ranks have computed.
  void gather_results() {
    using Pieces = std::vector<std::vector<std::byte>>;
    const auto for_each_part = [&](const Pieces& all, const auto& use) {
      for (size_t r = 0; r < all.size(); ++r) {
        if (!all[r].empty()) use(part_of(config_, whole_.job, grid_.place_of(static_cast<int>(r))), all[r]);
      }
    };
    const GridPlace place = grid_.place();
    for (const TensorId id : kGradients) {
      const bool gives = id == TensorId::kDHidden ? place.vocab == 0 : place.data == 0;
      const TensorBytes& mine = own_.job[id];
      const Pieces all = grid_.gather({mine.data, gives ? mine.bytes : 0});
      grid_.together([&] {
        for_each_part(all, [&](const RankPart& part, const auto& bytes) { put_output(id, part, bytes, ranks_job_); });
      });
    }
    const std::vector<double>& losses = result_.per_token_loss;
    const Pieces all = grid_.gather(std::as_bytes(std::span(losses.data(), place.vocab == 0 ? losses.size() : 0)));
    grid_.together([&] {
      ranks_result_ = result_;
      ranks_result_.per_token_loss.resize(alone_result_.per_token_loss.size());
      for_each_part(all, [&](const RankPart& part, const auto& bytes) {
        for (size_t i = 0; i < part.tokens.size(); ++i) {
          double& loss = ranks_result_.per_token_loss[static_cast<size_t>(part.tokens[i])];
          std::memcpy(&loss, &bytes[i * sizeof(double)], sizeof(double));
        }
      });
    });
  }

  // Stands for the bytes of what several ranks compute alike.
  static size_t digest_of(const void* data, size_t bytes) {
    return std::hash<std::string_view>()({static_cast<const char*>(data), bytes});
  }
  size_t digest_of(TensorId id) const { return digest_of(own_.job[id].data, own_.job[id].bytes); }

  Json rank_json() const {
    return {{"rank", grid_.rank()},
            {"vocab_rank", grid_.place().vocab},
            {"data_rank", grid_.place().data},
            {"entries", part_.entries},
            {"tokens", own_.job.tokens},
            {"loss", result_.loss},
            {"digest_of_words", {digest_of(TensorId::kDWeight), digest_of(TensorId::kDBias)}},
            {"digest_of_tokens",
             {digest_of(TensorId::kDHidden),
              digest_of(result_.per_token_loss.data(), result_.per_token_loss.size() * sizeof(double))}},
            {"tensor_bytes", bytes_of(own_.job)},
            {"extra_peak_bytes", rank_times_.extra_peak_bytes()},
            {"extra_peak_method", describe(rank_times_.peak_method)},
            {"workspace_bytes", result_.plan.workspace_bytes},
            {"time_s", rank_times_.median_s()},
            {"forward_alone_s", forward_times_.median_s()},
            {"vocab_exchanges", vocab_exchanges_.json()},
            {"data_exchanges", data_exchanges_.json()}};
  }

  // On rank 0. Returns whether one process and ranks agree.
  bool report(const std::vector<std::vector<std::byte>>& lines, Progress& progress) {
    whole_.check_files();
    ranks_ = Json::array();
    for (const auto& line : lines) {
      ranks_.push_back(Json::parse(reinterpret_cast<const char*>(line.data()),
                                   reinterpret_cast<const char*>(line.data() + line.size())));
    }
    double loss_abs = 0, unequal = 0;
    for (const Json& rank : ranks_) {
      const double distance = std::abs(number_of(rank["loss"]) - alone_result_.loss);
      if (!std::isnan(loss_abs) && !(distance <= loss_abs)) loss_abs = distance;
      const size_t same_words = rank["vocab_rank"];
      const size_t same_tokens = rank["data_rank"].get<size_t>() * static_cast<size_t>(config_.parallel.vocab);
      unequal += rank["digest_of_words"] != ranks_[same_words]["digest_of_words"] ||
                 rank["digest_of_tokens"] != ranks_[same_tokens]["digest_of_tokens"];
    }
    const Results alone{alone_job_, alone_result_}, gathered{ranks_job_, ranks_result_};
    const double spacing = std::max(io::gradient_spacing(alone_result_.plan), io::gradient_spacing(ranks_result_.plan));
    agreement_ = make_agreement(config_, alone_job_, alone_result_.metric("tokens"), spacing, loss_abs,
                                differences_of(alone, gathered));
    agreement_.gates.push_back(io::make_gate("unequal_ranks", unequal, 0));
    environment_ = describe_environment(*alone_);
    if (!options_.output_path.empty()) write_results(options_.output_path, gathered);
    progress.erase();
    if (!options_.json_path.empty()) write_output("--json", options_.json_path, page_of(report_json()));
    if (!options_.quiet && options_.json_path != "-") print(report_text());
    return agreement_.holds();
  }

  double largest(const char* key) const {
    double most = 0;
    for (const Json& rank : ranks_) most = std::max(most, rank[key].get<double>());
    return most;
  }
  double time_ratio() const { return ratio(alone_times_.median_s(), largest("time_s")); }
  double peak_ratio() const {
    return ratio(static_cast<double>(alone_times_.extra_peak_bytes()), largest("extra_peak_bytes"));
  }

  Json report_json() const {
    const auto metrics_of = [](const TaskResult& result) {
      Json json = Json::object();
      for (const auto& [name, value] : result.metrics) json[name] = value;
      return json;
    };
    return {{"task", name_of(config_.task)},
            {"shape", shape_json(alone_job_)},
            {"parallel", {{"vocab", config_.parallel.vocab}, {"data", config_.parallel.data}}},
            {"one_process",
             {{"threads", alone_->threads()},
              {"time_s", alone_times_.median_s()},
              {"tensor_bytes", bytes_of(alone_job_)},
              {"extra_peak_bytes", alone_times_.extra_peak_bytes()},
              {"workspace_bytes", alone_result_.plan.workspace_bytes},
              {"loss", alone_result_.loss},
              {"plan", name_of(alone_result_.plan.kind)}}},
            {"ranks",
             {{"threads", config_.threads},
              {"time_s", largest("time_s")},
              {"extra_peak_bytes", std::llround(largest("extra_peak_bytes"))},
              {"loss", ranks_result_.loss},
              {"plan", name_of(ranks_result_.plan.kind)},
              {"each", ranks_}}},
            {"diff", difference_json(agreement_, alone_job_.has(TensorId::kBias))},
            {"ratio", {{"time", time_ratio()}, {"extra_peak", peak_ratio()}}},
            {"gates", gates_json(agreement_.gates)},
            {"gates_not_applied", gates_not_applied(config_, agreement_.gates)},
            {"pass", agreement_.holds()},
            {"details",
             {{"gradient_dtype", name_of(alone_job_.gradient_dtype)},
              {"one_process_plan", alone_result_.plan.describe()},
              {"ranks_plan", ranks_result_.plan.describe()},
              {"one_process_metrics", metrics_of(alone_result_)},
              {"ranks_metrics", metrics_of(ranks_result_)}}},
            {"environment", environment_json(environment_)}};
  }

  std::string report_text() const {
    using report::human_seconds;
    std::string text = shape_text(name_of(config_.task), config_.model.name, alone_job_) + ", gradients in " +
                       name_of(alone_job_.gradient_dtype) + "\n" + machine_text(environment_);
    if (options_.repeat > 1) text += format(", medians of %d runs each", options_.repeat);
    text += format("\n%d ranks, %s each: parallel.vocab = %d, parallel.data = %d\n", config_.parallel.ranks(),
                   threads_text(config_.threads).c_str(), config_.parallel.vocab, config_.parallel.data) +
            warnings_text(environment_) + "\n";
    TextTable contenders({"", "loss", "time", "extra peak", "workspace", "plan"});
    contenders.add({"one process", format("%.9g", alone_result_.loss), human_seconds(alone_times_.median_s()),
                    human_bytes(alone_times_.extra_peak_bytes()),
                    human_bytes(static_cast<int64_t>(alone_result_.plan.workspace_bytes)),
                    alone_result_.plan.describe()});
    contenders.add({"ranks, at most", format("%.9g", ranks_result_.loss), human_seconds(largest("time_s")),
                    human_bytes(std::llround(largest("extra_peak_bytes"))),
                    human_bytes(std::llround(largest("workspace_bytes"))), ranks_result_.plan.describe()});
    text += contenders.text() + "\n";
    TextTable each({"rank", "entries", "tokens", "tensors", "extra peak", "time", "forward alone",
                    "among vocabulary entries", "sent", "among tokens", "sent"});
    const auto exchanges = [](const Json& one, std::vector<std::string>& row) {
      row.push_back(human_seconds(one["time_s"]));
      row.push_back(human_bytes(one["bytes_sent"]));
    };
    for (const Json& rank : ranks_) {
      std::vector<std::string> row = {
          std::to_string(rank["rank"].get<int>()),       std::to_string(rank["entries"].get<int64_t>()),
          std::to_string(rank["tokens"].get<int64_t>()), human_bytes(rank["tensor_bytes"]),
          human_bytes(rank["extra_peak_bytes"]),         human_seconds(rank["time_s"]),
          human_seconds(rank["forward_alone_s"])};
      exchanges(rank["vocab_exchanges"], row);
      exchanges(rank["data_exchanges"], row);
      each.add(row);
    }
    if (rank_times_.peak_method != PeakMethod::kReset) {
      text += std::string("extra peak: ") + describe(rank_times_.peak_method) + "\n\n";
    }
    text += each.text() +
            "among vocabulary entries, among tokens: time in exchanges, waiting included, and bytes sent to others\n\n";
    for (size_t i = 0; i < alone_result_.metrics.size(); ++i) {
      const auto& [name, value] = alone_result_.metrics[i];
      if (std::isnan(value)) continue;
      text += format("%-18s one process %.9g, ranks %.9g\n", name.c_str(), value, ranks_result_.metric(name));
    }
    text += "\n" + agreement_text(config_, agreement_);
    text += format("\none process, %s / ranks: time %.3f, extra peak memory %.1f\n",
                   threads_text(alone_->threads()).c_str(), time_ratio(), peak_ratio());
    return text + (agreement_.holds() ? "one process and ranks agree\n" : "one process and ranks DISAGREE\n");
  }

  const CompareOptions& options_;
  io::Config config_;
  RankGrid& grid_;
  const bool root_;

  std::optional<Profile> profile_;
  std::string note_;
  Inputs whole_, own_;  // whole on rank 0 alone
  RankPart part_;
  std::vector<Memory> memory_;  // of outputs
  std::optional<Context> context_;
  std::optional<TaskRun> call_;
  TaskResult result_;
  Times rank_times_, forward_times_;
  Exchanges vocab_exchanges_, data_exchanges_;

  // On rank 0: the whole job with what one process computes, and with what the ranks have put together.
  io::Config alone_config_;
  Job alone_job_, ranks_job_;
  std::optional<Context> alone_;
  TaskResult alone_result_, ranks_result_;
  Times alone_times_;
  Json ranks_;
  Agreement agreement_;
  Environment environment_;
};

}  // namespace

int compare_over_ranks(const CompareOptions& options, const io::Config& config) {
  RankGrid grid(config.parallel);
  try {
    return RankComparison(options, config, grid).run();
  } catch (const RankEnds&) {
    return 0;
  }
}

}  // namespace logitless::cli
