// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Good and bad safetensors files.
#include "io/safetensors.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "core/matrices.h"
#include "folder_test.h"

namespace logitless::io {
namespace safetensors_test {

using testing::has;

class SafetensorsTest : public testing::FolderTest {
 protected:
  std::string write_bytes(const std::string& bytes) const { return write("file.safetensors", bytes); }
  // Writes a file with this header and this many bytes of data.
  std::string write_file(const std::string& header, size_t data_bytes) const {
    return write_bytes(with_length(header.size()) + header + std::string(data_bytes, '\1'));
  }
  static std::string with_length(uint64_t length) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    return bytes;
  }
  static std::string error_of(const std::string& file) {
    try {
      const SafetensorsFile opened(file);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
  static std::string find_error(const std::string& spec, const TensorWish& wish) {
    try {
      find_tensor(spec, wish);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
};

const TensorWish kHidden{"hidden", TensorClass::kFloat, 2};
const TensorWish kTargets{"targets", TensorClass::kInteger, 1};

template <class T>
std::vector<T> converted(const Tensor& tensor, DType dtype) {
  std::vector<T> out(static_cast<size_t>(tensor.elements()));
  convert_floats(tensor, dtype, out.data());
  return out;
}

TEST_F(SafetensorsTest, EveryDtypeSurvivesARoundTrip) {
  const std::vector<float> f32 = {1.5f, -0.0f, 3e38f, 1e-40f, std::numeric_limits<float>::infinity(), 0.1f};
  const std::vector<double> f64 = {0.1, -2e300};
  const std::vector<bfloat16> bf16 = {{0x3fc0}, {0x8001}, {0x7f80}};
  const std::vector<uint16_t> f16 = {0x3c00, 0xc000, 0x7bff, 0x0001};
  const std::vector<int32_t> i32 = {-100, 151935};
  const std::vector<int64_t> i64 = {-100, int64_t{1} << 40};
  const std::vector<TensorToWrite> tensors = {{"f32", "F32", {2, 3}, f32.data()},    {"f64", "F64", {2}, f64.data()},
                                              {"bf16", "BF16", {3, 1}, bf16.data()}, {"f16", "F16", {4}, f16.data()},
                                              {"i32", "I32", {2}, i32.data()},       {"i64", "I64", {2}, i64.data()},
                                              {"empty", "F32", {0, 7}, nullptr}};
  write_safetensors(path("all.safetensors"), tensors);

  const SafetensorsFile file(path("all.safetensors"));
  ASSERT_EQ(file.tensors().size(), tensors.size());
  EXPECT_EQ(file.find("f32")->shape_text(), "[2, 3]");
  EXPECT_EQ(std::memcmp(file.find("f32")->data, f32.data(), 24), 0);
  EXPECT_TRUE(usable_in_place(*file.find("f32"), DType::kFloat32));
  EXPECT_FALSE(usable_in_place(*file.find("f32"), DType::kBFloat16));
  EXPECT_EQ(natural_dtype(*file.find("f64")), DType::kFloat64);
  EXPECT_EQ(converted<double>(*file.find("f64"), DType::kFloat64), f64);
  EXPECT_EQ(natural_dtype(*file.find("bf16")), DType::kBFloat16);
  const auto bits = converted<bfloat16>(*file.find("bf16"), DType::kBFloat16);
  for (size_t i = 0; i < bf16.size(); ++i) EXPECT_EQ(bits[i].bits, bf16[i].bits);
  EXPECT_EQ(converted<float>(*file.find("f16"), DType::kFloat32),
            (std::vector<float>{1.0f, -2.0f, 65504.0f, 0x1p-24f}));
  EXPECT_EQ(read_integers(*file.find("i32")), (std::vector<int64_t>{-100, 151935}));
  EXPECT_EQ(read_integers(*file.find("i64")), i64);
  EXPECT_EQ(file.find("empty")->elements(), 0);
  EXPECT_EQ(file.find("absent"), nullptr);
}

std::string nested(const std::string& open, const std::string& close, int levels) {
  std::string text, end;
  for (int i = 0; i < levels; ++i) {
    text += open;
    end += close;
  }
  return text + "1" + end;
}

// A recursive parser or destructor would overflow the stack.
TEST_F(SafetensorsTest, AHeaderThatIsNestedDeepIsRefused) {
  for (const int levels : {40, 100'000}) {
    for (const std::string& value : {nested("[", "]", levels), nested("{\"a\":", "}", levels)}) {
      for (const char* form : {R"({"__metadata__":@})", R"({"a":@})", R"({"a":{"dtype":"F32","shape":@}})",
                               R"({"a":{"dtype":"F32","shape":[1],"data_offsets":@}})",
                               R"({"a":{"dtype":"F32","shape":[@],"data_offsets":[0,0]}})", "@"}) {
        std::string header = form;
        header.replace(header.find('@'), 1, value);
        EXPECT_TRUE(has(error_of(write_file(header, 0)), "the header is nested deeper than 32 levels")) << form;
      }
    }
  }
  const std::string brackets_in_a_text = R"({"__metadata__":{"note":"\")" + std::string(100, '[') + R"("}})";
  EXPECT_EQ(error_of(write_file(brackets_in_a_text, 0)), "no error");
}

// Takes ten minutes or more if the reader needs quadratic time.
TEST_F(SafetensorsTest, AHeaderMayHoldAQuarterOfAMillionTensors) {
  constexpr int kTensors = 250'000;
  std::string header = "{";
  for (int i = 0; i < kTensors; ++i) {
    const std::string number = std::to_string(i);
    header += (i ? ",\"t" : "\"t") + number + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + number + "," +
              std::to_string(i + 1) + "]}";
  }
  const SafetensorsFile file(write_file(header + "}", kTensors));
  ASSERT_EQ(file.tensors().size(), size_t{kTensors});
  EXPECT_EQ(file.find("t249999")->file_offset - file.find("t0")->file_offset, 249'999u);
}

TEST_F(SafetensorsTest, ANameOfAFileStaysOneLineOfAMessage) {
  const std::string header = R"({"a\nb":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const std::string file = write_file(header, 4);
  EXPECT_TRUE(has(find_error(file + ":x", kHidden), "it has a b F32[1]"));
  EXPECT_TRUE(has(find_error(file + ":a\nb", kTargets), "tensor a b: dtype is F32"));
  const std::string long_name = R"({")" + std::string(100'000, 'x') + R"(":{"dtype":"F32"}})";
  EXPECT_LT(error_of(write_file(long_name, 0)).size(), 500u);
}

TEST_F(SafetensorsTest, NarrowingRoundsOnceToNearestEven) {
  EXPECT_EQ(to_bfloat16(0x1p0f + 0x1p-8f).bits, 0x3f80);            // a tie goes to the even neighbour below,
  EXPECT_EQ(to_bfloat16(0x1p0f + 0x1p-7f + 0x1p-8f).bits, 0x3f82);  // or above
  EXPECT_EQ(to_bfloat16(3.4e38f).bits, 0x7f80);                     // above the largest: infinity
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::nanf("")))));
  EXPECT_EQ(to_float16(0x1p0f + 0x1p-10f + 0x1p-11f).bits, 0x3c02);
  EXPECT_EQ(to_float16(65519.0f).bits, 0x7bff);
  EXPECT_EQ(to_float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_float16(-0x1p-25f).bits, 0x8000);
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float wide = to_float(float16{static_cast<uint16_t>(half)});
    ASSERT_EQ(to_float16(wide).bits, half | (wide != wide ? 0x200 : 0));
  }
  // If it were rounded to float32 first, the first value would become a tie and then 1.
  const std::vector<double> values = {1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-8 - 0x1p-40, 1e300, 0x1p-200};
  const std::vector<TensorToWrite> tensors = {{"d", "F64", {4}, values.data()}};
  write_safetensors(path("double.safetensors"), tensors);
  const SafetensorsFile file(path("double.safetensors"));
  const auto narrow = converted<bfloat16>(*file.find("d"), DType::kBFloat16);
  const uint16_t want[] = {0x3f81, 0x3f80, 0x7f80, 0x0000};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(narrow[i].bits, want[i]) << i;
}

