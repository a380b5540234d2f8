// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless report` as a user meets it.
#include <cstdlib>

#include "cli_fixture.h"
#include "report_fixture.h"

namespace logitless::testing {
namespace {

TEST_F(CliTest, ReportWritesThePage) {
  const Finished result = run({"report", kTokensFile, "-o", path("page.html")});
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(result.out + result.err, "");
  EXPECT_TRUE(read("page.html").starts_with("<!DOCTYPE html>"));
  EXPECT_TRUE(read("page.html").ends_with("</html>\n"));
  EXPECT_EQ(run({"report", kTokensFile, "-o", "-"}).out, read("page.html"));
}

TEST_F(CliTest, ReportIsTheSameEveryTimeAndInEveryLocale) {
  const std::string first = run({"report", kTokensFile, "-o", "-"}).out;
  setenv("LC_ALL", "de_DE.UTF-8", 1);
  setenv("TZ", "Asia/Tokyo", 1);
  EXPECT_EQ(run({"report", kTokensFile, "-o", "-"}).out, first);
  unsetenv("LC_ALL");
  unsetenv("TZ");
}

TEST_F(CliTest, ReportTakesSeveralFiles) {
  const std::string other = write("other.jsonl", BenchFile().point(Json::object(), {ran("dense", 1, 4096)}).text());
  const std::string page = run({"report", kTokensFile, other, "-o", "-"}).out;
  EXPECT_TRUE(has(page, "{\"name\":\"tokens.jsonl\","));
  EXPECT_TRUE(has(page, "{\"name\":\"other.jsonl\","));
}

TEST_F(CliTest, ReportSaysThatATornLineWasLeftOut) {
  const std::string file =
      write("torn.jsonl", BenchFile().point(Json::object(), {ran("dense", 1, 4096)}).text() + "{\"ty");
  const Finished result = run({"report", file, "-o", path("page.html")});
  EXPECT_EQ(result.exit_code(), 0);
  EXPECT_EQ(result.err, "logitless: torn.jsonl:3: the last line is torn and was left out\n");
  EXPECT_TRUE(has(read("page.html"), "the last line is torn and was left out"));
}

TEST_F(CliTest, ReportRefusesBadFilesAndWritesNothing) {
  const std::string good = kTokensFile, output = path("page.html");
  const auto refused = [&](const std::string& file, const std::string& message) {
    const Finished result = run({"report", good, file, "-o", output});
    EXPECT_EQ(result.exit_code(), 2) << message;
    EXPECT_TRUE(has(result.err, message));
    EXPECT_TRUE(is_one_line(result.err)) << result.err;
    EXPECT_FALSE(std::filesystem::exists(output));
  };
  refused(path("none.jsonl"), "none.jsonl: cannot be opened: No such file");
  refused(folder_.string(), "is a directory");
  refused(write("empty.jsonl", ""), "empty.jsonl:1: the file is empty");
  refused(write("text.jsonl", "hello\n"), "text.jsonl:1: is not JSON");
  refused(write("binary.jsonl", std::string("\0\x80\n\xff\n", 5)), "binary.jsonl:1: is not JSON");
  refused(LOGITLESS_CLI_PATH, "logitless:1: is not JSON");
  refused(write("header.jsonl", BenchFile().text()), "header.jsonl:2: there is no point after the header");
  BenchFile newer = BenchFile().point(Json::object(), {ran("dense", 1, 4096)});
  newer.header["schema"] = 2;
  refused(write("newer.jsonl", newer.text()), "newer.jsonl:1: schema must be 1, not 2");
}

TEST_F(CliTest, ReportRefusesOutputsItCannotOrShouldNotWrite) {
  const std::string copy = write("run.jsonl", BenchFile().point(Json::object(), {ran("dense", 1, 4096)}).text());
  const std::string before = read("run.jsonl");
  const auto refused = [&](const std::vector<std::string>& rest, const std::string& message) {
    std::vector<std::string> arguments = {"report", copy};
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    const Finished result = run(arguments);
    EXPECT_EQ(result.exit_code(), 2) << message;
    EXPECT_TRUE(has(result.err, message));
    EXPECT_TRUE(is_one_line(result.err)) << result.err;
    EXPECT_EQ(read("run.jsonl"), before);
  };
  refused({}, "--output is required");
  refused({"-o", copy}, "is one of the files to report on");
  refused({"-o", folder_.string() + "/./run.jsonl"}, "is one of the files to report on");
  refused({"-o", folder_.string()}, "is a directory");
  refused({"-o", path("no/such/page.html")}, "cannot be written");
  EXPECT_EQ(run({"report", "-o", path("page.html")}).exit_code(), 2);
}

}  // namespace
}  // namespace logitless::testing
