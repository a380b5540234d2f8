// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The calls that XLA makes on a CPU: handlers of its foreign function interface, which logitless.jax registers.
// Buffers are dense and row-major, and XLA's for as long as a call.
#include "jax.h"

#include <xla/ffi/api/ffi.h>

#include <algorithm>
#include <exception>
#include <string>

#include "logitless/cross_entropy.h"
#include "logitless/error.h"
#include "logitless/token_stats.h"

namespace logitless::python {
namespace {

namespace ffi = xla::ffi;

DType dtype_of(ffi::DataType type, const char* name) {
  switch (type) {
    case ffi::DataType::F32:
      return DType::kFloat32;
    case ffi::DataType::F64:
      return DType::kFloat64;
    case ffi::DataType::BF16:
      return DType::kBFloat16;
    case ffi::DataType::F16:
      return DType::kFloat16;
    default:
      throw InvalidInput(std::string(name) + " must be float32, bfloat16, float16 or float64");
  }
}

/// One matrix of floating-point numbers.
struct View {
  void* data;
  DType dtype;
  int64_t rows, cols;

  View(const ffi::AnyBuffer& buffer, const char* name)
      : data(buffer.untyped_data()), dtype(dtype_of(buffer.element_type(), name)) {
    if (buffer.dimensions().size() != 2) throw InvalidInput(std::string(name) + " must have 2 axes");
    rows = buffer.dimensions()[0];
    cols = buffer.dimensions()[1];
  }
  ConstMatrix read() const { return ConstMatrix(data, dtype, rows, cols); }
  Matrix written() const { return Matrix(data, dtype, rows, cols); }
};

/// The inputs of every call. A bias of no entry is none.
struct Inputs {
  HiddenStates hidden;
  LmHead head;
  Targets targets;

