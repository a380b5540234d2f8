// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every task through C has the bits of the functions of C++, by all four verbs, and every key arrives.
#include <cmath>
#include <cstring>
#include <set>

#include "c_call.h"
#include "support/calls.h"
#include "support/inputs.h"
#include "support/option_cases.h"
#include "support/thread_ranks.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

Logits source_of(const FromHidden& from) { return logits_of(from.states(), from.head()); }
Logits source_of(const Inputs& inputs) { return logits_of(inputs.hidden_view(), inputs.head_view()); }
Logits source_of(const FromLogits& from) {
  return Logits::given(FinishedLogits(from.data.data(), kBatch, kTime, kVocab));
}

bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Every result of C++ is read from C, and is the same.
template <class Result>
void expect_results(logitless_call* call, const Result& result) {
  int seen = 0, tensors = 0;
  record::visit_values(result, "", [&](const std::string& name, const record::Value& wanted, const Field&) {
    SCOPED_TRACE(name);
    ++seen;
    if (const auto* number = std::get_if<double>(&wanted)) {
      double got = 0;
      ASSERT_EQ(logitless_get_number(call, name.c_str(), &got), LOGITLESS_OK) << logitless_last_error();
      EXPECT_TRUE(same_number(got, *number)) << got << " is not " << *number;
    } else if (const auto* integer = std::get_if<int64_t>(&wanted)) {
      int64_t got = 0;
      ASSERT_EQ(logitless_get_integer(call, name.c_str(), &got), LOGITLESS_OK) << logitless_last_error();
      EXPECT_EQ(got, *integer);
    } else if (const auto* column = std::get_if<Tensor>(&wanted)) {
      logitless_tensor got;
      const logitless_status status = logitless_get_tensor(call, name.c_str(), &got);
      if (column->count() == 0) {
        EXPECT_EQ(status, LOGITLESS_INVALID_INPUT);
        EXPECT_NE(std::string(logitless_last_error()).find(name + " was not computed"), std::string::npos);
        return;
      }
      ++tensors;
      ASSERT_EQ(status, LOGITLESS_OK) << logitless_last_error();
      EXPECT_EQ(got.dtype, static_cast<int32_t>(column->dtype));
      const int64_t count = got.sizes[0] * (got.axes > 1 ? got.sizes[1] : 1);
      ASSERT_EQ(count, column->count());
      EXPECT_EQ(std::memcmp(got.data, column->data, static_cast<size_t>(count) * 8), 0);
    }
  });
  EXPECT_GT(seen, 0);
  EXPECT_GT(tensors, 0);
  // No member is missing in its list: the sizes of those in it add up.
  size_t listed = sizeof(Plan);
  const auto add = [&]<class T>(const Field&, const T& member) {
    listed += sizeof(T);
    if constexpr (std::is_class_v<T> && requires { member.tokens; }) {
      size_t of_metrics = 0;
      visit_fields(
          FieldsOf<T>(), [&](const Field&, const auto& metric) { of_metrics += sizeof metric; }, member);
      EXPECT_EQ(of_metrics, sizeof(T));
    }
  };
  visit_fields(FieldsOf<Result>(), add, result);
  EXPECT_EQ(listed, sizeof(Result));
}

std::string plan_text(logitless_call* call) {
  const char* text = "";
  EXPECT_EQ(logitless_get_text(call, "plan", &text), LOGITLESS_OK) << logitless_last_error();
  return text;
}

