// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What the commands write, and the words and tables that their reports share.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "cli/common/job.h"
#include "io/bench_run.h"
#include "logitless/environment.h"

namespace logitless::cli {

/// Its members keep their order. Files that make or read it include <nlohmann/json.hpp>, which takes seconds
/// to compile.
using Json = nlohmann::ordered_json;

/// Without line breaks. Texts from the machine or a config need not be UTF-8: a replaced letter is better
/// than no report. A number that is not finite becomes null.
std::string line_of(const Json& json);
/// The same, indented, with a newline at the end.
std::string page_of(const Json& json);
/// NaN of null.
double number_of(const Json& json);

struct OutputFile {
  std::string option;  ///< "--json"
  std::string path;    ///< empty: not asked for; "-": standard output
};

struct InputFile {
  std::string what;  ///< "the config"
  std::string path;  ///< empty: none
};

/// Throws io::Error, with option and path, at once where write_output() would only find out after the work,
/// and where an output would replace an input or two outputs share a file.
void check_output_files(const std::vector<OutputFile>& outputs, const std::vector<InputFile>& inputs);

/// Writes `text` to standard output, at once. Throws io::Error where that fails, now or at an earlier
/// attempt.
void print(const std::string& text);

/// Writes `text` to `path` ("-": standard output). Throws io::Error where that fails; the file is as it was
/// then.
void write_output(const std::string& option, const std::string& path, const std::string& text);

/// `text` with its control characters escaped (a newline becomes \n, an escape \x1b), so that a file name in
/// a message can neither end its line nor steer a terminal.
std::string printable(const std::string& text);

/// Writes "logitless: " and `message` to standard error, as one printable line.
void complain(const std::string& message);

/// Columns as wide as their cells. The first and the last one begin at the left, the others end at the right.
/// A row with fewer cells than the head has runs on past its last column.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> head) : rows_{std::move(head)} {}

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// One line on standard error that says what runs, only where standard error is a terminal.
class Progress {
 public:
  explicit Progress(bool wanted);
  ~Progress() { erase(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Names what runs from here on.
  void phase(const std::string& name);
  /// A line that stays on standard error: where that is no terminal, in place of the drawn one.
  void log(const std::string& line);
  /// `text` to standard output, apart from the drawn line. Throws io::Error where it cannot be written.
  void print(const std::string& text);
  /// Takes the line away.
  void erase();

 private:
  const bool wanted_, drawing_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point drawn_at_{};
};

/// A line for each of `measurements`, times divided by that of dense where it is given.
std::string measurements_text(std::span<const io::Measurement> measurements, const io::Measurement* dense);

/// printf into a string, cut at 1 KiB.
__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...);

// Figures as people read them: plain ASCII but for "µ×∞", the same in every locale.

/// "512 B", "9.3 MiB", "1.16 GiB"
std::string human_bytes(int64_t bytes);
/// Three digits: "85.7 ms", "7.64 s", "123 s"
std::string human_seconds(double seconds);
/// "1.01×", "0.98×", "0.012×": hundredths, far below 1 thousandths
std::string time_ratio(double ratio);
/// `digits` after the point.
std::string fixed(double value, int digits);
/// "a, b"
std::string joined(const std::vector<std::string>& words, const std::string& separator = ", ");

/// {tokens, hidden, vocab, dtype, layout}
Json shape_json(const Job& job);
/// "cross_entropy, tiny: 134 tokens, hidden 96, vocab 2049, float32, hidden_vocab"; logits have no hidden
/// size and no layout.
std::string shape_text(const std::string& what, const std::string& model, const Json& shape);
std::string shape_text(const std::string& what, const std::string& model, const Job& job);

/// "AMD EPYC, 2 threads, AVX3, openblas Zen"
std::string machine_text(const Environment& environment);
/// A line for each warning.
std::string warnings_text(const Environment& environment);
/// Every field of Environment under its own name, and back.
Json environment_json(const Environment& environment);
Environment environment_of(const Json& json);

}  // namespace logitless::cli
