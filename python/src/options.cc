// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <nanobind/stl/pair.h>

#include "communicator.h"
#include "core/field_text.h"
#include "logitless/error.h"
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
  for (Given& one : given_) {
    if (*one.text.data() != *key || one.text != key) continue;  // a call asks for 90 names: few begin alike
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
  } else if (PyFloat_Check(value.ptr()) || PyUnicode_Check(value.ptr())) {
    message += std::string(" = ") + nb::repr(value).c_str();
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
    if (one.known) continue;
    const nb::object text = nb::module_::import_("logitless._signatures").attr("no_argument")(of_, one.name);
    throw nb::type_error(nb::cast<std::string>(text).c_str());
  }
}

// The field of a task whose sets are its arguments ids, id_offsets and id_counts.
constexpr const char* kTaskSets = "sets";

void take(Keywords& keywords, Arrays& arrays, const char* key, IdSets& out) {
  const bool own = std::string_view(key) == kTaskSets;
  const std::string begin = own ? "id" : key;
  const std::string ids = own ? "ids" : begin + "_ids", offsets = begin + "_offsets";
  const bool with_offsets = keywords.find(offsets.c_str()).is_valid();
  if (const nb::handle given = keywords.find(ids.c_str())) out.ids = arrays.ids(given, ids.c_str(), with_offsets);
  take(keywords, arrays, offsets.c_str(), out.offsets);
  take(keywords, arrays, (begin + "_counts").c_str(), out.counts);
}

void take(Keywords& keywords, Arrays& arrays, const char*, SoftTargets& out) {
  const nb::handle weights = keywords.find("weights"), rows = keywords.find("probabilities");
  if (!rows && !(weights && keywords.find("ids"))) {
    throw InvalidInput("ids and weights are missing, or probabilities in their place");
  }
  take(keywords, arrays, kTaskSets, out.sets);
  if (weights) out.weights = arrays.entries(weights, "weights");
  if (rows) out.rows = arrays.matrix(rows, "probabilities");
  take(keywords, arrays, "mask", out.mask);
}

void take(Keywords& keywords, Arrays& arrays, const char*, SetTeacher& out) {
  take(keywords, arrays, kTaskSets, out.sets);
  if (const nb::handle logps = keywords.find("teacher_logps")) out.logps = arrays.entries(logps, "teacher_logps");
  take(keywords, arrays, "teacher_outside_logps", out.outside_logps);
}

void take(Keywords& keywords, Arrays& arrays, const char*, Reference& out) {
  take(keywords, arrays, "ref_logps", out.logps);
  keywords.take("ref_logps_per", out.logps_per);
  if (const nb::handle hidden = keywords.find("ref_hidden")) out.hidden = arrays.hidden(hidden, "ref_hidden");
  if (keywords.find("ref_weight")) out.head = take_head(keywords, arrays, "ref_", nullptr);
}

void take(Keywords& keywords, Arrays& arrays, const char*, Teacher& out) {
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
}

ContextOptions take_context_options(Keywords& keywords) {
  Arrays none;
  ContextOptions out;
  take_fields(keywords, none, FieldsOf<ContextOptions>(), out);
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

CallTensors take_tensors(Keywords& keywords, Arrays& arrays, bool outputs) {
  CallTensors out;
  Gradients& gradients = out.gradients;
  bool accumulate = false, transposed = false;
  if (outputs) keywords.take("accumulate", accumulate);
  gradients.backward = take_backward(keywords);
  if (const nb::handle logits = keywords.find("logits")) {
    out.logits = Logits::given(arrays.logits(logits, "logits"));
    if (const nb::handle to = outputs ? keywords.find("d_logits") : nb::handle()) {
      gradients.d_logits = arrays.d_logits(to, "d_logits");
    }
    if (accumulate) throw InvalidInput("accumulate = True: the gradient of logits is overwritten");
    if (gradients.backward.mode != BackwardMode::kExact) {
      throw InvalidInput(std::string("backward = ") + name_of(gradients.backward.mode) +
                         ": finished logits have no head that it would save products with");
    }
    return out;
  }
  const nb::handle hidden = keywords.find("hidden");
  if (!hidden) throw InvalidInput("hidden is missing: give hidden and weight, or logits");
  out.logits.hidden = arrays.hidden(hidden, "hidden");
  take(keywords, arrays, "offsets", out.logits.hidden.offsets);
  out.logits.head = take_head(keywords, arrays, "", &transposed);
  if (!outputs) return out;
  if (const nb::handle to = keywords.find("d_hidden")) {
    gradients.d_hidden = arrays.d_hidden(to, "d_hidden", gradients.d_hidden_batch_stride);
  }
  if (const nb::handle to = keywords.find("d_weight")) gradients.d_weight = arrays.output(to, "d_weight", transposed);
  if (const nb::handle to = keywords.find("d_bias")) gradients.d_bias = arrays.vector_output(to, "d_bias");
  if (const nb::handle sink = keywords.find("weight_sink")) {
    if (!PyCallable_Check(sink.ptr())) {
      const nb::object type = sink.type().attr("__name__");
      nb::raise_type_error("weight_sink is a %s: it must be a function", nb::str(type).c_str());
    }
    gradients.weight_sink = sink_of(sink, transposed);
  }
  if (const nb::handle to = keywords.find("d_lora_a")) gradients.d_lora_a = arrays.output(to, "d_lora_a");
  if (const nb::handle to = keywords.find("d_lora_b")) gradients.d_lora_b = arrays.output(to, "d_lora_b");
  if (const nb::handle to = keywords.find("d_lora_states")) {
    gradients.d_lora_states = arrays.output(to, "d_lora_states");
  }
  if (accumulate) {
    gradients.d_hidden_mode = gradients.d_weight_mode = gradients.d_bias_mode = gradients.d_lora_mode =
        WriteMode::kAccumulate;
  }
  return out;
}

}  // namespace logitless::python