// Returns ∂L/∂loss of a task, and sets it in C.
template <class Task>
Upstream upstream_for(CCall& call, const Task& task) {
  if constexpr (std::is_same_v<Task, TokenStatistics>) {
    static const TokenGrads kept = Batch().grads;
    call.put("d_logp", std::span<const double>(kept.logp)), call.put("d_lse", std::span<const double>(kept.lse));
    call.put("d_entropy", std::span<const double>(kept.entropy));
    call.put("d_cross", std::span<const double>(kept.cross));
    return kept;
  } else {
    static const std::vector<double> each = [] {
      std::vector<double> values;
      for (int64_t i = 0; i < 1000; ++i) values.push_back(0.1 * static_cast<double>(i % 5));
      return values;
    }();
    std::span<const double> some;
    if constexpr (std::is_same_v<Task, IdLogps>) {
      some = std::span(each).first(static_cast<size_t>(task.sets.entries()));
    } else if constexpr (requires { task.reduction; }) {
      if (task.reduction == Reduction::kNone) some = std::span(each).first(kTokens);
    }
    if (some.empty()) {
      call.put("upstream", 0.5);
      return 0.5;
    }
    call.put("upstream", some);
    return some;
  }
}

// All four verbs. make() returns memory for gradients, which has views() and values().
template <class Task, class Make>
void expect_bits(const Task& task, const Logits& from, const Make& make) {
  SCOPED_TRACE(Task::kName);
  auto c = make(), cxx = make();
  CCall call(Task::kName);
  call.give(from), call.give(task);
  const Context context;
  const logitless::Gradients to = gradients_of(cxx.outputs(), from);

  ASSERT_EQ(logitless_forward(call), LOGITLESS_OK) << logitless_last_error();
  const auto left = forward(context, from, task);
  expect_results(call, left.result);
  EXPECT_EQ(plan_text(call), left.result.plan.describe());

  call.give(gradients_of(c.outputs(), from), from);
  const auto upstream = upstream_for(call, task);
  ASSERT_EQ(logitless_backward(call), LOGITLESS_OK) << logitless_last_error();
  EXPECT_EQ(plan_text(call), backward(context, from, task, left, upstream, to).describe());
  EXPECT_EQ(c.values(), cxx.values());

  if constexpr (!kHasLoss<Task>) {
    EXPECT_EQ(logitless_run(call), LOGITLESS_INVALID_INPUT);
    EXPECT_NE(std::string(logitless_last_error()).find("which has no loss"), std::string::npos);
  } else {
    ASSERT_EQ(logitless_plan(call), LOGITLESS_OK) << logitless_last_error();
    EXPECT_EQ(plan_text(call), plan(context, from, task, to).describe());
    ASSERT_EQ(logitless_run(call), LOGITLESS_OK) << logitless_last_error();
    expect_results(call, run(context, from, task, to));
    EXPECT_EQ(c.values(), cxx.values());
  }
}

struct HiddenMemory {
  FromHidden::Outputs memory;
  Gradients outputs() { return memory.views(); }
  const std::vector<float>& values() const { return memory.values(); }
};
struct LogitsMemory {
  FromLogits::Outputs memory;
  Gradients outputs() {
    Gradients out;
    out.d_logits = memory.views();
    return out;
  }
  const std::vector<float>& values() const { return memory.values(); }
};
template <class Task>
void expect_bits(const Batch& batch, const Task& task, bool of_logits = true) {
  expect_bits(task, source_of(batch.model), [] { return HiddenMemory(); });
  if (of_logits) expect_bits(task, source_of(FromLogits()), [] { return LogitsMemory(); });
}

TEST(CTasks, CrossEntropiesHaveTheBitsOfCxx) {
  const Batch batch;
  CrossEntropy task;
  task.targets = batch.targets();
  expect_bits(batch, task);
  task.label_smoothing = 0.1, task.z_loss = 1e-3, task.want_accuracy = task.want_entropy = true;
  expect_bits(batch, task);
  task.reduction = Reduction::kNone;
  expect_bits(batch, task);
}

