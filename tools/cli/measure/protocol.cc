// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Both ends of the pipe between a command and the process that measures for it.
#include <algorithm>
#include <optional>

#include "cli/measure/one_call.h"
#include "cli/measure/turns.h"
#include "io/error.h"
#include "logitless/error.h"

namespace logitless::cli {
namespace {

using Path = std::string TensorPaths::*;
constexpr Path kModelPaths[] = {&TensorPaths::hidden,  &TensorPaths::lm_head, &TensorPaths::logits,
                                &TensorPaths::targets, &TensorPaths::lengths, &TensorPaths::bias};

template <class Paths, class Visit>
void for_each_path(Paths& paths, const Visit& visit) {
  for (const Path path : kModelPaths) visit(paths.*path);
  for (const BatchFlag& flag : batch_flags()) visit(paths.*flag.path);
}

Json request_json(const TurnsRequest& request) {
  Json json = {{"settings", request.settings},
               {"contenders", Json::Array()},
               {"warmup", request.warmup},
               {"iters", request.iters},
               {"zeros", request.values == SeededValues::kZeros},
               {"gemm_rate", request.gemm_rate},
               {"compare", request.compare},
               {"profile", request.profile_path},
               {"places", Json::object()},
               {"tensors", Json::Array()}};
  for (const Contender& c : request.contenders) {
    json["contenders"].push_back(
        {{"name", c.name}, {"assignments", c.assignments}, {"dense", c.dense}, {"forward_only", c.forward_only}});
  }
  for (const auto& [key, place] : request.places) json["places"][key] = place;
  for_each_path(request.tensors, [&](const std::string& path) { json["tensors"].push_back(path); });
  return json;
}

TurnsRequest request_of(const Json& json) {
  TurnsRequest request{.settings = json["settings"].texts()};
  for (const Json& c : json["contenders"].items()) {
    request.contenders.push_back(
        {c["name"].text(), c["assignments"].texts(), c["dense"].flag(), c["forward_only"].flag()});
  }
  request.warmup = static_cast<int>(json["warmup"].integer());
  request.iters = static_cast<int>(json["iters"].integer());
  request.values = json["zeros"].flag() ? SeededValues::kZeros : SeededValues::kRandom;
  request.gemm_rate = json["gemm_rate"].flag();
  request.compare = json["compare"].flag();
  request.profile_path = json["profile"].text();
  for (const Json::Member& place : json["places"].members()) request.places[place.name] = place.value.text();
  size_t i = 0;
  for_each_path(request.tensors, [&](std::string& path) { path = json["tensors"].items()[i++].text(); });
  return request;
}

// What a process has said so far, and what it was about to do.
class Answer {
 public:
  explicit Answer(const OnStep& on_step) : on_step_(on_step) {}

  void receive(std::string_view bytes) {
    text_.append(bytes);
    for (size_t end = text_.find('\n'); end != std::string::npos; end = text_.find('\n')) {
      const Json line = Json::parse(text_.substr(0, end));
      text_.erase(0, end + 1);
      if (line.has("step")) {
        contender_ = line["contender"].text();
        on_step_(line["step"].text(), line["share"].number());
      } else {
        result_ = line;
      }
    }
  }
  /// What came of the turns, or a message.
  const std::optional<Json>& result() const { return result_; }
  /// Whose turn it was; empty outside of all turns.
  const std::string& contender() const { return contender_; }

