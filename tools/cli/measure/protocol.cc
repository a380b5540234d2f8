// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Both ends of the pipe between a command and the process that measures for it.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/measure/one_call.h"
#include "cli/measure/turns.h"
#include "io/error.h"
#include "logitless/error.h"

namespace logitless::cli {

// The macros know nlohmann::json alone, whose members stand in alphabetical order.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TensorPaths, specs)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Contender, name, assignments, dense, forward_only, error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TurnsRequest, settings, contenders, warmup, iters, values, gemm_rate, compare,
                                   places, tensors, profile_path, output_path)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Job, tokens, hidden_size, vocab_size, sequences, dtype, layout, gradient_dtype)

namespace {

// What a process has said so far, and what it was about to do.
class Answer {
 public:
  explicit Answer(const OnStep& on_step) : on_step_(on_step) {}

  void receive(std::string_view bytes) {
    text_.append(bytes);
    for (size_t end = text_.find('\n'); end != std::string::npos; end = text_.find('\n')) {
      const Json line = Json::parse(text_.substr(0, end));
      text_.erase(0, end + 1);
      if (line.contains("step")) {
        contender_ = line["contender"];
        on_step_(line["step"], line["share"]);
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
  if (answer.result() && answer.result()->at("bad_input")) throw io::Error(why);
  const std::string who = answer.contender().empty() ? "the" : "the " + answer.contender();
  throw ChildFailure(who + " process " + (answer.result() ? "failed: " : "") + why);
}

// Of this process, where it is the one that measures: what a signal's handler needs to know.
ChildEnds own_ends;

void send(const Json& line) { send_answer(own_ends, line_of(line) + "\n"); }
void send_message(const std::string& message, bool bad_input) {
  send({{"message", message}, {"bad_input", bad_input}});
}

}  // namespace

io::Config contender_config(std::vector<std::string> settings, const Contender& contender) {
  settings.insert(settings.end(), contender.assignments.begin(), contender.assignments.end());
  return io::load_config(std::nullopt, settings);
}

std::string failure_text(const std::string& message) { return message.empty() ? "failed without a message" : message; }

Json failed_contender(const std::string& name, const std::string& message) {
  return {{"name", name}, {"status", "error"}, {"message", message}};
}

Json measure_turns(TurnsRequest request, const OnStep& on_step) {
  const auto has_failed = [](const Contender& contender) { return !contender.error.empty(); };
  while (!std::ranges::all_of(request.contenders, has_failed)) {
    Answer answer(on_step);
    const int status = run_child(kTurnsCommand, line_of(nlohmann::json(request)),
                                 [&](std::string_view bytes) { answer.receive(bytes); });
    if (answer.result() && answer.result()->contains("contenders")) return *answer.result();
    const std::string why = answer.result()   ? failure_text(answer.result()->at("message"))
                            : request.compare ? how_it_died(status)
                                              : "its process " + how_it_died(status);
    if (request.compare) throw_failure(answer, why);
    // Without a contender whose turn it was, nothing can be measured.
    for (Contender& contender : request.contenders) {
      const bool fails = answer.contender().empty() || contender.name == answer.contender();
      if (fails && !has_failed(contender)) contender.error = why;
    }
  }
  Json result = {{"contenders", Json::array()}};
  for (const Contender& contender : request.contenders) {
    result["contenders"].push_back(failed_contender(contender.name, contender.error));
  }
  return result;
}

int run_turns(const ChildEnds& ends) {
  own_ends = ends;
  const TurnsRequest request = nlohmann::json::parse(begin_child(ends));
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

Json job_json(const Job& job) { return nlohmann::json(job); }
Job job_of(const Json& json) { return nlohmann::json(json); }

}  // namespace logitless::cli
