// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The Python functions of a task: its verbs, with keyword arguments.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <cctype>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "arrays.h"
#include "logitless/error.h"
#include "tasks.h"

namespace logitless::python {

// Returns a result as a dict. Its columns have this type.
template <class Result>
nb::dict result_dict(Result result, DType type) {
  nb::dict out;
  const auto add = [&]<class T>(const Field& field, const T& member) {
    if constexpr (kIsVector<T>) {
      if (!field.on_request || !member.empty()) out[field.name] = to_numpy(member, type);
    } else if constexpr (std::is_arithmetic_v<T>) {
      out[field.name] = member;
    } else {
      out[field.name] = dict_of(member);
    }
  };
  visit_fields(FieldsOf<Result>(), add, result);
  out["plan"] = std::move(result.plan);
  return out;
}

// Returns copies of the columns. Expected rows are not a column and are left out.
inline nb::dict columns_of(const TokenStats& stats, DType type) {
  nb::dict out;
  const bool no_tokens = stats.logp.empty();  // then every column is empty, requested or not
  const auto add = [&](const Field& field, const auto& column) {
    if (no_tokens || !column.empty()) out[field.name] = to_numpy(column, type);
  };
  visit_fields(FieldsOf<TokenStats>(), add, stats);
  return out;
}

// While it lives, the calling thread does not hold Python's lock. Before 3.14, a Python that exits ends each
// thread that asks for the lock with pthread_exit(), which unwinds the thread's stack. In a destructor that
// would end the process. The thread, a daemon's, waits here for the end of the process, as it does from 3.14 on.
class WithoutLock {
 public:
  WithoutLock() = default;
  ~WithoutLock() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {  // of pthread_exit(): Python itself is written in C
      while (true) pause();
    }
  }
  WithoutLock(const WithoutLock&) = delete;
  WithoutLock& operator=(const WithoutLock&) = delete;

 private:
  PyThreadState* const state_ = PyEval_SaveThread();
};

// Runs work without Python's lock. A callback acquires it again.
template <class Work>
auto unlocked(const Work& work) {
  const WithoutLock without_lock;
  return work();
}

// Runs work that writes outputs, without Python's lock. If it throws InvalidInput, nothing was written.
template <class Work>
auto writing(const Arrays& arrays, const Work& work) {
  try {
    auto result = unlocked(work);
    arrays.report_writes();
    return result;
  } catch (const InvalidInput&) {
    throw;
  } catch (...) {
    arrays.report_writes();
    throw;
  }
}

// Returns (result, state): the result of a forward half, and the state that the backward half needs.
template <class Task>
nb::object kept(const Read<Task>& read, Forward<Task>* forward) {
  nb::object state = nb::cast(forward, nb::rv_policy::take_ownership);
  if constexpr (std::is_same_v<Task, TokenStatistics>) {  // the backward half reads the columns
    return nb::make_tuple(columns_of(forward->result.stats, read.type_of_results), state);
  } else {
    nb::dict result = result_dict(std::move(forward->result), read.type_of_results);
    if constexpr (std::is_same_v<Task, IdLogps>) {
      result["logps"] = result["logps"].attr("reshape")(read.arrays.ids_shape());
    }
    return nb::make_tuple(result, state);
  }
}

// The type of upstream gradients: a list of numbers for a loss, a float64 array for id_logps, a dict of
// columns for token_stats.
template <class Task>
using GivenUpstream = std::conditional_t<kHasLoss<Task>, const std::vector<double>&,
                                         std::conditional_t<std::is_same_v<Task, IdLogps>, nb::handle, nb::dict>>;

inline std::span<const double> upstream_of(Arrays&, const std::vector<double>& given) { return given; }
inline std::span<const double> upstream_of(Arrays& arrays, nb::handle given) {
  const ConstTensor entries = arrays.entries(given, "upstream");
  if (entries.dtype != DType::kFloat64) {
    throw InvalidInput(std::string("upstream is ") + name_of(entries.dtype) + ": it must be float64");
  }
  return {static_cast<const double*>(entries.data), static_cast<size_t>(entries.count())};
}
inline TokenGrads upstream_of(Arrays& arrays, nb::dict given) {
  Keywords columns(std::move(given), "grads");
  TokenGrads out;
  const auto take_column = [&](const Field& field, std::vector<double>& to) {
    if (const nb::handle column = columns.find(field.name)) {
      const auto values = arrays.span<double>(column, field.name);
      to.assign(values.begin(), values.end());
    }
  };
  visit_fields(FieldsOf<TokenGrads>(), take_column, out);
  columns.check_all_known();
  return out;
}

/// Defines the functions of a task, and the class of its Forward: for policy_loss these are policy_loss(),
/// plan_policy_loss(), policy_loss_forward(), policy_loss_backward() and PolicyLossForward. For a task
/// without a loss the forward half has the task's name.
template <class Task>
void define_task(nb::module_& m) {
  const std::string name = Task::kName;
  std::string class_name;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool begins = i == 0 || name[i - 1] == '_';
    if (name[i] != '_') class_name += static_cast<char>(begins ? std::toupper(name[i]) : name[i]);
  }
  nb::class_<Forward<Task>>(m, (class_name + (kHasLoss<Task> ? "Forward" : "")).c_str());
  if constexpr (kHasLoss<Task>) {
    m.def(Task::kName, [](const Context& context, nb::dict keywords) {
      const Read<Task> read(std::move(keywords));
      return result_dict(
          writing(read.arrays, [&] { return run(context, read.call.logits, read.task, read.call.gradients); }),
          read.type_of_results);
    });
  }
  m.def(("plan_" + name).c_str(), [](const Context& context, nb::dict keywords) {
    const Read<Task> read(std::move(keywords));
    return plan(context, read.call.logits, read.task, read.call.gradients);
  });
  m.def((name + (kHasLoss<Task> ? "_forward" : "")).c_str(), [](const Context& context, nb::dict keywords) {
    const Read<Task> read(std::move(keywords));
    return kept(read, unlocked([&] { return new Forward<Task>(forward(context, read.call.logits, read.task)); }));
  });
  m.def((name + "_backward").c_str(),
        [](const Context& context, nb::dict keywords, const Forward<Task>& left, GivenUpstream<Task> given) {
          Read<Task> read(std::move(keywords), /*is_backward=*/true);
          const auto upstream = upstream_of(read.arrays, given);
          return writing(read.arrays, [&] {
            return backward(context, read.call.logits, read.task, left, upstream, read.call.gradients);
          });
        },
        nb::arg("context"), nb::arg("arguments"), nb::arg("forward"), nb::arg("upstream").none());
}

}  // namespace logitless::python
