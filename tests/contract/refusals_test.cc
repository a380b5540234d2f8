// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Refusals that follow from the lists of fields, for every argument of every task: numbers out of range,
// values that are not enumerators, tensors of another size, type, alignment or order, entries that are not
// numbers or ids, outputs that overlap. The message names the argument, and nothing is written.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "generator/good_call.h"

namespace logitless::testing {
namespace refusals_test {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A value that is refused, and words of the message.
template <class T>
struct Bad {
  T value;
  std::string words;
};

// Returns numbers that are never accepted, and numbers just out of range.
std::vector<double> bad_numbers(const Interval& range) {
  std::vector<double> all = {kNaN, kInfinity, -kInfinity};
  if (range.low > -kFinite.high) all.push_back(range.open_low ? range.low : range.low - 0.125);
  if (range.high < kFinite.high) all.push_back(range.open_high ? range.high : range.high + 0.125);
  return all;
}

// Each overload returns bad values of an option that messages call `name`.

std::vector<Bad<bool>> bad_values(const std::string&, const Field&, bool) { return {}; }
std::vector<Bad<double>> bad_values(const std::string& name, const Field& field, double) {
  std::vector<Bad<double>> all;
  for (const double bad : bad_numbers(field.range)) all.push_back({bad, name + " = " + text_of(bad)});
  return all;
}
template <std::integral T>
std::vector<Bad<T>> bad_values(const std::string& name, const Field& field, T) {
  std::vector<Bad<T>> all;
  const auto add = [&](double bad) { all.push_back({static_cast<T>(bad), name + " = " + text_of(bad)}); };
  if (field.range.low > -kFinite.high) add(field.range.low - 1);
  if (field.range.high < kFinite.high) add(field.range.high + 1);
  return all;
}
template <Named Enum>
std::vector<Bad<Enum>> bad_values(const std::string& name, const Field&, Enum) {
  return {{Enum{99}, name + " = "}, {Enum{-1}, name + " = "}};
}
std::vector<Bad<std::optional<DType>>> bad_values(const std::string& name, const Field&, std::optional<DType>) {
  return {{DType::kFloat32, name + " = float32 must be bfloat16 or float16"},
          {DType::kFloat64, name + " = float64 must be bfloat16 or float16"},
          {DType{99}, name + " = "}};
}
std::vector<Bad<std::optional<Packing>>> bad_values(const std::string& name, const Field&, std::optional<Packing>) {
  return {{Packing{99}, name + " = "}};
}
template <class T>
std::vector<Bad<std::optional<T>>> bad_values(const std::string& name, const Field& field, std::optional<T>) {
  std::vector<Bad<std::optional<T>>> all;
  for (const Bad<T>& bad : bad_values(name, field, T())) all.push_back({bad.value, bad.words});
  return all;
}
template <class T>
std::vector<Bad<std::vector<T>>> bad_values(const std::string& name, const Field& field, const std::vector<T>& good) {
  std::vector<Bad<std::vector<T>>> all;
  for (size_t k = 0; k < good.size(); ++k) {
    for (const Bad<T>& bad : bad_values(name + "[" + text_of(k) + "]", field, good[k])) {
      std::vector<T> list = good;
      list[k] = bad.value;
      all.push_back({list, bad.words});
    }
  }
  return all;
}

// Returns views of other sizes, types and orders, and of memory that is missing or not aligned.
template <class Void>
std::vector<Bad<BasicTensor<Void>>> bad_views(const Role& role, const BasicTensor<Void>& good) {
  std::vector<Bad<BasicTensor<Void>>> all;
  const auto add = [&](const std::string& words, const auto& change) {
    all.push_back({good, words});
    change(all.back().value);
  };
  const size_t last = static_cast<size_t>(good.axes) - 1;
  for (size_t axis = 0; axis <= last; ++axis) {
    add("", [&](auto& t) { t.sizes[axis] += 1; });
    add("", [&](auto& t) { t.sizes[axis] -= 1; });
    const std::string at = "[" + text_of(axis) + "] = -1 is negative";
    add("-1", [&](auto& t) { t.sizes[axis] = -1; });
    if (good.sizes[axis] > 1) add(".strides" + at, [&](auto& t) { t.strides[axis] = -1; });
  }
  add("", [&](auto& t) {
    for (; t.axes < 4; ++t.axes) {
      if (t.axes < 3) t.sizes[static_cast<size_t>(t.axes)] = 1;
    }
  });
  add(".dtype = 9 is not an element type", [](auto& t) { t.dtype = DType{9}; });
  for (const DType dtype : all_of<DType>()) {
    if (!role.takes(dtype)) add("must be", [&](auto& t) { t.dtype = dtype; });
  }
  add(".data is null", [](auto& t) { t.data = nullptr; });
  if (size_of(good.dtype) > 1) {
    add("is not aligned to its element type",
        [](auto& t) { t.data = reinterpret_cast<Void*>(reinterpret_cast<uintptr_t>(t.data) + 1); });
  }
  if (role.order == Order::kRows && good.sizes[last] > 1) {
    add("its rows must be contiguous", [&](auto& t) { t.strides[last] = 2; });
    add("stride", [&](auto& t) { t.strides[last - 1] = good.sizes[last] - 1; });
  }
  if (role.order == Order::kDense && good.sizes[last] > 1) {
    add("its elements must be contiguous", [&](auto& t) { t.strides[last] = 2; });
  }
  return all;
}

/// The memory of an input.
struct Input {
  std::string name;
  const std::byte* data;
  size_t bytes;