TEST(CTasks, PolicyLossesHaveTheBitsOfCxx) {
  const OptionBatch batch;
  for (const PolicyLossType variant : all_of<PolicyLossType>()) {
    SCOPED_TRACE(name_of(variant));
    PolicyLoss task;
    task.loss_type = variant;
    if (variant == PolicyLossType::kDrGrpo) task.max_completion_length = 9;
    task = batch.task_of(task);
    expect_bits(batch, task);
  }
  PolicyLoss kept;
  kept = batch.task_of(kept);
  std::vector<int64_t> ids, offsets = {0};
  for (int64_t i = 0; i < kTokens; ++i) {
    if (batch.mask[static_cast<size_t>(i)]) ids.insert(ids.end(), {batch.ids[static_cast<size_t>(i)], 100});
    offsets.push_back(static_cast<int64_t>(ids.size()));
  }
  kept.kept = IdSets(Targets(std::span<const int64_t>(ids)), offsets);
  expect_bits(batch, kept);
}

TEST(CTasks, PreferenceLossesHaveTheBitsOfCxx) {
  const OptionBatch batch;
  for (const auto loss : all_of<PreferenceLossType>()) {
    SCOPED_TRACE(name_of(loss));
    PreferenceLoss task;
    task.loss_type = {loss};
    using enum PreferenceLossType;
    if (loss == kRobust || loss == kExoPair) task.label_smoothing = 0.1;
    expect_bits(batch, batch.task_of(task));
  }
  expect_bits(batch, with(PreferenceLoss(), batch.targets(), batch.reference_model()), false);
}

TEST(CTasks, LossesOfSequencesHaveTheBitsOfCxx) {
  const OptionBatch batch;
  for (const KtoLossType loss : all_of<KtoLossType>()) {
    SCOPED_TRACE(name_of(loss));
    KtoLoss task;
    task.loss_type = loss;
    expect_bits(batch, batch.task_of(task));
  }
}

TEST(CTasks, SoftTargetsHaveTheBitsOfCxx) {
  const Batch batch;
  SoftCrossEntropy task;
  task.subtract_entropy = true;
  task.targets = batch.sparse();
  expect_bits(batch, task);
  task.reduction = Reduction::kNone;
  task.targets = batch.dense();
  expect_bits(batch, task);
}

TEST(CTasks, DistillationsHaveTheBitsOfCxx) {
  const OptionBatch batch;
  const FromLogits finished;
  Distillation task;
  task.targets = batch.targets();
  task.teacher = logits_of(batch.other.states(), batch.other.head());
  task.want_agreement = task.want_entropy = true;
  expect_bits(batch, task, false);
  task.teacher = source_of(finished);
  task.hard_weight = 0.5;
  task.reduction = Reduction::kNone;
  expect_bits(batch, task);
  SetDistillation sets;
  sets.teacher = batch.set_teacher();
  expect_bits(batch, sets);
  sets.targets = batch.targets();
  sets.hard_weight = 0.5;
  sets.reduction = Reduction::kNone;
  expect_bits(batch, sets);
}

TEST(CTasks, SetsOfIdsAndStatisticsHaveTheBitsOfCxx) {
  const Batch batch;
  for (const NormaliseOver over : all_of<NormaliseOver>()) {
    IdLogps task;
    task.normalise_over = over;
    task.sets = batch.sparse().sets;
    expect_bits(batch, task);
    const std::vector<int64_t> ids(kTokens * 3, 7), counts(kTokens, 1);
    task.sets = IdSets::padded(Targets(ids.data(), kTokens, 3), counts);
    expect_bits(batch, task);
  }
  TokenStatistics task;
  task.targets = batch.targets();
  task.token.temperature = 0.7;
  task.request = {true, true, true, true, 5, {}, true, true};
  expect_bits(batch, task);
}

