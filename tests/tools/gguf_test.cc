// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Good and bad GGUF files.
#include "io/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "folder_test.h"
#include "gguf_bytes.h"
#include "support/allocation_counter.h"

namespace logitless::io {
namespace gguf_test {

using testing::array;
using testing::GgufBytes;
using testing::has;
using testing::number;
using testing::text;

constexpr const char* kGolden = SOURCE_FOLDER "/tests/golden/head.gguf";
constexpr uint32_t kF32 = 0, kQ8_0 = 8, kIQ2_XS = 17;

template <class Read>
std::string error_of(const Read& read) {
  try {
    read();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

class GgufTest : public testing::FolderTest {
 protected:
  std::string write(const GgufBytes& bytes) const { return write(bytes.bytes()); }
  std::string write(const std::string& bytes) const { return FolderTest::write("file.gguf", bytes); }
  /// Returns the error of opening a file with these bytes, without the folder.
  std::string open_error(const std::string& bytes) const {
    return without_folder(error_of([&] { const GgufFile opened(write(bytes)); }));
  }
  std::string open_error(const GgufBytes& bytes) const { return open_error(bytes.bytes()); }
  std::string head_error(const GgufBytes& bytes) const {
    const GgufFile file(write(bytes));
    return without_folder(error_of([&] { find_head(file); }));
  }
};

/// Returns a float32 head [2, 3] with its keys.
GgufBytes small_model() {
  return GgufBytes().architecture("llama").floats("output.weight", {3, 2}, {1, 2, 3, 4, 5, 6});
}

// packings_golden_test unpacks rows of these types.
TEST_F(GgufTest, EveryTypeHasItsPacking) {
  const GgufFile file(kGolden);
  for (const auto& [name, packing] : {std::pair("Q8_0", Packing::kQ8_0),
                                      {"Q4_0", Packing::kQ4_0},
                                      {"Q4_K", Packing::kQ4K},
                                      {"Q5_K", Packing::kQ5K},
                                      {"output.weight", Packing::kQ6K}}) {
    const GgufTensor& tensor = *file.find(name);
    EXPECT_EQ(tensor.shape_text(), "[3, 256]");
    const HeadMatrices head = weight_of(file, tensor);
    EXPECT_EQ(head.packed.packing, packing) << name;
    EXPECT_EQ(head.packed.data, tensor.data) << name;
  }
  for (const auto& [name, dtype] : {std::pair("F16", DType::kFloat16), {"BF16", DType::kBFloat16}}) {
    EXPECT_EQ(weight_of(file, *file.find(name)).weight.dtype, dtype);
  }
  EXPECT_EQ(without_folder(error_of([&] { weight_of(file, *file.find("IQ2_XS")); })),
            std::string(kGolden) +
                ": tensor IQ2_XS is IQ2_XS (type 17): only F32, F16, Q4_0, Q8_0, Q4_K, Q5_K, Q6_K "
                "and BF16 are read");
}

TEST_F(GgufTest, TheHeadOfAFileOfTheGgufPackageIsFound) {
  const GgufFile file(kGolden);
  const GgufHead found = find_head(file);
  EXPECT_EQ(found.weight->name, "output.weight");
  EXPECT_FALSE(found.tied);
  EXPECT_EQ(found.head.packed.packing, Packing::kQ6K);
  EXPECT_EQ(found.head.packed.data, found.weight->data);
  EXPECT_EQ(found.head.vocab_size(), 3);
  EXPECT_EQ(found.head.hidden_size(), 256);
  EXPECT_EQ(found.head.softcap, 30);
  ASSERT_EQ(found.head.bias.size, 3);
  EXPECT_EQ(static_cast<const float*>(found.head.bias.data)[1], -0.25f);
}

TEST_F(GgufTest, ValuesOfEveryTypeAreReadByKey) {
  const GgufFile file(kGolden);
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.alignment(), 64u);
  EXPECT_EQ(file.architecture(), "gemma2");
  EXPECT_EQ(file.text("general.name"), "a head of every type");
  EXPECT_EQ(file.real("gemma2.final_logit_softcapping"), 30.0);
  EXPECT_EQ(file.real("test.float64"), -0.1);
  EXPECT_EQ(file.integer("test.int8"), -128);
  EXPECT_EQ(file.integer("test.int16"), -32768);
  EXPECT_EQ(file.integer("test.int32"), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(file.integer("test.int64"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(file.integer("test.uint8"), 255);
  EXPECT_EQ(file.integer("test.uint16"), 65535);
  EXPECT_EQ(file.integer("test.uint32"), 4294967295);
  EXPECT_EQ(file.integer("absent"), std::nullopt);
  EXPECT_EQ(file.text("absent"), std::nullopt);
  EXPECT_EQ(file.real("absent"), std::nullopt);

  const std::string golden = std::string(kGolden) + ": key ";
  EXPECT_EQ(error_of([&] { file.integer("test.uint64"); }),
            golden + "test.uint64 is 18446744073709551615, above 2^63 - 1");
  EXPECT_EQ(error_of([&] { file.integer("test.bool"); }), golden + "test.bool is of type bool, but must be an integer");
  EXPECT_EQ(error_of([&] { file.text("test.int8"); }), golden + "test.int8 is of type int8, but must be a string");
  EXPECT_EQ(error_of([&] { file.real("test.nested"); }),
            golden + "test.nested is of type array, but must be float32 or float64");
}

TEST_F(GgufTest, ATextIsUtf8OrRefusedWhereItIsAskedFor) {
  for (const std::string value :
       {"", "a", "\x7f", "\xc2\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(GgufFile(write(GgufBytes().string("k", value))).text("k"), value);
  }
  for (const std::string value : {"\x80", "\xc1\xbf", "\xc2", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xef\xbf",
                                  "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xc2z"}) {
    const GgufFile file(write(GgufBytes().string("k", value)));
    EXPECT_TRUE(has(error_of([&] { file.text("k"); }), "key k has a text that is not UTF-8"));
    EXPECT_EQ(open_error(GgufBytes().string(value, "x")), "file.gguf: key number 0 has a name that is not UTF-8");
    EXPECT_EQ(open_error(GgufBytes().floats("a", {1}, {1}).floats(value, {1}, {1})),
              "file.gguf: tensor number 1 has a name that is not UTF-8");
  }
}

TEST_F(GgufTest, TensorsKeepTheirShapesTypesAndPlaces) {
  const GgufFile file(write(GgufBytes()
                                .version(2)
                                .alignment(8)
                                .floats("scalar", {}, {7})
                                .floats("vector", {3}, {1, 2, 3})
                                .tensor("packed", {64, 5}, kQ8_0, std::string(5 * 68, '\2'))
                                .floats("four", {1, 2, 3, 2}, std::vector<float>(12))
                                .tensor("unknown", {5, 3}, 99, "xyz")
                                .tensor("retired", {5}, 4, "z")));
  EXPECT_EQ(file.version(), 2u);
  ASSERT_EQ(file.tensors().size(), 6u);
  EXPECT_EQ(file.find("absent"), nullptr);
  const GgufTensor& packed = *file.find("packed");
  EXPECT_EQ(packed.shape_text(), "[5, 64]");
  EXPECT_EQ(packed.row_bytes, 68u);
  EXPECT_EQ(packed.data[339], std::byte{2});
  const GgufTensor& four = *file.find("four");
  EXPECT_EQ(four.shape_text(), "[2, 3, 2, 1]");
  EXPECT_EQ(four.rows, 12);
  EXPECT_EQ(four.cols, 1);
  EXPECT_EQ(file.find("unknown")->type_text(), "type 99");
  EXPECT_EQ(file.find("retired")->type_text(), "Q4_2 (type 4)");

  const auto refusal = [&](const char* name) {
    return without_folder(error_of([&] { weight_of(file, *file.find(name)); }));
  };
  EXPECT_TRUE(has(refusal("retired"), "file.gguf: tensor retired is Q4_2 (type 4): only F32"));
  EXPECT_EQ(refusal("four"), "file.gguf: tensor four has shape [2, 3, 2, 1], but a head has two dimensions");
  EXPECT_EQ(weight_of(file, *file.find("vector")).vocab_size(), 1);
}

TEST_F(GgufTest, AFileThatIsCutAnywhereIsRefused) {
  const std::string whole = small_model()
                                .key("a", testing::kArray, array(testing::kString, 2, text("x") + text("yz")))
                                .key("b", testing::kArray, array(testing::kBool, 3, std::string("\0\1\0", 3)))
                                .key("c", testing::kFloat64, number(1.0))
                                .tensor("q", {32}, kQ8_0, std::string(34, '\3'))
                                .bytes();
  ASSERT_EQ(open_error(whole), "no error");
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string message = open_error(whole.substr(0, size));
    ASSERT_TRUE(message.starts_with("file.gguf: ")) << size << " bytes: " << message;
    ASSERT_FALSE(has(message, "\n")) << size;
  }
  EXPECT_EQ(open_error(whole.substr(0, 10)),
            "file.gguf: the header: the file ends in the middle of it, after 10 bytes");
  EXPECT_EQ(open_error(whole.substr(0, whole.size() - 1)),
            "file.gguf: tensor q: 34 bytes at offset 32 reach outside the file, which holds 65 bytes of data "
            "(is the file truncated?)");
}

TEST_F(GgufTest, FilesThatAreNoneAndOtherVersionsAreRefused) {
  const char* no_magic = "file.gguf: is not a GGUF file: its first four bytes are not \"GGUF\"";
  for (const char* bytes : {"", "GGU", "ggjt and more", "{}"}) EXPECT_EQ(open_error(std::string(bytes)), no_magic);
  EXPECT_EQ(open_error(small_model().version(1)),
            "file.gguf: is a GGUF file of version 1, whose lengths have 32 bits: only versions 2 and 3 are read");
  EXPECT_EQ(open_error(small_model().version(3u << 24)),
            "file.gguf: is a big-endian GGUF file (its version reads 50331648): only little-endian files are read");
  for (const uint32_t version : {0u, 4u, UINT32_MAX}) {
    EXPECT_EQ(open_error(small_model().version(version)),
              "file.gguf: is a GGUF file of version " + std::to_string(version) + ": only versions 2 and 3 are read");
  }
  EXPECT_TRUE(has(error_of([&] { const GgufFile file(path("absent")); }), "cannot be opened: No such file"));
  EXPECT_TRUE(has(error_of([&] { const GgufFile file(folder_.string()); }), "is a directory"));
}

TEST_F(GgufTest, CountsAndLengthsThatNoFileCanHoldAllocateNothing) {
  const uint64_t huge[] = {1000, uint64_t{1} << 32, uint64_t{1} << 61, UINT64_MAX};
  for (const uint64_t n : huge) {
    const std::string count = std::to_string(n);
    const auto of_key = [&](uint32_t type) {
      return GgufBytes().key("k", testing::kArray, array(type, n, "")).bytes() + std::string(24, '\0');
    };
    const std::vector<std::pair<std::string, std::string>> cases = {
        {GgufBytes().counts(0, n).bytes(), "the header: " + count + " keys do not fit in the 0 bytes"},
        {GgufBytes().counts(n, 0).bytes(), "the header: " + count + " tensors do not fit in the 0 bytes"},
        {GgufBytes().counts(0, 1).bytes() + number(n) + "abcdefg",
         "key number 0: " + count + " bytes of a string do not fit in the 7 bytes"},
        {GgufBytes().counts(1, 0).bytes() + number(n) + std::string(20, 'a'),
         "tensor number 0: " + count + " bytes of a string do not fit in the 20 bytes"},
        {GgufBytes().key("k", testing::kString, number(n)).bytes(),
         "key k: " + count + " bytes of a string do not fit in the 0 bytes"},
        {of_key(testing::kUint8), "key k: " + count + " values do not fit in the 24 bytes"},
        {of_key(testing::kBool), "key k: " + count + " values do not fit in the 24 bytes"},
        {of_key(testing::kFloat64), "key k: " + count + " values do not fit in the 24 bytes"},
        {of_key(testing::kString), "key k: " + count + " values do not fit in the 24 bytes"},
        {of_key(testing::kArray), "key k: " + count + " values do not fit in the 24 bytes"},
    };
    for (const auto& [bytes, message] : cases) {
      const std::string file = write(bytes);
      testing::restart_peak();
      const int64_t before = testing::allocation_count().peak_bytes;
      const std::string error = error_of([&] { const GgufFile opened(file); });
      EXPECT_TRUE(has(error, message));
      EXPECT_TRUE(has(error, "(is the file truncated?)"));
      EXPECT_LT(testing::allocation_count().peak_bytes - before, 64 << 10) << message;
    }
  }
}

TEST_F(GgufTest, ArraysMayNestEightLevelsDeep) {
  const auto nested = [](int levels) {
    std::string value = array(testing::kUint8, 1, "x");
    for (int i = 1; i < levels; ++i) value = array(testing::kArray, 1, value);
    return GgufBytes().key("deep", testing::kArray, value);
  };
  EXPECT_EQ(open_error(nested(8)), "no error");
  for (const int levels : {9, 1000}) {
    EXPECT_EQ(open_error(nested(levels)), "file.gguf: key deep has arrays nested deeper than 8 levels");
  }
}

TEST_F(GgufTest, MalformedKeysAreRefused) {
  EXPECT_EQ(open_error(GgufBytes().string("a", "x").string("b", "y").string("a", "z")),
            "file.gguf: key a occurs twice in the file");
  EXPECT_EQ(open_error(GgufBytes().string("", "x")), "file.gguf: key number 0 has an empty name");
  EXPECT_EQ(open_error(GgufBytes().key("a", 13, number(1))),
            "file.gguf: key a has a value of type 13, which GGUF does not have");
  EXPECT_EQ(open_error(GgufBytes().key("a", testing::kBool, "\2")), "file.gguf: key a has a bool of 2, not 0 or 1");
  for (const uint32_t alignment : {0u, 1u, 4u, 24u, UINT32_MAX}) {
    EXPECT_EQ(open_error(GgufBytes().alignment(alignment)), "file.gguf: key general.alignment is " +
                                                                std::to_string(alignment) +
                                                                ", which must be a power of two of at least 8");
  }
  EXPECT_EQ(open_error(GgufBytes().key("general.alignment", testing::kUint64, number(uint64_t{32}))),
            "file.gguf: key general.alignment is of type uint64, but must be uint32");
}

TEST_F(GgufTest, MalformedTensorsAreRefused) {
  const auto at = [](std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    return GgufBytes().tensor_at("x", dims, type, offset).data(256);
  };
  const std::pair<GgufBytes, const char*> cases[] = {
      {at({2}, kF32, 8), "tensor x: its offset 8 is not a multiple of the alignment 32"},
      {at({2}, kF32, 256), "tensor x: 8 bytes at offset 256 reach outside the file, which holds 256 bytes of data"},
      {at({2}, kF32, UINT64_MAX - 31), "tensor x: 8 bytes at offset 18446744073709551584 reach outside the file"},
      {at({2}, 99, 256), "tensor x: its bytes at offset 256 reach outside the file"},
      {at({33, 2}, kQ8_0, 0), "tensor x has rows of 33 numbers, which must be a multiple of the 32 of a block of Q8_0"},
      {at({0}, kF32, 0), "tensor x has a dimension of size 0"},
      {at({1, 1, 1, 1, 1}, kF32, 0), "tensor x has 5 dimensions, more than 4"},
      {at({UINT64_MAX}, kF32, 0), "tensor x has more than 2^63 elements: one dimension is 18446744073709551615"},
      {at({uint64_t{1} << 32, uint64_t{1} << 31}, kF32, 0), "tensor x has more than 2^63 elements"},
      {at({uint64_t{1} << 61}, kF32, 0), "tensor x: shape [2305843009213693952] of F32 takes more than 2^63 bytes"},
      {at({8}, kF32, 0).tensor_at("y", {8}, kF32, 0), "tensor y: its bytes overlap those of tensor x"},
      {at({8}, kF32, 96).tensor_at("y", {32}, kF32, 0), "tensor x: its bytes overlap those of tensor y"},
      {at({8}, kF32, 0).tensor_at("x", {8}, kF32, 64), "tensor x occurs twice in the file"},
      {at({8}, kF32, 0).tensor_at("", {8}, kF32, 64), "tensor number 1 has an empty name"},
      {GgufBytes().info_bytes(text("x") + number(UINT32_MAX) + std::string(99, '\0')),
       "tensor x has 4294967295 dimensions, more than 4"},
  };
  for (const auto& [bytes, message] : cases) {
    const std::string error = open_error(bytes);
    EXPECT_TRUE(error.starts_with("file.gguf: ")) << error;
    EXPECT_TRUE(has(error, message));
  }
  EXPECT_EQ(open_error(at({8}, kF32, 32).tensor_at("y", {8}, kF32, 0).tensor_at("z", {8}, kF32, 128)), "no error")
      << "the order of tensors is free, and so is what stands between them";
}

// Takes minutes if the reader needs quadratic time.
TEST_F(GgufTest, AFileMayHoldAHundredThousandKeysAndTensors) {
  constexpr int kCount = 100'000;
  GgufBytes bytes;
  bytes.alignment(8);
  for (int i = 0; i < kCount; ++i) {
    const std::string name = "n" + std::to_string(i);
    bytes.key(name, testing::kInt32, number(i)).tensor_at(name, {2}, kF32, static_cast<uint64_t>(i) * 8);
  }
  const GgufFile file(write(bytes.data(kCount * 8)));
  ASSERT_EQ(file.tensors().size(), size_t{kCount});
  EXPECT_EQ(file.integer("n99999"), 99999);
  EXPECT_EQ(file.find("n99999")->data - file.find("n0")->data, 99999 * 8);
}

TEST_F(GgufTest, AHeadMayBeTiedAndHaveBiasAndSoftcap) {
  const std::vector<float> six = {1, 2, 3, 4, 5, 6};
  const GgufFile own(write(small_model().floats("token_embd.weight", {3, 2}, six)));
  GgufHead found = find_head(own);
  EXPECT_EQ(found.weight->name, "output.weight");
  EXPECT_FALSE(found.tied);
  EXPECT_EQ(found.head.weight.rows, 2);
  EXPECT_EQ(found.head.weight.cols, 3);
  EXPECT_EQ(static_cast<const float*>(found.head.weight.data)[4], 5.0f);
  EXPECT_EQ(found.head.bias.data, nullptr);
  EXPECT_EQ(found.head.softcap, 0);
  EXPECT_FALSE(found.head.packed.given());

  const GgufFile tied(write(GgufBytes()
                                .architecture("gemma3")
                                .key("gemma3.final_logit_softcapping", testing::kFloat64, number(12.5))
                                .key("llama.final_logit_softcapping", testing::kFloat32, number(3.0f))
                                .key("split.count", testing::kUint16, number(uint16_t{1}))
                                .floats("token_embd.weight", {3, 2}, six)
                                .floats("output.bias", {2}, {7, 8})));
  found = find_head(tied);
  EXPECT_TRUE(found.tied);
  EXPECT_EQ(found.weight->name, "token_embd.weight");
  EXPECT_EQ(found.head.softcap, 12.5);
  EXPECT_EQ(static_cast<const float*>(found.head.bias.data)[1], 8.0f);
}

TEST_F(GgufTest, WhatDoesNotFitAHeadIsRefused) {
  const auto softcap = [](uint32_t type, const std::string& value) {
    return small_model().key("llama.final_logit_softcapping", type, value);
  };
  const std::string none = "but must be a finite number above 0, or 0 for none";
  const std::string key = "file.gguf: key llama.final_logit_softcapping ";
  EXPECT_EQ(head_error(softcap(testing::kFloat32, number(-1.0f))), key + "is -1, " + none);
  EXPECT_EQ(head_error(softcap(testing::kFloat32, number(std::numeric_limits<float>::quiet_NaN()))),
            key + "is nan, " + none);
  EXPECT_EQ(head_error(softcap(testing::kFloat32, number(1e-40f))), key + "is 9.99995e-41, " + none);
  EXPECT_EQ(head_error(softcap(testing::kFloat32, number(0.0f))), "no error");
  EXPECT_EQ(head_error(softcap(testing::kInt32, number(30))), key + "is of type int32, but must be float32 or float64");

  EXPECT_EQ(head_error(GgufBytes().floats("output.weight", {3, 2}, std::vector<float>(6))),
            "file.gguf: has no key general.architecture");
  EXPECT_EQ(head_error(small_model().tensor("output.bias", {2}, 1, "abcd")),
            "file.gguf: tensor output.bias is F16 (type 1), but a bias must be F32");
  EXPECT_EQ(head_error(small_model().floats("output.bias", {3}, {1, 2, 3})),
            "file.gguf: tensor output.bias has shape [3], but output.weight has 2 rows");
  EXPECT_EQ(head_error(small_model().key("split.count", testing::kUint16, number(uint16_t{3}))),
            "file.gguf: is one of the 3 parts of a split model, and the others may hold parts of the head: merge them "
            "first (llama-gguf-split --merge)");
  EXPECT_TRUE(has(
      head_error(GgufBytes().architecture("llama").tensor("output.weight", {256, 1}, kIQ2_XS, std::string(74, 'x'))),
      "tensor output.weight is IQ2_XS (type 17): only F32"));
}

}  // namespace gguf_test
}  // namespace logitless::io
