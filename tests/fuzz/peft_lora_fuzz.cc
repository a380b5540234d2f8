// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Reads the adapter_config.json that PEFT saves with a LoRA's tensors.
#include <array>
#include <filesystem>

#include "fuzz_target.h"
#include "io/peft_lora.h"

namespace logitless::fuzz {
namespace {

// A folder with a LoRA's tensors, and its config as a file in memory.
class AdapterFolder {
 public:
  AdapterFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "logitless-fuzz-XXXXXX").string();
    require(mkdtemp(pattern.data()) != nullptr, "a folder can be made");
    folder_ = pattern;
    const std::array<float, 4> values = {};
    const std::string module = "base_model.model.model.lm_head.";
    const std::array<io::TensorToWrite, 2> tensors = {
        io::TensorToWrite{module + "lora_A.weight", "F32", {1, 4}, values.data()},
        io::TensorToWrite{module + "lora_B.weight", "F32", {3, 1}, values.data()}};
    io::write_safetensors((folder_ / "adapter_model.safetensors").string(), tensors);
    std::filesystem::create_symlink(config_.path(), folder_ / "adapter_config.json");
  }
  ~AdapterFolder() { std::filesystem::remove_all(folder_); }
  AdapterFolder(const AdapterFolder&) = delete;
  AdapterFolder& operator=(const AdapterFolder&) = delete;

  std::string path() const { return folder_.string(); }
  void write_config(std::string_view bytes) const { config_.write(bytes); }

 private:
  MemoryFile config_;
  std::filesystem::path folder_;
};

}  // namespace
}  // namespace logitless::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace logitless;
  static const fuzz::AdapterFolder adapter;
  adapter.write_config(fuzz::text_of(data, size));
  fuzz::reads([&] { fuzz::require(io::read_peft_lora(adapter.path(), 3, 4).rank() == 1, "the rank is that of a"); });
  return 0;
}
