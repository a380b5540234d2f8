// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "sink/make_sinks.h"

#include "problem/hidden_rows.h"
#include "sink/bias_sink.h"
#include "sink/hidden_sink.h"
#include "sink/weight_sink.h"

namespace logitless::sink {

template <class Sum>
Sinks<Sum> make_sinks(const SinkInputs& inputs, const Gradients& outputs, const Sizes& sizes) {
  Sinks<Sum> sinks;
  const kernels::RowKernels& kernels = inputs.kernels;
  const source::Product& product = inputs.source.products().front();
  if (outputs.wants_d_hidden()) {
    sinks.push_back(core::make_shared<HiddenSink<Sum>>(
        kernels, product.head, problem::d_hidden_rows(inputs.problem, outputs), outputs.d_hidden_mode, sizes));
  }
  const bool wants_d_weight = outputs.d_weight.data || outputs.weight_sink;
  if (wants_d_weight) {
    sinks.push_back(core::make_shared<WeightSink<Sum>>(kernels, product, outputs.d_weight, outputs.d_weight_mode,
                                                       outputs.weight_sink, is_summed_in_tiles<Sum>(outputs), sizes));
  }
  if (outputs.d_bias.data) {
    auto bias = core::make_shared<BiasSink<Sum>>(kernels, outputs.d_bias, outputs.d_bias_mode);
    // d_weight's first chain of a tile has the order that these sums need, and they add little to it.
    if (wants_d_weight) bias->join(sinks.size() - 1);
    sinks.push_back(bias);
  }
  return sinks;
}

template Sinks<float> make_sinks(const SinkInputs&, const Gradients&, const Sizes&);
template Sinks<double> make_sinks(const SinkInputs&, const Gradients&, const Sizes&);

}  // namespace logitless::sink
