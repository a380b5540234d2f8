// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The calls that XLA makes on a CPU: handlers of its foreign function interface, which logitless.jax registers.
// Buffers are dense and row-major, and XLA's for as long as a call.
//
// All take the same arguments, in the order of Argument, of which those without an element are not given. Attributes
// are the fields of the options, by their names; those of the context begin with "context.".
#include "jax.h"

#include <xla/ffi/api/ffi.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "logitless/cross_entropy.h"
#include "logitless/error.h"
#include "logitless/fields.h"
#include "logitless/slices.h"
#include "logitless/token_stats.h"
#include "options.h"

namespace logitless::python {
namespace {

namespace ffi = xla::ffi;

enum Argument : size_t {
  kHidden,
  kWeight,
  kBias,
  kTargets,
  kClassWeights,
  kTemperatures,
  kFirst,     // entries of the vocabulary before those of weight, where it is a slice
  kGathered,  // what all slices have left
  kGrads,     // of the statistics, from here on
};

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

template <class T>
std::vector<T> read_column(const ffi::AnyBuffer& in) {
  std::vector<T> out(in.element_count());
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<T>(in.element_type() == ffi::DataType::F64 ? static_cast<const double*>(in.untyped_data())[i]
                                                                    : static_cast<const float*>(in.untyped_data())[i]);
  }
  return out;
}

void write_column(std::span<const double> column, ffi::AnyBuffer out) {
  if (out.element_type() == ffi::DataType::F64) {
    std::copy(column.begin(), column.end(), static_cast<double*>(out.untyped_data()));
  } else {
    std::transform(column.begin(), column.end(), static_cast<float*>(out.untyped_data()),
                   [](double x) { return static_cast<float>(x); });
  }
}

/// The attributes of a call. What is not among them keeps its default.
class Attributes {
 public:
  explicit Attributes(const ffi::Dictionary& given) : given_(given) {}

  template <class T>
  void read(const std::string& name, T& out) const {
    if (!given_.contains(name)) return;
    if constexpr (std::is_enum_v<T>) {
      out = named<T>(get<std::string_view>(name)).value();
    } else if constexpr (std::is_same_v<T, std::string>) {
      out = get<std::string_view>(name);
    } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      out = static_cast<T>(get<int64_t>(name));
    } else {
      out = get<T>(name);
    }
  }
  template <class T>
  void read(const std::string& name, std::optional<T>& out) const {
    if (given_.contains(name)) read(name, out.emplace());
  }
  // Arrays are arguments, and no attributes.
  template <class T>
  void read(const std::string&, std::span<const T>&) const {}
  template <class T>
  void read(const std::string&, std::vector<T>&) const {}
  template <class T>
  void read(const std::string&, T*&) const {}

  /// Reads all fields of a structure.
  template <class Structure>
  Structure all(const std::string& prefix = "") const {
    Structure out;
    visit_flat(
        FieldsOf<Structure>(), [&](const Field& field, auto& member) { read(prefix + field.name, member); }, out);
    return out;
  }

 private:
  template <class T>
  T get(const std::string& name) const {
    const auto value = given_.get<T>(name);
    if (value.has_error()) throw InvalidInput(name + ": " + value.error().message());
    return *value;
  }

  const ffi::Dictionary& given_;
};

/// One call.
class JaxCall {
 public:
  JaxCall(const ffi::RemainingArgs& arguments, const ffi::RemainingRets& results, const ffi::Dictionary& attributes)
      : arguments_(arguments),
        results_(results),
        attributes_(attributes),
        class_weights_(floats<float>(kClassWeights)),
        temperatures_(floats<double>(kTemperatures)) {
    const View states(argument(kHidden), "hidden");
    int64_t sequences = 1;
    attributes_.read("sequences", sequences);
    hidden = HiddenStates(states.read(), sequences);
    head.weight = View(argument(kWeight), "weight").read();
    attributes_.read("layout", head.layout);
    attributes_.read("softcap", head.softcap);
    const ffi::AnyBuffer bias = argument(kBias), ids = argument(kTargets);
    const auto entries = static_cast<int64_t>(bias.element_count()), count = static_cast<int64_t>(ids.element_count());
    if (entries > 0) head.bias = ConstVector(bias.untyped_data(), dtype_of(bias.element_type(), "bias"), entries);
    if (ids.element_type() == ffi::DataType::S32) {
      targets = Targets(static_cast<const int32_t*>(ids.untyped_data()), count);
    } else if (ids.element_type() == ffi::DataType::S64) {
      targets = Targets(static_cast<const int64_t*>(ids.untyped_data()), count);
    } else {
      throw InvalidInput("targets must be int32 or int64");
    }
  }

