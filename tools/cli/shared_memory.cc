// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/shared_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace logitless::cli {
namespace {

// What an empty tensor points to; aligned for every element type.
alignas(64) std::byte empty_tensor[64];

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

}  // namespace

Mapping::Mapping(const Region& region, Access access) : bytes_(region.bytes) {
  if (!region) return;
  if (region.bytes == 0) {
    data_ = empty_tensor;
    return;
  }
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t start = region.offset / page * page;
  mapped_bytes_ = region.offset - start + region.bytes;
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  // Mapped at once: every tensor is used whole, and a fault for each of its pages costs several times as much.
  address_ =
      mmap(nullptr, mapped_bytes_, protection, MAP_SHARED | MAP_POPULATE, region.descriptor, static_cast<off_t>(start));
  if (address_ == MAP_FAILED) {
    address_ = nullptr;
    fail("mapping " + std::to_string(mapped_bytes_) + " bytes of shared memory");
  }
  data_ = static_cast<std::byte*>(address_) + (region.offset - start);
}

Mapping::~Mapping() {
  if (address_) munmap(address_, mapped_bytes_);
}

Mapping::Mapping(Mapping&& other) noexcept { *this = std::move(other); }

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(address_, other.address_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  return *this;
}

SharedMemory::SharedMemory(const std::string& name, size_t bytes) : bytes_(bytes) {
  descriptor_ = memfd_create(("logitless-" + name).c_str(), MFD_CLOEXEC);
  if (descriptor_ < 0) fail("creating shared memory for " + name);
  if (ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) {
    const int reason = errno;
    close(descriptor_);
    errno = reason;
    fail("reserving " + std::to_string(bytes) + " bytes of shared memory for " + name);
  }
}

SharedMemory::~SharedMemory() {
  if (descriptor_ >= 0) close(descriptor_);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

uint64_t total_bytes(const std::vector<SharedMemory>& memory) {
  uint64_t sum = 0;
  for (const SharedMemory& one : memory) sum += one.region().bytes;
  return sum;
}

}  // namespace logitless::cli
