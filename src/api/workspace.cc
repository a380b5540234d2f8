// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logitless/workspace.h"

#include "core/store.h"

namespace logitless {

Workspace::Workspace() : store_(std::make_unique<core::Store>()) {}
Workspace::~Workspace() = default;

size_t Workspace::bytes() const { return store_->bytes(); }
void Workspace::release() { store_->release(); }

core::Store* detail::store_of(const Workspace* workspace) { return workspace ? workspace->store_.get() : nullptr; }

}  // namespace logitless
