// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The memory of a call comes from the heap, or from the Workspace of its Context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace logitless::core {

/// Holds memory for reuse: a freed block serves the next request that it fits, so repeated requests allocate
/// only once. Any number of threads may use one Store.
class Store {
 public:
  Store() = default;
  /// With `returns_pages`, pages return to the system when the store is destroyed; without it, the heap may
  /// keep them.
  explicit Store(bool returns_pages) : returns_pages_(returns_pages) {}
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Returns memory with the alignment of operator new. Throws std::bad_alloc.
  void* allocate(size_t bytes);
  void free(void* data) noexcept;

  /// Returns `count` copies of `value`, in the memory of a column that was given back, if there is one.
  template <class T>
  std::vector<T> take_column(size_t count, T value);
  /// Stores the memory of a column for take_column().
  template <class T>
  void give_back(std::vector<T>& column) noexcept;

  /// Returns the bytes of all blocks, in use or not, and of the stored columns.
  size_t bytes() const;
  /// Frees unused memory.
  void release() noexcept;

 private:
  struct Block {
    void* data;
    size_t bytes;
    bool in_use;
  };
  void release_unused() noexcept;
  template <class T>
  std::vector<std::vector<T>>& columns();  // columns that were given back

  const bool returns_pages_ = false;
  mutable std::mutex mutex_;
  std::vector<Block> blocks_;
  size_t bytes_ = 0;        // bytes of all blocks
  size_t in_use_ = 0;       // bytes of the blocks in use
  size_t most_in_use_ = 0;  // maximum of in_use_ since release()
  std::vector<std::vector<double>> double_columns_;
  std::vector<std::vector<int64_t>> int64_columns_;
};

/// Returns the store of the call that this thread works on; null: the heap.
Store* current_store();

/// Makes a store this thread's current store for the scope's lifetime.
class StoreScope {
 public:
  explicit StoreScope(Store* store);
  ~StoreScope();
  StoreScope(const StoreScope&) = delete;
  StoreScope& operator=(const StoreScope&) = delete;

 private:
  Store* before_;
};

/// Allocates from the store that was current when the container was created.
template <class T>
class Allocator {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  Allocator() : store_(current_store()) {}
  template <class U>
  Allocator(const Allocator<U>& other) : store_(other.store()) {}

  T* allocate(size_t count) {
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    if (count > static_cast<size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(store_ ? store_->allocate(count * sizeof(T)) : ::operator new(count * sizeof(T)));
  }
  void deallocate(T* data, size_t) noexcept { store_ ? store_->free(data) : ::operator delete(data); }

  Store* store() const { return store_; }
  template <class U>
  bool operator==(const Allocator<U>& other) const {
    return store_ == other.store();
  }

 private:
  Store* store_;
};

/// The container for all memory of a call that is not returned.
template <class T>
using Array = std::vector<T, Allocator<T>>;

/// Creates an object in the current store.
template <class T, class... Arguments>
std::shared_ptr<T> make_shared(Arguments&&... arguments) {
  return std::allocate_shared<T>(Allocator<T>(), std::forward<Arguments>(arguments)...);
}

}  // namespace logitless::core
