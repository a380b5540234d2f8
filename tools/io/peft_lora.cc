// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/peft_lora.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "io/error.h"
#include "io/files.h"
#include "io/json_text.h"

namespace logitless::io {
namespace {

using Json = nlohmann::ordered_json;  // ordered: PEFT takes the first pattern that fits

constexpr size_t kMostConfigBytes = size_t{16} << 20;  // the module list of a large model takes 100 KB
constexpr size_t kMostNames = 8;                       // in a one-line message
constexpr const char* kPrefix = "base_model.model.";

// Options that change what a LoRA computes, if they are set.
constexpr const char* kVariants[] = {
    "use_dora",     "lora_bias",     "use_qalora",        "use_bdlora",  "alora_invocation_tokens",
    "arrow_config", "velora_config", "monteclora_config", "kasa_config",
};
// Initialisations that do not change the module's own weight.
constexpr const char* kPlainInitialisations[] = {"gaussian", "eva", "orthogonal", "mica"};

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

bool ends_in(const std::string& name, const std::string& module) {
  return name == module || name.ends_with("." + module);
}

// adapter_config.json, and its values for one module.
class AdapterConfig {
 public:
  explicit AdapterConfig(std::string path) : path_(std::move(path)) {
    json_ = parse_json(read_text_file(path_, kMostConfigBytes), path_ + ": ");
    if (!json_.is_object()) fail("must be a JSON object");
  }

  /// Throws if PEFT computes anything other than an unchanged module plus a LoRA.
  void check(const std::string& module) const {
    const Json* const type = find("peft_type");
    if (!type || !type->is_string()) fail("peft_type must be a name");
    if (*type != "LORA") fail("peft_type is " + text_of(*type) + ": only LORA is read");
    for (const char* key : kVariants) {
      if (is_on(key))
        fail(std::string(key) + " is " + text_of(json_[key]) + ", which is not supported: only plain LoRA is read");
    }
    const Json* const start = find("init_lora_weights");
    if (start && start->is_string() && std::ranges::count(kPlainInitialisations, start->get<std::string>()) == 0) {
      fail("init_lora_weights is " + text_of(*start) +
           ", with which PEFT also changes the weight itself: save it as a plain LoRA, or merge it");
    }
    if (is_on("trainable_token_indices")) {
      fail(
          "trainable_token_indices is set: it trains rows of embeddings, and of a head that shares them, which are not "
          "read");
    }
    const Json* const parameters = find("target_parameters");
    for (const Json& name : parameters && parameters->is_array() ? *parameters : Json::array()) {
      if (name.is_string() && ends_in(name.get<std::string>(), last_part(module) + ".weight")) {
        fail("target_parameters has " + text_of(name) + ": only LoRA of target_modules is read");
      }
    }
  }

  /// Returns true if biases of the model were trained too.
  bool trains_biases() const {
    const Json* const bias = find("bias");
    return bias && *bias != "none";
  }

  double scale(const std::string& module, int64_t rank) const {
    check_rank(module, rank);
    const Json* const root = find("use_rslora");
    if (root && !root->is_boolean()) fail("use_rslora is " + text_of(*root) + "; it must be true or false");
    const double alpha = alpha_of(module), ranks = static_cast<double>(rank);
    return alpha / (root && *root ? std::sqrt(ranks) : ranks);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const { throw Error(path_ + ": " + why); }
  static std::string text_of(const Json& value) {
    return one_line(
        value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace), 60);
  }

  // Returns null if the key is absent.
  const Json* find(const char* key) const {
    const auto it = json_.find(key);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
  }
  bool is_on(const char* key) const {
    const Json* const value = find(key);
    if (!value) return false;
    if (value->is_boolean()) return value->get<bool>();
    if (value->is_number()) return *value != 0;
    return *value != "" && !value->empty();
  }

  // Returns the patterns of a key with their values, in order.
  Json patterns(const char* key) const {
    const Json* const found = find(key);
    if (found && !found->is_object()) fail(std::string(key) + " must be an object");
    return found ? *found : Json::object();
  }

  // The tensors decide the module's rank. A config with another rank belongs to other tensors, and PEFT would
  // not load these either.
  void check_rank(const std::string& module, int64_t rank) const {
    const auto check = [&](const Json* value, const std::string& key) {
      if (!value || !value->is_number_integer()) fail(key + " must be an integer");
      if (*value == rank) return;
      fail(key + " is " + text_of(*value) + ", but the LoRA of " + one_line(module) + " has rank " +
           std::to_string(rank));
    };
    const Json of_modules = patterns("rank_pattern");
    for (const auto& [pattern, value] : of_modules.items()) {
      const std::optional<bool> fit = fits(pattern, module);
      // An expression with the right rank may be the one that set it.
      if (fit.value_or(value == rank)) return check(&value, "rank_pattern: " + one_line(pattern, 60));
    }
    check(find("r"), "r");
  }

  double alpha_of(const std::string& module) const {
    const auto number = [&](const Json& value, const std::string& key) {
      if (!value.is_number()) fail(key + " must be a number");
      return value.get<double>();
    };
    const Json of_modules = patterns("alpha_pattern");
    for (const auto& [pattern, alpha] : of_modules.items()) {
      const std::optional<bool> fit = fits(pattern, module);
      if (!fit) fail("alpha_pattern has the expression " + one_line(pattern, 60) + ": only names of modules are read");
      if (*fit) return number(alpha, "alpha_pattern: " + one_line(pattern, 60));
    }
    const Json* const alpha = find("lora_alpha");
    return number(alpha ? *alpha : Json(), "lora_alpha");
  }

