// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The output of the commands, and the words and tables that their reports share.
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

/// Objects keep the order of their members. Files that create or read JSON include <nlohmann/json.hpp>, which
/// takes seconds to compile.
using Json = nlohmann::ordered_json;

/// Returns one line. Text from the machine or a config may be invalid UTF-8: bad bytes are replaced, so that
/// the report can still be written. A number that is not finite becomes null.
std::string line_of(const Json& json);
/// As line_of(), indented, with a newline at the end.
std::string page_of(const Json& json);
/// Returns NaN for null.
double number_of(const Json& json);

struct OutputFile {
  std::string option;  ///< "--json"
  std::string path;    ///< empty: not requested; "-": standard output
};

struct InputFile {
  std::string what;  ///< "the config"
  std::string path;  ///< empty: none
};

/// Throws io::Error, with option and path, if write_output() is going to fail, if an output would replace an
/// input, or if two outputs share a file. Called before the work.
void check_output_files(const std::vector<OutputFile>& outputs, const std::vector<InputFile>& inputs);

/// Writes `text` to standard output and flushes it. Throws io::Error if this or an earlier write failed.
void print(const std::string& text);

/// Writes `text` to `path` ("-": standard output). Throws io::Error if that fails; the file is unchanged
/// then.
void write_output(const std::string& option, const std::string& path, const std::string& text);

/// Returns `text` with its control characters escaped (a newline becomes \n, an escape \x1b), so that a file
/// name in a message can neither end its line nor steer a terminal.
std::string printable(const std::string& text);

/// Writes "logitless: " and `message` to standard error, as one printable line.
void complain(const std::string& message);

/// Columns are as wide as their widest cell. The first and the last one are aligned left, the others right.
/// In a row with fewer cells than the head, the last cell may be longer than its column.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> head) : rows_{std::move(head)} {}

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// A status line on standard error, drawn only if that is a terminal.
class Progress {
 public:
  explicit Progress(bool wanted);
  ~Progress() { erase(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows `name` as the current step.
  void phase(const std::string& name);
  /// Writes a permanent line to standard error if it is not a terminal, in place of the status line.
  void log(const std::string& line);
  /// Writes `text` to standard output, after erasing the status line. Throws io::Error if it cannot be
  /// written.
  void print(const std::string& text);
  /// Erases the status line.
  void erase();

 private:
  const bool wanted_, drawing_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point drawn_at_{};
};

/// Returns one line per measurement, with its time relative to `dense` if given.
std::string measurements_text(std::span<const io::Measurement> measurements, const io::Measurement* dense);

/// As printf, into a string that is cut at 1 KiB.
__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...);

// Numbers for people: plain ASCII except "µ×∞", the same in every locale.

/// "512 B", "9.3 MiB", "1.16 GiB"
std::string human_bytes(int64_t bytes);
/// Three digits: "85.7 ms", "7.64 s", "123 s"
std::string human_seconds(double seconds);
/// "1.01×", "0.98×", "0.012×": two decimals, or three for small ratios
std::string time_ratio(double ratio);
/// With `digits` after the point.
std::string fixed(double value, int digits);
/// "a, b"
std::string joined(const std::vector<std::string>& words, const std::string& separator = ", ");

/// {tokens, hidden, vocab, dtype, layout}
Json shape_json(const Job& job);
/// "cross_entropy, tiny: 134 tokens, hidden 96, vocab 2049, float32, hidden_vocab"; finished logits have no
/// hidden size and no layout.
std::string shape_text(const std::string& what, const std::string& model, const Json& shape);
std::string shape_text(const std::string& what, const std::string& model, const Job& job);

/// "AMD EPYC, 2 threads, AVX3, openblas Zen"
std::string machine_text(const Environment& environment);
/// Returns one line per warning.
std::string warnings_text(const Environment& environment);
/// Converts every field of Environment under its own name, in both directions.
Json environment_json(const Environment& environment);
Environment environment_of(const Json& json);

}  // namespace logitless::cli
