// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Small calls whose instructions scripts/ci/instruction_counts counts under valgrind. Inputs are seeded, and
// one thread runs the AVX2 kernels, the best that valgrind emulates.
//
//     counted_calls --build      prints what the counts depend on apart from the sources, as JSON
//     counted_calls [CASE ...]   makes these calls (default: all) and prints the name of each after its call
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "logitless/logitless.h"

namespace {
using Call = std::function<void()>;
}

// Valgrind counts the instructions inside this function, which it finds by name.
extern "C" __attribute__((noinline)) void logitless_counted_call(const Call& call) { call(); }

namespace logitless::bench {
namespace {

constexpr const char* kTarget = "AVX2";

// SplitMix64 (Steele, Lea and Flood 2014), not <random>: a library's distributions may change.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  uint64_t next_bits() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  // In [-scale, scale).
  double next(double scale) { return scale * (static_cast<double>(next_bits() >> 11) * 0x1p-52 - 1); }

 private:
  uint64_t state_;
};

// Page-aligned memory, so that the cache lines of a call do not depend on the calls before it.
class Memory {
 public:
  explicit Memory(size_t bytes) : data_(std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage)) {
    if (!data_) throw std::bad_alloc();
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_.get());
  }

 private:
  static constexpr size_t kPage = 4096;
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  std::unique_ptr<void, Free> data_;
};

// A matrix of numbers in [-scale, scale); scale = 0: uninitialised.
class Numbered {
 public:
  Numbered(DType dtype, int64_t rows, int64_t cols, double scale = 0, uint64_t seed = 1)
      : memory_(static_cast<size_t>(rows * cols) * size_of(dtype)), dtype_(dtype), rows_(rows), cols_(cols) {
    if (scale == 0) return;
    Numbers numbers(seed);
    for (int64_t i = 0; i < rows * cols; ++i) set(i, numbers.next(scale));
  }
  Tensor view() const { return {memory_.as<void>(), dtype_, {rows_, cols_}}; }
  Tensor vector() const { return {memory_.as<void>(), dtype_, {rows_ * cols_}}; }

 private:
  void set(int64_t i, double value) {
    const auto single = static_cast<float>(value);
    if (dtype_ == DType::kFloat64) memory_.as<double>()[i] = value;
    if (dtype_ == DType::kFloat32) memory_.as<float>()[i] = single;
    // The upper half of a float32 is a bfloat16.
    if (dtype_ == DType::kBFloat16)
      std::memcpy(memory_.as<bfloat16>() + i, reinterpret_cast<const char*>(&single) + 2, 2);
  }

  Memory memory_;
  DType dtype_;
  int64_t rows_, cols_;
};

// Ids scattered over the vocabulary, without repetition in any `vocab` consecutive ones.
std::vector<int64_t> some_ids(int64_t count, int64_t vocab) {
  std::vector<int64_t> ids(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) ids[static_cast<size_t>(i)] = (i * 7919 + 13) % vocab;
  return ids;
}

Context context_for(PlanKind plan = PlanKind::kAuto) {
  ContextOptions options;
  options.threads = 1;
  options.plan = plan;
  options.gemm_backend = "openblas";
  options.simd_target = kTarget;
  return Context(options);
}

// Logits with a standard deviation of about 3, as a model's have.
struct GivenLogits {
  explicit GivenLogits(DType dtype, int64_t tokens = 32, int64_t vocab = 8192)
      : logits(dtype, tokens, vocab, 5), dlogits(dtype, tokens, vocab), ids(some_ids(tokens, vocab)) {}

  ConstTensor targets() const { return ids; }
  Logits source() const { return Logits::given(logits.view()); }
  Gradients gradients() const { return {.d_logits = dlogits.view()}; }

  Context context = context_for();
  Numbered logits, dlogits;
  std::vector<int64_t> ids;
};

// More rows than Backend::few_rows() treats as few.
int64_t many_rows(DType dtype) { return dtype == DType::kFloat32 ? 64 : 72; }