  // PEFT takes a pattern as a regular expression for the last parts of a module's name. Only plain names are
  // read; the result is nullopt for any other expression.
  static std::optional<bool> fits(const std::string& pattern, const std::string& module) {
    const bool whole = pattern.starts_with("^");
    std::string name;
    for (size_t i = whole ? 1 : 0; i < pattern.size(); ++i) {
      if (pattern.compare(i, 2, "\\.") == 0) ++i;
      const char c = pattern[i];
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-' && c != '.') return std::nullopt;
      name += c;
    }
    return whole ? module == name : ends_in(module, name);
  }

  std::string path_;
  Json json_;
};

// Lists the modules whose LoRA a file holds, by the last parts of their names.
std::string modules_in(const SafetensorsFile& file) {
  std::set<std::string> names;
  for (const Tensor& tensor : file.tensors()) {
    const size_t end = tensor.name.find(".lora_");
    if (end != std::string::npos) names.insert(last_part(tensor.name.substr(0, end)));
  }
  std::string text;
  size_t named = 0;
  for (const std::string& name : names) {
    if (named++ == kMostNames) return text + " and " + std::to_string(names.size() - kMostNames) + " others";
    text += (text.empty() ? "" : ", ") + one_line(name, 60);
  }
  return text.empty() ? "no module" : text;
}

// Returns the module's full name in the model: "lm_head", "language_model.lm_head". If the user has `named`
// it, an exact match comes before modules whose names end in it.
std::string whole_name_of(const SafetensorsFile& file, const std::string& module, bool named) {
  constexpr std::string_view kEnd = ".lora_A.weight";
  std::vector<std::string> found;
  for (const Tensor& tensor : file.tensors()) {
    if (!tensor.name.starts_with(kPrefix) || !tensor.name.ends_with(kEnd)) continue;
    const size_t begin = std::string_view(kPrefix).size();
    if (tensor.name.size() < begin + kEnd.size()) continue;
    const std::string name = tensor.name.substr(begin, tensor.name.size() - begin - kEnd.size());
    if (named && name == module) return name;
    if (ends_in(name, module)) found.push_back(name);
  }
  if (found.size() == 1) return found[0];
  const std::string place = file.path() + ": has ";
  if (!found.empty()) {
    throw Error(place + "a LoRA of " + one_line(found[0]) + " and of " + one_line(found[1]) +
                ": name one as FILE:MODULE");
  }
  const std::string trained = kPrefix + module + ".weight";
  if (file.find(trained)) {
    throw Error(place + "no LoRA of " + module + ": modules_to_save has trained the whole head, which is " +
                file.path() + ":" + trained);
  }
  throw Error(place + "no LoRA of " + module + ", but of " + modules_in(file));
}

}  // namespace

DType PeftLora::dtype(DType dtype) const {
  const DType of_a = natural_dtype(*a);
  if (dtype == DType::kFloat64) return dtype;
  return of_a == natural_dtype(*b) && of_a != DType::kFloat64 ? of_a : DType::kFloat32;
}

std::array<std::string, 2> peft_files(const std::string& spec) {
  const std::filesystem::path path = split_spec(spec).path;
  std::error_code not_there;
  const bool is_folder = std::filesystem::is_directory(path, not_there);
  return {is_folder ? (path / "adapter_model.safetensors").string() : path.string(),
          ((is_folder ? path : path.parent_path()) / "adapter_config.json").string()};
}

PeftLora read_peft_lora(const std::string& spec, int64_t stored_entries, int64_t hidden_size) {
  const std::string named = split_spec(spec).name, module = named.empty() ? "lm_head" : named;
  const std::array<std::string, 2> files = peft_files(spec);
  const std::string& path = files[0];
  PeftLora lora;
  lora.file = std::make_shared<const SafetensorsFile>(path);  // first, because the user has named it
  const AdapterConfig config(files[1]);
  config.check(module);
  const std::string name = whole_name_of(*lora.file, module, !named.empty()), prefix = kPrefix + name + ".";
  for (const Tensor& tensor : lora.file->tensors()) {
    if (!tensor.name.starts_with(prefix)) continue;
    const std::string part = tensor.name.substr(prefix.size());
    const std::string place = path + ": tensor " + one_line(tensor.name);
    if (part == "base_layer.weight" || (part == "base_layer.bias" && !config.trains_biases())) continue;
    if (part != "lora_A.weight" && part != "lora_B.weight") throw Error(place + " is not part of a plain LoRA");
    if (!tensor.is_float())
      throw Error(place + ": dtype is " + one_line(tensor.dtype, 20) + "; it must be F32, F16, BF16 or F64");
    if (tensor.shape.size() != 2)
      throw Error(place + ": shape is " + tensor.shape_text() + "; it must have 2 dimensions");
    (part == "lora_A.weight" ? lora.a : lora.b) = &tensor;
  }
  if (!lora.b) throw Error(path + ": has no tensor " + one_line(prefix) + "lora_B.weight");
  const auto check = [&](const Tensor& tensor, size_t dimension, int64_t size, const std::string& of) {
    if (tensor.shape[dimension] == size) return;
    throw Error(path + ": tensor " + one_line(tensor.name) + " " + tensor.shape_text() + ": its " +
                (dimension == 0 ? "rows" : "columns") + " do not match the " + std::to_string(size) + " " + of);
  };
  check(*lora.a, 1, hidden_size, "columns of the hidden states");
  check(*lora.b, 0, stored_entries, "vocabulary entries of the head");
  check(*lora.b, 1, lora.rank(), "rows of lora_A");
  if (lora.rank() == 0)
    throw Error(path + ": tensor " + one_line(lora.a->name) + " " + lora.a->shape_text() + ": has no row");
  lora.scale = config.scale(name, lora.rank());
  return lora;
}

}  // namespace logitless::io