// Inputs of every type and form, with a gradient of every output.
TEST(CTasks, TensorsOfEveryFormHaveTheBitsOfCxx) {
  std::vector<InputSpec> specs(5);
  specs[1].dtype = DType::kBFloat16;
  specs[1].layout = HeadLayout::kVocabHidden;
  specs[1].padding = 3;
  specs[1].targets32 = true;
  specs[2].dtype = DType::kFloat64;
  specs[2].sequences = 4;
  specs[2].tokens = 36;
  specs[2].hidden_rows = Rows::kSlice;
  specs[2].strided_targets = true;
  specs[3].sequences = 4;
  specs[3].tokens = 32;
  specs[3].softcap = 20;
  specs[4].offsets = {0, 5, 5, 37};
  specs[4].dtype = DType::kFloat16;
  for (InputSpec& spec : specs) {
    spec.ignored = 0.2;
    for (const bool accumulate : {false, true}) {
      RunSpec run;
      run.accumulate = accumulate;
      run.d_hidden_rows = spec.hidden_rows;
      Inputs inputs(spec);
      struct Memory {
        GradientOutputs memory;
        Gradients outputs() { return memory.gradients(); }
        std::vector<std::byte> values() const { return memory.bytes(); }
      };
      CrossEntropy task;
      task.targets = inputs.targets_view();
      expect_bits(task, source_of(inputs), [&] { return Memory{GradientOutputs(inputs, run)}; });
    }
  }
}

// Packed heads, chosen entries, and a LoRA beside a weight.
TEST(CTasks, HeadsHaveTheBitsOfCxx) {
  InputSpec spec;
  spec.hidden = 12;
  spec.layout = HeadLayout::kVocabHidden;
  Inputs inputs(spec);
  std::vector<int8_t> numbers;
  for (int64_t i = 0; i < 2 * spec.vocab * spec.hidden; ++i)
    numbers.push_back(static_cast<int8_t>((i * 37) % 255 - 127));
  const std::vector<float> scales(static_cast<size_t>(4 * spec.vocab), 0.01F),
      bias(static_cast<size_t>(2 * spec.vocab), 0.5F);
  std::vector<int64_t> ids;
  for (int64_t k = 0; k < spec.vocab; ++k) ids.push_back(2 * k);
  CrossEntropy task;
  task.targets = inputs.targets_view();
  struct Memory {
    GradientOutputs memory;
    std::vector<float> lora = std::vector<float>(3 * (12 + 150 + 37), 1);
    bool packed;
    Gradients outputs() {
      Gradients out = memory.gradients();
      if (packed) {
        out.d_weight = {};
      } else {
        out.d_lora_a = {lora.data(), 3, 12};
        out.d_lora_b = {lora.data() + 36, 150, 3};
        out.d_lora_mode = WriteMode::kAccumulate;
      }
      return out;
    }
    auto values() const { return std::pair(memory.bytes(), lora); }
  };
  Logits from = source_of(inputs);
  from.head = {};
  from.head.weight = ConstTensor(numbers.data(), DType::kUInt8, {2 * spec.vocab, spec.hidden});
  from.head.packing = Packing::kInt8;
  from.head.scales = scales;
  from.head.group = spec.hidden / 2;
  from.head.vocab_ids = ids;
  from.head.bias = bias;
  expect_bits(task, from, [&] { return Memory{.memory = GradientOutputs(inputs, {}), .packed = true}; });
  from = source_of(inputs);
  const std::vector<float> a(36, 0.01F), b(450, 0.02F);
  from.head.lora = {view(a.data(), {3, 12}), view(b.data(), {150, 3}), 0.5};
  expect_bits(task, from, [&] { return Memory{.memory = GradientOutputs(inputs, {}), .packed = false}; });
}

