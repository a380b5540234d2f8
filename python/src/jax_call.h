// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One call from XLA: its arguments, results and attributes, as the library's views and options.
#pragma once

#include <algorithm>
#include <deque>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "caller_names.h"
#include "core/fields.h"
#include "core/matrices.h"
#include "core/tensors.h"
#include "logitless/error.h"
#include "logitless/run.h"
#include "options.h"
#include "xla.h"

namespace logitless::python {

enum Argument : size_t {
  kHidden,
  kWeight,
  kBias,
  kLoraStates,  // of the head's LoRA
  kLoraB,
  kTargets,
  kClassWeights,
  kTemperatures,
  kWeightsOfTokens,
  kSeed,      // of sampled gradients
  kScales,    // of a packed weight
  kVocabIds,  // the entries of the head that the call is over
  kFirst,     // if the weight is a slice of the vocabulary: the index of its first entry
  kGathered,  // the statistics of all slices
  kMore,      // the task's own arguments begin here
};

/// The indices of a head's arguments.
struct HeadPlaces {
  size_t weight, bias, scales, ids, lora_states, lora_b;
};
inline constexpr HeadPlaces kHeadPlaces = {kWeight, kBias, kScales, kVocabIds, kLoraStates, kLoraB};
inline constexpr HeadPlaces kTeacherPlaces = {.weight = kMore + 1,
                                              .bias = kMore + 2,
                                              .scales = kMore + 4,
                                              .ids = kMore + 5,
                                              .lora_states = kMore + 6,
                                              .lora_b = kMore + 7};

inline DType dtype_of(xla::Type type, const char* name) {
  switch (type) {
    case xla::Type::kFloat32:
      return DType::kFloat32;
    case xla::Type::kFloat64:
      return DType::kFloat64;
    case xla::Type::kBFloat16:
      return DType::kBFloat16;
    case xla::Type::kFloat16:
      return DType::kFloat16;
    default:
      throw InvalidInput(std::string(name) + " must be float32, bfloat16, float16 or float64");
  }
}

/// A floating-point matrix.
struct View {
  void* data;
  DType dtype;
  int64_t rows, cols;

  View(const xla::Buffer& buffer, const char* name) : data(buffer.data), dtype(dtype_of(buffer.type, name)) {
    if (buffer.sizes().size() != 2) throw InvalidInput(std::string(name) + " must have 2 axes");
    rows = buffer.sizes()[0];
    cols = buffer.sizes()[1];
  }
  operator Tensor() const { return {data, dtype, {rows, cols}}; }
};

template <class T>
std::vector<T> read_column(const xla::Buffer& in) {
  std::vector<T> out(in.count());
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<T>(in.type == xla::Type::kFloat64 ? static_cast<const double*>(in.data)[i]
                                                           : static_cast<const float*>(in.data)[i]);
  }
  return out;
}

inline void write_column(std::span<const double> column, const xla::Buffer& out) {
  if (out.type == xla::Type::kFloat64) {
    std::copy(column.begin(), column.end(), static_cast<double*>(out.data));
  } else {
    std::transform(column.begin(), column.end(), static_cast<float*>(out.data),
                   [](double x) { return static_cast<float>(x); });
  }
}

/// The attributes of a call. An option that is not among them keeps its default.
class Attributes {
 public:
  explicit Attributes(const xla::Attributes& given) : given_(given) {}

  template <class T>
  void read(const std::string& name, T& out) const {
    const int64_t at = given_.find(name);
    if (at < 0) return;
    if constexpr (std::is_enum_v<T>) {
      out = named<T>(given_.text(at)).value();
    } else if constexpr (std::is_same_v<T, std::string>) {
      out = given_.text(at);
    } else {
      out = given_.number<T>(at);
    }
  }
  template <class T>
  void read(const std::string& name, std::optional<T>& out) const {
    if (given_.find(name) >= 0) read(name, out.emplace());
  }
  // Arrays are arguments, not attributes.
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
  const xla::Attributes& given_;
};

/// One call.
class JaxCall {
 public:
  explicit JaxCall(const xla::CallFrame& frame)
      : frame_(frame),
        attributes_(frame.attributes),
        class_weights_(floats<float>(kClassWeights)),
        temperatures_(floats<double>(kTemperatures)),
        token_weights_(floats<double>(kWeightsOfTokens)) {
    const View states(argument(kHidden), "hidden");
    int64_t sequences = 1;
    attributes_.read("sequences", sequences);
    logits = Logits::of(batched(states, sequences), head_at(kHeadPlaces, ""));
  }

  Logits logits;

  const xla::Buffer& argument(size_t i) const { return frame_.arguments[i]; }
  const xla::Buffer& last_argument() const { return argument(static_cast<size_t>(frame_.arguments.size) - 1); }
  const xla::Buffer& result(size_t i) const { return frame_.results[i]; }

