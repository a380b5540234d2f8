// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/common/job.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "cli/measure/one_call.h"
#include "io/error.h"

namespace logitless::cli {
namespace {

using io::Error;

// What an empty tensor points to; aligned for every element type.
alignas(64) std::byte empty_tensor[64];

void read_every_page(const TensorBytes& tensor) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  volatile std::byte sink{};
  for (size_t i = 0; i < tensor.bytes; i += page) sink = tensor.data[i];
  if (tensor.bytes > 0) sink = tensor.data[tensor.bytes - 1];  // An unaligned start leaves a page over.
  (void)sink;
}

}  // namespace

void Job::touch() const {
  for (size_t i = 0; i < kTensorCount; ++i) {
    const TensorBytes& tensor = tensors[i];
    if (!is_output(static_cast<TensorId>(i))) {
      read_every_page(tensor);
    } else if (tensor.bytes > 0) {
      std::memset(tensor.writable(), 0xff, tensor.bytes);
    }
  }
}

Memory::Memory(const std::string& what, size_t bytes) : data_(empty_tensor), bytes_(bytes) {
  if (bytes == 0) return;
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) throw Error(what + ": no " + std::to_string(bytes) + " bytes: " + std::strerror(errno));
  data_ = static_cast<std::byte*>(address);
}

Memory::~Memory() {
  if (bytes_ > 0) munmap(data_, bytes_);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, empty_tensor)), bytes_(std::exchange(other.bytes_, 0)) {}

void check_outputs(const io::Config& config, const HeadParts& head) {
  const auto reject = [&](const std::string& key, const std::string& reason) {
    throw Error(config.place_of(key) + " " + reason);
  };
  if (config.level == io::Level::kLogits) return;
  const io::GradientConfig& wanted = config.gradients;
  const io::ToleranceConfig& limits = config.tolerances;
  bool any = wanted.d_hidden || wanted.d_weight;
  const auto check = [&](const std::string& name, bool is_wanted, bool has_limit, bool given, const char* part) {
    any = any || (is_wanted && given);
    if (given) return;
    if (config.is_set("gradients." + name) && is_wanted) reject("gradients." + name, std::string("needs ") + part);
    if (has_limit) reject("tolerances." + name + "_rel_l2", std::string("needs ") + part);
  };
  check("d_bias", wanted.d_bias, limits.d_bias_rel_l2.has_value(), head.bias, "a bias");
  check("d_lora_a", wanted.d_lora_a, limits.d_lora_a_rel_l2.has_value(), head.lora, "a LoRA");
  check("d_lora_b", wanted.d_lora_b, limits.d_lora_b_rel_l2.has_value(), head.lora, "a LoRA");
  if (wanted.float32 && !any) reject("gradients.dtype", "needs a gradient");
}

void reject_ranks(const io::Config& config) {
  for (const char* key : {"parallel.vocab", "parallel.data"}) {
    if (config.is_set(key) && config.parallel.ranks() > 1) {
      throw Error(config.place_of(key) + " splits a call over ranks, which compare alone does");
    }
  }
}

std::vector<Memory> add_outputs(const io::Config& config, Job& job, int copies) {
  const bool adapted = job.has(TensorId::kLoraA);
  check_outputs(config, {job.has(TensorId::kBias), adapted});
  struct Output {
    TensorId id;
    const char* name;
    bool wanted;
    int64_t rows, cols;
  };
  const io::GradientConfig& wanted = config.gradients;
  const bool fused = config.level == io::Level::kFused;
  if (job.head && wanted.d_weight && config.is_set("gradients.d_weight")) {
    throw Error(config.place_of("gradients.d_weight") + " is true, but " +
                (config.model.packing ? "a packed head" : "the head of a GGUF file") + " is frozen");
  }
  const Output outputs[] = {
      {TensorId::kDLogits, "dlogits", !fused, job.tokens, job.vocab_size},
      {TensorId::kDHidden, "d_hidden", fused && wanted.d_hidden, job.tokens, job.hidden_size},
      {TensorId::kDWeight, "d_weight", fused && wanted.d_weight && !job.head, job.hidden_size, job.vocab_size},
      {TensorId::kDBias, "d_bias", fused && wanted.d_bias && job.has(TensorId::kBias), job.vocab_size, 1},
      {TensorId::kDLoraA, "d_lora_a", fused && wanted.d_lora_a && adapted, job.lora_rank, job.hidden_size},
      {TensorId::kDLoraB, "d_lora_b", fused && wanted.d_lora_b && adapted, job.vocab_size, job.lora_rank}};
  job.gradient_dtype = config.gradient_dtype(job.dtype);
  std::vector<Memory> memory;
  uint64_t sum = 0;
  for (const Output& output : outputs) {
    if (!output.wanted) continue;
    const uint64_t bytes = tensor_bytes(output.name, output.rows, output.cols, size_of(job.gradient_dtype));
    memory.emplace_back(output.name, bytes);
    job[output.id] = memory.back().tensor();
    sum += bytes * static_cast<uint64_t>(copies);
  }
  check_available(sum, copies == 1 ? "the gradients" : "the gradients of both contenders");
  return memory;
}

void check_available(uint64_t bytes, const std::string& what) {
  const int64_t available = available_memory();
  if (available > 0 && bytes > static_cast<uint64_t>(available)) {
    throw Error(what + " alone need " + std::to_string(bytes >> 20) + " MiB of memory and " +
                std::to_string(available >> 20) + " MiB are available: choose a smaller shape");
  }
}

uint64_t tensor_bytes(const std::string& what, int64_t rows, int64_t cols, size_t element_bytes) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(rows, cols, &bytes) ||
      __builtin_mul_overflow(bytes, static_cast<int64_t>(element_bytes), &bytes)) {
    throw Error(what + ": " + std::to_string(rows) + " x " + std::to_string(cols) +
                " elements are more than 2^63 bytes");
  }
  return static_cast<uint64_t>(bytes);
}

}  // namespace logitless::cli
