// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every tensor, setting and option of every task, one at a time with another value on one of three ranks: no
// rank returns a result, and all of them name the argument and two ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "generator/good_call.h"
#include "support/option_cases.h"

namespace logitless::testing {
namespace rank_arguments_test {

// Returns whether ranks may differ in it: a rank has its own part of the head, its own mode of writing that
// part's gradients, and its own way to say how a tensor is read.
bool is_own(const std::string& name) {
  static const std::set<std::string> kOwn = {"weight",        "bias",        "scales",         "vocab_ids",    "lora_b",
                                             "d_weight_mode", "d_bias_mode", "advantages_per", "ref_logps_per"};
  return kOwn.contains(name.substr(name.rfind('.') + 1));
}

// Returns element i of a tensor of numbers or ids.
double element_of(const ConstTensor& tensor, int64_t i) {
  int64_t at = 0;
  for (auto axis = static_cast<size_t>(tensor.axes); axis-- > 0; i /= tensor.sizes[axis]) {
    at += i % tensor.sizes[axis] * tensor.strides[axis];
  }
  if (tensor.dtype == DType::kInt32) return static_cast<const int32_t*>(tensor.data)[at];
  if (tensor.dtype == DType::kInt64) return static_cast<double>(static_cast<const int64_t*>(tensor.data)[at]);
  return oracle::read_element(tensor.data, tensor.dtype, at);
}

// Ranks compare the ids of all rows that are not ignored under one name.
std::string compared_name(std::string name) {
  if (name == "chosen_ids" || name == "mask" || name.ends_with("sets.ids")) return "targets";
  return name;
}

// Calls change(name, apply) for each argument; apply() sets it to another value.
template <Task T>
class Changes {
 public:
  using Change = std::function<void(const std::string& name, const std::function<void()>& apply)>;
  Changes(GoodCall<T>& call, const Change& change) : call_(call), change_(change) {
    call.visit([&](const std::string& name, const Field& field, auto& member) {
      // Without a weight of the cross-entropy, targets only select rows.
      if (std::is_same_v<T, SetDistillation> && name == "targets") return;
      if (!is_own(name)) add(name, field, member);
    });
    std::vector<std::pair<std::string, std::vector<double>*>> upstream = {{"upstream", &call.upstream_.each}};
    visit_fields(
        FieldsOf<TokenGrads>(),
        [&](const Field& field, auto& column) { upstream.emplace_back(std::string("grads.") + field.name, &column); },
        call.upstream_.grads);
    for (const auto& [name, values] : upstream) {
      if (values->empty()) continue;
      change_(name, [values = values] { values->front() += 1; });
    }
  }

 private:
  template <class M>
  void add(const std::string& name, const Field&, M& option) {
    if constexpr (requires { other_values(option); }) {
      if (!name.starts_with("backward.")) add_option(name, option);
    }
  }
  template <class M>
  void add_option(const std::string& name, M& option) {
    for (const M& other : other_values(option)) {
      change_(name + " = " + text_of(other), [&option, other] { option = other; });
    }
  }
  void add(const std::string& name, const Field&, double& number) {
    static const std::set<std::string> kOfLogits = {"softcap", "lora_scale", "theta", "noise", "tolerance"};
    if (!kOfLogits.contains(name.substr(name.rfind('.') + 1))) return add_option(name, number);
    const bool has_other = std::is_same_v<T, Distillation> || call_.drawn().model_as_reference;
    const bool is_read = name == "softcap" || (name.ends_with(".softcap") && has_other) ||
                         (name == "lora_scale" && !call_.drawn().lora_states) ||
                         (name == "backward.theta" && samples());
    if (is_read) {
      change_(name, [&number] { number = number == 0 ? 20 : number / 2; });
    }
  }
  void add(const std::string& name, const Field&, int64_t& number) {
    if (name == "backward.seed" && samples()) change_(name, [&number] { ++number; });
    if (name.find("group") == std::string::npos && !name.starts_with("backward.")) add_option(name, number);
  }
  void add(const std::string& name, const Field&, WriteMode& mode) {
    change_(name, [&mode] { mode = WriteMode::kAccumulate; });
  }
  void add(const std::string& name, const Field&, BackwardMode& mode) {
    if (samples() || std::is_same_v<T, CrossEntropy>)
      change_(name, [&mode] { mode = mode == BackwardMode::kExact ? BackwardMode::kCertified : BackwardMode::kExact; });
  }
  void add(const std::string& name, const Field&, Tensor& output) {
    if (output.given()) change_(name, [&output] { output = {}; });
  }
  void add(const std::string& name, const Field& field, ConstTensor& tensor) {
    if (!tensor.given()) return;
    change_(name, [this, name, &field, &tensor] {
      const ConstTensor good = tensor;
      GuardedTensor& other =
          tensors_.emplace_back(good.dtype, std::vector<int64_t>(good.sizes.begin(), good.sizes.begin() + good.axes),
                                std::vector<int64_t>(good.strides.begin(), good.strides.begin() + good.axes));
      for (int64_t i = 0; i < good.count(); ++i) other.set(i, other_number(name, field, element_of(good, i)));
      tensor = other.view();
    });
  }
  template <class E>
  void add(const std::string& name, const Field& field, std::span<const E>& list) {
    if (list.empty() || std::is_same_v<E, int64_t>) return;
    change_(name, [this, name, &field, &list] {
      static std::vector<E> other;  // only one rank has it
      other.assign(list.begin(), list.end());
      for (E& entry : other) entry = static_cast<E>(other_number(name, field, static_cast<double>(entry)));
      list = other;
    });
  }

