// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless report`: a page of what bench measured.
#include "cli/common/command_line.h"
#include "cli/common/output.h"
#include "report/bench_run.h"
#include "report/page.h"

namespace logitless::cli {
namespace {

constexpr const char* kReportHelp = "Turns what bench measured into one HTML page";

constexpr const char* kReportFooter =
    R"(The page holds everything it needs: it loads nothing. Each FILE gets a section of its own.
Where bench was interrupted, the points that it had finished are shown.

Exit status: 0 done, 2 a bad option or file; nothing is written then.

Examples:
  logitless report sweep.jsonl -o report.html
  logitless report tokens.jsonl vocab.jsonl -o report.html)";

struct ReportOptions {
  std::vector<std::string> files;
  std::string page_path;
};

int run_report(const ReportOptions& options) {
  std::vector<InputFile> inputs;
  for (const std::string& file : options.files) inputs.push_back({"one of the files to report on", file});
  check_output_files({{"-o", options.page_path}}, inputs);
  std::vector<report::BenchRun> runs;
  for (const std::string& file : options.files) {
    runs.push_back(report::read_run(file));
    for (const std::string& note : runs.back().notes) complain(note);
  }
  write_output("-o", options.page_path, report::page(runs));
  return 0;
}

void add_flags(Command& report, ReportOptions& options) {
  report.arguments("FILE", options.files, "TEXT", "JSON Lines that bench wrote").required();
  report.value("-o,--output", options.page_path, "FILE", "writes the page; - is standard output").required();
}

}  // namespace

void add_report(CommandLine& line) { line.add("report", kReportHelp, kReportFooter, add_flags, run_report); }

}  // namespace logitless::cli
