// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The C API: each handle owns a record, and C++ classes wrap the caller's callbacks.
#include "logitless/c_api.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "c_api/call.h"
#include "c_api/status.h"
#include "logitless/environment.h"
#include "record/record.h"

using namespace logitless;
using namespace logitless::c_api;

namespace logitless::c_api {
namespace {

/// A Communicator that calls the caller's functions.
class CallbackCommunicator final : public Communicator {
 public:
  explicit CallbackCommunicator(const logitless_communicator& given) : given_(given) {
    if (!given.all_gather || !given.all_to_all) core::fail("communicator needs both all_gather and all_to_all");
  }
  int rank() const override { return given_.rank; }
  int size() const override { return given_.size; }
  void all_gather(const void* mine, void* all, size_t bytes) override {
    call_back("all_gather", [&] { return given_.all_gather(given_.user, mine, all, bytes); });
  }
  void all_to_all(const void* mine, void* theirs, size_t bytes) override {
    call_back("all_to_all", [&] { return given_.all_to_all(given_.user, mine, theirs, bytes); });
  }

 private:
  logitless_communicator given_;
};

std::string_view text_of(const char* text, const char* name) { return &deref(text, name); }

Tensor tensor_of(const logitless_tensor& in) {
  Tensor out;
  out.data = in.data;
  out.dtype = static_cast<DType>(in.dtype);
  out.axes = in.axes;
  std::copy_n(in.sizes, 3, out.sizes.begin());
  std::copy_n(in.strides, 3, out.strides.begin());
  return out;
}

logitless_tensor tensor_of(const ConstTensor& in) {
  logitless_tensor out = {const_cast<void*>(in.data), static_cast<int32_t>(in.dtype), in.axes, {}, {}};
  std::copy_n(in.sizes.begin(), 3, out.sizes);
  std::copy_n(in.strides.begin(), 3, out.strides);
  return out;
}

// Stores the failure of a setter, if it is one, for the next verb. Returns its status.
template <class Handle>
logitless_status stored(logitless_status status, Handle* handle, const char* name) {
  if (status == LOGITLESS_INVALID_INPUT && handle && name) {
    guarded([&] {
      if (handle->first_failure.empty()) handle->first_failure = logitless_last_error(), handle->failed_key = name;
    });
    fail_with(status, std::string(logitless_last_error()).c_str());
  }
  return status;
}

template <class Set>
logitless_status setting(logitless_call* call, const char* name, const Set& set) {
  return stored(guarded([&] { set(*deref(call, "call").record, text_of(name, "name")); }), call, name);
}

// Another set of the key that succeeds withdraws its failure.
template <class Set>
logitless_status setting(logitless_context* context, const char* name, const Set& set) {
  const auto set_it = [&] {
    set(deref(context, "context").record, text_of(name, "name"));
    if (context->failed_key == name) context->first_failure.clear();
  };
  return stored(guarded(set_it), context, name);
}

template <class Verb>
logitless_status running(logitless_call* call, const Verb& verb) {
  return guarded([&] {
    std::string failure = std::exchange(deref(call, "call").first_failure, {});
    if (!failure.empty()) throw InvalidInput(failure);
    verb(*call->record);
  });
}

/// Returns make(), stored per thread until the next call; null on failure.
template <class Make>
const char* kept_text(const Make& make) {
  thread_local std::string kept;
  const logitless_status status = guarded([&] { kept = make(); });
  return status == LOGITLESS_OK ? kept.c_str() : nullptr;
}

// Each converts a result, and returns false if its kind does not fit.

bool take(const record::Value& value, logitless_call&, double& out) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return out = static_cast<double>(*integer), true;
  const auto* number = std::get_if<double>(&value);
  return number && (out = *number, true);
}
bool take(const record::Value& value, logitless_call&, int64_t& out) {
  const auto* integer = std::get_if<int64_t>(&value);
  return integer && (out = *integer, true);
}
bool take(const record::Value& value, logitless_call& call, const char*& out) {
  if (std::holds_alternative<Tensor>(value)) return false;
  if (const auto* text = std::get_if<std::string_view>(&value)) call.text = *text;
  if (const auto* number = std::get_if<double>(&value)) call.text = logitless::text_of(*number);
  if (const auto* integer = std::get_if<int64_t>(&value)) call.text = logitless::text_of(*integer);
  return out = call.text.c_str(), true;
}
bool take(const record::Value& value, logitless_call&, logitless_tensor& out) {
  const auto* tensor = std::get_if<Tensor>(&value);
  return tensor && (out = tensor_of(*tensor), true);
}

template <class T>
logitless_status reading(logitless_call* call, const char* name, T* out, const char* kind) {
  return guarded([&] {
    T& place = deref(out, "the pointer to the result");
    const record::Value value = deref(call, "call").record->get(text_of(name, "name"));
    if (!take(value, *call, place)) core::fail(name, " is not ", kind);
  });
}

}  // namespace
}  // namespace logitless::c_api

const char* logitless_version(void) { return version(); }