struct Fused {
  Fused(DType dtype, PlanKind plan) : Fused(dtype, plan, many_rows(dtype)) {}
  Fused(DType dtype, PlanKind plan, int64_t tokens, int64_t width = 32, int64_t vocab = 4096)
      : context(context_for(plan)),
        hidden(dtype, tokens, width, 1, 1),
        weight(dtype, vocab, width, 1, 2),
        d_hidden(dtype, tokens, width),
        d_weight(dtype, vocab, width),
        ids(some_ids(tokens, vocab)) {}
  ConstTensor targets() const { return ids; }
  Logits source() const { return Logits::of(hidden.view(), weight.view()); }
  Gradients both() const {
    Gradients out = of_hidden();
    out.d_weight = d_weight.view();
    return out;
  }
  Gradients of_hidden() const {
    Gradients out;
    out.d_hidden = d_hidden.view();
    return out;
  }

  Context context;
  Numbered hidden, weight, d_hidden, d_weight;
  std::vector<int64_t> ids;
};

constexpr DType kF32 = DType::kFloat32, kBf16 = DType::kBFloat16, kF64 = DType::kFloat64;

// The row kernels alone: the fold, and the gradient kernel if `gradient`.
Call logits_call(DType dtype, bool gradient, CrossEntropy options = {}) {
  const auto in = std::make_shared<GivenLogits>(dtype);
  return [=] {
    CrossEntropy task = options;
    task.targets = in->targets();
    run(in->context, in->source(), task, gradient ? in->gradients() : Gradients());
  };
}

CrossEntropy smoothing_and_entropy() {
  CrossEntropy options;
  options.label_smoothing = 0.1;
  options.want_entropy = true;
  return options;
}

struct Policy {
  explicit Policy(int64_t tokens) : advantages(kF32, 1, tokens, 1, 3), old_logps(kF32, 1, tokens, 1, 4) {}
  PolicyLoss task(const ConstTensor& chosen, PolicyLoss out = {}) const {
    out.chosen_ids = chosen;
    out.advantages = advantages.vector();
    out.advantages_per = EntriesPer::kToken;
    out.old_logps = old_logps.vector();
    return out;
  }

  Numbered advantages, old_logps;
};

Call policy_logits_call(int64_t tokens, int64_t vocab, double entropy_bonus) {
  const auto in = std::make_shared<GivenLogits>(kF32, tokens, vocab);
  const auto policy = std::make_shared<Policy>(tokens);
  PolicyLoss options;
  options.entropy_bonus = entropy_bonus;
  return [=] { run(in->context, in->source(), policy->task(in->targets(), options), in->gradients()); };
}

Call distillation_logits_call(Divergence divergence) {
  const auto in = std::make_shared<GivenLogits>(kF32, 16, 4096);
  const auto teacher = std::make_shared<Numbered>(kF32, 16, 4096, 4, 5);
  Distillation options;
  options.loss_type = divergence;
  return [=] {
    Distillation task = options;
    task.teacher = Logits::given(teacher->view());
    run(in->context, in->source(), task, in->gradients());
  };
}

Call statistics_call(const StatsRequest& request) {
  const auto in = std::make_shared<GivenLogits>(kF32);
  return [=] { run(in->context, in->source(), TokenStatistics{.targets = in->targets(), .request = request}); };
}

// Many rows of few logits, which measures the loss's own work per token.
Call preference_call() {
  constexpr int64_t kSequences = 64, kLength = 32;
  const auto in = std::make_shared<GivenLogits>(kF32, kSequences * kLength, 16);
  const auto reference = std::make_shared<Numbered>(kF32, 1, kSequences, 50, 6);
  return [=] {
    const auto batched = [](const Tensor& rows) {
      return Tensor(rows.data, rows.dtype, {kSequences, kLength, rows.last_size()});
    };
    const PreferenceLoss task = {
        .targets = in->targets(), .ref_logps = reference->vector(), .ref_logps_per = EntriesPer::kSequence};
    run(in->context, Logits::given(batched(in->logits.view())), task, {.d_logits = batched(in->dlogits.view())});
  };
}

Call fused_call(DType dtype, PlanKind plan) {
  const auto in = std::make_shared<Fused>(dtype, plan);
  return [=] { run(in->context, in->source(), CrossEntropy{.targets = in->targets()}, in->both()); };
}

