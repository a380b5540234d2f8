// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "core/workspace.h"

#include <new>
#include <stdexcept>

namespace logitless::core {

Workspace::Workspace(size_t bytes) : size_(bytes), measuring_(false) {
  if (size_ > 0) data_ = static_cast<std::byte*>(::operator new(size_, std::align_val_t(kAlignment)));
}

Workspace::~Workspace() {
  if (data_) ::operator delete(data_, std::align_val_t(kAlignment));
}

void* Workspace::take_bytes(size_t bytes) {
  const size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::byte* out = measuring_ ? nullptr : data_ + used_;
  if (!measuring_ && padded > size_ - used_) {
    throw std::logic_error("logitless: a run takes more workspace than its plan measured");
  }
  used_ += padded;
  peak_ = std::max(peak_, used_);
  return out;
}

}  // namespace logitless::core
