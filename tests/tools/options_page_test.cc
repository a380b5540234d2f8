// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// docs/options.md has every option with what it takes and its default.
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "core/field_text.h"

namespace logitless::testing {
namespace {

template <Named Enum>
std::string names() {
  std::string text;
  for (const char* name : kNamesOf<Enum>) text += (text.empty() ? "`" : ", `") + std::string(name) + "`";
  return text;
}

// Says what a field takes.
std::string taken(const Field&, bool) { return "true or false"; }
std::string taken(const Field& field, double) { return field.range.text; }
std::string taken(const Field& field, int64_t) {
  return field.range.text == kFinite.text ? "an integer" : field.range.text;
}
template <Named Enum>
std::string taken(const Field&, Enum) {
  return names<Enum>();
}
std::string taken(const Field&, const std::optional<DType>&) { return "`bfloat16`, `float16`, or none"; }
std::string taken(const Field& field, const std::optional<double>&) {
  return field.range.text + std::string(", or none");
}
std::string taken(const Field& field, const std::optional<int64_t>&) {
  return field.range.text + std::string(", or none");
}
std::string taken(const Field&, const std::vector<PreferenceLossType>&) {
  return "a list of " + names<PreferenceLossType>();
}
std::string taken(const Field& field, const std::vector<double>&) {
  return "a list, each " + std::string(field.range.text);
}
template <class T>
std::string taken(const Field& field, const std::span<const T>&) {
  return "a list, each " + std::string(field.range.text);
}

template <class Options>
std::vector<std::string> rows() {
  std::vector<std::string> rows;
  visit_fields(
      FieldsOf<Options>(),
      [&](const Field& field, const auto& value) {
        if constexpr (!std::is_same_v<std::remove_cvref_t<decltype(value)>, TokenOptions>) {
          rows.push_back("| `" + std::string(field.name) + "` | " + taken(field, value) + " | " + text_of(value) +
                         " | ");
        }
      },
      Options());
  return rows;
}

// The rows of the table under a heading.
std::vector<std::string> rows_under(const std::string& heading) {
  std::ifstream page(SOURCE_FOLDER "/docs/options.md");
  std::vector<std::string> rows;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) inside = line == "## " + heading;
    if (inside && line.starts_with("| `")) rows.push_back(line);
  }
  return rows;
}

template <class Options>
void is_the_list(const std::string& heading) {
  SCOPED_TRACE(heading);
  const std::vector<std::string> wanted = rows<Options>(), found = rows_under(heading);
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t k = 0; k < wanted.size(); ++k) {
    EXPECT_EQ(found[k].substr(0, wanted[k].size()), wanted[k]);
    EXPECT_GT(found[k].size(), wanted[k].size() + 10) << "says what it does";
  }
}

TEST(OptionsPage, HasEveryOptionWithWhatItTakesAndItsDefault) {
  is_the_list<TokenOptions>("Every call");
  is_the_list<StatsRequest>("Statistics");
  is_the_list<CrossEntropy>("Cross-entropy");
  is_the_list<SoftCrossEntropy>("Soft targets");
  is_the_list<IdLogps>("Sets of token ids");
  is_the_list<PolicyLoss>("Policy losses");
  is_the_list<PreferenceLoss>("Preference losses");
  is_the_list<KtoLoss>("KTO");
  is_the_list<Distillation>("Distillation");
  is_the_list<SetDistillation>("Distillation at sets of token ids");
}

}  // namespace
}  // namespace logitless::testing
