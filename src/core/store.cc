// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "core/store.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace logitless::core {
namespace {

thread_local Store* current = nullptr;

// Rounds sizes up, so that requests of nearly the same size share blocks.
constexpr size_t kGrain = 64;

// Gives the pages of memory that is about to be freed back to the system.
void return_pages([[maybe_unused]] void* data, [[maybe_unused]] size_t bytes) {
#ifdef __linux__
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (!std::align(page, page, data, bytes)) return;
  static_cast<void>(madvise(data, bytes / page * page, MADV_DONTNEED));
#endif
}

}  // namespace

Store* current_store() { return current; }
StoreScope::StoreScope(Store* store) : before_(current) { current = store; }
StoreScope::~StoreScope() { current = before_; }

Store::~Store() {
  for (const Block& block : blocks_) {
    if (returns_pages_) return_pages(block.data, block.bytes);
    ::operator delete(block.data);
  }
}

// Takes the smallest free block that fits and is at most twice as large. Sizes that grow from call to call
// would pile up unused blocks, so unused memory is released if the total would exceed twice the largest use
// so far, or if the heap has no more memory.
void* Store::allocate(size_t bytes) {
  const size_t wanted = std::max<size_t>(1, (bytes + kGrain - 1) / kGrain) * kGrain;
  if (wanted < bytes) throw std::bad_alloc();
  const std::lock_guard lock(mutex_);
  Block* fit = nullptr;
  for (Block& block : blocks_) {
    const bool fits = !block.in_use && block.bytes >= wanted && block.bytes / 2 <= wanted;
    if (fits && (!fit || block.bytes < fit->bytes)) fit = &block;
  }
  if (!fit) {
    if (blocks_.size() == blocks_.capacity()) blocks_.reserve(2 * blocks_.size() + 32);
    if (bytes_ + wanted > 2 * std::max(most_in_use_, in_use_ + wanted)) release_unused();
    void* data = ::operator new(wanted, std::nothrow);
    if (!data) {
      release_unused();
      data = ::operator new(wanted);
    }
    blocks_.push_back({data, wanted, false});
    fit = &blocks_.back();
    bytes_ += wanted;
  }
  fit->in_use = true;
  in_use_ += fit->bytes;
  most_in_use_ = std::max(most_in_use_, in_use_);
  return fit->data;
}

void Store::free(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  Block& block = *std::find_if(blocks_.begin(), blocks_.end(), [data](const Block& b) { return b.data == data; });
  block.in_use = false;
  in_use_ -= block.bytes;
}

template <>
std::vector<std::vector<double>>& Store::columns<double>() {
  return double_columns_;
}
template <>
std::vector<std::vector<int64_t>>& Store::columns<int64_t>() {
  return int64_columns_;
}

template <class T>
std::vector<T> Store::take_column(size_t count, T value) {
  std::vector<T> column;
  if (count == 0) return column;
  {
    const std::lock_guard lock(mutex_);
    std::vector<std::vector<T>>& spare = columns<T>();
    const auto largest = std::max_element(spare.begin(), spare.end(),
                                          [](const auto& a, const auto& b) { return a.capacity() < b.capacity(); });
    if (largest != spare.end()) {
      column = std::move(*largest);
      std::swap(*largest, spare.back());
      spare.pop_back();
    }
  }
  column.assign(count, value);
  return column;
}

// If the column cannot be stored because memory runs out, the caller keeps and frees it.
template <class T>
void Store::give_back(std::vector<T>& column) noexcept {
  if (column.capacity() == 0) return;
  const std::lock_guard lock(mutex_);
  try {
    columns<T>().push_back(std::move(column));
  } catch (const std::bad_alloc&) {
  }
}

template std::vector<double> Store::take_column(size_t, double);
template std::vector<int64_t> Store::take_column(size_t, int64_t);
template void Store::give_back(std::vector<double>&) noexcept;
template void Store::give_back(std::vector<int64_t>&) noexcept;

size_t Store::bytes() const {
  const std::lock_guard lock(mutex_);
  size_t bytes = bytes_;
  for (const auto& column : double_columns_) bytes += column.capacity() * sizeof(double);
  for (const auto& column : int64_columns_) bytes += column.capacity() * sizeof(int64_t);
  return bytes;
}

void Store::release() noexcept {
  const std::lock_guard lock(mutex_);
  release_unused();
  most_in_use_ = in_use_;
}

void Store::release_unused() noexcept {
  double_columns_.clear();
  int64_columns_.clear();
  const auto free = std::partition(blocks_.begin(), blocks_.end(), [](const Block& block) { return block.in_use; });
  for (auto block = free; block != blocks_.end(); ++block) ::operator delete(block->data);
  blocks_.erase(free, blocks_.end());
  bytes_ = in_use_;
}

}  // namespace logitless::core