  Inputs(const ffi::AnyBuffer& states, const ffi::AnyBuffer& weight, const ffi::AnyBuffer& bias,
         const ffi::AnyBuffer& ids, bool hidden_vocab, double softcap)
      : hidden(View(states, "hidden").read()),
        head(View(weight, "weight").read(), hidden_vocab ? HeadLayout::kHiddenVocab : HeadLayout::kVocabHidden) {
    head.softcap = softcap;
    const auto entries = static_cast<int64_t>(bias.element_count());
    if (entries > 0) head.bias = ConstVector(bias.untyped_data(), dtype_of(bias.element_type(), "bias"), entries);
    const auto count = static_cast<int64_t>(ids.element_count());
    if (ids.element_type() == ffi::DataType::S32) {
      targets = Targets(static_cast<const int32_t*>(ids.untyped_data()), count);
    } else if (ids.element_type() == ffi::DataType::S64) {
      targets = Targets(static_cast<const int64_t*>(ids.untyped_data()), count);
    } else {
      throw InvalidInput("targets must be int32 or int64");
    }
  }
};

Gradients gradients_of(ffi::AnyBuffer d_hidden, ffi::AnyBuffer d_weight, ffi::AnyBuffer d_bias) {
  Gradients out;
  out.d_hidden = View(d_hidden, "d_hidden").written();
  out.d_weight = View(d_weight, "d_weight").written();
  const auto entries = static_cast<int64_t>(d_bias.element_count());
  if (entries > 0) out.d_bias = Vector(d_bias.untyped_data(), dtype_of(d_bias.element_type(), "d_bias"), entries);
  return out;
}

void write_scalar(double value, ffi::AnyBuffer out) {
  if (out.element_type() == ffi::DataType::F64) {
    *static_cast<double*>(out.untyped_data()) = value;
  } else {
    *static_cast<float*>(out.untyped_data()) = static_cast<float>(value);
  }
}

void write_column(const std::vector<double>& column, ffi::AnyBuffer out) {
  if (out.element_type() == ffi::DataType::F64) {
    std::copy(column.begin(), column.end(), static_cast<double*>(out.untyped_data()));
  } else {
    std::transform(column.begin(), column.end(), static_cast<float*>(out.untyped_data()),
                   [](double x) { return static_cast<float>(x); });
  }
}

std::vector<double> read_column(const ffi::AnyBuffer& in) {
  std::vector<double> out(in.element_count());
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = in.element_type() == ffi::DataType::F64 ? static_cast<const double*>(in.untyped_data())[i]
                                                     : static_cast<const float*>(in.untyped_data())[i];
  }
  return out;
}

// No exception crosses XLA.
template <class Work>
ffi::Error guarded(const Work& work) {
  try {
    work();
    return ffi::Error::Success();
  } catch (const InvalidInput& error) {
    return ffi::Error::InvalidArgument(error.what());
  } catch (const std::exception& error) {
    return ffi::Error::Internal(error.what());
  }
}

CrossEntropyOptions options_of(bool sum, int64_t ignore_index, double label_smoothing, double temperature,
                               double z_loss) {
  CrossEntropyOptions out;
  out.token.ignore_index = ignore_index;
  out.token.temperature = temperature;
  out.reduction = sum ? Reduction::kSum : Reduction::kMean;
  out.label_smoothing = label_smoothing;
  out.z_loss = z_loss;
  return out;
}

ffi::Error cross_entropy_handler(ffi::AnyBuffer hidden, ffi::AnyBuffer weight, ffi::AnyBuffer bias,
                                 ffi::AnyBuffer targets, bool hidden_vocab, bool sum, int64_t ignore_index,
                                 double label_smoothing, double softcap, double temperature, double z_loss,
                                 ffi::Result<ffi::AnyBuffer> loss) {
  return guarded([&] {
    const Inputs in(hidden, weight, bias, targets, hidden_vocab, softcap);
    const auto options = options_of(sum, ignore_index, label_smoothing, temperature, z_loss);
    write_scalar(cross_entropy(Context(), in.hidden, in.head, in.targets, options).loss, *loss);
  });
}

ffi::Error cross_entropy_grad_handler(ffi::AnyBuffer hidden, ffi::AnyBuffer weight, ffi::AnyBuffer bias,
                                      ffi::AnyBuffer targets, bool hidden_vocab, bool sum, int64_t ignore_index,
                                      double label_smoothing, double softcap, double temperature, double z_loss,
                                      ffi::Result<ffi::AnyBuffer> loss, ffi::Result<ffi::AnyBuffer> d_hidden,
                                      ffi::Result<ffi::AnyBuffer> d_weight, ffi::Result<ffi::AnyBuffer> d_bias) {
  return guarded([&] {
    const Inputs in(hidden, weight, bias, targets, hidden_vocab, softcap);
    const auto options = options_of(sum, ignore_index, label_smoothing, temperature, z_loss);
    const Gradients gradients = gradients_of(*d_hidden, *d_weight, *d_bias);
    write_scalar(cross_entropy(Context(), in.hidden, in.head, in.targets, options, gradients).loss, *loss);
  });
}

ffi::Error token_logps_handler(ffi::AnyBuffer hidden, ffi::AnyBuffer weight, ffi::AnyBuffer bias,
                               ffi::AnyBuffer targets, bool hidden_vocab, int64_t ignore_index, double softcap,
                               double temperature, bool cross, ffi::Result<ffi::AnyBuffer> logp,
                               ffi::Result<ffi::AnyBuffer> entropy, ffi::Result<ffi::AnyBuffer> lse,
                               ffi::Result<ffi::AnyBuffer> mean_logp) {
  return guarded([&] {
    const Inputs in(hidden, weight, bias, targets, hidden_vocab, softcap);
    TokenOptions options;
    options.ignore_index = ignore_index;
    options.temperature = temperature;
    const StatsRequest request{.entropy = true, .cross = cross};
    const TokenStats stats = compute_token_stats(Context(), in.hidden, in.head, in.targets, options, request);
    write_column(stats.logp, *logp);
    write_column(stats.entropy, *entropy);
    write_column(stats.lse, *lse);
    if (cross) write_column(stats.cross, *mean_logp);
  });
}

ffi::Error token_logps_grad_handler(ffi::AnyBuffer hidden, ffi::AnyBuffer weight, ffi::AnyBuffer bias,
                                    ffi::AnyBuffer targets, ffi::AnyBuffer g_logp, ffi::AnyBuffer g_entropy,
                                    ffi::AnyBuffer g_lse, ffi::AnyBuffer g_mean_logp, bool hidden_vocab,
                                    int64_t ignore_index, double softcap, double temperature, bool cross,
                                    ffi::Result<ffi::AnyBuffer> d_hidden, ffi::Result<ffi::AnyBuffer> d_weight,
                                    ffi::Result<ffi::AnyBuffer> d_bias) {
  return guarded([&] {
    const Inputs in(hidden, weight, bias, targets, hidden_vocab, softcap);
    TokenOptions options;
    options.ignore_index = ignore_index;
    options.temperature = temperature;
    const StatsRequest request{.entropy = true, .cross = cross};
    const Context context;
    const TokenStats stats = compute_token_stats(context, in.hidden, in.head, in.targets, options, request);
    TokenGrads grads;
    grads.logp = read_column(g_logp);
    grads.entropy = read_column(g_entropy);
    grads.lse = read_column(g_lse);
    if (cross) grads.cross = read_column(g_mean_logp);
    backpropagate_token_grads(context, in.hidden, in.head, in.targets, options, request, stats, grads,
                              gradients_of(*d_hidden, *d_weight, *d_bias));
  });
}

}  // namespace

