// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <nanobind/stl/pair.h>

#include "communicator.h"
#include "logitless/error.h"
#include "logitless/field_text.h"
#include "weight_sink.h"

namespace logitless::python {
namespace {

// Python itself refuses to write out what has thousands of digits.
std::string shown(nb::handle number) {
  const nb::object bits = number.attr("bit_length")();
  if (nb::cast<int64_t>(bits) <= 256) return nb::str(number).c_str();
  return std::string("an int of ") + nb::str(bits).c_str() + " bits";
}

}  // namespace

Keywords::Keywords(const nb::dict& given, const char* of) : of_(of) {
  given_.reserve(given.size());
  for (const auto& [name, value] : given) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(name.ptr(), &size);
    if (!text) throw nb::python_error();
    given_.push_back({nb::borrow(name), {text, static_cast<size_t>(size)}, nb::borrow(value)});
  }
}

const Keywords::Given* Keywords::ask(const char* key) {
  const std::string_view wanted = key;
  for (Given& one : given_) {
    if (one.text != wanted) continue;
    one.known = true;
    return &one;
  }
  return nullptr;
}

nb::handle Keywords::find(const char* key) {
  const Given* given = ask(key);
  return given && !given->value.is_none() ? nb::handle(given->value) : nb::handle();
}

void Keywords::refuse(const char* key, nb::handle value, const char* wanted) const {
  std::string message = std::string(of_) + ": " + key;
  if (PyLong_Check(value.ptr())) {
    message += " = " + shown(value);
  } else {
    message += std::string(" is a ") + nb::str(value.type().attr("__name__")).c_str();
  }
  if (wanted) message += std::string(": it must be ") + wanted;
  throw nb::type_error(message.c_str());
}

void Keywords::refuse_int(const char* key, nb::handle value, const std::string& rule) const {
  throw InvalidInput(std::string(of_) + ": " + key + " = " + shown(value) + ": " + rule);
}

void Keywords::refuse_name(const char* key, const std::string& value, const std::string& known) {
  throw InvalidInput(std::string(key) + " = '" + value + "' is none of " + known);
}

void Keywords::check_all_known() const {
  for (const Given& one : given_) {
    if (!one.known) nb::raise_type_error("%s has no argument '%s'", of_, std::string(one.text).c_str());
  }
}

Reference take_reference(Keywords& keywords, Arrays& arrays) {
  Reference out;
  take(keywords, arrays, "ref_logps", out.logps);
  keywords.take("ref_logps_per", out.logps_per);
  if (const nb::handle hidden = keywords.find("ref_hidden")) out.hidden = arrays.hidden(hidden, "ref_hidden");
  if (keywords.find("ref_weight")) out.head = take_head(keywords, arrays, "ref_", nullptr);
  return out;
}

void take(Keywords& keywords, Arrays& arrays, const char* key, IdSets& out) {
  const std::string begin = key;
  out =
      take_sets(keywords, arrays, (begin + "_ids").c_str(), (begin + "_offsets").c_str(), (begin + "_counts").c_str());
}

IdSets take_sets(Keywords& keywords, Arrays& arrays, const char* ids, const char* offsets, const char* counts) {
  IdSets out;
  const bool with_offsets = keywords.find(offsets).is_valid();
  if (const nb::handle given = keywords.find(ids)) out.ids = arrays.ids(given, ids, with_offsets);
  take(keywords, arrays, offsets, out.offsets);
  take(keywords, arrays, counts, out.counts);
  return out;
}

Teacher take_teacher(Keywords& keywords, Arrays& arrays) {
  Teacher out;
  if (const nb::handle logits = keywords.find("teacher_logits")) {
    if (keywords.find("teacher_hidden") || keywords.find("teacher_weight")) {
      throw InvalidInput("teacher_logits is given, and teacher_hidden or teacher_weight beside it");
    }
    out.logits = arrays.logits(logits, "teacher_logits");
  } else {
    const nb::handle hidden = keywords.find("teacher_hidden");
    if (!hidden)
      throw InvalidInput("teacher_hidden is missing: give teacher_hidden and teacher_weight, or teacher_logits");
    out.hidden = arrays.hidden(hidden, "teacher_hidden");
    out.head = take_head(keywords, arrays, "teacher_", nullptr);
  }
  keywords.take("teacher_round_logits_to", out.round_logits_to);
  return out;
}

ContextOptions take_context_options(Keywords& keywords) {
  Arrays none;
  auto out = take_fields<ContextOptions>(keywords, none);
  PythonCommunicator *vocab = nullptr, *data = nullptr;
  keywords.take("vocab_ranks", vocab);
  keywords.take("data_ranks", data);
  out.ranks.vocab = vocab;
  out.ranks.data = data;
  return out;
}

