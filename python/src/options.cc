// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <nanobind/stl/pair.h>

#include "communicator.h"
#include "core/field_text.h"
#include "logitless/error.h"
#include "weight_sink.h"

namespace logitless::python {
namespace {

// Returns a Python int as text, or its size: Python refuses to convert an int of thousands of digits.
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
    if (*one.text.data() != *key || one.text != key) continue;  // fast path: a call asks for 90 names
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
  std::string message = key;
  if (PyLong_Check(value.ptr())) {
    message += " = " + shown(value);
  } else if (PyFloat_Check(value.ptr()) || PyUnicode_Check(value.ptr())) {
    message += std::string(" = ") + nb::repr(value).c_str();
  } else {
    message += " is " + type_of(value);
  }
  if (wanted) message += std::string(": it must be ") + wanted;
  throw nb::type_error(message.c_str());
}

void Keywords::refuse_int(const char* key, nb::handle value, const std::string& rule) const {
  throw InvalidInput(std::string(key) + " = " + shown(value) + ": " + rule);
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

// The name of the field whose arguments are ids, id_offsets and id_counts.
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
    throw InvalidInput("ids and weights are missing: give these, or probabilities");
  }
  take(keywords, arrays, kTaskSets, out.sets);
  if (weights) out.weights = arrays.entries(weights, "weights");
  if (rows) out.rows = arrays.tensor(rows, "probabilities", kMatrix);
  take(keywords, arrays, "mask", out.mask);
}

void take(Keywords& keywords, Arrays& arrays, const char*, SetTeacher& out) {
  take(keywords, arrays, kTaskSets, out.sets);
  if (const nb::handle logps = keywords.find("teacher_logps")) out.logps = arrays.entries(logps, "teacher_logps");
  take(keywords, arrays, "teacher_outside_logps", out.outside_logps);
}

void take(Keywords& keywords, Arrays& arrays, const char* key, Logits& out) {
  if (std::string_view(key) == "reference") {
    if (const nb::handle hidden = keywords.find("ref_hidden")) out.hidden = arrays.tensor(hidden, "ref_hidden", kRows);
    if (keywords.find("ref_weight")) out.head = take_head(keywords, arrays, "ref_");
    return;
  }
  if (const nb::handle logits = keywords.find("teacher_logits")) {
    if (keywords.find("teacher_hidden") || keywords.find("teacher_weight")) {
      throw InvalidInput(
          "teacher_logits is given together with teacher_hidden or teacher_weight: give one or the other");
    }
    out.finished = arrays.tensor(logits, "teacher_logits", kRows);
    return;
  }
  const nb::handle hidden = keywords.find("teacher_hidden");
  if (!hidden)
    throw InvalidInput("teacher_hidden is missing: give teacher_hidden and teacher_weight, or teacher_logits");
  out.hidden = arrays.tensor(hidden, "teacher_hidden", kRows);
  out.head = take_head(keywords, arrays, "teacher_");
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

LmHead take_head(Keywords& keywords, Arrays& arrays, const std::string& prefix) {
  const auto name = [&](const char* key) { return prefix + key; };
  const std::string weight = name("weight");
  const nb::handle given = keywords.find(weight.c_str());
  if (!given) throw InvalidInput(weight + " is missing");
  LmHead out;
  keywords.take(name("packing").c_str(), out.packing);
  if (out.packing) {
    arrays.packed(given, weight.c_str(), keywords.find(name("scales").c_str()), name("scales").c_str(), out);
  } else {
    out.weight = arrays.tensor(given, weight.c_str(), kMatrix, /*writable=*/false, /*either=*/true);
  }
  const std::string vocab_ids = name("vocab_ids");
  if (const nb::handle ids = keywords.find(vocab_ids.c_str())) {
    out.vocab_ids = arrays.span<int64_t>(ids, vocab_ids.c_str());
    if (out.vocab_ids.empty() && out.stored_entries() > 0) {
      throw InvalidInput(vocab_ids + " has no elements: a call is over at least one entry of " + weight);
    }
  }
  const auto take = [&](const char* key, Axes axes, ConstTensor& to) {
    if (const nb::handle array = keywords.find(name(key).c_str())) to = arrays.tensor(array, name(key).c_str(), axes);
  };
  take("bias", kVector, out.bias);
  keywords.take(name("softcap").c_str(), out.softcap);
  take("lora_a", kMatrix, out.lora.a);
  take("lora_b", kMatrix, out.lora.b);
  take("lora_states", kMatrix, out.lora.states);
  keywords.take(name("lora_scale").c_str(), out.lora.scale);
  if (out.lora.b.given() && !out.lora.a.given() && !out.lora.states.given()) {
    throw InvalidInput(name("lora_b") + " is given, but neither " + name("lora_a") + " nor " + name("lora_states"));
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
  bool accumulate = false;
  if (outputs) keywords.take("accumulate", accumulate);
  gradients.backward = take_backward(keywords);
  const auto take_output = [&](const char* key, Axes axes, Tensor& to) {
    if (const nb::handle array = outputs ? keywords.find(key) : nb::handle()) {
      to = arrays.tensor(array, key, axes, /*writable=*/true);
    }
  };
  if (const nb::handle logits = keywords.find("logits")) {
    out.logits = Logits::given(arrays.tensor(logits, "logits", kRows));
    take_output("d_logits", kRows, gradients.d_logits);
    if (accumulate) throw InvalidInput("accumulate = True: d_logits is always overwritten");
    if (gradients.backward.mode != BackwardMode::kExact) {
      throw InvalidInput(std::string("backward = ") + name_of(gradients.backward.mode) +
                         ": it skips products with the head, and finished logits have no head");
    }
    return out;
  }
  const nb::handle hidden = keywords.find("hidden");
  if (!hidden) throw InvalidInput("hidden is missing: give hidden and weight, or logits");
  out.logits.hidden = arrays.tensor(hidden, "hidden", kRows);
  take(keywords, arrays, "offsets", out.logits.offsets);
  out.logits.head = take_head(keywords, arrays, "");
  if (!outputs) return out;
  take_output("d_hidden", kRows, gradients.d_hidden);
  if (const nb::handle to = keywords.find("d_weight")) {
    gradients.d_weight = arrays.tensor(to, "d_weight", kMatrix, /*writable=*/true, /*either=*/true);
  }
  take_output("d_bias", kVector, gradients.d_bias);
  if (const nb::handle sink = keywords.find("weight_sink")) {
    if (!PyCallable_Check(sink.ptr())) {
      nb::raise_type_error("weight_sink is %s: it must be a function", type_of(sink).c_str());
    }
    gradients.weight_sink = sink_of(sink);
  }
  take_output("d_lora_a", kMatrix, gradients.d_lora_a);
  take_output("d_lora_b", kMatrix, gradients.d_lora_b);
  take_output("d_lora_states", kMatrix, gradients.d_lora_states);
  if (accumulate) {
    gradients.d_hidden_mode = gradients.d_weight_mode = gradients.d_bias_mode = gradients.d_lora_mode =
        WriteMode::kAccumulate;
  }
  return out;
}

}  // namespace logitless::python