// Enough segments of the vocabulary that a choice of them pays.
TEST(CTasks, GradientsOfChosenSegmentsHaveTheBitsOfCxx) {
  InputSpec spec;
  spec.tokens = 30, spec.vocab = 1500, spec.hidden = 24;
  Inputs inputs(spec);
  struct Memory {
    GradientOutputs memory;
    BackwardOptions backward;
    Gradients outputs() {
      Gradients out = memory.gradients();
      out.backward = backward;
      return out;
    }
    std::vector<std::byte> values() const { return memory.bytes(); }
  };
  CrossEntropy task;
  task.targets = inputs.targets_view();
  std::set<std::vector<std::byte>> distinct;
  const auto expect = [&](const BackwardOptions& backward) {
    const Logits from = source_of(inputs);
    const auto make = [&] { return Memory{GradientOutputs(inputs, {}), backward}; };
    expect_bits(task, from, make);
    auto memory = make();
    run(Context(), from, task, gradients_of(memory.outputs(), from));
    distinct.insert(memory.values());
  };
  using enum BackwardMode;
  const BackwardOptions all[] = {{.mode = kExact},
                                 {.mode = kSampled, .noise = 0.2},
                                 {.mode = kSampled, .noise = 0.4},
                                 {.mode = kSampled, .theta = 0.2},
                                 {.mode = kSampled, .theta = 0.2, .seed = 12},
                                 {.mode = kCertified, .tolerance = 0.3},
                                 {.mode = kCertified, .tolerance = 0.1}};
  for (const BackwardOptions& backward : all) expect(backward);
  EXPECT_EQ(distinct.size(), std::size(all));
}

// Two ranks that share the vocabulary, and two slices without ranks.
TEST(CTasks, RanksAndSlicesHaveTheBitsOfCxx) {
  const Batch batch;
  const FromHidden half[2] = {{.first_entry = 0, .entries = 40}, {.first_entry = 40, .entries = kVocab - 40}};
  struct CGroup {
    ThreadGroup group{2};
    static int gather(void* user, const void* mine, void* all, size_t bytes) {
      static_cast<Communicator*>(user)->all_gather(mine, all, bytes);
      return 0;
    }
    static int exchange(void* user, const void* mine, void* theirs, size_t bytes) {
      static_cast<Communicator*>(user)->all_to_all(mine, theirs, bytes);
      return 0;
    }
  } c;
  ThreadGroup cxx(2);
  CrossEntropy task;
  task.targets = batch.targets();
  double losses[2] = {}, wanted[2] = {};
  const auto errors = run_ranks(2, [&](int rank) {
    const logitless_communicator ranks = {rank, 2, CGroup::gather, CGroup::exchange, &c.group.of(rank)};
    logitless_context* context = logitless_context_new();
    if (logitless_context_set_ranks(context, "vocab", &ranks) != LOGITLESS_OK) throw std::runtime_error("ranks");
    CCall call("cross_entropy", context);
    logitless_context_free(context);  // The call lives on.
    call.give(source_of(half[rank])), call.give(task);
    if (logitless_run(call) != LOGITLESS_OK) throw std::runtime_error(logitless_last_error());
    logitless_get_number(call, "loss", &losses[rank]);
    ContextOptions options;
    options.ranks.vocab = &cxx.of(rank);
    wanted[rank] = run(Context(options), source_of(half[rank]), task, {}).loss;
  });
  for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
  EXPECT_EQ(losses[0], wanted[0]);
  EXPECT_EQ(losses[1], wanted[1]);

  std::vector<uint8_t> all;
  std::vector<std::byte> same;
  for (int rank = 0; rank < 2; ++rank) {
    CCall call("cross_entropy");
    call.give(source_of(half[rank])), call.give(task);
    call.put("slice_first", half[rank].first_entry), call.put("slice_vocab_size", kVocab);
    ASSERT_EQ(logitless_slice(call), LOGITLESS_OK) << logitless_last_error();
    logitless_tensor slice;
    ASSERT_EQ(logitless_get_tensor(call, "slice", &slice), LOGITLESS_OK) << logitless_last_error();
    EXPECT_EQ(slice.axes, 2);
    EXPECT_EQ(slice.sizes[0], kTokens);
    const auto* bytes = static_cast<const uint8_t*>(slice.data);
    all.insert(all.end(), bytes, bytes + slice.sizes[0] * slice.sizes[1]);
    ContextOptions options;
    options.ranks.slice = VocabSlice{half[rank].first_entry, kVocab};
    const auto folded = fold_slice(Context(options), source_of(half[rank]), task);
    same.insert(same.end(), folded.begin(), folded.end());
  }
  ASSERT_EQ(all.size(), same.size());
  EXPECT_EQ(std::memcmp(all.data(), same.data(), all.size()), 0);
  for (int rank = 0; rank < 2; ++rank) {
    CCall call("cross_entropy");
    call.give(source_of(half[rank])), call.give(task);
    call.put("slice_first", half[rank].first_entry), call.put("slice_vocab_size", kVocab);
    call.put("gathered", std::span<const uint8_t>(all));
    call.put("keep_workspace", true);
    ASSERT_EQ(logitless_run(call), LOGITLESS_OK) << logitless_last_error();
    double loss = 0;
    logitless_get_number(call, "loss", &loss);
    ContextOptions options;
    options.ranks.slice = VocabSlice{half[rank].first_entry, kVocab, same};
    EXPECT_EQ(loss, run(Context(options), source_of(half[rank]), task, {}).loss);
  }
}