TEST_F(SafetensorsTest, AMisalignedTensorIsCopiedNotMapped) {
  const float value = 2.5f;
  std::string header = R"({"x":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}})";
  header.append(header.size() % 4 == 1 ? 0 : (5 - header.size() % 4) % 4, ' ');  // so that 8 + length is odd
  ASSERT_EQ(header.size() % 4, 1u);
  std::string bytes = with_length(header.size()) + header + std::string(4, '\0');
  std::memcpy(bytes.data() + bytes.size() - 4, &value, 4);
  const TensorHandle handle = find_tensor(write_bytes(bytes), kHidden);
  EXPECT_FALSE(usable_in_place(*handle.tensor, DType::kFloat32));
  EXPECT_EQ(converted<float>(*handle.tensor, DType::kFloat32), std::vector<float>{2.5f});
}

TEST_F(SafetensorsTest, MalformedFilesAreErrorsThatNameFileAndTensor) {
  struct Case {
    const char* header;
    size_t data_bytes;
    const char* message;
  };
  const Case cases[] = {
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4,
       "tensor x: data_offsets [0, 8] reach outside the file"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 12, "the last 4 bytes belong to no tensor"},
      {R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8,
       "tensor x: data_offsets [0, 8] do not hold shape [3] of F32"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8,
       "tensor x: data_offsets [8, 0] end before they begin"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", 8,
       "tensor x: data_offsets must be two integers >= 0, not [-8,0]"},
      {R"({"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "tensor x: shape holds -2"},
      {R"({"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", 8,
       "tensor x: shape has more than 2^63"},
      {R"({"x":{"shape":[2],"data_offsets":[0,8]}})", 8, "tensor x: its header entry has no dtype"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"I8","shape":[8],"data_offsets":[4,12]}})",
       12, "tensor y: its data_offsets overlap"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"I8","shape":[4],"data_offsets":[12,16]}})",
       16, "tensor y: there are 4 bytes before it"},
      {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "tensor x: is in the header twice"},
      {R"({"x":)", 8, "the header is not JSON"},
  };
  for (const Case& c : cases) {
    const std::string file = write_file(c.header, c.data_bytes);
    const std::string message = error_of(file);
    EXPECT_TRUE(message.starts_with(file + ": ")) << message;
    EXPECT_TRUE(has(message, c.message)) << c.header;
    EXPECT_FALSE(has(message, "\n")) << c.header;
  }
}

