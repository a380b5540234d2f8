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

// The address of every empty tensor, aligned for every element type.
alignas(64) std::byte empty_tensor[64];

void read_every_page(std::span<const std::byte> bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  volatile std::byte sink{};
  for (size_t i = 0; i < bytes.size(); i += page) sink = bytes[i];
  if (!bytes.empty()) sink = bytes.back();  // An unaligned start can skip the last page.
  (void)sink;
}

}  // namespace

Tensor JobTensor::output() const {
  Tensor out;
  out.data = const_cast<void*>(view.data);
  out.dtype = view.dtype;
  out.axes = view.axes;
  out.sizes = view.sizes;
  out.strides = view.strides;
  return out;
}

const JobTensor& Job::operator[](std::string_view name) const {
  static const JobTensor kNone;
  const auto it = tensors.find(name);
  return it == tensors.end() ? kNone : it->second;
}

void Job::touch() const {
  for (const auto& [name, tensor] : tensors) {
    if (is_output(name)) {
      std::memset(tensor.output().data, 0xff, tensor.bytes());
    } else {
      read_every_page(tensor.as_bytes());
    }
  }
}

Memory::Memory(const std::string& what, size_t bytes) : data_(empty_tensor), bytes_(bytes) {
  if (bytes == 0) return;
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    throw Error(what + ": cannot allocate " + std::to_string(bytes) + " bytes: " + std::strerror(errno));
  data_ = static_cast<std::byte*>(address);
}

Memory::~Memory() {
  if (bytes_ > 0) munmap(data_, bytes_);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, empty_tensor)), bytes_(std::exchange(other.bytes_, 0)) {}

Memory add_tensor(Job& job, const std::string& name, const std::string& axes, DType dtype, int64_t n, int64_t m) {
  Memory memory(name, tensor_bytes(name, n, m, size_of(dtype)));
  const void* const data = memory.data();
  job.tensors[name] = {axes.size() == 1 ? ConstTensor(data, dtype, {n}) : ConstTensor(data, dtype, {n, m}), axes};
  return memory;
}

void check_outputs(const io::Config& config, const HeadParts& head) {
  const auto reject = [&](const std::string& key, const std::string& reason) {
    throw Error(config.place_of(key) + " " + reason);
  };
  if (config.level == io::Level::kLogits) return;
  const io::GradientConfig& wanted = config.gradients;
  bool any = wanted.d_hidden || wanted.d_weight;
  const auto check = [&](const std::string& name, bool is_wanted, bool given, const char* part) {
    any = any || (is_wanted && given);
    const std::string key = "gradients." + name, limit = "tolerances." + name + "_rel_l2";
    if (given) return;
    if (config.is_set(key) && is_wanted) reject(key, std::string("needs ") + part);
    if (config.is_set(limit)) reject(limit, std::string("needs ") + part);
  };
  check("d_bias", wanted.d_bias, head.bias, "a bias");
  check("d_lora_a", wanted.d_lora_a, head.lora, "a LoRA");
  check("d_lora_b", wanted.d_lora_b, head.lora, "a LoRA");
  if (wanted.float32 && !any) reject("gradients.dtype", "needs a gradient");
}

void reject_ranks(const io::Config& config) {
  for (const char* key : {"parallel.vocab", "parallel.data"}) {
    if (config.is_set(key) && config.parallel.ranks() > 1) {
      throw Error(config.place_of(key) + " splits a call over ranks, which only compare can do");
    }
  }
}

std::vector<Memory> add_outputs(const io::Config& config, Job& job, int copies) {
  const bool adapted = job.has("lora_a");
  check_outputs(config, {job.has("bias"), adapted});
  const io::GradientConfig& wanted = config.gradients;
  if (job.head && wanted.d_weight && config.is_set("gradients.d_weight")) {
    throw Error(config.place_of("gradients.d_weight") + " is true, but " +
                (config.model.packing ? "a packed head" : "the head of a GGUF file") + " is frozen");
  }
  job.gradient_dtype = config.gradient_dtype(job.dtype);
  std::vector<Memory> memory;
  uint64_t sum = 0;
  const auto add = [&](const char* name, const char* axes, bool is_wanted, int64_t n, int64_t m) {
    if (!is_wanted) return;
    memory.push_back(add_tensor(job, name, axes, job.gradient_dtype, n, m));
    sum += job[name].bytes() * static_cast<uint64_t>(copies);
  };
  if (config.level == io::Level::kLogits) {
    add("d_logits", "NV", true, job.tokens, job.vocab_size);
  } else {
    const bool is_vocab_hidden = job.layout == HeadLayout::kVocabHidden;
    add("d_hidden", "NH", wanted.d_hidden, job.tokens, job.hidden_size);
    add("d_weight", is_vocab_hidden ? "VH" : "HV", wanted.d_weight && !job.head,
        is_vocab_hidden ? job.vocab_size : job.hidden_size, is_vocab_hidden ? job.hidden_size : job.vocab_size);
    add("d_bias", "V", wanted.d_bias && job.has("bias"), job.vocab_size, 1);
    add("d_lora_a", "RH", wanted.d_lora_a && adapted, job.lora_rank, job.hidden_size);
    add("d_lora_b", "VR", wanted.d_lora_b && adapted, job.vocab_size, job.lora_rank);
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
