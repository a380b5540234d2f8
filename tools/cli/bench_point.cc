// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench_point.h"

#include <algorithm>
#include <optional>

#include "cli/bench_turns.h"
#include "cli/process_memory.h"
#include "cli/report_text.h"

namespace logitless::cli {
namespace {

using Json = nlohmann::ordered_json;

Json request_json(const PointRequest& request) {
  Json contenders = Json::array();
  for (const BenchContender& c : request.contenders) {
    contenders.push_back(
        {{"name", c.name}, {"assignments", c.assignments}, {"dense", c.dense}, {"forward_only", c.forward_only}});
  }
  return {{"settings", request.settings},
          {"contenders", contenders},
          {"warmup", request.warmup},
          {"iters", request.iters},
          {"zeros", request.values == SeededValues::kZeros},
          {"gemm_rate", request.gemm_rate}};
}

PointRequest request_of(const Json& json) {
  PointRequest request;
  request.settings = json["settings"];
  for (const Json& c : json["contenders"]) {
    request.contenders.push_back({c["name"], c["assignments"], c["dense"], c["forward_only"]});
  }
  request.warmup = json["warmup"];
  request.iters = json["iters"];
  request.values = json["zeros"].get<bool>() ? SeededValues::kZeros : SeededValues::kRandom;
  request.gemm_rate = json["gemm_rate"];
  return request;
}

// What a child has said so far, and what it was about to do.
class Answer {
 public:
  explicit Answer(const OnStep& on_step) : on_step_(on_step) {}

  void receive(std::string_view bytes) {
    text_.append(bytes);
    for (size_t end = text_.find('\n'); end != std::string::npos; end = text_.find('\n')) {
      Json line = Json::parse(text_.substr(0, end));
      text_.erase(0, end + 1);
      if (line.contains("step")) {
        contender_ = line["contender"];
        on_step_(line["step"], line["share"]);
      } else {
        result_ = std::move(line);
      }
    }
  }
  const std::optional<Json>& result() const { return result_; }
  /// Whose turn it was; empty outside of all turns.
  const std::string& contender() const { return contender_; }

 private:
  const OnStep& on_step_;
  std::string text_, contender_;
  std::optional<Json> result_;
};

// Contenders are in the order of the request, whatever became of them.
Json in_order(const std::vector<BenchContender>& contenders, const Json& measured, const Json& failed) {
  Json list = Json::array();
  for (const BenchContender& contender : contenders) {
    for (const Json* some : {&measured, &failed}) {
      for (const Json& one : *some) {
        if (one["name"] == contender.name) list.push_back(one);
      }
    }
  }
  return list;
}

}  // namespace

io::Config contender_config(std::vector<std::string> settings, const BenchContender& contender) {
  settings.insert(settings.end(), contender.assignments.begin(), contender.assignments.end());
  return io::load_config(std::nullopt, settings);
}

Json measure_point(PointRequest request, const OnStep& on_step) {
  const std::vector<BenchContender> all = request.contenders;
  Json failed = Json::array();
  const auto fail = [&](const std::string& name, const std::string& message) {
    failed.push_back(failed_contender(name, message));
    std::erase_if(request.contenders, [&](const BenchContender& c) { return c.name == name; });
  };
  Json result = Json::object();
  while (!request.contenders.empty()) {
    Answer answer(on_step);
    const std::string text = request_json(request).dump(-1, ' ', false, Json::error_handler_t::replace);
    const int status = run_child(kPointCommand, text, {}, [&](std::string_view bytes) { answer.receive(bytes); });
    if (answer.result() && answer.result()->contains("contenders")) {
      result = *answer.result();
      break;
    }
    const std::string why =
        answer.result() ? (*answer.result())["message"].get<std::string>() : "its process " + how_it_died(status);
    if (!answer.contender().empty()) {
      fail(answer.contender(), why);
      continue;
    }
    for (const BenchContender& c : std::vector(request.contenders)) fail(c.name, why);
  }
  result["contenders"] = in_order(all, result.value("contenders", Json::array()), failed);
  return result;
}

int run_point(const ChildEnds& ends) {
  const PointRequest request = request_of(Json::parse(begin_child(ends)));
  // The command has to live to tell that memory ran out.
  volunteer_when_memory_runs_out();
  const auto send = [&](const Json& line) {
    send_answer(ends, line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  };
  try {
    send(take_turns(request, [&](const std::string& contender, const std::string& step, double share) {
      send({{"contender", contender}, {"step", step}, {"share", share}});
    }));
  } catch (const std::bad_alloc&) {
    send({{"message", kOutOfMemory}});
  } catch (const std::exception& e) {
    send({{"message", e.what()}});
  }
  return 0;
}

}  // namespace logitless::cli
