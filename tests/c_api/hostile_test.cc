// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every function of the C API with each member of each structure at values that nobody means. A call may
// accept or refuse them; it never crashes, it is never a defect of the library, and a call that is refused
// has written nothing. Under the address and undefined-behaviour sanitizers nothing outside of the world is
// touched either: .ci/run hostile.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "hostile_world.h"

namespace logitless::testing {
namespace {

using c_api::is_listed;
using c_api::visit_members;

/// Puts a hostile value in the place of one member.
struct Spoiler {
  int64_t leaf;           // counts down to the member
  size_t value;           // of its hostile values
  std::string what = {};  // "hidden.states.rows, value 2 (-1)"
  enum { kNoSuchMember, kNoSuchValue, kDone } found = kNoSuchMember;

  template <class T>
  void set(T& member, const std::vector<T>& values) {
    found = value < values.size() ? kDone : kNoSuchValue;
    if (found == kDone) member = values[value];
  }
};

template <class T>
std::vector<T> hostile_numbers(const std::string& name, T now) {
  if constexpr (std::is_floating_point_v<T>) {
    using Limits = std::numeric_limits<T>;
    return {0,
            1,
            -1,
            now - 1,
            now + 1,
            T(1LL << 32),
            T(0x1p63),
            Limits::max(),
            Limits::lowest(),
            Limits::denorm_min(),
            Limits::quiet_NaN(),
            Limits::infinity(),
            -Limits::infinity()};
  } else if (name.ends_with(".struct_size")) {
    std::vector<T> sizes;
    // Ends of members, and sizes that cut one in two. Near the right size, every third.
    for (T size = 0; size <= now + 16; size += size + 8 < now ? 12 : 3) sizes.push_back(size);
    sizes.insert(sizes.end(), {T(1ULL << 32), std::numeric_limits<T>::max() / 2, std::numeric_limits<T>::max()});
    return sizes;
  } else {
    std::vector<T> numbers = {
        0, 1, T(-1), T(now - 1), T(now + 1), std::numeric_limits<T>::max(), std::numeric_limits<T>::min()};
    // A stride of 2^32 is a good one, of an array that is not here.
    const bool far = name.ends_with("batch_stride") || name.ends_with("row_stride") || name == "targets.stride" ||
                     name == "set_ids.stride";
    if (sizeof(T) == 8 && !far) numbers.insert(numbers.end(), {T(1ULL << 32), T(1ULL << 62)});
    if (sizeof(T) == 8) numbers.push_back(T(std::numeric_limits<int64_t>::max()));
    return numbers;
  }
}

template <class T>
T off_by_one(T pointer) {
  return reinterpret_cast<T>(reinterpret_cast<uintptr_t>(pointer) + 1);
}

// Where a member stands. Its text is made for the one that is spoilt: every walk passes thousands.
struct Place {
  const char* name;
  const Place* inside = nullptr;