  /// Returns the address of its last unit of this size.
  std::byte* last(size_t unit) const { return const_cast<std::byte*>(data) + (bytes - 1) / unit * unit; }
};
template <class Void>
size_t bytes_of_view(const BasicTensor<Void>& view) {
  int64_t last = 0;
  for (size_t i = 0; i < static_cast<size_t>(view.axes); ++i) last += (view.sizes[i] - 1) * view.strides[i];
  return static_cast<size_t>(last + 1) * size_of(view.dtype);
}

template <Task T>
class Refusals {
 public:
  explicit Refusals(const DrawnCall& call) : call_(call) {
    SCOPED_TRACE(code_of(call));
    GoodCall<T> copy(call);
    EXPECT_NO_THROW(copy.run(Context()));
    call_.visit([&](const std::string& name, const Field& field, auto& member) { spoil(name, field, member); });
    check_overlaps();
  }

 private:
  // Returns whether a message contains all parts of a name. Messages call the size of a head the vocabulary.
  static bool is_named(const std::string& message, const std::string& name) {
    if (name.ends_with("vocab_ids")) return true;  // all tensors of the vocabulary then have another size
    size_t from = 0;
    while (from <= name.size()) {
      const size_t dot = std::min(name.find('.', from), name.size());
      const std::string part = name.substr(from, dot - from);
      const bool is_head = part == "weight" || part == "logits";
      const bool is_size = message.find("vocabulary") != std::string::npos || message.find("[0, ") != std::string::npos;
      if (message.find(part) == std::string::npos && part != "ids" && !(is_head && is_size)) return false;
      from = dot + 1;
    }
    return true;
  }
  void expect_refused(const std::string& name, const std::string& words) {
    try {
      call_.run(Context());
      ADD_FAILURE() << name << ": accepted, not " << words;
      call_.put_back();
    } catch (const InvalidInput& error) {
      const std::string message = error.what();
      EXPECT_TRUE(is_named(message, name) && message.find(words) != std::string::npos)
          << "no " << name << " and '" << words << "' in: " << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
    EXPECT_TRUE(call_.unchanged()) << name << ": something was written";
  }
  template <class M>
  void expect_all_refused(const std::string& name, M& member, const std::vector<Bad<M>>& all) {
    const M good = member;
    for (const Bad<M>& bad : all) {
      member = bad.value;
      expect_refused(name, bad.words);
    }
    member = good;
  }

  // Returns whether this is an option of something that the call lacks.
  bool is_unread(const std::string& name) {
    static const std::set<std::string> kOfHead = {"softcap", "packing", "group", "lora_scale"};
    const DrawnCall& drawn = call_.drawn();
    const size_t dot = name.rfind('.');
    const bool is_of_head = kOfHead.contains(name.substr(dot + 1)), is_of_other = dot != std::string::npos;
    const bool has_other = std::is_same_v<T, Distillation> || drawn.model_as_reference;
    if (is_of_head && (drawn.finished || (is_of_other && !has_other))) return true;
    if (drawn.finished && (name.starts_with("backward.") || name.ends_with("_mode"))) return true;
    if (name == "ref_logps_per" && drawn.model_as_reference) return true;
    return name == "temperature" && !call_.task.token.temperatures.empty();
  }
  template <class M>
  void spoil(const std::string& name, const Field& field, M& option) {
    if (is_unread(name)) return;
    expect_all_refused(name, option, bad_values(name.substr(name.rfind('.') + 1), field, option));
  }
  template <class Void>
  void spoil(const std::string& name, const Field& field, BasicTensor<Void>& tensor) {
    if (!tensor.given()) return;
    expect_all_refused(name, tensor, bad_views(field.role, tensor));
    if constexpr (std::is_const_v<Void>) {
      inputs_.push_back({name, static_cast<const std::byte*>(tensor.data), bytes_of_view(tensor)});
      const ConstTensor good = tensor;
      for (const auto& [value, words] : bad_entries(name, field)) {
        const std::vector<int64_t> sizes(good.sizes.begin(), good.sizes.begin() + good.axes),
            strides(good.strides.begin(), good.strides.begin() + good.axes);
        GuardedTensor bad(good.dtype, sizes, strides);
        for (int64_t i = 0; i < good.count(); ++i) bad.set(i, value);
        tensor = bad.view();
        expect_refused(name, words);
      }
      tensor = good;
    } else {
      outputs_.push_back({name, &tensor});
    }
  }
  template <class E>
  void spoil(const std::string& name, const Field& field, std::span<const E>& list) {
    if (list.empty()) return;
    inputs_.push_back({name, reinterpret_cast<const std::byte*>(list.data()), list.size_bytes()});
    const std::span<const E> good = list;
    std::vector<E> bad(good.begin(), good.end());
    bad.push_back(good.back());
    for (const size_t size : {good.size() - 1, good.size() + 1}) {
      list = std::span<const E>(bad).first(size);
      // Offsets define the number of sequences.
      if (size > 0 && field.role.shape != std::string("[B + 1]")) expect_refused(name, "");
    }
    bad.pop_back();
    list = bad;
    for (const auto& [value, words] : bad_entries(name, field)) {
      std::fill(bad.begin(), bad.end(), static_cast<E>(value));
      expect_refused(name, words);
    }
    if constexpr (std::is_same_v<E, int64_t>) {
      for (size_t k = 0; k < good.size(); ++k) {
        for (const int64_t step : {-1000, 1000}) {
          bad.assign(good.begin(), good.end());
          bad[k] += step;
          list = bad;
          expect_refused(name, "");
        }
      }
    }
    list = good;
  }

  // Returns numbers that are invalid as entries of this tensor.
  std::vector<Bad<double>> bad_entries(const std::string& name, const Field& field) const {
    static const std::set<std::string> kOfLogits = [] {
      std::set<std::string> names;
      visit_fields(
          FieldsOf<Logits>(), [&](const Field& at, const auto&) { names.insert(at.name); }, Logits());
      return names;
    }();
    std::vector<Bad<double>> all;
    if (field.role.elements == kIds) {
      for (const int64_t id : {call_.vocab(), int64_t{-1}}) {
        all.push_back(
            {static_cast<double>(id), "= " + text_of(id) + " is outside [0, " + text_of(call_.vocab()) + ")"});
      }
    } else if (field.role.elements == only(DType::kUInt8)) {
      all.push_back({2, "[0] = 2 must be 0 or 1"});
    } else if (field.role.elements != only(DType::kInt64) && !kOfLogits.contains(field.name)) {
      for (const double number : bad_numbers(field.range)) all.push_back({number, "= " + text_of(number)});
    }
    if (name == "sampling_logps") std::erase_if(all, [](const auto& bad) { return std::isnan(bad.value); });
    if (name == "teacher.logps") std::erase_if(all, [](const auto& bad) { return bad.value == -kInfinity; });
    return all;
  }

  // Places each output at the beginning and at the end of each input, and at each other output. A call that
  // is not refused destroys its inputs, so it must be the last one.
  void check_overlaps() {
    if (!call_.upstream_.each.empty()) {
      const auto bytes = std::as_bytes(std::span(call_.upstream_.each));
      inputs_.push_back({"upstream", bytes.data(), bytes.size()});
    }
    for (const auto& [name, output] : outputs_) {
      void* const good = output->data;
      for (const Input& input : inputs_) {
        SCOPED_TRACE(input.name);
        const std::string words = name + " overlaps input ";
        output->data = const_cast<std::byte*>(input.data);
        if (name != "d_logits" || input.name != "logits") expect_refused("", words);
        if (::testing::Test::HasFailure()) return;
        output->data = input.last(size_of(output->dtype));
        expect_refused("", words);
        if (::testing::Test::HasFailure()) return;
      }
      for (const auto& [other, tensor] : outputs_) {
        if (tensor == output || bytes_of_view(*output) > bytes_of_view(*tensor)) continue;
        output->data = tensor->data;
        expect_refused(other, name);
      }
      output->data = good;
    }
  }

  GoodCall<T> call_;
  std::vector<Input> inputs_;
  std::vector<std::pair<std::string, Tensor*>> outputs_;
};

TEST(Refusals, OfEveryArgumentOfEveryTask) {
  AllTasks::each([]<class T>() {
    if constexpr (!std::is_same_v<T, CustomLoss>) {
      for (const DrawnCall& form : forms_of(T::kName)) {
        Refusals<T> check(form);
      }
    }
  });
}

TEST(Refusals, OfEveryOptionOfAContext) {
  ContextOptions options;
  const auto spoil = [&]<class M>(const Field& field, M& member) {
    if constexpr (Named<M>) {
      const M good = member;
      for (const Bad<M>& bad : bad_values(field.name, field, member)) {
        member = bad.value;
        try {
          Context context(options);
          ADD_FAILURE() << bad.words << " is accepted";
        } catch (const InvalidInput& error) {
          EXPECT_NE(std::string(error.what()).find(bad.words), std::string::npos) << error.what();
        }
      }
      member = good;
    }
  };
  visit_fields(FieldsOf<ContextOptions>(), spoil, options);
}

}  // namespace refusals_test
}  // namespace logitless::testing
