// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Packed heads and chosen vocabulary entries through C.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "c_call.h"

namespace logitless::testing {
namespace {

// The call's head is given again, in another form.
struct OtherHead {
  CCall call;
  std::vector<int8_t> numbers;
  std::vector<float> scales, bias;
  std::vector<int64_t> ids;

  OtherHead() : call(spec()) {
    const int64_t vocab = call.inputs.spec.vocab, hidden = call.inputs.spec.hidden;
    for (int64_t i = 0; i < 2 * vocab * hidden; ++i) numbers.push_back(static_cast<int8_t>((i * 37) % 255 - 127));
    for (int64_t v = 0; v < 2 * vocab * 2; ++v) scales.push_back(0.01F + 0.001F * static_cast<float>(v % 5));
    bias.assign(static_cast<size_t>(2 * vocab), 0.5F);
    for (int64_t k = 0; k < vocab; ++k) ids.push_back(2 * k);
    call.head.weight = {};
    call.head.packed = {numbers.data(), LOGITLESS_INT8, 2 * vocab, hidden, 0, scales.data(), hidden / 2};
    call.head.ids = ids.data();
    call.head.id_count = ids.size();
    call.head.bias = {bias.data(), LOGITLESS_FLOAT32, 2 * vocab};
    call.gradients.d_weight = {};
  }
  static InputSpec spec() {
    InputSpec out;
    out.hidden = 12;
    out.layout = HeadLayout::kVocabHidden;
    return out;
  }
  logitless_status run(logitless_cross_entropy_result* result) {
    return logitless_cross_entropy(call.context, &call.source, &call.targets, nullptr, &call.gradients, result,
                                   nullptr);
  }
};

TEST(CHeads, PackedAndChosenOnesHaveTheBitsOfCxx) {
  OtherHead c, cxx;
  logitless_cross_entropy_result result;
  LOGITLESS_INIT(cross_entropy_result, &result);
  ASSERT_EQ(c.run(&result), LOGITLESS_OK) << logitless_last_error();
  LmHead head;
  const int64_t vocab = cxx.call.inputs.spec.vocab, hidden = cxx.call.inputs.spec.hidden;
  head.packed = {cxx.numbers.data(), Packing::kInt8, 2 * vocab, hidden, {}, cxx.scales.data(), hidden / 2};
  head.ids = cxx.ids;
  head.bias = {cxx.bias.data(), 2 * vocab};
  head.softcap = cxx.call.inputs.head_view().softcap;
  cxx.call.wanted.d_weight = {};
  const CrossEntropyResult want = cross_entropy(Context(), cxx.call.inputs.hidden_view(), head,
                                                cxx.call.inputs.targets_view(), {}, cxx.call.wanted);
  EXPECT_EQ(result.loss, want.loss);
  EXPECT_EQ(c.call.outputs.bytes(), cxx.call.outputs.bytes());
}

// A LoRA beside a weight, with all of its gradients.
TEST(CHeads, OnesWithALoraHaveTheBitsOfCxx) {
  CCall c(OtherHead::spec()), cxx(OtherHead::spec());
  constexpr int64_t kRank = 3;
  const int64_t vocab = c.inputs.spec.vocab, hidden = c.inputs.spec.hidden;
  std::vector<float> a, b;
  for (int64_t i = 0; i < kRank * hidden; ++i) a.push_back(0.01F * static_cast<float>(i * 37 % 61 - 30));
  for (int64_t i = 0; i < vocab * kRank; ++i) b.push_back(0.01F * static_cast<float>(i * 29 % 71 - 35));
  std::vector<float> d_a(a.size(), 1), d_b(b.size(), 1), want_a = d_a, want_b = d_b;
  for (const double scale : {1.0, 0.5}) {
    c.head.lora_a = {a.data(), LOGITLESS_FLOAT32, kRank, hidden, 0};
    c.head.lora_b = {b.data(), LOGITLESS_FLOAT32, vocab, kRank, 0};
    if (scale != 1) c.head.lora_scale = scale;
    c.gradients.d_lora_a = {d_a.data(), LOGITLESS_FLOAT32, kRank, hidden, 0};
    c.gradients.d_lora_b = {d_b.data(), LOGITLESS_FLOAT32, vocab, kRank, 0};
    c.gradients.d_lora_mode = LOGITLESS_ACCUMULATE;
    logitless_cross_entropy_result result;
    LOGITLESS_INIT(cross_entropy_result, &result);
    ASSERT_EQ(logitless_cross_entropy(c.context, &c.source, &c.targets, nullptr, &c.gradients, &result, nullptr),
              LOGITLESS_OK)
        << logitless_last_error();
    LmHead head = cxx.inputs.head_view();
    head.lora = {{a.data(), kRank, hidden}, {b.data(), vocab, kRank}, scale};
    cxx.wanted.d_lora_a = {want_a.data(), kRank, hidden};
    cxx.wanted.d_lora_b = {want_b.data(), vocab, kRank};
    cxx.wanted.d_lora_mode = WriteMode::kAccumulate;
    const CrossEntropyResult want =
        cross_entropy(Context(), cxx.inputs.hidden_view(), head, cxx.inputs.targets_view(), {}, cxx.wanted);
    EXPECT_EQ(result.loss, want.loss);
    EXPECT_EQ(c.outputs.bytes(), cxx.outputs.bytes());
    EXPECT_EQ(d_a, want_a);
    EXPECT_EQ(d_b, want_b);
  }
}

TEST(CHeads, SayWhatIsWrong) {
  logitless_cross_entropy_result result;
  LOGITLESS_INIT(cross_entropy_result, &result);
  const auto refused = [&](const std::string& why, const auto& spoil) {
    OtherHead c;
    const std::vector<std::byte> before = c.call.outputs.bytes();
    spoil(c);
    EXPECT_EQ(c.run(&result), LOGITLESS_INVALID_INPUT) << why;
    EXPECT_NE(std::string(logitless_last_error()).find(why), std::string::npos) << logitless_last_error();
    EXPECT_EQ(c.call.outputs.bytes(), before);
  };
  refused("packed.packing = 7 is none of 0 to 6", [](OtherHead& c) { c.call.head.packed.packing = 7; });
  refused("ids is NULL, but is said to have", [](OtherHead& c) { c.call.head.ids = nullptr; });
  refused("lm_head.scales is null", [](OtherHead& c) { c.call.head.packed.scales = nullptr; });
  refused("lm_head.ids[1] = -5 is no entry", [](OtherHead& c) { c.ids[1] = -5; });
  refused("d_weight is set but lm_head is packed (int8)",
          [](OtherHead& c) { set_matrix(c.call.gradients.d_weight, c.call.wanted.d_weight); });
}

TEST(CHeads, PackingsHaveTheirNames) {
  EXPECT_EQ(std::string(logitless_packing_name(LOGITLESS_Q6_K)), "q6_k");
  EXPECT_EQ(std::string(logitless_packing_name(LOGITLESS_NF4)), "nf4");
  EXPECT_EQ(logitless_packing_name(LOGITLESS_NF4 + 1), nullptr);
}

}  // namespace
}  // namespace logitless::testing