TEST_F(SafetensorsTest, FilesThatAreNoneAreErrors) {
  EXPECT_TRUE(has(error_of(write_bytes("")), "has 0 bytes, fewer than the 8"));
  EXPECT_TRUE(has(error_of(write_bytes("1234567")), "has 7 bytes, fewer than the 8"));
  EXPECT_TRUE(
      has(error_of(write_bytes(with_length(1000) + "{}")), "the header length 1000 is beyond the file's 10 bytes"));
  EXPECT_TRUE(has(error_of(write_bytes(with_length(UINT64_MAX) + "{}")), "is beyond the file's 10 bytes"));
  EXPECT_TRUE(has(error_of(write_bytes(with_length(2) + std::string("\0\1", 2))), "the header is not JSON"));
  EXPECT_TRUE(has(error_of(path("absent")), "cannot be opened: No such file"));
  EXPECT_TRUE(has(error_of(folder_.string()), "is a directory"));
}

TEST_F(SafetensorsTest, ATensorIsFoundByNameConventionOrAlone) {
  const float f[4] = {1, 2, 3, 4};
  const int32_t i[4] = {};
  const std::vector<TensorToWrite> several = {
      {"hidden", "F32", {2, 2}, f}, {"other", "F32", {4, 1}, f}, {"ids", "I32", {4}, i}};
  const std::string file = path("a.safetensors");
  write_safetensors(file, several);
  EXPECT_EQ(find_tensor(file, kHidden).tensor->name, "hidden");
  EXPECT_EQ(find_tensor(file + ":other", kHidden).tensor->name, "other");
  EXPECT_EQ(find_tensor(file, kTargets).tensor->name, "ids");

  EXPECT_TRUE(has(find_error(file + ":nope", kHidden), file + ": has no tensor nope; it has hidden F32[2, 2], other"));
  EXPECT_TRUE(has(find_error(file + ":ids", kHidden),
                  file + ": tensor ids: dtype is I32; hidden must be F32, F16, BF16 or F64"));
  EXPECT_TRUE(has(find_error(file + ":hidden", {"bias", TensorClass::kFloat, 1}),
                  "tensor hidden: shape is [2, 2]; bias must have 1 dimension"));
  EXPECT_TRUE(has(find_error(file, {"lm_head", TensorClass::kFloat, 2}), "has no tensor lm_head and more than one of"));

  // PyTorch's name for the head, and a batch of sequences.
  const std::vector<TensorToWrite> checkpoint = {
      {"embed.weight", "F32", {2, 2}, f}, {"lm_head.weight", "F32", {2, 2}, f}, {"states", "F32", {1, 2, 2}, f}};
  write_safetensors(path("checkpoint"), checkpoint);
  EXPECT_EQ(find_tensor(path("checkpoint"), {"lm_head", TensorClass::kFloat, 2}).tensor->name, "lm_head.weight");
  const TensorWish batched{"hidden", TensorClass::kFloat, 2, true};
  EXPECT_EQ(find_tensor(path("checkpoint") + ":states", batched).tensor->rows(), 2);
  EXPECT_TRUE(has(find_error(path("checkpoint") + ":states", kHidden), "hidden must have 2 dimensions"));

  // A file name may contain a colon.
  write_safetensors(path("b:c"), several);
  EXPECT_EQ(find_tensor(path("b:c"), kHidden).tensor->name, "hidden");
  EXPECT_EQ(find_tensor(path("b:c") + ":other", kHidden).tensor->name, "other");
}