Call forward_call(DType dtype, int64_t tokens, int64_t width, int64_t vocab) {
  const auto in = std::make_shared<Fused>(dtype, PlanKind::kAuto, tokens, width, vocab);
  return [=] { run(in->context, in->source(), CrossEntropy{.targets = in->targets()}); };
}

Call frozen_head_call(DType dtype) {
  const auto in = std::make_shared<Fused>(dtype, PlanKind::kExpectedRow);
  return [=] { run(in->context, in->source(), CrossEntropy{.targets = in->targets()}, in->of_hidden()); };
}

Call policy_call() {
  const auto in = std::make_shared<Fused>(kF32, PlanKind::kAuto);
  const auto policy = std::make_shared<Policy>(64);
  return [=] { run(in->context, in->source(), policy->task(in->targets()), in->both()); };
}

Call distillation_call(PlanKind plan) {
  const auto in = std::make_shared<Fused>(kF32, plan, 64, 32, 2048);
  const auto teacher = std::make_shared<Fused>(kF32, plan, 64, 48, 2048);
  return [=] { run(in->context, in->source(), Distillation{.teacher = teacher->source()}, in->both()); };
}

Call sampled_call() {
  const auto in = std::make_shared<Fused>(kF32, PlanKind::kTwoPass);
  return [=] {
    Gradients out = in->both();
    out.backward.mode = BackwardMode::kSampled;
    out.backward.theta = 0.05;
    run(in->context, in->source(), CrossEntropy{.targets = in->targets()}, out);
  };
}

Call lora_call() {
  constexpr int64_t kRank = 8;
  const auto in = std::make_shared<Fused>(kF32, PlanKind::kAuto);
  struct Adapter {
    Numbered a{kF32, kRank, 32, 1, 7}, b{kF32, 4096, kRank, 0.3, 8}, d_a{kF32, kRank, 32}, d_b{kF32, 4096, kRank};
  };
  const auto adapter = std::make_shared<Adapter>();
  return [=] {
    LmHead head = {.weight = in->weight.view()};
    head.lora.a = adapter->a.view();
    head.lora.b = adapter->b.view();
    Gradients out = in->of_hidden();
    out.d_lora_a = adapter->d_a.view();
    out.d_lora_b = adapter->d_b.view();
    run(in->context, Logits::of(in->hidden.view(), head), CrossEntropy{.targets = in->targets()}, out);
  };
}

struct Sets {
  explicit Sets(int64_t tokens, int64_t vocab) : ids(some_ids(tokens * kIds, vocab)), logps(kF32, tokens, kIds, 1, 9) {
    // Below −log K, so that the teacher's probabilities in the set sum to less than 1.
    for (int64_t i = 0; i < tokens * kIds; ++i) logps_data()[i] -= 6;
  }
  float* logps_data() { return const_cast<float*>(static_cast<const float*>(logps.view().data)); }
  IdSets sets(int64_t tokens) const { return IdSets(view(ids.data(), {tokens, kIds})); }

  static constexpr int64_t kIds = 32;
  std::vector<int64_t> ids;
  Numbered logps;
};

Call id_sets_call(NormaliseOver over) {
  const auto in = std::make_shared<Fused>(kF32, PlanKind::kAuto);
  const auto sets = std::make_shared<Sets>(64, 4096);
  const auto upstream = std::make_shared<std::vector<double>>(64 * Sets::kIds, 0.5);
  return [=] {
    const IdLogps task = {.sets = sets->sets(64), .normalise_over = over};
    backward(in->context, in->source(), task, forward(in->context, in->source(), task), *upstream, in->both());
  };
}

Call set_distillation_call() {
  const auto in = std::make_shared<GivenLogits>(kF32);
  const auto sets = std::make_shared<Sets>(32, 8192);
  return [=] {
    SetTeacher teacher;
    teacher.sets = sets->sets(32);
    teacher.logps = sets->logps.vector();
    run(in->context, in->source(), SetDistillation{.teacher = teacher}, in->gradients());
  };
}

