// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Builds SVG and HTML text. Whatever comes in as text or as an attribute's value is escaped, so that no name or message
// can turn into markup.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace logitless::report {

/// &, <, >, " and ' as entities; control characters that neither XML nor HTML allows as U+FFFD.
std::string escape(std::string_view text);

struct Attribute {
  std::string name;
  std::string value;

  Attribute(std::string attribute, std::string text) : name(std::move(attribute)), value(std::move(text)) {}
  Attribute(std::string attribute, const char* text) : name(std::move(attribute)), value(text) {}
  /// Hundredths of a pixel are enough.
  Attribute(std::string attribute, double number);
};

using Attributes = std::initializer_list<Attribute>;

class Markup {
 public:
  Markup& open(const char* tag, Attributes attributes = {});
  /// Closes the element that was opened last.
  Markup& close();
  /// An element without content: <circle .../>
  Markup& empty(const char* tag, Attributes attributes = {});
  /// An element that holds text alone.
  Markup& element(const char* tag, Attributes attributes, std::string_view text);
  Markup& element(const char* tag, std::string_view text) { return element(tag, {}, text); }
  Markup& text(std::string_view text);
  /// Markup that another builder made, or a constant of ours.
  Markup& raw(std::string_view markup);
  Markup& line_break() { return raw("\n"); }

  const std::string& str() const { return text_; }

 private:
  void start(const char* tag, Attributes attributes);

  std::string text_;
  std::vector<const char*> open_;
};

/// A command of a path's d, "M1.5 2"
std::string path_step(char command, double x, double y);
/// A transform, "translate(1.5 2)"
std::string translate(double x, double y);

/// The shared start of an accessible drawing: the svg element with title and description, which the caller closes. `id`
/// is unique in its page.
void open_svg(Markup& markup, const std::string& id, double width, double height, const std::string& title,
              const std::string& description);

}  // namespace logitless::report