TEST_F(SafetensorsTest, TheWriterRejectsWhatItCannotWrite) {
  const float value = 1;
  const std::vector<TensorToWrite> unknown = {{"x", "F5", {1}, &value}},
                                   twins = {{"x", "F32", {1}, &value}, {"x", "F32", {1}, &value}};
  EXPECT_THROW(write_safetensors(path("x"), unknown), Error);
  EXPECT_THROW(write_safetensors(path("x"), twins), Error);
  EXPECT_THROW(write_safetensors(path("no/such/folder"), {}), Error);
  EXPECT_FALSE(std::filesystem::exists(path("x")));
}

TEST_F(SafetensorsTest, AFileIsReplacedWholeOrNotAtAll) {
  const std::vector<double> values(1000, 1.5);
  const std::vector<TensorToWrite> small = {{"x", "F64", {1}, values.data()}},
                                   large = {{"x", "F64", {1000}, values.data()}};
  write_safetensors(path("x"), small);
  std::filesystem::create_symlink(path("x"), path("link"));
  const SafetensorsFile reader(path("x"));

  // The disk is full after a hundred bytes.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit limited{100, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limited);
  EXPECT_THROW(write_safetensors(path("x"), large), Error);
  EXPECT_THROW(write_safetensors(path("new"), large), Error);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(SafetensorsFile(path("x")).find("x")->elements(), 1);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2) << "something is left over";

  // Readers of the old file keep its contents; a link stays a link, and permissions are kept.
  std::filesystem::permissions(path("x"), std::filesystem::perms(0640));
  write_safetensors(path("link"), large);
  EXPECT_EQ(std::filesystem::status(path("x")).permissions(), std::filesystem::perms(0640));
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(SafetensorsFile(path("x")).find("x")->elements(), 1000);
  EXPECT_EQ(reader.find("x")->data[7], std::byte{0x3F});
  std::filesystem::create_symlink("later", path("dangling"));
  write_safetensors(path("dangling"), small);
  EXPECT_EQ(SafetensorsFile(path("later")).find("x")->elements(), 1);
}

}  // namespace safetensors_test
}  // namespace logitless::io
