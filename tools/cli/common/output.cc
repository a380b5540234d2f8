// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/common/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/fields.h"
#include "io/error.h"
#include "io/files.h"

namespace logitless {
namespace cli {
namespace {

namespace fs = std::filesystem;

void check_writable(const OutputFile& output) {
  if (output.path.empty() || output.path == "-") return;
  const std::string name = output.option + " " + output.path;
  const fs::path file = io::resolved(output.path);
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (!fs::status_known(status)) throw io::Error(name + ": cannot be written: " + error.message());
  if (fs::is_directory(status)) throw io::Error(name + ": is a directory, not a file");
  const fs::path touched = fs::exists(status) ? file : file.parent_path();
  if (access(touched.c_str(), W_OK) != 0) throw io::Error(name + ": cannot be written: " + std::strerror(errno));
}

// Follows links, and also compares paths of files that do not exist yet.
bool is_same_file(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return false;
  if (a == "-" || b == "-") return a == b;
  std::error_code not_there;
  return io::resolved(a) == io::resolved(b) || fs::equivalent(a, b, not_there);
}

// Counts UTF-8 characters, not bytes.
size_t width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

constexpr auto kRedraw = std::chrono::milliseconds(100);  // shorter turns are not worth drawing

// Cuts the line to the terminal's width: a line that wraps cannot be erased.
std::string fitted(std::string line) {
  winsize window{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1;
  if (known && line.size() >= window.ws_col) line.resize(window.ws_col - 1u);
  return line;
}

}  // namespace

std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string page_of(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

double number_of(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

void check_output_files(const std::vector<OutputFile>& outputs, const std::vector<InputFile>& inputs) {
  std::vector<InputFile> taken = inputs;
  for (const OutputFile& output : outputs) {
    check_writable(output);
    for (const InputFile& other : taken) {
      if (is_same_file(output.path, other.path)) {
        throw io::Error(output.option + " " + output.path + ": is " + other.what);
      }
    }
    taken.push_back({"the file that " + output.option + " names", output.path});
  }
}

void print(const std::string& text) {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0 && !std::ferror(stdout)) return;
  const std::string reason = errno != 0 ? std::string(": ") + std::strerror(errno) : "";
  throw io::Error("standard output cannot be written" + reason);
}

void write_output(const std::string& option, const std::string& path, const std::string& text) {
  if (path == "-") {
    try {
      return print(text);
    } catch (const io::Error& e) {
      throw io::Error(option + " -: " + e.what());
    }
  }
  try {
    const std::string_view parts[] = {text};
    io::write_file(path, parts);
  } catch (const io::Error& e) {
    throw io::Error(option + " " + e.what());
  }
}

std::string printable(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // UTF-8 encodes the control characters U+0080 to U+009F as C2 80 to C2 9F.
    const bool next_is_control =
        c == 0xc2 && i + 1 < text.size() && (static_cast<unsigned char>(text[i + 1]) & 0xe0) == 0x80;
    if (c == '\n') {
      out += "\\n";
    } else if (c < 0x20 || c == 0x7f) {
      out += format("\\x%02x", c);
    } else if (next_is_control) {
      out += format("\\u%04x", static_cast<unsigned char>(text[++i]));
    } else {
      out += text[i];
    }
  }
  return out;
}

void complain(const std::string& message) { std::fprintf(stderr, "logitless: %s\n", printable(message).c_str()); }

std::string TextTable::text() const {
  std::vector<size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    // The last cell of a short row may be longer than its column.
    const size_t count = row.size() < widths.size() ? row.size() - 1 : widths.size();
    for (size_t c = 0; c < count; ++c) widths[c] = std::max(widths[c], width(row[c]));
  }
  std::string text;
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string gap(c == 0 ? 0 : 3, ' ');
      const bool last = c + 1 == row.size(), left = c == 0 || last;
      const std::string fill(left && last ? 0 : widths[c] - std::min(widths[c], width(row[c])), ' ');
      text += gap + (left ? row[c] + fill : fill + row[c]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

Progress::Progress(bool wanted) : wanted_(wanted), drawing_(wanted && isatty(STDERR_FILENO)) {}

void Progress::phase(const std::string& name) {
  const auto now = std::chrono::steady_clock::now();
  if (!drawing_ || (drawn_ && now - drawn_at_ < kRedraw)) return;
  std::fprintf(stderr, "\r\033[K%s", fitted(printable(name)).c_str());
  std::fflush(stderr);
  drawn_ = true;
  drawn_at_ = now;
}

void Progress::log(const std::string& line) {
  if (wanted_ && !drawing_) std::fprintf(stderr, "%s\n", printable(line).c_str());
}

void Progress::print(const std::string& text) {
  erase();
  cli::print(text);
}

void Progress::erase() {
  if (std::exchange(drawn_, false)) std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

std::string measurements_text(std::span<const io::Measurement> measurements, const io::Measurement* dense) {
  TextTable table({"", "time", "spread", "first", "/ dense", "/ GEMM rate", "extra peak", "workspace", "plan"});
  for (const io::Measurement& m : measurements) {
    if (!m.ok()) {
      table.add({m.contender, "failed: " + m.error});
      continue;
    }
    table.add({m.contender, human_seconds(m.median_s), human_seconds(m.spread_s), human_seconds(m.first_s),
               dense ? time_ratio(m.median_s / dense->median_s) : "-",
               m.gemm_efficiency ? fixed(*m.gemm_efficiency, 3) : "-", human_bytes(m.extra_peak_bytes),
               human_bytes(m.workspace_bytes), m.plan});
  }
  return table.text();
}

std::string format(const char* pattern, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof(text), pattern, arguments);
  va_end(arguments);
  return text;
}

std::string fixed(double value, int digits) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "∞" : "-∞";
  std::array<char, 400> text;  // the longest double has 309 digits before the point
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits).ptr;
  return std::string(text.data(), end);
}

std::string human_bytes(int64_t bytes) {
  constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; unit < 4 && value >= 1024; ++unit) value /= 1024;
  return fixed(value, unit == 0 ? 0 : unit < 3 ? 1 : 2) + kUnits[unit];
}

std::string human_seconds(double seconds) {
  // At these limits three digits would round up to the next unit.
  const auto [size, unit] = seconds < 0.9995e-3 ? std::pair(1e-6, " µs")
                            : seconds < 0.9995  ? std::pair(1e-3, " ms")
                                                : std::pair(1.0, " s");
  const double value = seconds / size;
  return fixed(value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0) + unit;
}

std::string time_ratio(double ratio) { return fixed(ratio, ratio < 0.095 ? 3 : 2) + "×"; }

std::string joined(const std::vector<std::string>& words, const std::string& separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

std::string shape_text(const std::string& what, const std::string& model, const Json& shape) {
  const bool of_logits = shape["hidden"] == 0;
  std::string text = what + (model.empty() ? "" : ", " + model) + ": " + shape["tokens"].dump() + " tokens";
  if (!of_logits) text += ", hidden " + shape["hidden"].dump();
  if (shape.contains("teacher_hidden")) text += ", teacher hidden " + shape["teacher_hidden"].dump();
  text += ", vocab " + shape["vocab"].dump();
  if (shape.contains("packing")) text += " in " + shape["packing"].get<std::string>();
  if (shape.contains("lora_rank")) text += ", LoRA of rank " + shape["lora_rank"].dump();
  text += ", " + shape["dtype"].get<std::string>();
  return of_logits ? text : text + ", " + shape["layout"].get<std::string>();
}

std::string shape_text(const std::string& what, const std::string& model, const Job& job) {
  return shape_text(what, model, shape_json(job));
}

Json shape_json(const Job& job) {
  Json shape = {{"tokens", job.tokens},
                {"hidden", job.hidden_size},
                {"vocab", job.vocab_size},
                {"dtype", name_of(job.dtype)},
                {"layout", name_of(job.layout)}};
  if (job.head && job.head->packing) shape["packing"] = name_of(*job.head->packing);
  if (job.lora_rank > 0) shape["lora_rank"] = job.lora_rank;
  if (job.teacher_size > 0) shape["teacher_hidden"] = job.teacher_size;
  return shape;
}

std::string machine_text(const Environment& e) {
  return format("%s, %d threads, %s, %s %s", e.cpu.c_str(), e.threads, e.simd_target.c_str(), e.gemm_backend.c_str(),
                e.blas_core.c_str());
}

std::string warnings_text(const Environment& environment) {
  std::string text;
  for (const std::string& warning : environment.warnings) text += "warning: " + warning + "\n";
  return text;
}

Json environment_json(const Environment& environment) {
  Json json;
  visit_fields(
      FieldsOf<Environment>(), [&](const Field& field, const auto& value) { json[field.name] = value; }, environment);
  return json;
}
Environment environment_of(const Json& json) {
  Environment environment;
  visit_fields(
      FieldsOf<Environment>(), [&](const Field& field, auto& value) { json.at(field.name).get_to(value); },
      environment);
  return environment;
}

}  // namespace cli
}  // namespace logitless