#define LOGITLESS_HEAD_ARGS() \
  ffi::Ffi::Bind().Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>()
#define LOGITLESS_CROSS_ENTROPY_ATTRS() \
  Attr<bool>("hidden_vocab")            \
      .Attr<bool>("sum")                \
      .Attr<int64_t>("ignore_index")    \
      .Attr<double>("label_smoothing")  \
      .Attr<double>("softcap")          \
      .Attr<double>("temperature")      \
      .Attr<double>("z_loss")
#define LOGITLESS_TOKEN_ATTRS()      \
  Attr<bool>("hidden_vocab")         \
      .Attr<int64_t>("ignore_index") \
      .Attr<double>("softcap")       \
      .Attr<double>("temperature")   \
      .Attr<bool>("cross")

XLA_FFI_DEFINE_HANDLER(kCrossEntropy, cross_entropy_handler,
                       LOGITLESS_HEAD_ARGS().LOGITLESS_CROSS_ENTROPY_ATTRS().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER(kCrossEntropyGrad, cross_entropy_grad_handler,
                       LOGITLESS_HEAD_ARGS()
                           .LOGITLESS_CROSS_ENTROPY_ATTRS()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER(kTokenLogps, token_logps_handler,
                       LOGITLESS_HEAD_ARGS()
                           .LOGITLESS_TOKEN_ATTRS()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER(kTokenLogpsGrad, token_logps_grad_handler,
                       LOGITLESS_HEAD_ARGS()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .LOGITLESS_TOKEN_ATTRS()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>());

void define_jax_targets(nb::module_& m) {
  m.def("jax_targets", [] {
    nb::dict out;
    const auto add = [&](const char* name, XLA_FFI_Handler* handler) {
      out[name] = nb::capsule(reinterpret_cast<void*>(handler));
    };
    add("logitless_cross_entropy", kCrossEntropy);
    add("logitless_cross_entropy_grad", kCrossEntropyGrad);
    add("logitless_token_logps", kTokenLogps);
    add("logitless_token_logps_grad", kTokenLogpsGrad);
    return out;
  });
}

}  // namespace logitless::python