  std::string text() const { return (inside ? inside->text() + "." : std::string()) + name; }
};

// Spoils the member that spoiler.leaf counts to, of `value` and the structures in it.
template <class T>
void spoil(const Place& place, T& value, Spoiler& spoiler) {
  if constexpr (is_listed<T>) {
    visit_members(value, [&](const char* member, auto& at) { spoil(Place{member, &place}, at, spoiler); });
  } else if constexpr (std::is_array_v<T>) {
    return;  // texts of results
  } else {
    if (spoiler.leaf-- != 0) return;
    const std::string name = place.text();
    spoiler.what = name + ", value " + std::to_string(spoiler.value);
    if constexpr (std::is_arithmetic_v<T>) {
      spoiler.set(value, hostile_numbers(name, value));
      spoiler.what += " (" + std::to_string(value) + ")";
    } else if constexpr (std::is_function_v<std::remove_pointer_t<T>>) {
      spoiler.set(value, {nullptr});
    } else if constexpr (std::is_same_v<T, const char*>) {
      spoiler.set(value, {nullptr, "", "nonsense"});
    } else {
      spoiler.set(value, {nullptr, off_by_one(value)});
    }
  }
}

void spoil(World& world, Spoiler& spoiler) {
  world.visit_structures([&](const char* name, auto& structure) { spoil(Place{name}, structure, spoiler); });
  spoil(Place{"upstream_count"}, world.upstream_count, spoiler);
  spoil(Place{"upstream_value"}, world.upstream_value, spoiler);
  spoil(Place{"upstream_of_sets"}, world.upstream_of_sets, spoiler);
  spoil(Place{"logp_count"}, world.logp_count, spoiler);
  World::Arguments& given = world.given;
  const auto argument = [&](const char* name, auto&... pointers) { (spoil(Place{name}, pointers, spoiler), ...); };
  argument("argument", given.context, given.source, given.targets, given.gradients, given.token, given.request,
           given.stats, given.grads, given.token_loss, given.logits, given.cross_entropy, given.sets, given.id_logps,
           given.soft_targets, given.soft_cross_entropy, given.policy_batch, given.policy, given.reference,
           given.preference, given.kto_batch, given.kto, given.teacher, given.distillation, given.set_teacher,
           given.set_distillation, given.set_distillation_result, given.context_options, given.cross_entropy_result,
           given.soft_cross_entropy_result, given.policy_result, given.preference_result, given.kto_result,
           given.distillation_result, given.plan, given.forward, given.left, given.made, given.upstream, given.entropy,
           given.logps);
}

// All that a call may write.
std::vector<char> bytes_of(World& world) {
  std::vector<char> bytes;
  const auto add = [&](const auto& object) {
    const auto* from = reinterpret_cast<const char*>(&object);
    bytes.insert(bytes.end(), from, from + sizeof object);
  };
  add(world.written), add(world.cross_entropy_result), add(world.policy_result), add(world.preference_result);
  add(world.soft_cross_entropy_result), add(world.distillation_result), add(world.set_distillation_result);
  add(world.kto_result), add(world.plan), add(world.stats), add(world.left);
  return bytes;
}

struct Counts {
  int64_t calls = 0, accepted = 0, refused = 0;
};

void expect_survives(const Function& function, World& world, const std::string& what, Counts& counts) {
  const std::vector<char> before = bytes_of(world);
  const logitless_status status = function.call(world);
  ++counts.calls;
  counts.accepted += status == LOGITLESS_OK;
  counts.refused += status == LOGITLESS_INVALID_INPUT;
  const char* error = status == LOGITLESS_OK ? "" : logitless_last_error();
  EXPECT_TRUE(status == LOGITLESS_OK || status == LOGITLESS_INVALID_INPUT)
      << function.name << ", " << what << ": status " << status << ", " << error;
  if (status == LOGITLESS_INVALID_INPUT) {
    EXPECT_TRUE(bytes_of(world) == before)
        << function.name << ", " << what << " was refused (" << error << "), but something was written";
  }
}

/// A function, the context that it runs in, and for a backward half what the forward half has left. `change`
/// makes another good call of the world's.
struct Case {
  Function function;
  Form form;
  const logitless_context* context;
  const logitless_forward* forward = nullptr;
  std::function<void(World&)> change = [](World&) {};

