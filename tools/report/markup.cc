// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/markup.h"

#include "report/units.h"

namespace logitless::report {

std::string escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        const auto byte = static_cast<unsigned char>(c);
        const bool forbidden = (byte < 0x20 && c != '\t' && c != '\n') || byte == 0x7f;
        if (forbidden) {
          out += "\uFFFD";
        } else {
          out += c;
        }
    }
  }
  return out;
}

Attribute::Attribute(std::string attribute, double number) : name(std::move(attribute)), value(trimmed(number, 2)) {}

void Markup::start(const char* tag, Attributes attributes) {
  text_ += "<";
  text_ += tag;
  for (const Attribute& attribute : attributes) text_ += " " + attribute.name + "=\"" + escape(attribute.value) + "\"";
}

Markup& Markup::open(const char* tag, Attributes attributes) {
  start(tag, attributes);
  text_ += ">";
  open_.push_back(tag);
  return *this;
}

Markup& Markup::close() {
  text_ += std::string("</") + open_.back() + ">";
  open_.pop_back();
  return *this;
}

Markup& Markup::empty(const char* tag, Attributes attributes) {
  start(tag, attributes);
  text_ += "/>";
  return *this;
}

Markup& Markup::element(const char* tag, Attributes attributes, std::string_view content) {
  return open(tag, attributes).text(content).close();
}

Markup& Markup::text(std::string_view content) {
  text_ += escape(content);
  return *this;
}

Markup& Markup::raw(std::string_view markup) {
  text_ += markup;
  return *this;
}

std::string path_step(char command, double x, double y) { return command + trimmed(x, 2) + " " + trimmed(y, 2); }

std::string translate(double x, double y) { return "translate(" + trimmed(x, 2) + " " + trimmed(y, 2) + ")"; }

void open_svg(Markup& markup, const std::string& id, double width, double height, const std::string& title,
              const std::string& description) {
  markup.open("svg", {{"xmlns", "http://www.w3.org/2000/svg"},
                      {"class", "chart"},
                      {"role", "img"},
                      {"aria-labelledby", id + "-title " + id + "-desc"},
                      {"width", width},
                      {"height", height},
                      {"viewBox", "0 0 " + trimmed(width, 2) + " " + trimmed(height, 2)}});
  markup.element("title", {{"id", id + "-title"}}, title);
  markup.element("desc", {{"id", id + "-desc"}}, description).line_break();
}

}  // namespace logitless::report