// ---- Every key arrives ----

// Walks the members of a task that have keys of their own.
template <class Structure, class Visit>
void visit_leaves(Structure& structure, const std::string& prefix, const Visit& visit) {
  const auto visit_member = [&]<class T>(const Field& field, T& member) {
    using Plain = std::remove_const_t<T>;
    if constexpr (record::kIsFlat<Plain>) {
      visit_leaves(member, prefix, visit);
    } else if constexpr (requires {
                           visit_fields(
                               FieldsOf<Plain>(), [](const Field&, auto&) {}, member);
                         }) {
      visit_leaves(member, prefix + field.name + ".", visit);
    } else if constexpr (!std::is_same_v<Plain, Logits>) {
      visit(prefix + field.name, member);
    }
  };
  record::visit_members<std::remove_const_t<Structure>>(visit_member, structure);
}

std::string shown(const ConstTensor& t) {
  std::string text = text_of(reinterpret_cast<uintptr_t>(t.data)) + " " + text_of(t.dtype);
  for (size_t i = 0; i < 3; ++i) text += " " + text_of(t.sizes[i]) + " " + text_of(t.strides[i]);
  return text;
}
template <class T>
std::string shown(const std::span<const T>& s) {
  return text_of(reinterpret_cast<uintptr_t>(s.data())) + " " + text_of(s.size());
}
template <class T>
std::string shown(const T& value) {
  return text_of(value);
}

template <class Task>
std::string shown_task(const Task& task) {
  std::string text;
  visit_leaves(task, "",
               [&](const std::string& name, const auto& member) { text += name + " = " + shown(member) + "\n"; });
  return text;
}

const std::vector<double> kSomeNumbers(64);
const std::vector<int64_t> kSomeIds(64);
const std::vector<uint8_t> kSomeBytes(64);
template <class T>
auto others_of(const std::string&, const T& value) {
  return other_values(value);
}
template <Named Enum>
auto others_of(const std::string&, const Enum& value) {
  std::vector<Enum> others;
  for (const Enum other : all_of<Enum>()) {
    if (other != value) others.push_back(other);
  }
  return others;
}
std::vector<ConstTensor> others_of(const std::string& name, const ConstTensor&) {
  if (name == "rows") return {view(kSomeNumbers.data(), {3, 5}, {7, 1})};
  const bool is_ids = name == "targets" || name.ends_with("ids");
  return {is_ids ? view(kSomeIds.data(), {3, 4}, {5, 1}) : view(kSomeNumbers.data(), {5})};
}
std::vector<std::span<const uint8_t>> others_of(const std::string&, const std::span<const uint8_t>&) {
  return {kSomeBytes};
}
std::vector<std::span<const int64_t>> others_of(const std::string&, const std::span<const int64_t>&) {
  return {kSomeIds};
}