const char* logitless_describe(const char* task) {
  return kept_text([&] {
    if (task) return record::make_record(task, Context())->describe();
    std::string text = "tasks:\n";
    for (const std::string& name : record::task_names()) text += "  " + name + "\n";
    return text + "options of a context:\n" + record::ContextRecord().describe();
  });
}

const char* logitless_info(const logitless_context* context) {
  return kept_text([&] { return record::describe_environment_of(context ? context->record.context() : Context()); });
}

logitless_context* logitless_context_new(void) {
  logitless_context* context = nullptr;
  guarded([&] { context = new logitless_context; });
  return context;
}
void logitless_context_free(logitless_context* context) { delete context; }

logitless_status logitless_context_set(logitless_context* context, const char* name, const char* text) {
  return setting(context, name,
                 [&](record::ContextRecord& record, std::string_view key) { record.set(key, text_of(text, "text")); });
}

logitless_status logitless_context_set_ranks(logitless_context* context, const char* name,
                                             const logitless_communicator* communicator) {
  return setting(context, name, [&](record::ContextRecord& record, std::string_view key) {
    std::shared_ptr<Communicator> ranks;
    if (communicator) ranks = std::make_shared<CallbackCommunicator>(deref(communicator, "communicator"));
    record.set_ranks(key, std::move(ranks));
  });
}

logitless_call* logitless_call_new(const logitless_context* context, const char* task) {
  logitless_call* call = nullptr;
  guarded([&] {
    auto made = std::make_unique<logitless_call>();
    if (context) made->ranks = context->record.ranks(), made->first_failure = context->first_failure;
    made->record = record::make_record(text_of(task, "task"), context ? context->record.context() : Context());
    call = made.release();
  });
  return call;
}
void logitless_call_free(logitless_call* call) { delete call; }

logitless_status logitless_set_tensor(logitless_call* call, const char* name, const logitless_tensor* tensor) {
  return setting(call, name, [&](record::Record& record, std::string_view key) {
    if (tensor) {
      record.set(key, tensor_of(deref(tensor, "tensor")));
    } else {
      record.unset(key);
    }
  });
}
logitless_status logitless_set_number(logitless_call* call, const char* name, double value) {
  return setting(call, name, [&](record::Record& record, std::string_view key) { record.set(key, value); });
}
logitless_status logitless_set_integer(logitless_call* call, const char* name, int64_t value) {
  return setting(call, name, [&](record::Record& record, std::string_view key) { record.set(key, value); });
}
logitless_status logitless_set_text(logitless_call* call, const char* name, const char* text) {
  return setting(call, name,
                 [&](record::Record& record, std::string_view key) { record.set(key, text_of(text, "text")); });
}
logitless_status logitless_unset(logitless_call* call, const char* name) {
  return guarded([&] {
    deref(call, "call");
    const std::string key(text_of(name, "name"));
    const bool failed = !call->first_failure.empty() && call->failed_key == key;
    if (failed) call->first_failure.clear();
    if (!failed || call->record->has_key(key)) call->record->unset(key);
  });
}

logitless_status logitless_set_loss(logitless_call* call, logitless_evaluate evaluate, void* user) {
  return setting(call, "a loss", [&](record::Record& record, std::string_view) {
    if (!evaluate) return record.set_loss(nullptr);
    record.set_loss([=](std::span<const int64_t> rows) {
      call_back("evaluate", [&] { return evaluate(user, call, rows.data(), static_cast<int64_t>(rows.size())); });
    });
  });
}
logitless_status logitless_set_weight_sink(logitless_call* call, logitless_weight_sink sink, void* user) {
  return setting(call, "a weight sink", [&](record::Record& record, std::string_view) {
    if (!sink) return record.set_weight_sink(nullptr);
    record.set_weight_sink([=](int64_t first, int64_t count, const ConstTensor& tile) {
      const logitless_tensor view = tensor_of(tile);
      call_back("weight_sink", [&] { return sink(user, first, count, &view); });
    });
  });
}

logitless_status logitless_run(logitless_call* call) {
  return running(call, [](record::Record& record) { record.run(); });
}
logitless_status logitless_forward(logitless_call* call) {
  return running(call, [](record::Record& record) { record.forward(); });
}
logitless_status logitless_backward(logitless_call* call) {
  return running(call, [](record::Record& record) { record.backward(); });
}
logitless_status logitless_plan(logitless_call* call) {
  return running(call, [](record::Record& record) { record.plan(); });
}
logitless_status logitless_slice(logitless_call* call) {
  return running(call, [](record::Record& record) { record.slice(); });
}

logitless_status logitless_get_number(logitless_call* call, const char* name, double* value) {
  return reading(call, name, value, "a number");
}
logitless_status logitless_get_integer(logitless_call* call, const char* name, int64_t* value) {
  return reading(call, name, value, "an integer");
}
logitless_status logitless_get_text(logitless_call* call, const char* name, const char** text) {
  return reading(call, name, text, "a text");
}
logitless_status logitless_get_tensor(logitless_call* call, const char* name, logitless_tensor* tensor) {
  return reading(call, name, tensor, "a tensor");
}