  /// With `frozen`, the forward half keeps expected rows for the gradient of hidden states, if the loss
  /// allows it.
  Context context(bool frozen = false) const {
    auto options = attributes_.all<ContextOptions>("context.");
    if (frozen && options.plan == PlanKind::kAuto) options.plan = PlanKind::kExpectedRow;
    const xla::Buffer &first = argument(kFirst), gathered = argument(kGathered);
    if (first.count() > 0) {
      VocabSlice& slice = options.ranks.slice.emplace();
      slice.first = *static_cast<const int32_t*>(first.data);
      attributes_.read("vocab_size", slice.vocab_size);
      slice.gathered = {static_cast<const std::byte*>(gathered.data), gathered.count()};
    }
    return Context(std::move(options));
  }
  /// Returns a task: its options, and its arrays.
  template <class Task>
  Task task() const {
    auto out = attributes_.all<Task>();
    if constexpr (requires { out.class_weights; }) out.class_weights = class_weights_;
    out.token.temperatures = temperatures_;
    visit_fields(
        TensorsOf<Task>(),
        [&](const Field& field, auto& member) {
          // Other floating-point tensors are not arguments of these handlers.
          if constexpr (std::is_same_v<decltype(member), ConstTensor&>) {
            if (!field.role.takes(DType::kInt64)) return;
          }
          take(member);
        },
        out);
    if constexpr (requires { out.token_weights; }) {
      const auto count = static_cast<int64_t>(token_weights_.size());
      if (count > 0) out.token_weights = ConstTensor(token_weights_.data(), DType::kFloat64, {count});
    }
    return out;
  }
  /// Reads an attribute that is not an option.
  template <class T>
  void read(const std::string& name, T& out) const {
    attributes_.read(name, out);
  }
  /// Returns the outputs for the gradients of hidden, weight, bias, and a LoRA's states and b, which are the
  /// results from `first` on. A gradient whose result has no elements is not computed.
  Gradients gradients(size_t first) const {
    Gradients out;
    const Tensor d_hidden = output(first, "d_hidden"), d_weight = output(first + 1, "d_weight");
    if (d_hidden.given()) out.d_hidden = batched(d_hidden, logits.hidden.sizes[0]);
    out.d_weight = layout("") == HeadLayout::kHiddenVocab ? transposed(d_weight) : d_weight;
    const xla::Buffer& bias = result(first + 2);
    const auto entries = static_cast<int64_t>(bias.count());
    if (entries > 0) out.d_bias = Tensor(bias.data, dtype_of(bias.type, "d_bias"), {entries});
    out.d_lora_states = output(first + 3, "d_lora_states");
    out.d_lora_b = output(first + 4, "d_lora_b");
    out.backward = attributes_.all<BackwardOptions>("backward.");
    const xla::Buffer& seed = argument(kSeed);
    if (seed.count() > 0) out.backward.seed = *static_cast<const int32_t*>(seed.data);
    return out;
  }
  void write_bytes(std::span<const std::byte> bytes, size_t to) const {
    const xla::Buffer& out = result(to);
    if (out.count() != bytes.size()) throw InvalidInput("the result of a slice has the wrong size");
    std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(out.data));
  }

 private:
  template <class T>
  std::vector<T> floats(size_t i) const {
    return read_column<T>(argument(i));
  }

  // Returns the head with these arguments and with attributes that begin with `prefix`. It is valid while
  // this object lives.
  LmHead head_at(const HeadPlaces& at, const std::string& prefix) const {
    LmHead out;
    attributes_.read(prefix + "packing", out.packing);
    if (out.packing) {
      if (layout(prefix) != HeadLayout::kVocabHidden) {
        throw InvalidInput(prefix + "layout = " + name_of(layout(prefix)) +
                           " does not go with a packed weight, whose rows are vocabulary entries");
      }
      set_packed(at, out);
    } else {
      const ConstTensor weight = matrix(at.weight, (prefix + "weight").c_str());
      out.weight = layout(prefix) == HeadLayout::kHiddenVocab ? transposed(weight) : weight;
    }
    attributes_.read(prefix + "softcap", out.softcap);
    out.bias = vector(at.bias, (prefix + "bias").c_str());
    out.vocab_ids = kept_ids(at.ids);
    if (argument(at.lora_b).count() > 0) {
      out.lora.states = matrix(at.lora_states, (prefix + "lora_states").c_str());
      out.lora.b = matrix(at.lora_b, (prefix + "lora_b").c_str());
    }
    return out;
  }
  // Returns argument i as a vector or as a matrix. An argument without elements is not given.
  ConstTensor vector(size_t i, const char* name) const {
    const xla::Buffer& in = argument(i);
    if (in.count() == 0) return {};
    return ConstTensor(in.data, dtype_of(in.type, name), {static_cast<int64_t>(in.count())});
  }
  Tensor matrix(size_t i, const char* name) const { return View(argument(i), name); }
  // Returns rows [N, H] as sequences of equal length.
  static Tensor batched(const Tensor& rows, int64_t sequences) {
    return {rows.data, rows.dtype, {sequences, sequences == 0 ? 0 : rows.sizes[0] / sequences, rows.sizes[1]}};
  }
  HeadLayout layout(const std::string& prefix) const {
    HeadLayout layout = HeadLayout::kVocabHidden;
    attributes_.read(prefix + "layout", layout);
    return layout;
  }
  template <size_t A>
  static ConstTensor ids(const xla::Buffer& in, const char* name, const int64_t (&sizes)[A]) {
    if (in.type == xla::Type::kInt32) return {in.data, DType::kInt32, sizes};
    if (in.type == xla::Type::kInt64) return {in.data, DType::kInt64, sizes};
    throw InvalidInput(std::string(name) + " must be int32 or int64");
  }

  // Read a task's own arguments, in the order listed in jax.cc.
  void take(ConstTensor& out) const {
    const xla::Buffer& in = argument(kTargets);
    out = ids(in, "targets", {static_cast<int64_t>(in.count())});
  }
  void take(IdSets& out) const {
    const xla::Buffer& in = argument(kMore);
    out = IdSets(ids(in, "ids", {in.sizes()[0], in.sizes()[1]}));
  }
  void take(SoftTargets& out) const {
    const xla::Buffer& mask = argument(kMore + 3);
    if (argument(kMore + 2).count() > 0) {
      out = SoftTargets(matrix(kMore + 2, "probabilities"));
    } else {
      take(out.sets);
      out.weights = vector(kMore + 1, "weights");
    }
    out.mask = {static_cast<const uint8_t*>(mask.data), mask.count()};
  }
  void take(SetTeacher& out) const {
    take(out.sets);
    out.logps = vector(kMore + 1, "teacher_logps");
    out.outside_logps = vector(kMore + 2, "teacher_outside_logps");
  }
  void take(Logits& out) const {
    const Tensor finished = matrix(kMore + 3, "teacher_logits");
    if (finished.sizes[1] > 0) {
      out = Logits::given(finished);
    } else {
      out = Logits::of(batched(matrix(kMore, "teacher_hidden"), logits.hidden.sizes[0]),
                       head_at(kTeacherPlaces, "teacher_"));
    }
  }

  Tensor output(size_t i, const char* name) const {
    const xla::Buffer& out = result(i);
    return out.count() > 0 ? Tensor(View(out, name)) : Tensor();
  }

  // Reads a packed weight. logitless.jax has checked its types and shapes.
  void set_packed(const HeadPlaces& at, LmHead& out) const {
    const xla::Buffer& bytes = argument(at.weight);
    const int64_t entries = bytes.sizes()[0], row_bytes = bytes.sizes()[1];
    const PackedBlock block = block_of(*out.packing);
    out.weight = ConstTensor(bytes.data, DType::kUInt8, {entries, row_bytes});
    out.scales = vector(at.scales, "scales");
    if (out.scales.given()) {
      out.group = entries * (row_bytes / block.bytes * block.numbers) / out.scales.count();
    }
  }
  // Returns ids as int64, copied if they are int32, JAX's default.
  std::span<const int64_t> kept_ids(size_t i) const {
    const xla::Buffer& given = argument(i);
    const auto count = static_cast<int64_t>(given.count());
    if (count == 0) return {};
    if (given.type == xla::Type::kInt64) {
      return {static_cast<const int64_t*>(given.data), given.count()};
    }
    const auto* narrow = static_cast<const int32_t*>(given.data);
    return kept_alive_.emplace_back(narrow, narrow + count);
  }

  const xla::CallFrame& frame_;
  const Attributes attributes_;
  const std::vector<float> class_weights_;
  const std::vector<double> temperatures_, token_weights_;
  mutable std::deque<std::vector<int64_t>> kept_alive_;  // vocab_ids of the heads
};

/// The function that is registered with XLA. Exceptions must not propagate through XLA.
template <void (*run)(const JaxCall&)>
xla::Error* handler(const xla::CallFrame* frame) {
  if (xla::answer_metadata(*frame)) return nullptr;
  try {
    run(JaxCall(*frame));
    return nullptr;
  } catch (const InvalidInput& error) {
    return frame->error(xla::Code::kInvalidArgument, with_caller_names(error.what()).c_str());
  } catch (const std::exception& error) {
    return frame->error(xla::Code::kInternal, error.what());
  }
}

}  // namespace logitless::python