// Returns the byte offsets of the float16 scales within a block.
std::vector<int64_t> places_of_scales(Packing packing) {
  if (has_scales_apart(packing)) return {};
  if (packing == Packing::kQ6K) return {208};
  if (packing == Packing::kQ4K || packing == Packing::kQ5K) return {0, 2};
  return {0};
}

Call packed_call(Packing packing) {
  constexpr int64_t kTokens = 33, kWidth = 256, kVocab = 1024, kGroup = 64;
  const auto in = std::make_shared<Fused>(kF32, PlanKind::kAuto, kTokens, kWidth, kVocab);
  const PackedBlock block = block_of(packing);
  const int64_t blocks = kVocab * kWidth / block.numbers;
  const auto bytes = std::make_shared<Memory>(static_cast<size_t>(blocks * block.bytes));
  Numbers numbers(10);
  for (int64_t i = 0; i < blocks * block.bytes; ++i) {
    bytes->as<uint8_t>()[i] = static_cast<uint8_t>(numbers.next_bits() >> 56);
  }
  constexpr uint16_t kSmallHalf = 0x0C00;  // 2^-12
  for (int64_t b = 0; b < blocks; ++b) {
    for (const int64_t place : places_of_scales(packing)) {
      std::memcpy(bytes->as<uint8_t>() + b * block.bytes + place, &kSmallHalf, sizeof kSmallHalf);
    }
  }
  const auto scales = std::make_shared<Numbered>(kF32, kVocab, kWidth / kGroup, 0.01, 11);
  return [=] {
    LmHead head;
    head.weight = ConstTensor(bytes->as<void>(), DType::kUInt8, {kVocab, kWidth / block.numbers * block.bytes});
    head.packing = packing;
    if (has_scales_apart(packing)) {
      head.scales = scales->view();
      head.group = kGroup;
    }
    run(in->context, Logits::of(in->hidden.view(), head), CrossEntropy{.targets = in->targets()});
  };
}

Call repeated(int times, const Call& call) {
  return [=] {
    for (int i = 0; i < times; ++i) call();
  };
}

// The fixed cost of a call: one row, few logits, sizes that are not multiples of a vector.
Call small_logits_call() {
  const auto in = std::make_shared<GivenLogits>(kF32, 1, 61);
  return [=] { run(in->context, in->source(), CrossEntropy{.targets = in->targets()}, in->gradients()); };
}

Call small_fused_call() {
  const auto in = std::make_shared<Fused>(kF32, PlanKind::kAuto, 1, 13, 61);
  return [=] { run(in->context, in->source(), CrossEntropy{.targets = in->targets()}, in->both()); };
}

// The choice of a plan, for a shape that fits more than one.
Call plan_call() {
  struct Untouched {
    Numbered hidden{kF32, 2048, 256}, weight{kF32, 32768, 256}, d_hidden{kF32, 2048, 256}, d_weight{kF32, 32768, 256};
    std::vector<int64_t> ids = some_ids(2048, 32768);
  };
  const auto in = std::make_shared<Untouched>();
  const Context context = context_for();
  return [=] {
    Gradients out;
    out.d_hidden = in->d_hidden.view();
    out.d_weight = in->d_weight.view();
    plan(context, Logits::of(in->hidden.view(), in->weight.view()), CrossEntropy{.targets = in->ids}, out);
  };
}