  World* make() const {
    auto* world = new World(form, context);
    world->given.forward = forward;
    change(*world);
    return world;
  }
};

// Structures whose members a function does not look at need no calls: those are good whatever their size is.
std::vector<int64_t> leaves_of(const Case& of) {
  std::vector<int64_t> leaves;
  bool used = true;
  for (int64_t leaf = 0;; ++leaf) {
    const std::unique_ptr<World> world(of.make());
    Spoiler spoiler{.leaf = leaf, .value = 1};
    spoil(*world, spoiler);
    if (spoiler.found == Spoiler::kNoSuchMember) return leaves;
    if (spoiler.what.find(".struct_size") != std::string::npos) {
      used = of.function.call(*world) != LOGITLESS_OK;
    } else if (spoiler.what.find('.') == std::string::npos) {
      used = true;
    }
    if (used) leaves.push_back(leaf);
  }
}

void spoil_each(const Case& of, Counts& counts) {
  {
    const std::unique_ptr<World> good(of.make());
    ASSERT_EQ(of.function.call(*good), LOGITLESS_OK)
        << of.function.name << " of form " << static_cast<int>(of.form) << ": " << logitless_last_error();
  }
  const std::vector<int64_t> leaves = leaves_of(of);
  for (const int64_t leaf : leaves) {
    for (size_t value = 0;; ++value) {
      const std::unique_ptr<World> world(of.make());
      Spoiler spoiler{.leaf = leaf, .value = value};
      spoil(*world, spoiler);
      if (spoiler.found != Spoiler::kDone) break;
      expect_survives(of.function, *world, spoiler.what, counts);
    }
  }
  // Two members at once, the same two in every run.
  uint64_t state = 1;
  const auto next = [&](size_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>(state >> 33) % below;
  };
  for (int pair = 0; pair < 200; ++pair) {
    const std::unique_ptr<World> world(of.make());
    std::string what;
    const size_t first = next(leaves.size());
    const size_t second = (first + 1 + next(leaves.size() - 1)) % leaves.size();
    for (int i = 0; i < 2; ++i) {
      Spoiler spoiler{.leaf = leaves[i == 0 ? first : second], .value = next(10)};
      spoil(*world, spoiler);
      what += spoiler.what + (i == 0 ? " and " : "");
    }
    expect_survives(of.function, *world, what, counts);
  }
}

struct FreeContext {
  void operator()(logitless_context* context) const { logitless_context_free(context); }
};
std::unique_ptr<logitless_context, FreeContext> context_of(int32_t plan) {
  logitless_context_options options;
  LOGITLESS_INIT(context_options, &options);
  options.threads = 1;
  options.plan = plan;
  logitless_context* context = nullptr;
  EXPECT_EQ(logitless_context_create(&options, &context), LOGITLESS_OK) << logitless_last_error();
  return std::unique_ptr<logitless_context, FreeContext>(context);
}

// Sorted, the members follow one another with no more between them than alignment asks for.
TEST(HostileC, TheListOfMembersIsWhole) {
  World world(Form::kHidden, nullptr);
  world.visit_structures([](const char* name, const auto& structure) {
    using Structure = std::remove_cvref_t<decltype(structure)>;
    std::map<size_t, std::pair<size_t, size_t>> places;  // begin: end, alignment
    c_api::visit_places<Structure>([&](size_t begin, size_t end, size_t alignment) {
      EXPECT_TRUE(places.try_emplace(begin, end, alignment).second) << name << " lists byte " << begin << " twice";
    });
    size_t last = 0;
    for (const auto& [begin, place] : places) {
      EXPECT_EQ(begin, c_api::rounded_up(last, place.second)) << name << " lacks a member at byte " << last;
      last = place.first;
    }
    EXPECT_EQ(c_api::rounded_up(last, alignof(Structure)), sizeof structure) << name << " lacks its last member";
  });
}

class HostileMembers : public ::testing::TestWithParam<Form> {};

void expect_many(const Counts& counts) {
  std::printf("hostile: %lld calls, %lld refused, %lld accepted\n", static_cast<long long>(counts.calls),
              static_cast<long long>(counts.refused), static_cast<long long>(counts.accepted));
  EXPECT_GT(counts.refused, 5000);
  EXPECT_GT(counts.accepted, 5000);
}

TEST_P(HostileMembers, NoValueEndsTheProcessOrIsWrittenBeforeItIsRefused) {
  Counts counts;
  const Form form = GetParam();
  const auto automatic = context_of(LOGITLESS_PLAN_AUTO);
  for (const Function& function : kFunctions) {
    if (function.has(form)) spoil_each({function, form, automatic.get()}, counts);
  }
  for (const Backward& backward : kBackward) {
    if (!backward.function.has(form)) continue;
    World forward(form, automatic.get());
    ASSERT_EQ(backward.forward(forward), LOGITLESS_OK) << logitless_last_error();
    spoil_each({backward.function, form, automatic.get(), forward.left}, counts);
  }
  expect_many(counts);
}
INSTANTIATE_TEST_SUITE_P(Forms, HostileMembers, ::testing::ValuesIn(kForms), [](const auto& form) {
  return std::string(std::array{"hidden", "strided", "packed", "logits"}.at(static_cast<size_t>(form.param)));
});

TEST(HostileC, NoValueInAContextOfThePlanDenseDoes) {
  Counts counts;
  const auto dense = context_of(LOGITLESS_PLAN_DENSE);
  for (const Function& function : kFunctions) {
    if (function.has(Form::kHidden)) spoil_each({function, Form::kHidden, dense.get()}, counts);
  }
  expect_many(counts);
}

/// A head with so many vocabulary entries that a choice of segments pays, with room for a size one too large.
struct ManyEntries {
  static constexpr int64_t kEntries = 2000;
  std::vector<float> weight = std::vector<float>(2 * kEntries * World::kHidden), d_weight = weight;
  std::vector<float> bias = std::vector<float>(2 * kEntries), d_bias = bias;