  bool samples() const { return call_.drawn().backward == BackwardMode::kSampled; }
  // Returns a different number that is also valid in the tensor.
  double other_number(const std::string& name, const Field& field, double value) const {
    if (name == "labels") return 1 - value;
    if (field.role.elements == only(DType::kUInt8)) return 0;
    if (field.role.elements == kIds) {
      return value < 0 ? value : static_cast<double>((static_cast<int64_t>(value) + 1) % call_.drawn().vocab);
    }
    if (name == "teacher.logps") return 1.5 * value;
    return name == "scores" ? -value : value / 2;
  }

  GoodCall<T>& call_;
  const Change& change_;
  std::deque<GuardedTensor> tensors_;
};

enum class Split { kVocabulary, kBatch };

// Runs the call on three ranks, which split the vocabulary or have a batch each. On rank 1 the argument
// `name` has another value, unless it is empty.
template <Task T>
std::vector<std::exception_ptr> run_with(const DrawnCall& form, Split split, const std::string& name) {
  const std::vector<int64_t> parts = {2, 1, 2};
  ThreadGroup group(3);
  return run_ranks(3, [&](int rank) {
    GoodCall<T> call(form);
    ContextOptions options;
    options.threads = 1;
    if (split == Split::kVocabulary) {
      call.reset(rank == 0 ? 0 : rank + 1, parts[static_cast<size_t>(rank)]);
      options.ranks.vocab = &group.of(rank);
    } else {
      options.ranks.data = &group.of(rank);
      options.ranks.sum_d_weight = true;
    }
    const typename Changes<T>::Change change = [&](const std::string& at, const std::function<void()>& apply) {
      if (rank == 1 && at == name) apply();
    };
    const Changes<T> changes(call, change);
    call.run(Context(options));
  });
}

template <Task T>
void expect_noticed(DrawnCall form, Split split) {
  SCOPED_TRACE(code_of(form));
  form.kept = false;
  form.threads = 1;
  for (const auto& error : run_with<T>(form, split, "")) ASSERT_EQ(message_of(error), "");
  std::vector<std::string> names;
  {
    GoodCall<T> call(form);
    const typename Changes<T>::Change note = [&](const std::string& name, const auto&) { names.push_back(name); };
    const Changes<T> changes(call, note);
  }
  EXPECT_GT(names.size(), 8U);
  const std::string group = split == Split::kBatch ? "ranks.data" : "ranks.vocab";
  int options = 0, refused = 0;
  for (const std::string& name : names) {
    const size_t equals = name.find(" = ");
    const bool is_option = equals != std::string::npos;
    if (split == Split::kBatch && !is_option) continue;  // most belong to a rank's own tokens
    SCOPED_TRACE(name);
    const std::string words = compared_name(name.substr(0, equals)) + " must be the same on all ranks of " + group;
    const auto errors = run_with<T>(form, split, name);
    const std::string own = message_of(errors[1]);
    const bool noticed = own.find(words) == 0 || (!is_option && own.find(words) != std::string::npos);
    // Rank 1 may also refuse an option that has no meaning with its other options.
    EXPECT_TRUE(noticed || (is_option && own.find("must be the same") == std::string::npos)) << own;
    options += is_option, refused += !noticed;
    if (noticed) {
      EXPECT_NE(own.find(is_option ? " where rank 1 has " + name.substr(equals + 3) : "rank 1"), std::string::npos)
          << own;
    }
    for (size_t rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(errors[rank]) << "a rank returned";
      if (rank != 1 || noticed) {
        EXPECT_THROW(std::rethrow_exception(errors[rank]), RankError);
      }
      EXPECT_EQ(message_of(errors[rank]), noticed || rank == 1 ? own : "rank 1 of " + group + ": " + own);
    }
  }
  EXPECT_LE(2 * refused, options);
}

TEST(RankArguments, AreTheSameOnAllRanks) {
  AllTasks::each([]<class T>() {
    if constexpr (!std::is_same_v<T, CustomLoss>) {
      std::vector<DrawnCall> forms = forms_of(T::kName);
      expect_noticed<T>(forms[0], Split::kBatch);
      if (std::is_same_v<T, CrossEntropy> || std::is_same_v<T, PolicyLoss>) {
        forms.push_back(forms[0]);
        forms.back().backward = BackwardMode::kSampled;
      }
      for (const DrawnCall& form : forms) {
        if (!form.finished) expect_noticed<T>(form, Split::kVocabulary);  // finished logits are not split
      }
    }
  });
}

}  // namespace rank_arguments_test
}  // namespace logitless::testing