  HiddenStates hidden;
  LmHead head;
  Targets targets;

  ffi::AnyBuffer argument(size_t i) const { return checked(arguments_.get<ffi::AnyBuffer>(i)); }
  ffi::AnyBuffer result(size_t i) const { return *checked(results_.get<ffi::AnyBuffer>(i)); }

  Context context() const {
    auto options = attributes_.all<ContextOptions>("context.");
    const ffi::AnyBuffer first = argument(kFirst), gathered = argument(kGathered);
    if (first.element_count() > 0) {
      VocabSlice& slice = options.ranks.slice.emplace();
      slice.first = *static_cast<const int32_t*>(first.untyped_data());
      attributes_.read("vocab_size", slice.vocab_size);
      slice.gathered = {static_cast<const std::byte*>(gathered.untyped_data()), gathered.element_count()};
    }
    return Context(std::move(options));
  }
  CrossEntropyOptions cross_entropy_options() const {
    auto options = attributes_.all<CrossEntropyOptions>();
    options.class_weights = class_weights_;
    options.token.temperatures = temperatures_;
    return options;
  }
  TokenOptions token_options() const {
    auto options = attributes_.all<TokenOptions>();
    options.temperatures = temperatures_;
    return options;
  }
  /// Returns the gradients of hidden, weight and bias, in results from `first` on.
  Gradients gradients(size_t first) const {
    Gradients out;
    out.d_hidden = View(result(first), "d_hidden").written();
    out.d_weight = View(result(first + 1), "d_weight").written();
    const ffi::AnyBuffer bias = result(first + 2);
    const auto entries = static_cast<int64_t>(bias.element_count());
    if (entries > 0) out.d_bias = Vector(bias.untyped_data(), dtype_of(bias.element_type(), "d_bias"), entries);
    return out;
  }
  void write_bytes(std::span<const std::byte> bytes, size_t to) const {
    const ffi::AnyBuffer out = result(to);
    if (out.element_count() != bytes.size()) throw InvalidInput("a slice has bytes of another number");
    std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(out.untyped_data()));
  }

 private:
  template <class T>
  static T checked(const ffi::ErrorOr<T>& value) {
    if (value.has_error()) throw InvalidInput(value.error().message());
    return *value;
  }
  template <class T>
  std::vector<T> floats(size_t i) const {
    return read_column<T>(argument(i));
  }

  const ffi::RemainingArgs& arguments_;
  const ffi::RemainingRets& results_;
  const Attributes attributes_;
  const std::vector<float> class_weights_;
  const std::vector<double> temperatures_;
};

constexpr StatsRequest kTokenRequest = {.entropy = true};

void run_cross_entropy(const JaxCall& call) {
  const double loss =
      cross_entropy(call.context(), call.hidden, call.head, call.targets, call.cross_entropy_options()).loss;
  write_column({&loss, 1}, call.result(0));
}

void run_cross_entropy_grad(const JaxCall& call) {
  const double loss = cross_entropy(call.context(), call.hidden, call.head, call.targets, call.cross_entropy_options(),
                                    call.gradients(1))
                          .loss;
  write_column({&loss, 1}, call.result(0));
}

void run_cross_entropy_slice(const JaxCall& call) {
  call.write_bytes(
      cross_entropy_slice(call.context(), call.hidden, call.head, call.targets, call.cross_entropy_options()), 0);
}

void run_token_logps(const JaxCall& call) {
  const TokenStats stats =
      compute_token_stats(call.context(), call.hidden, call.head, call.targets, call.token_options(), kTokenRequest);
  write_column(stats.logp, call.result(0));
  write_column(stats.entropy, call.result(1));
}

void run_token_logps_grad(const JaxCall& call) {
  const Context context = call.context();
  const TokenOptions options = call.token_options();
  const TokenStats stats = compute_token_stats(context, call.hidden, call.head, call.targets, options, kTokenRequest);
  TokenGrads grads;
  grads.logp = read_column<double>(call.argument(kGrads));
  grads.entropy = read_column<double>(call.argument(kGrads + 1));
  backpropagate_token_grads(context, call.hidden, call.head, call.targets, options, kTokenRequest, stats, grads,
                            call.gradients(0));
}