struct Case {
  std::string name;
  std::function<Call()> make;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases = {
      {"logits_forward_float32", [] { return logits_call(kF32, false); }},
      {"logits_forward_bfloat16", [] { return logits_call(kBf16, false); }},
      {"logits_forward_float64", [] { return logits_call(kF64, false); }},
      {"logits_forward_smoothing_entropy", [] { return logits_call(kF32, false, smoothing_and_entropy()); }},
      {"logits_gradient_float32", [] { return logits_call(kF32, true); }},
      {"logits_gradient_bfloat16", [] { return logits_call(kBf16, true); }},
      {"logits_gradient_smoothing", [] { return logits_call(kF32, true, smoothing_and_entropy()); }},
      {"logits_policy_entropy", [] { return policy_logits_call(32, 8192, 0.01); }},
      {"logits_forward_kl", [] { return distillation_logits_call(Divergence::kForwardKl); }},
      {"logits_reverse_kl", [] { return distillation_logits_call(Divergence::kReverseKl); }},
      {"logits_jsd", [] { return distillation_logits_call(Divergence::kJsd); }},
      {"logits_set_distillation", set_distillation_call},
      {"logits_top_32", [] { return statistics_call({.top_k = 32}); }},
      {"logits_rank", [] { return statistics_call({.argmax = true, .rank = true}); }},
      {"tokens_policy", [] { return policy_logits_call(2048, 16, 0); }},
      {"tokens_preference", preference_call},
      {"fused_forward_float32", [] { return forward_call(kF32, many_rows(kF32), 32, 4096); }},
      {"fused_forward_bfloat16", [] { return forward_call(kBf16, many_rows(kBf16), 32, 4096); }},
      {"fused_one_pass_float32", [] { return fused_call(kF32, PlanKind::kOnePass); }},
      {"fused_one_pass_bfloat16", [] { return fused_call(kBf16, PlanKind::kOnePass); }},
      {"fused_two_pass_float32", [] { return fused_call(kF32, PlanKind::kTwoPass); }},
      {"fused_two_pass_bfloat16", [] { return fused_call(kBf16, PlanKind::kTwoPass); }},
      {"fused_expected_row_float32", [] { return frozen_head_call(kF32); }},
      {"fused_expected_row_bfloat16", [] { return frozen_head_call(kBf16); }},
      {"fused_policy", policy_call},
      {"fused_distillation_one_pass", [] { return distillation_call(PlanKind::kOnePass); }},
      {"fused_distillation_two_pass", [] { return distillation_call(PlanKind::kTwoPass); }},
      {"fused_sampled", sampled_call},
      {"fused_lora", lora_call},
      {"fused_ids_over_vocabulary", [] { return id_sets_call(NormaliseOver::kVocabulary); }},
      {"fused_ids_over_set", [] { return id_sets_call(NormaliseOver::kSet); }},
      {"small_logits", [] { return repeated(10, small_logits_call()); }},
      {"small_fused", [] { return repeated(10, small_fused_call()); }},
      {"small_plan", plan_call},
  };
  for (const int64_t rows : {1, 4, 16}) {
    for (const DType dtype : {kF32, kBf16}) {
      cases.push_back({"rows_" + std::to_string(rows) + "_" + name_of(dtype),
                       [=] { return forward_call(dtype, rows, 256, 2048); }});
    }
  }
  for (const Packing packing : all_of<Packing>()) {
    cases.push_back({std::string("packed_") + name_of(packing), [=] { return packed_call(packing); }});
  }
  return cases;
}

void print_build() {
  const std::vector<std::string> targets = simd_targets();
  std::printf("{\"compiler\": \"%s\", \"flags\": \"%s\", \"highway\": \"%s\", \"simd\": \"%s\"}\n", LOGITLESS_COMPILER,
              LOGITLESS_FLAGS, LOGITLESS_HIGHWAY,
              std::count(targets.begin(), targets.end(), kTarget) > 0 ? kTarget : "none");
}

void run(const std::vector<std::string>& names) {
  std::vector<Case> cases;
  for (Case& one : all_cases()) {
    if (names.empty() || std::count(names.begin(), names.end(), one.name) > 0) cases.push_back(std::move(one));
  }
  if (!names.empty() && cases.size() != names.size()) throw std::invalid_argument("not every argument names a case");
  for (const Case& one : cases) {
    const Call call = one.make();
    call();  // the work of a first call is not counted
    logitless_counted_call(call);
    std::printf("%s\n", one.name.c_str());
  }
}

}  // namespace
}  // namespace logitless::bench

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  int status = 0;
  // A new thread has its own heap and stack. The heap and stack of main() depend on the environment and on
  // clocks: when Highway's library is loaded, it times itself and allocates a varying number of times.
  std::thread([&] {
    try {
      if (arguments == std::vector<std::string>{"--build"}) {
        logitless::bench::print_build();
      } else {
        logitless::bench::run(arguments);
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "counted_calls: %s\n", error.what());
      status = 1;
    }
  }).join();
  return status;
}
