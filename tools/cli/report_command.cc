// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "cli/output_file.h"
#include "report/page.h"
#include "report/reader.h"

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
    for (const std::string& note : runs.back().notes) std::fprintf(stderr, "logitless: %s\n", note.c_str());
  }
  write_output("-o", options.page_path, report::page(runs));
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("report", kReportHelp);
  command->footer(kReportFooter);
  const auto options = std::make_shared<ReportOptions>();
  command->add_option("FILE", options->files, "JSON Lines that bench wrote")->required();
  command->add_option("-o,--output", options->page_path, "writes the page; - is standard output")
      ->type_name("FILE")
      ->required();
  command->callback([=, &action] { action = [=] { return run_report(*options); }; });
}

}  // namespace logitless::cli
