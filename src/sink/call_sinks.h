// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include "core/matrices.h"
#include "gemm/gemm.h"
#include "kernels/row_kernels.h"
#include "problem/hidden_problem.h"
#include "problem/hidden_rows.h"
#include "sink/bias_sink.h"
#include "sink/hidden_sink.h"
#include "sink/lora_sink.h"
#include "sink/sink.h"
#include "sink/weight_sink.h"
#include "source/source.h"

namespace logitless::sink {

/// Inputs for constructing the sinks of a call.
struct SinkInputs {
  const kernels::RowKernels& kernels;
  const gemm::Backend& gemm;  // for sinks that run products when a chunk ends
  const problem::HiddenProblem& problem;
  const source::Source& source;
};

/// The sinks of a call: one per requested output. The planner counts their memory with a measuring arena; the
/// run takes it. To add a sink, add a member here.
template <class Sum>
class CallSinks {
 public:
  /// All arguments must outlive this.
  CallSinks(const SinkInputs& inputs, const GradientMatrices& outputs, const Sizes& sizes) {
    const kernels::RowKernels& kernels = inputs.kernels;
    const source::Product& product = inputs.source.products().front();
    const bool hidden = outputs.wants_d_hidden() && !sizes.states_elsewhere;
    if (hidden) {
      hidden_.emplace(kernels, product.head, problem::d_hidden_rows(inputs.problem, outputs), outputs.d_hidden_mode,
                      sizes);
    }
    if (needs_lora_states(inputs.problem, outputs) && !sizes.states_elsewhere) {
      add(lora_.emplace(kernels, inputs.gemm, inputs.problem, *inputs.source.lora(), outputs,
                        hidden ? &*hidden_ : nullptr, sizes));
    } else if (hidden) {
      add(*hidden_);
    }
    if (outputs.d_weight.data || outputs.weight_sink) {
      add(weight_.emplace(kernels, product, outputs.d_weight, outputs.d_weight_mode, outputs.weight_sink,
                          !is_summed_apart<Sum>(outputs) ? SumsIn::kOutput
                          : sizes.weight_apart           ? SumsIn::kWhole
                                                         : SumsIn::kTiles,
                          sizes));
    }
    if (outputs.d_bias.data) {
      bias_.emplace(kernels, outputs.d_bias, outputs.d_bias_mode);
      // d_bias needs the same order of parts as d_weight's first chain, and adds little work to it.
      if (weight_) bias_->join(count_ - 1);
      add(*bias_);
    }
    if (outputs.d_lora_states.data && !sizes.states_elsewhere) {
      add(lora_states_.emplace(kernels, inputs.source.lora()->head, problem::matrix_rows(outputs.d_lora_states),
                               outputs.d_lora_mode, with_sums_apart(sizes)));
    }
    if (outputs.d_lora_b.data) {
      add(lora_b_.emplace(kernels, *inputs.source.lora(), outputs.d_lora_b, outputs.d_lora_mode, no_callback_,
                          core::is_narrow<Sum>(outputs.d_lora_b.dtype) ? SumsIn::kWhole : SumsIn::kOutput, sizes));
    }
  }
  CallSinks(const CallSinks&) = delete;
  CallSinks& operator=(const CallSinks&) = delete;

  /// Calls use(sink) for each sink that sums a gradient of states: hidden states or LoRA states.
  template <class Use>
  void for_each_of_states(const Use& use) const {
    if (hidden_) use(*hidden_);
    if (lora_) use(lora_->states());
    if (lora_states_) use(*lora_states_);
  }
  /// Returns the sinks in the order in which each part is added to them.
  std::span<Sink<Sum>* const> all() const { return std::span<Sink<Sum>* const>(all_).first(count_); }

 private:
  void add(Sink<Sum>& sink) {
    all_.at(count_) = &sink;
    ++count_;
  }

  std::optional<HiddenSink<Sum>> hidden_;
  std::optional<WeightSink<Sum>> weight_;
  std::optional<BiasSink<Sum>> bias_;
  std::optional<LoraSink<Sum>> lora_;
  std::optional<HiddenSink<Sum>> lora_states_;
  std::optional<WeightSink<Sum>> lora_b_;
  const WeightTileSink no_callback_ = {};
  static constexpr size_t kMost = 8;  // a fixed capacity, so that a call does not allocate the list
  std::array<Sink<Sum>*, kMost> all_ = {};
  size_t count_ = 0;
};

}  // namespace logitless::sink
