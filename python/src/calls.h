// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What the functions of the module share: how a loss is run, planned, or run in halves.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "logitless/error.h"
#include "options.h"

namespace logitless::python {

// Adds what a loss beside a teacher has for each token: what was not asked for is left out.
template <class Result>
void add_distilled(Result&& result, nb::dict& out) {
  const auto add = [&](const char* name, std::vector<double>& column) {
    if (!column.empty()) out[name] = to_numpy(std::move(column));
  };
  out["per_token_divergence"] = to_numpy(std::move(result.per_token_divergence));
  out["per_token_acceptance"] = to_numpy(std::move(result.per_token_acceptance));
  add("per_token_agreement", result.per_token_agreement);
  add("per_token_entropy", result.per_token_entropy);
  add("per_token_teacher_entropy", result.per_token_teacher_entropy);
}

// Returns a result as Python sees it.
template <class Result>
nb::dict result_dict(Result&& result) {
  nb::dict out;
  out["loss"] = result.loss;
  if constexpr (requires { result.per_token_logps; }) {
    out["per_token_logps"] = to_numpy(std::move(result.per_token_logps));
  }
  if constexpr (requires { result.per_token_lse; }) {
    out["per_token_lse"] = to_numpy(std::move(result.per_token_lse));
    if (!result.per_token_argmax.empty()) out["per_token_argmax"] = to_numpy(std::move(result.per_token_argmax));
  }
  if constexpr (requires { result.per_token_loss; }) {
    out["per_token_loss"] = to_numpy(std::move(result.per_token_loss));
  }
  if constexpr (requires { result.sequence_logps; }) {
    out["sequence_logps"] = to_numpy(std::move(result.sequence_logps));
  }
  if constexpr (requires { result.sequence_losses; }) {
    out["sequence_losses"] = to_numpy(std::move(result.sequence_losses));
  }
  if constexpr (requires { result.per_token_acceptance; }) {
    add_distilled(std::move(result), out);
  } else if constexpr (requires { result.per_token_divergence; }) {
    out["per_token_divergence"] = to_numpy(std::move(result.per_token_divergence));
  }
  out["metrics"] = dict_of(result.metrics);
  out["plan"] = std::move(result.plan);
  return out;
}

// The library works without Python's lock: other threads run, and a callback takes it again.
template <class Work>
auto unlocked(const Work& work) {
  const nb::gil_scoped_release release;
  return work();
}

// Runs work that writes outputs without Python's lock. What is an InvalidInput has written nothing.
template <class Work>
auto writing(const Arrays& arrays, const Work& work) {
  try {
    auto result = unlocked(work);
    arrays.tell_written();
    return result;
  } catch (const InvalidInput&) {
    throw;
  } catch (...) {
    arrays.tell_written();
    throw;
  }
}

/// The keywords of one call of a loss, read. A call without `outputs` computes no gradients.
template <class Loss>
struct Read {
  Arrays arrays;
  Keywords keywords;
  CallTensors call;
  Loss loss;

  explicit Read(nb::dict given, bool outputs = true)
      : keywords(std::move(given), Loss::kName), call(keywords, arrays, outputs), loss(keywords, arrays) {
    keywords.check_all_known();
    call.check(arrays);
  }
};

template <class Loss>
void define_loss(nb::module_& m, const char* forward_name) {
  const std::string name = Loss::kName;
  nb::class_<typename Loss::Forward>(m, forward_name);
  m.def(name.c_str(), [](const Context& context, nb::dict keywords) {
    const Read<Loss> read(std::move(keywords));
    return result_dict(writing(read.arrays, [&] {
      return read.call.with(
          [&](const auto& outputs, const auto&... source) { return read.loss.run(context, outputs, source...); });
    }));
  });
  m.def(("plan_" + name).c_str(), [](const Context& context, nb::dict keywords) {
    const Read<Loss> read(std::move(keywords));
    return read.call.with(
        [&](const auto& outputs, const auto&... source) { return read.loss.plan(context, outputs, source...); });
  });
  m.def((name + "_forward").c_str(), [](const Context& context, nb::dict keywords) {
    const Read<Loss> read(std::move(keywords));
    auto forward = unlocked([&] {
      return read.call.with([&](const auto&, const auto&... source) { return read.loss.forward(context, source...); });
    });
    auto result = forward.result;  // what Python keeps; the backward half needs the rest
    return std::make_pair(result_dict(std::move(result)), std::move(forward));
  });
  m.def((name + "_backward").c_str(), [](const Context& context, nb::dict keywords,
                                         const typename Loss::Forward& forward, const std::vector<double>& upstream) {
    const Read<Loss> read(std::move(keywords));
    return writing(read.arrays, [&] {
      return read.call.with([&](const auto& outputs, const auto&... source) {
        return read.loss.backward(context, forward, upstream, outputs, source...);
      });
    });
  });
}

/// Defines soft_cross_entropy and its halves, and id_logps and its backward.
void define_sets(nb::module_& m);

}  // namespace logitless::python
