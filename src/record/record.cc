// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "record/record.h"

#include <algorithm>
#include <utility>

#include "core/checks.h"
#include "record/results.h"

namespace logitless::record {

using core::fail;

// Prevents a callback from changing the call that runs it.
class Record::Busy {
 public:
  explicit Busy(Record& record) : record_(record) {
    if (record.busy_) fail(record.keys_.owner(), " is running: its callback may only read results");
    record.busy_ = true;
  }
  ~Busy() { record_.busy_ = false; }

 private:
  Record& record_;
};

Record::Record(const char* task, const Context& context) : keys_(task), given_(context), used_(context) {}

void Record::add_common(std::span<const char* const> needs) {
  static const Logits kModel;
  static const Gradients kWanted;
  static const bool kNo = false;
  keys_.add_all(model_, kModel);
  keys_.add_all(wanted_, kWanted);
  const auto add_backward = [&](const Field& field, auto& member, const auto& by_default) {
    const std::string_view name = field.name;
    keys_.add(name == "mode" ? "backward_mode" : std::string(name), member, by_default, field);
  };
  visit_fields(FieldsOf<BackwardOptions>(), add_backward, wanted_.backward, kWanted.backward);
  keys_.add("keep_workspace", keep_workspace_, kNo, Field("", "calls reuse one workspace"));
  for (const std::string_view need : needs) {
    const size_t bar = std::min(need.find('|'), need.size());
    const std::string one(need.substr(0, bar)), other(need.substr(std::min(bar + 1, need.size())));
    needs_.push_back({one, other, &keys_.is_set(one), &keys_.is_set(other.empty() ? one : other)});
  }
}

void Record::add_slices() {
  static const VocabSlice kSlice;
  static const std::span<const uint8_t> kNone;
  keys_.add("slice_first", slice_.first, kSlice.first, Field("", "number of vocabulary entries before this slice"));
  keys_.add("slice_vocab_size", slice_.vocab_size, kSlice.vocab_size, Field("", "V of the whole vocabulary"));
  keys_.add("gathered", gathered_, kNone,
            Field("", "the bytes of all slices", Role{"[ranks · N, bytes]", only(DType::kUInt8), 1, 3}));
}

void Record::set(std::string_view name, const Value& value) {
  const Busy busy(*this);
  keys_.set(name, value);
  std::erase_if(batches_, [&](const auto& batch) { return batch.first == name; });
  const auto* tensor = std::get_if<Tensor>(&value);
  if (!tensor || tensor->axes != 2 || !keys_.is_of_tokens(name)) return;
  batches_.push_back({std::string(name), {tensor->sizes[0], tensor->sizes[1]}});
}
void Record::unset(std::string_view name) {
  const Busy busy(*this);
  keys_.unset(name);
  std::erase_if(batches_, [&](const auto& batch) { return batch.first == name; });
}
void Record::set_weight_sink(WeightGradientSink sink) {
  const Busy busy(*this);
  wanted_.weight_sink = std::move(sink);
}
void Record::set_loss(Evaluate evaluate) {
  const Busy busy(*this);
  if (!takes_loss()) fail(keys_.owner(), " has its own loss: only custom_loss takes a callback");
  evaluate_ = std::move(evaluate);
}

// A call with its own workspace or slice runs in a copy of its context.
const Context& Record::context() {
  const VocabSlice slice = {slice_.first, slice_.vocab_size, std::as_bytes(gathered_)};
  const bool sliced = slice.vocab_size != 0 || slice.first != 0 || !slice.gathered.empty();
  const std::optional<VocabSlice>& now = used_.options().ranks.slice;
  const bool same =
      now.has_value() == sliced &&
      (!sliced || (now->first == slice.first && now->vocab_size == slice.vocab_size &&
                   now->gathered.data() == slice.gathered.data() && now->gathered.size() == slice.gathered.size()));
  if (same && keep_workspace_ == (workspace_ != nullptr)) return used_;
  ContextOptions options = given_.options();
  if (keep_workspace_ && !workspace_) workspace_ = std::make_unique<Workspace>();
  options.workspace = keep_workspace_ ? workspace_.get() : nullptr;
  options.ranks.slice = sliced ? std::optional(slice) : std::nullopt;
  used_ = Context(std::move(options));
  if (!keep_workspace_) workspace_ = nullptr;
  return used_;
}

void Record::check_needs() const {
  const auto missing = [&](const std::string& what) { fail(keys_.owner(), " needs ", what, ", which is not set"); };
  const bool states = model_.hidden.given();
  if (!states && !model_.is_given()) missing("hidden and weight, or logits");
  if (states && !model_.head.weight.given()) missing("weight");
  for (const Need& need : needs_) {
    if (!*need.one && !*need.other) missing(need.name + (need.or_name.empty() ? "" : " or " + need.or_name));
  }
  // The task's spans do not store axes.
  for (const auto& [name, sizes] : batches_) core::check_batch(std::string_view(name), sizes, model_);
}

std::string Record::need_of(std::string_view name) const {
  if (name == "hidden" || name == "weight") return "needed, or logits";
  if (name == "logits") return "needed, or hidden and weight";
  for (const Need& need : needs_) {
    if (need.name != name && need.or_name != name) continue;
    return need.or_name.empty() ? "needed" : "needed, or " + (need.name == name ? need.or_name : need.name);
  }
  return "";
}

// Clears the results, so that none are left if the verb fails.
void Record::forget() {
  stored_ = Stored::kNothing;
  plan_ = nullptr;
}

void Record::run() {
  const Busy busy(*this);
  check_needs();
  take_loss();
  forget();
  do_run(context(), model_, wanted_);
  stored_ = Stored::kResult;
  plan_ = &plan_of_result();
}

void Record::forward() {
  const Busy busy(*this);
  check_needs();
  take_loss();
  forget();
  do_forward(context(), model_);
  stored_ = Stored::kForward;
  plan_ = &plan_of_result();
}

void Record::backward() {
  const Busy busy(*this);
  if (stored_ != Stored::kForward) fail(keys_.owner(), ": backward needs the results of forward, which has not run");
  check_needs();
  take_loss();
  planned_ = do_backward(context(), model_, wanted_);
  plan_ = &planned_;
}

void Record::plan() {
  const Busy busy(*this);
  check_needs();
  take_loss();
  planned_ = do_plan(context(), model_, wanted_);
  plan_ = &planned_;
}

void Record::slice() {
  const Busy busy(*this);
  check_needs();
  if (model_.is_given()) fail("logits is set: the vocabulary of finished logits cannot be cut");
  folded_ = do_slice(context(), model_);
  folded_rows_ = model_.hidden.rows();
}

// Visits all current results; returns whether there are any.
bool Record::visit_all(const Visit& visit) const {
  const bool has_results = stored_ != Stored::kNothing || evaluates();
  if (has_results) visit_results(visit);
  if (folded_rows_) visit("slice", tensor_of(folded_), Field("slice"));
  if (plan_) visit_values(*plan_, "plan.", visit);
  return has_results || folded_rows_ || plan_;
}

Value Record::get(std::string_view name) {
  std::optional<Value> found;
  int64_t tokens = stored_ == Stored::kNothing ? 0 : plan_of_result().tokens;
  const bool any = visit_all([&](std::string_view at, const Value& value, const Field&) {
    if (at == name && !found) found = value;
    if (at == "logp") tokens = std::get<Tensor>(value).count();
  });
  if (plan_ && name == "plan") {
    text_ = plan_->describe();
    return text_;
  }
  if (!found) {
    std::vector<std::string> names;
    const auto add = [&](std::string_view at, const Value&, const Field&) { names.emplace_back(at); };
    visit_results(add);
    visit_values(Plan(), "plan.", add);
    names.insert(names.end(), {"plan", "slice"});
    if (std::ranges::find(names, name) == names.end()) {
      fail(keys_.owner(), " has no result '", name.substr(0, 100), "'", near_names(name, names));
    }
    fail(name, " was not computed: ", any ? "no verb that computes it has run" : "nothing has run");
  }
  if (auto* tensor = std::get_if<Tensor>(&*found)) {
    const int64_t rows = name == "slice" ? *folded_rows_ : tokens;
    const int64_t count = tensor->count();
    if (count == 0 && rows > 0 && name != "logps") fail(name, " was not computed: no option requested it");
    if ((name.starts_with("top_") || name.starts_with("drawn_") || name == "slice") && rows > 0) {
      tensor->axes = 2;
      tensor->sizes = {rows, count / rows, 0};
      tensor->strides = {count / rows, 1, 0};
    }
  }
  return *found;
}

std::string Record::describe() const {
  std::string text = keys_.owner() + "\nkeys, where floats are float32, bfloat16, float64 or float16:\n";
  text += keys_.describe([&](std::string_view name) { return need_of(name); }) + "results:\n";
  const auto line = [&](std::string_view name, const Value& value, const Field& field) {
    static constexpr const char* kKinds[] = {"an integer", "a number", "a text", "a tensor "};
    text += "  " + std::string(name) + ": " + kKinds[value.index()] + field.role.shape + dashed(field.meaning) + "\n";
  };
  visit_results(line);
  line("plan", std::string_view(), Field("plan", "the plan in one line"));
  visit_values(Plan(), "plan.", line);
  return text;
}

ContextRecord::ContextRecord() : keys_("context") {
  static const ContextOptions kDefaults;
  keys_.add_all(options_, kDefaults);
}

void ContextRecord::set(std::string_view name, std::string_view text) {
  const ContextOptions before = options_;
  try {
    keys_.set(name, text);
    context_ = Context(options_);
  } catch (...) {
    options_ = before;
    throw;
  }
}

void ContextRecord::set_ranks(std::string_view name, std::shared_ptr<Communicator> ranks) {
  if (name != "vocab" && name != "data") fail("context has no ranks '", name.substr(0, 100), "': vocab or data");
  const bool of_vocab = name == "vocab";
  ContextOptions options = options_;
  (of_vocab ? options.ranks.vocab : options.ranks.data) = ranks.get();
  context_ = Context(options);
  options_.ranks = options.ranks;
  (of_vocab ? vocab_ : data_) = std::move(ranks);
}

std::string ContextRecord::describe() const {
  return keys_.describe([](std::string_view) { return std::string(); });
}

std::string describe_environment_of(const Context& context) {
  std::string text;
  const auto line = [&](const Field& field, const auto& value) {
    text += std::string(field.name) + ": " + text_of(value) + "\n";
  };
  visit_fields(FieldsOf<Environment>(), line, describe_environment(context));
  return text;
}

}  // namespace logitless::record