LmHead take_head(Keywords& keywords, Arrays& arrays, const char* prefix, bool* transposed) {
  const auto name = [&](const char* key) { return std::string(prefix) + key; };
  const std::string weight = name("weight"), layout = name("layout"), bias = name("bias"), softcap = name("softcap");
  const nb::handle given = keywords.find(weight.c_str());
  if (!given) throw InvalidInput(weight + " is missing");
  HeadLayout stated = HeadLayout::kVocabHidden;
  keywords.take(layout.c_str(), stated);
  bool flipped = false;
  LmHead out;
  std::optional<Packing> packing;
  keywords.take(name("packing").c_str(), packing);
  if (packing) {
    out.packed =
        arrays.packed(given, weight.c_str(), *packing, keywords.find(name("scales").c_str()), name("scales").c_str());
  } else {
    out.weight = arrays.matrix(given, weight.c_str(), &flipped);
  }
  out.layout = stated;
  const std::string vocab_ids = name("vocab_ids");
  if (const nb::handle ids = keywords.find(vocab_ids.c_str())) {
    out.ids = arrays.span<int64_t>(ids, vocab_ids.c_str());
    if (out.ids.empty() && out.stored_entries() > 0) {
      throw InvalidInput(vocab_ids + " has no elements: a call is over at least one entry of " + weight);
    }
  }
  // A transposed view is the other layout as it stands.
  if (flipped) out.layout = stated == HeadLayout::kVocabHidden ? HeadLayout::kHiddenVocab : HeadLayout::kVocabHidden;
  if (transposed) *transposed = flipped;
  if (const nb::handle b = keywords.find(bias.c_str())) out.bias = arrays.vector(b, bias.c_str());
  keywords.take(softcap.c_str(), out.softcap);
  const std::string lora_a = name("lora_a"), lora_b = name("lora_b");
  if (const nb::handle a = keywords.find(lora_a.c_str())) out.lora.a = arrays.matrix(a, lora_a.c_str());
  if (const nb::handle b = keywords.find(lora_b.c_str())) out.lora.b = arrays.matrix(b, lora_b.c_str());
  keywords.take(name("lora_scale").c_str(), out.lora.scale);
  const std::string lora_states = name("lora_states");
  if (const nb::handle states = keywords.find(lora_states.c_str())) {
    out.lora.states = arrays.matrix(states, lora_states.c_str());
  }
  if (out.lora.b.data && !out.lora.a.data && !out.lora.states.data) {
    throw InvalidInput(lora_b + " is given, but neither " + lora_a + " nor " + lora_states);
  }
  return out;
}

void CallTensors::check(const Arrays& arrays) const {
  arrays.check_empty(logits_ ? logits_->tokens() : hidden_.tokens());
  if (logits_ && logits_->batch > 1) arrays.check_sequences(logits_->batch, logits_->time);
  const bool has_batch = !logits_ && hidden_.sequences > 1;
  if (has_batch) arrays.check_sequences(hidden_.sequences, hidden_.states.rows / hidden_.sequences);
}

BackwardOptions take_backward(Keywords& keywords) {
  BackwardOptions out;
  visit_fields(
      FieldsOf<BackwardOptions>(),
      [&](const Field& field, auto& member) {
        keywords.take(std::string_view(field.name) == "mode" ? "backward" : field.name, member);
      },
      out);
  return out;
}

CallTensors::CallTensors(Keywords& keywords, Arrays& arrays, bool outputs) {
  bool accumulate = false, transposed = false;
  if (outputs) keywords.take("accumulate", accumulate);
  gradients_.backward = take_backward(keywords);
  if (const nb::handle logits = keywords.find("logits")) {
    logits_ = arrays.logits(logits, "logits");
    if (const nb::handle out = outputs ? keywords.find("d_logits") : nb::handle()) {
      d_logits_ = arrays.d_logits(out, "d_logits");
    }
    if (accumulate) throw InvalidInput("accumulate = True: the gradient of logits is overwritten");
    if (gradients_.backward.mode != BackwardMode::kExact) {
      throw InvalidInput(std::string("backward = ") + name_of(gradients_.backward.mode) +
                         ": finished logits have no head that it would save products with");
    }
    return;
  }
  const nb::handle hidden = keywords.find("hidden");
  if (!hidden) throw InvalidInput("hidden is missing: give hidden and weight, or logits");
  hidden_ = arrays.hidden(hidden, "hidden");
  take(keywords, arrays, "offsets", hidden_.offsets);
  head_ = take_head(keywords, arrays, "", &transposed);
  if (!outputs) return;
  if (const nb::handle out = keywords.find("d_hidden")) {
    gradients_.d_hidden = arrays.d_hidden(out, "d_hidden", gradients_.d_hidden_batch_stride);
  }
  if (const nb::handle out = keywords.find("d_weight")) {
    gradients_.d_weight = arrays.output(out, "d_weight", transposed);
  }
  if (const nb::handle out = keywords.find("d_bias")) gradients_.d_bias = arrays.vector_output(out, "d_bias");
  if (const nb::handle sink = keywords.find("weight_sink")) {
    if (!PyCallable_Check(sink.ptr())) {
      const nb::object type = sink.type().attr("__name__");
      nb::raise_type_error("weight_sink is a %s: it must be a function", nb::str(type).c_str());
    }
    gradients_.weight_sink = sink_of(sink, transposed);
  }
  if (const nb::handle out = keywords.find("d_lora_a")) gradients_.d_lora_a = arrays.output(out, "d_lora_a");
  if (const nb::handle out = keywords.find("d_lora_b")) gradients_.d_lora_b = arrays.output(out, "d_lora_b");
  if (const nb::handle out = keywords.find("d_lora_states")) {
    gradients_.d_lora_states = arrays.output(out, "d_lora_states");
  }
  if (accumulate) {
    gradients_.d_hidden_mode = gradients_.d_weight_mode = gradients_.d_bias_mode = gradients_.d_lora_mode =
        WriteMode::kAccumulate;
  }
}