template <class Task>
void every_key_arrives() {
  SCOPED_TRACE(Task::kName);
  const Task by_default;
  const std::string before = shown_task(by_default);
  EXPECT_EQ(before, shown_task(CCall(Task::kName).task<Task>()));
  int keys = 0;
  visit_leaves(by_default, "", [&]<class T>(const std::string& name, const T& value) {
    SCOPED_TRACE(name);
    ++keys;
    for (const auto& other : others_of(name, value)) {
      Task changed;
      visit_leaves(changed, "", [&]<class At>(const std::string& at, At& member) {
        if constexpr (std::is_same_v<At, T>) {
          if (at == name) member = other;
        }
      });
      CCall call(Task::kName);
      call.put(name, other);
      EXPECT_EQ(shown_task(call.task<Task>()), shown_task(changed));
      EXPECT_NE(shown_task(changed), before);
      EXPECT_EQ(logitless_unset(call, name.c_str()), LOGITLESS_OK) << logitless_last_error();
      EXPECT_EQ(shown_task(call.task<Task>()), before);
      const std::string text = logitless_describe(Task::kName);
      const size_t at = text.find("  " + name + ": ");
      ASSERT_NE(at, std::string::npos);
      EXPECT_NE(text.substr(at, text.find('\n', at) - at).find(" — "), std::string::npos) << "says what it is for";
    }
  });
  EXPECT_GE(keys, 6);
}

TEST(CKeys, EveryOneArrives) {
  AllTasks::each([]<class Task> { every_key_arrives<Task>(); });
}

TEST(CKeys, OfAContextArrive) {
  const std::pair<const char*, const char*> texts[] = {{"threads", "3"},
                                                       {"workspace_bytes", "64MiB"},
                                                       {"plan", "two_pass"},
                                                       {"row_tile", "8"},
                                                       {"vocab_tile", "32"},
                                                       {"row_block", "4"},
                                                       {"gemm_backend", "openblas"},
                                                       {"gradient_precision", "split"},
                                                       {"simd_target", "plain"},
                                                       {"slices", "40,61"},
                                                       {"own_d_hidden", "true"},
                                                       {"sum_d_weight", "true"}};
  std::set<std::string> seen = {"workspace"};  // Each call has its own.
  for (const auto& [name, text] : texts) {
    SCOPED_TRACE(name);
    logitless_context* context = logitless_context_new();
    ASSERT_EQ(logitless_context_set(context, name, text), LOGITLESS_OK) << logitless_last_error();
    const ContextOptions by_default, &arrived = context->record.context().options();
    visit_fields(
        FieldsOf<ContextOptions>(),
        [&](const Field& field, const auto& now, const auto& before) {
          if constexpr (requires { text_of(now); }) {
            EXPECT_EQ(text_of(now) != text_of(before), field.name == std::string(name)) << field.name;
          }
        },
        arrived, by_default);
    seen.insert(name);
    logitless_context_free(context);
  }
  visit_fields(
      FieldsOf<ContextOptions>(),
      [&](const Field& field, const auto&) { EXPECT_TRUE(seen.contains(field.name)) << field.name; }, ContextOptions());
}

// No two keys of a task have one name.
TEST(CKeys, HaveOneNameEach) {
  for (const std::string& task : record::task_names()) {
    std::set<std::string> names;
    std::string text = logitless_describe(task.c_str());
    text = text.substr(0, text.find("results:"));
    for (size_t at = text.find("\n  "); at != std::string::npos; at = text.find("\n  ", at + 1)) {
      const std::string name = text.substr(at + 3, text.find(':', at) - at - 3);
      EXPECT_TRUE(names.insert(name).second) << task << " has two keys " << name;
    }
    EXPECT_GT(names.size(), 40u);
  }
}

}  // namespace
}  // namespace logitless::testing
