// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A call as one record: its tensors and options are set by name, verbs run it, and its results are read by
// name. Users, such as the C API, need not know the tasks.
//
//     std::unique_ptr<Record> record = make_record("policy_loss", context);
//     record->set("beta", 0.04);
//     record->set("hidden", tensor);  ...
//     record->run();
//     const double loss = std::get<double>(record->get("loss"));
//
// Tensors are the caller's memory, which each run reads and writes in place. A record keeps its settings
// between runs, so setting a key once is enough. Only one thread at a time may use it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "logitless/context.h"
#include "logitless/run.h"
#include "logitless/workspace.h"
#include "record/types.h"

namespace logitless::record {

/// Evaluates a caller's loss for some rows: reads the record's "logp", "lse", ... and writes "d_logp", ...
using Evaluate = std::function<void(std::span<const int64_t> rows)>;

class Record {
 public:
  virtual ~Record() = default;
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  // These throw InvalidInput, and change nothing, for an unknown key or a value that it does not accept.

  void set(std::string_view name, const Value& value);
  void unset(std::string_view name);
  bool has_key(std::string_view name) const { return keys_.has(name); }
  /// Sets the callback that receives d_weight in tiles; null: none.
  void set_weight_sink(WeightGradientSink sink);
  void set_loss(Evaluate evaluate);

  // The verbs throw like the functions in run.h.

  void run();
  void forward();
  void backward();  ///< after forward(), with the same tensors and options
  void plan();
  void slice();  ///< folds a vocabulary slice into the result "slice"

  /// Returns a result of the last verb. Tensors and texts are owned by the record, and valid until its next
  /// verb or get().
  Value get(std::string_view name);
  /// Returns one line per key, then the results.
  std::string describe() const;

 protected:
  /// Called with the name, value and field of each result.
  using Visit = std::function<void(std::string_view name, const Value& value, const Field& field)>;

  Record(const char* task, const Context& context);

  virtual void do_run(const Context& context, const Logits& from, const Gradients& to) = 0;
  virtual void do_forward(const Context& context, const Logits& from) = 0;
  virtual Plan do_backward(const Context& context, const Logits& from, const Gradients& to) = 0;
  virtual Plan do_plan(const Context& context, const Logits& from, const Gradients& to) = 0;
  virtual std::vector<std::byte> do_slice(const Context& context, const Logits& from) = 0;
  /// Sets the task's loss to the callback.
  virtual void take_loss() {}
  virtual bool takes_loss() const = 0;
  virtual bool evaluates() const = 0;  ///< whether the callback is being evaluated
  virtual const Plan& plan_of_result() const = 0;
  virtual void visit_results(const Visit& visit) const = 0;

  /// Adds the keys that all tasks share. `needs` are the required keys of this task (tasks.h).
  void add_common(std::span<const char* const> needs);
  void add_slices();

  Keys keys_;
  Logits model_;  ///< the policy or student
  Gradients wanted_;
  Evaluate evaluate_;

 private:
  enum class Stored { kNothing, kResult, kForward };
  class Busy;
  struct Need {
    std::string name, or_name;  ///< one of the two must be set; or_name may be empty
    const bool *one, *other;    ///< whether they are set
  };

  const Context& context();
  void check_needs() const;
  std::string need_of(std::string_view name) const;
  bool visit_all(const Visit& visit) const;
  void forget();

  std::vector<Need> needs_;
  std::vector<std::pair<std::string, std::array<int64_t, 2>>>
      batches_;  ///< per-token keys that are set to [B, T], and these sizes
  Context given_, used_;
  std::unique_ptr<Workspace> workspace_;
  bool keep_workspace_ = false;
  VocabSlice slice_;
  std::span<const uint8_t> gathered_;
  Stored stored_ = Stored::kNothing;
  const Plan* plan_ = nullptr;
  Plan planned_;
  std::vector<std::byte> folded_;
  std::optional<int64_t> folded_rows_;
  std::string text_;
  bool busy_ = false;
};

/// Creates the record of a task. Throws InvalidInput for an unknown name.
std::unique_ptr<Record> make_record(std::string_view task, const Context& context);
/// Returns the names of all tasks.
std::vector<std::string> task_names();

/// The options of a context, set by name.
class ContextRecord {
 public:
  ContextRecord();
  /// Sets an option from its text. Throws InvalidInput, and changes nothing, for an invalid name or text.
  void set(std::string_view name, std::string_view text);
  void set_ranks(std::string_view name, std::shared_ptr<Communicator> ranks);
  const Context& context() const { return context_; }
  /// Returns the communicators. They must outlive the calls in the context.
  std::array<std::shared_ptr<Communicator>, 2> ranks() const { return {vocab_, data_}; }
  std::string describe() const;

 private:
  ContextOptions options_;
  Keys keys_;
  std::shared_ptr<Communicator> vocab_, data_;
  Context context_;
};

/// Returns the environment of a context, one line per member of Environment.
std::string describe_environment_of(const Context& context);

}  // namespace logitless::record