void run_token_logps_slice(const JaxCall& call) {
  call.write_bytes(
      token_stats_slice(call.context(), call.hidden, call.head, call.targets, call.token_options(), kTokenRequest), 0);
}

// No exception crosses XLA.
template <void (*run)(const JaxCall&)>
ffi::Error guarded(ffi::RemainingArgs arguments, ffi::RemainingRets results, ffi::Dictionary attributes) {
  try {
    run(JaxCall(arguments, results, attributes));
    return ffi::Error::Success();
  } catch (const InvalidInput& error) {
    return ffi::Error::InvalidArgument(error.what());
  } catch (const std::exception& error) {
    return ffi::Error::Internal(error.what());
  }
}

#define LOGITLESS_HANDLER(name) \
  XLA_FFI_DEFINE_HANDLER(k_##name, guarded<name>, ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs())
LOGITLESS_HANDLER(run_cross_entropy);
LOGITLESS_HANDLER(run_cross_entropy_grad);
LOGITLESS_HANDLER(run_cross_entropy_slice);
LOGITLESS_HANDLER(run_token_logps);
LOGITLESS_HANDLER(run_token_logps_grad);
LOGITLESS_HANDLER(run_token_logps_slice);

// Writes the fields of a structure as attributes: Python's bool, int, float and str.
template <class Structure>
void write_attributes(const Structure& options, const std::string& prefix, nb::dict& out) {
  const auto write = [&](const Field& field, const auto& member) {
    const auto put = [&](const auto& value) {
      using T = std::remove_cvref_t<decltype(value)>;
      const std::string name = prefix + field.name;
      if constexpr (std::is_enum_v<T>) {
        out[name.c_str()] = name_of(value);
      } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
        out[name.c_str()] = value;
      }
    };
    if constexpr (requires { member.has_value(); }) {
      if (member) put(*member);
    } else {
      put(member);
    }
  };
  visit_flat(FieldsOf<Structure>(), write, options);
}

}  // namespace

void define_jax_targets(nb::module_& m) {
  m.def("jax_targets", [] {
    nb::dict out;
    const auto add = [&](const char* name, XLA_FFI_Handler* handler) {
      out[name] = nb::capsule(reinterpret_cast<void*>(handler));
    };
    add("logitless_cross_entropy", k_run_cross_entropy);
    add("logitless_cross_entropy_grad", k_run_cross_entropy_grad);
    add("logitless_cross_entropy_slice", k_run_cross_entropy_slice);
    add("logitless_token_logps", k_run_token_logps);
    add("logitless_token_logps_grad", k_run_token_logps_grad);
    add("logitless_token_logps_slice", k_run_token_logps_slice);
    return out;
  });
  // Returns the attributes of a call: options that are given, and the context's. Throws what a call would throw of
  // names and types.
  m.def(
      "jax_attributes",
      [](const std::string& task, nb::dict given, const Context* context) {
        Keywords keywords(std::move(given), task.c_str());
        Arrays arrays;
        nb::dict out;
        LmHead head;
        keywords.take("layout", head.layout);
        keywords.take("softcap", head.softcap);
        out["layout"] = name_of(head.layout);
        out["softcap"] = head.softcap;
        if (task == "cross_entropy") {
          write_attributes(take_fields<CrossEntropyOptions>(keywords, arrays), "", out);
        } else {
          write_attributes(take_fields<TokenOptions>(keywords, arrays), "", out);
        }
        keywords.check_all_known();
        if (context && (context->options().ranks.any() || context->options().workspace)) {
          throw InvalidInput("context has ranks or a workspace: XLA runs calls of several devices side by side");
        }
        if (context) write_attributes(context->options(), "context.", out);
        return out;
      },
      nb::arg("task"), nb::arg("given"), nb::arg("context").none());
  m.def("jax_slice_bytes", [](const std::string& task, bool in_double, nb::dict given) {
    const DType dtype = in_double ? DType::kFloat64 : DType::kFloat32;
    if (task != "cross_entropy") return slice_bytes_per_token(dtype, kTokenRequest);
    Keywords keywords(std::move(given), task.c_str());
    Arrays arrays;
    return slice_bytes_per_token(dtype, take_fields<CrossEntropyOptions>(keywords, arrays));
  });
}

}  // namespace logitless::python