  ManyEntries() {
    for (size_t i = 0; i < weight.size(); ++i) weight[i] = 0.25f * static_cast<float>(i % 7) - 0.75f;
    // Some segments weigh more than others.
    for (size_t v = 0; v < bias.size(); ++v) bias[v] = 0.002f * static_cast<float>(v);
  }
  void give(World& world) {
    world.head.weight = {weight.data(), LOGITLESS_FLOAT32, kEntries, World::kHidden, World::kHidden};
    world.head.bias = {bias.data(), LOGITLESS_FLOAT32, kEntries};
    world.gradients.d_weight = {d_weight.data(), LOGITLESS_FLOAT32, kEntries, World::kHidden, World::kHidden};
    world.gradients.d_bias = {d_bias.data(), LOGITLESS_FLOAT32, kEntries};
    world.cross_entropy.class_weights = nullptr;
    world.cross_entropy.class_weight_count = 0;
  }
};

TEST(HostileC, NoValueWhereSegmentsAreChosenDoes) {
  const auto automatic = context_of(LOGITLESS_PLAN_AUTO);
  const auto* function = std::ranges::find(kFunctions, std::string_view("cross_entropy"), &Function::name);
  ManyEntries many;
  const auto spoil_each_with = [&](int32_t mode, double theta) {
    Counts counts;
    const auto change = [&](World& world) {
      many.give(world);
      world.backward.mode = mode;
      world.backward.theta = theta;
      world.backward.noise = world.backward.tolerance = 0.5;
    };
    const Case of = {*function, Form::kHidden, automatic.get(), nullptr, change};
    const std::unique_ptr<World> good(of.make());
    EXPECT_EQ(function->call(*good), LOGITLESS_OK) << logitless_last_error();
    ASSERT_LT(good->plan.kept_share, 1) << logitless_backward_mode_name(mode) << ", theta " << theta;
    spoil_each(of, counts);
    EXPECT_GT(std::min(counts.refused, counts.accepted), 200);
  };
  spoil_each_with(LOGITLESS_BACKWARD_SAMPLED, 0.5);
  spoil_each_with(LOGITLESS_BACKWARD_SAMPLED, 0);  // by noise
  spoil_each_with(LOGITLESS_BACKWARD_CERTIFIED, 0);
}

// An _init function gets the size of a structure of any header.
TEST(HostileC, InitWritesAsManyBytesAsItIsTold) {
  const std::unique_ptr<World> world(new World(Form::kHidden, nullptr));
  const auto check = [](auto init, auto structure) {
    using Structure = decltype(structure);
    for (size_t size = 0; size <= sizeof(Structure) + 32; ++size) {
      alignas(16) char memory[sizeof(Structure) + 64];
      std::memset(memory, 0x5c, sizeof memory);
      init(reinterpret_cast<Structure*>(memory), size);
      for (size_t i = size; i < sizeof memory; ++i) ASSERT_EQ(memory[i], 0x5c) << size;
    }
    init(nullptr, sizeof(Structure));
  };
  check(logitless_hidden_states_init, world->hidden);
  check(logitless_lm_head_init, world->head);
  check(logitless_targets_init, world->targets);
  check(logitless_gradients_init, world->gradients);
  check(logitless_backward_options_init, world->backward);
  check(logitless_context_options_init, world->context_options);
  check(logitless_plan_init, world->plan);
  check(logitless_token_options_init, world->token);
  check(logitless_policy_options_init, world->policy);
  check(logitless_kto_result_init, world->kto_result);
}

TEST(HostileC, NamesOfNoValueAreNull) {
  for (const int32_t value : {-1, 1000, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    for (const auto name : {logitless_dtype_name, logitless_plan_kind_name, logitless_gradient_precision_name,
                            logitless_policy_variant_name, logitless_kl_estimator_name, logitless_importance_level_name,
                            logitless_sampler_correction_name, logitless_preference_loss_name,
                            logitless_divergence_name, logitless_backward_mode_name}) {
      EXPECT_EQ(name(value), nullptr);
    }
    EXPECT_EQ(logitless_needs_reference(value), 0);
    EXPECT_EQ(logitless_gemm_backend_name(static_cast<size_t>(value)), nullptr);
    EXPECT_EQ(logitless_simd_target_name(static_cast<size_t>(value)), nullptr);
  }
}

TEST(HostileC, NoHandleIsNoDefect) {
  logitless_context_free(nullptr), logitless_workspace_free(nullptr), logitless_forward_free(nullptr);
  logitless_environment_free(nullptr), logitless_workspace_release(nullptr);
  EXPECT_EQ(logitless_workspace_create(nullptr), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_environment_create(nullptr, nullptr), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_workspace_bytes(nullptr), 0u);
  EXPECT_EQ(logitless_context_threads(nullptr), 0);
  EXPECT_EQ(logitless_context_simd_target(nullptr), nullptr);
  EXPECT_EQ(logitless_context_gemm_backend(nullptr), nullptr);
}

}  // namespace
}  // namespace logitless::testing