 private:
  const OnStep& on_step_;
  std::string text_, contender_;
  std::optional<Json> result_;
};

[[noreturn]] void throw_failure(const Answer& answer, const std::string& why) {
  if (answer.result() && (*answer.result())["bad_input"].flag()) throw io::Error(why);
  const std::string who = answer.contender().empty() ? "the" : "the " + answer.contender();
  throw ChildFailure(who + " process " + (answer.result() ? "failed: " : "") + why);
}

// Contenders are in the order of the request, whatever became of them.
Json in_order(const std::vector<Contender>& contenders, const Json& measured, const Json& failed) {
  Json list = Json::Array();
  for (const Contender& contender : contenders) {
    for (const Json* some : {&measured, &failed}) {
      for (const Json& one : some->items()) {
        if (one["name"].text() == contender.name) list.push_back(one);
      }
    }
  }
  return list;
}

// Of this process, where it is the one that measures: what a signal's handler needs to know.
ChildEnds own_ends;

void send(const Json& line) { send_answer(own_ends, line.line() + "\n"); }
void send_message(const std::string& message, bool bad_input) {
  send({{"message", message}, {"bad_input", bad_input}});
}

}  // namespace

io::Config contender_config(std::vector<std::string> settings, const Contender& contender) {
  settings.insert(settings.end(), contender.assignments.begin(), contender.assignments.end());
  return io::load_config(std::nullopt, settings);
}

Json failed_contender(const std::string& name, const std::string& message) {
  return {{"name", name}, {"status", "error"}, {"message", message}};
}

Json measure_turns(TurnsRequest request, const OnStep& on_step) {
  const std::vector<Contender> all = request.contenders;
  Json failed = Json::Array(), result = {{"contenders", Json::Array()}};
  while (!request.contenders.empty()) {
    Answer answer(on_step);
    const int status =
        run_child(kTurnsCommand, request_json(request).line(), [&](std::string_view bytes) { answer.receive(bytes); });
    if (answer.result() && answer.result()->has("contenders")) {
      result = *answer.result();
      break;
    }
    const std::string why = answer.result()   ? (*answer.result())["message"].text()
                            : request.compare ? how_it_died(status)
                                              : "its process " + how_it_died(status);
    if (request.compare) throw_failure(answer, why);
    // Without a contender whose turn it was, nothing can be measured.
    std::erase_if(request.contenders, [&](const Contender& c) {
      const bool fails = answer.contender().empty() || c.name == answer.contender();
      if (fails) failed.push_back(failed_contender(c.name, why));
      return fails;
    });
  }
  result["contenders"] = in_order(all, Json(result["contenders"]), failed);
  return result;
}

int run_turns(const ChildEnds& ends) {
  own_ends = ends;
  const TurnsRequest request = request_of(Json::parse(begin_child(ends)));
  // The command has to live to tell that memory ran out.
  volunteer_when_memory_runs_out();
  explain_bus_errors([](const std::string& line) { send_message(line, true); });
  try {
    send(take_turns(request, [](const std::string& contender, const std::string& step, double share) {
      send({{"contender", contender}, {"step", step}, {"share", share}});
    }));
  } catch (const std::bad_alloc&) {
    send_message(kOutOfMemory, false);
  } catch (const io::Error& e) {
    send_message(e.what(), true);
  } catch (const InvalidInput& e) {
    send_message(e.what(), true);
  } catch (const std::exception& e) {
    send_message(e.what(), false);
  }
  return 0;
}

Json job_json(const Job& job) {
  return {{"tokens", job.tokens},
          {"hidden_size", job.hidden_size},
          {"vocab_size", job.vocab_size},
          {"sequences", job.sequences},
          {"dtype", static_cast<int>(job.dtype)},
          {"layout", static_cast<int>(job.layout)},
          {"gradient_dtype", static_cast<int>(job.gradient_dtype)}};
}

Job job_of(const Json& json) {
  Job job;
  job.tokens = json["tokens"].integer();
  job.hidden_size = json["hidden_size"].integer();
  job.vocab_size = json["vocab_size"].integer();
  job.sequences = json["sequences"].integer();
  job.dtype = static_cast<DType>(json["dtype"].integer());
  job.layout = static_cast<HeadLayout>(json["layout"].integer());
  job.gradient_dtype = static_cast<DType>(json["gradient_dtype"].integer());
  return job;
}

}  // namespace logitless::cli