namespace {

// Describes a field: the type of its values, and what it is by default.
nb::dict described(const char* type, nb::object by_default) {
  nb::dict out;
  out["type"] = type;
  out["default"] = by_default;
  return out;
}
nb::dict describe(bool value) { return described("bool", nb::cast(value)); }
nb::dict describe(double value) { return described("float", nb::cast(value)); }
template <std::integral T>
nb::dict describe(T value) {
  return described("int", nb::cast(value));
}
nb::dict describe(const std::string& value) { return described("str", nb::cast(value)); }
template <Named Enum>
nb::dict describe(Enum value) {
  nb::dict out = described("name", nb::cast(name_of(value)));
  out["choices"] = nb::cast(std::vector<std::string>(kNamesOf<Enum>.begin(), kNamesOf<Enum>.end()));
  return out;
}
template <class T>
nb::dict describe(const std::optional<T>& value) {
  nb::dict out = describe(value.value_or(T()));
  if (!value) out["default"] = nb::none();
  out["optional"] = true;
  return out;
}
template <class T>
nb::dict describe(const std::vector<T>& values) {
  nb::dict out = describe(T());
  nb::list defaults;
  for (const T& value : values) defaults.append(describe(value)["default"]);
  out["default"] = defaults;
  out["list"] = true;
  return out;
}
// Arrays, and what a call refers to.
template <class T>
nb::dict describe(const std::span<const T>&) {
  return described(std::is_same_v<T, float>    ? "float32 array"
                   : std::is_same_v<T, double> ? "float64 array"
                                               : "array",
                   nb::none());
}
nb::dict describe(const ConstVector&) { return described("array", nb::none()); }
nb::dict describe(const Targets&) { return described("array", nb::none()); }
nb::dict describe(const IdSets&) { return described("sets", nb::none()); }
nb::dict describe(const Reference&) { return described("reference", nb::none()); }
nb::dict describe(const Workspace*) { return described("Workspace", nb::none()); }

// Calls use.operator()<Structures...>() for what a task takes, by its function's name, or for a list of fields.
template <class Use>
nb::dict with_structures(const std::string& name, const Use& use) {
  if (name == "cross_entropy") return use.template operator()<CrossEntropy>();
  if (name == "policy_loss") return use.template operator()<PolicyLoss>();
  if (name == "preference_loss") return use.template operator()<PreferenceLoss>();
  if (name == "kto_loss") return use.template operator()<KtoLoss>();
  if (name == "soft_cross_entropy") return use.template operator()<SoftCrossEntropy>();
  if (name == "set_distillation_loss") return use.template operator()<SetDistillation>();
  if (name == "id_logps") return use.template operator()<IdLogps>();
  if (name == "token_stats") return use.template operator()<TokenOptions, StatsRequest>();
  if (name == "distillation_loss") return use.template operator()<Distillation>();
  if (name == "context") return use.template operator()<ContextOptions>();
  if (name == "backward") return use.template operator()<BackwardOptions>();
  if (name == "token") return use.template operator()<TokenOptions>();
  if (name == "policy_batch") return use.template operator()<PolicyBatch>();
  if (name == "kto_batch") return use.template operator()<KtoBatch>();
  throw InvalidInput("'" + name + "' is not a list of fields");
}

}  // namespace

nb::dict fields_of(const std::string& structure) {
  return with_structures(structure, []<class... Structures> {
    nb::dict out;
    const auto add = [&](const Field& field, const auto& member) {
      nb::dict one = describe(member);
      one["range"] = field.range.text;
      out[field.name] = one;
    };
    (visit_flat(FieldsOf<Structures>(), add, Structures()), ...);
    return out;
  });
}

nb::dict texts_of(const std::string& structure, nb::dict given) {
  return with_structures(structure, [&]<class... Structures> {
    Arrays arrays;
    Keywords keywords(given, structure.c_str());
    nb::dict out;
    const auto say = [&](const char* name, const std::string& text) { out[name] = text; };
    (say_fields(take_fields<Structures>(keywords, arrays), say), ...);
    keywords.check_all_known();
    return out;
  });
}

}  // namespace logitless::python
