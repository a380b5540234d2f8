// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares the documentation with the repository: quoted code, printed tables, names, links, settings.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <regex>
#include <set>

#include "cli_fixture.h"
#include "io/config.h"
#include "io/files.h"
#include "logitless/logitless.h"

namespace logitless::testing {
namespace docs_test {

namespace fs = std::filesystem;

const fs::path kRoot = SOURCE_FOLDER;

std::string read_file(const fs::path& path) { return io::read_text_file(path.string(), 1 << 20); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// Returns the pages that this test checks.
std::vector<fs::path> pages() {
  std::vector<fs::path> out = {kRoot / "README.md", kRoot / "CONTRIBUTING.md", kRoot / "examples" / "README.md"};
  for (const fs::path& folder : {kRoot / "docs", kRoot / "docs" / "benchmarks"}) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".md") out.push_back(entry.path());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// Returns all matches of `pattern` in a text, or of its first group.
std::vector<std::string> matches(const std::string& text, const std::string& pattern, int group = 1) {
  const std::regex regex(pattern);
  std::vector<std::string> out;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) out.push_back((*it)[group]);
  return out;
}

std::string without_indent(const std::vector<std::string>& lines) {
  size_t indent = std::string::npos;
  for (const std::string& line : lines) indent = std::min(indent, line.find_first_not_of(' '));
  std::string out;
  for (const std::string& line : lines) out += (line.size() > indent ? line.substr(indent) : "") + "\n";
  return out;
}

/// Returns the lines between `// [name]` and `// [/name]` of a file.
std::string region_of(const fs::path& path, const std::string& name) {
  std::vector<std::string> inside;
  bool open = false;
  for (const std::string& line : lines_of(read_file(path))) {
    if (line.ends_with("// [/" + name + "]")) return without_indent(inside);
    if (open) inside.push_back(line);
    open |= line.ends_with("// [" + name + "]");
  }
  return path.string() + " has no region " + name;
}

// Pages quote programs that run as tests.
TEST(Docs, CodeIsThatOfTheExamples) {
  int blocks = 0;
  for (const fs::path& page : pages()) {
    const std::vector<std::string> lines = lines_of(read_file(page));
    for (size_t i = 0; i < lines.size(); ++i) {
      if (lines[i] != "```cpp" && lines[i] != "```c") continue;
      ++blocks;
      std::smatch source;
      ASSERT_TRUE(i > 0 && std::regex_match(lines[i - 1], source, std::regex(R"(<!-- (\S+) \[(\w+)\] -->)")))
          << page << ":" << i + 1 << " names no source";
      std::string block;
      for (size_t k = i + 1; k < lines.size() && lines[k] != "```"; ++k) block += lines[k] + "\n";
      EXPECT_EQ(block, region_of(kRoot / source[1].str(), source[2])) << page << ":" << i + 1;
    }
  }
  EXPECT_GT(blocks, 0);
}

/// Returns a heading's anchor as renderers create it: lower case, without punctuation, dashes for spaces.
std::string anchor_of(const std::string& heading) {
  std::string out;
  for (const char c : heading) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_') out += static_cast<char>(std::tolower(c));
    if (c == ' ') out += '-';
  }
  return out;
}

TEST(Docs, LinksLeadSomewhere) {
  int links = 0;
  for (const fs::path& page : pages()) {
    for (const std::string& link : matches(read_file(page), R"(\]\(([^)\s]+)\))")) {
      if (link.starts_with("http")) continue;
      ++links;
      const size_t hash = link.find('#');
      const fs::path target = hash == 0 ? page : page.parent_path() / link.substr(0, hash);
      ASSERT_TRUE(fs::exists(target)) << page << " links to " << link;
      if (hash == std::string::npos) continue;
      std::set<std::string> anchors;
      for (const std::string& heading : matches(read_file(target), "(?:^|\n)#+ ([^\n]+)")) {
        anchors.insert(anchor_of(heading));
      }
      EXPECT_TRUE(anchors.contains(link.substr(hash + 1))) << page << " links to " << link;
    }
  }
  EXPECT_GT(links, 20);
}

TEST(Docs, FilesExist) {
  int files = 0;
  for (const fs::path& page : pages()) {
    for (const std::string& name :
         matches(read_file(page), R"(`((?:bench|configs|docs|examples|include|scripts|src|tests|tools)/[\w./-]+)`)")) {
      ++files;
      EXPECT_TRUE(fs::exists(kRoot / name) || fs::exists(kRoot / (name + ".cc"))) << page << " names " << name;
    }
  }
  EXPECT_GT(files, 20);
}

TEST(Docs, TestsExist) {
  std::set<std::string> tests;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "tests")) {
    if (entry.path().extension() != ".cc") continue;
    const std::string text = read_file(entry.path());
    const std::regex test(R"(\nTEST(?:_F|_P)?\((\w+), (\w+)\))");
    for (std::sregex_iterator it(text.begin(), text.end(), test), end; it != end; ++it) {
      tests.insert((*it)[1].str() + "." + (*it)[2].str());
    }
  }
  int named = 0;
  for (const fs::path& page : pages()) {
    for (const std::string& name : matches(read_file(page), R"(`([A-Z]\w+\.[A-Z]\w+)`)")) {
      if (name == "Suite.Test") continue;
      ++named;
      EXPECT_TRUE(tests.contains(name)) << page << " names " << name;
    }
  }
  EXPECT_GT(named, 20);
}

TEST(Docs, SettingsAreValid) {
  int settings = 0;
  for (const fs::path& page : pages()) {
    for (const std::string& setting : matches(read_file(page), R"(--set ([\w.]+=[\w.]+))")) {
      if (setting == "key=value") continue;
      ++settings;
      const std::vector<std::string> assignments = {setting};
      EXPECT_NO_THROW(io::load_config(kTiny, assignments)) << page << " says --set " << setting;
    }
  }
  EXPECT_GT(settings, 3);
}

#ifdef PLAN_MEMORY_PATH
std::string output_of(const std::string& command_line) {
  std::string text;
  FILE* command = popen(command_line.c_str(), "r");
  if (!command) return text;
  for (char buffer[256]; std::fgets(buffer, sizeof buffer, command);) text += buffer;
  EXPECT_EQ(pclose(command), 0);
  return text;
}

// Returns whether two texts have the same words, and numbers within an eighth of each other: the BLAS's
// kernels take 4 to 48 rows at a time, and tiles are multiples of that.
bool same_but_for_padding(std::string a, std::string b) {
  const std::regex number(R"(\d+(\.\d+)?)");
  const std::vector<std::string> in_a = matches(a, "(\\d+(?:\\.\\d+)?)"), in_b = matches(b, "(\\d+(?:\\.\\d+)?)");
  if (in_a.size() != in_b.size()) return false;
  for (size_t i = 0; i < in_a.size(); ++i) {
    const double x = std::stod(in_a[i]), y = std::stod(in_b[i]);
    if (std::abs(x - y) > std::max(std::max(x, y) / 8, 0.1)) return false;
  }
  return std::regex_replace(a, number, "#") == std::regex_replace(b, number, "#");
}

// Live tiles and workspace depend on the threads; everything else is the same on all machines, except
// padding.
TEST(Docs, ThePlansOfGettingStartedAreWhatItPrints) {
  const std::string plan = "((?:one|two)_pass: [^\n]+ tiles \\d+ x \\d+), ";
  const std::vector<std::string> printed = matches(output_of(GETTING_STARTED_PATH), plan);
  const std::vector<std::string> quoted = matches(read_file(kRoot / "docs" / "cpp.md"), "\n    " + plan);
  EXPECT_EQ(printed.size(), 2u);
  ASSERT_EQ(quoted.size(), printed.size());
  for (size_t i = 0; i < quoted.size(); ++i) EXPECT_TRUE(same_but_for_padding(quoted[i], printed[i])) << printed[i];
}

TEST(Docs, TheMemoryTablesAreWhatTheCommandPrints) {
  const std::string page = read_file(kRoot / "docs" / "memory.md");
  const std::vector<std::string> arguments = matches(page, "<!-- plan_memory([^>]*) -->\n");
  EXPECT_EQ(arguments.size(), 3u);
  for (const std::string& words : arguments) {
    const size_t begin = page.find("<!-- plan_memory" + words + " -->\n") + words.size() + 21;
    const std::string quoted = page.substr(begin, page.find("<!-- /plan_memory -->", begin) - begin);
    // Runs with this machine's default BLAS kernels and with others. If the CPU cannot run the named kernels,
    // the name has no effect.
    for (const char* core :
         {"", "OPENBLAS_CORETYPE=Prescott ", "OPENBLAS_CORETYPE=Sandybridge ", "OPENBLAS_CORETYPE=Haswell "}) {
      const std::string table = output_of(core + std::string(PLAN_MEMORY_PATH) + words);
      EXPECT_TRUE(same_but_for_padding(quoted, table)) << core << quoted << table;
    }
  }
}
#endif

// The formula of docs/memory.md, for consecutive float32 rows and for gathered bfloat16 rows.
class MemoryFormula {
 public:
  MemoryFormula(const Plan& plan, bool narrow) : p_(plan), narrow_(narrow) {}

  int64_t bytes() const {
    const bool one_pass = p_.kind == PlanKind::kOnePass;
    const int64_t logits = tile() * p_.row_tile;
    int64_t forward = p_.threads * (4 * p_.vocab_tile + 4 * p_.row_tile) + 48 * stretches() * p_.chunk_rows;
    const int64_t rows_of_scratch = p_.gradient_dtype == DType::kBFloat16 ? 2 : 1;
    int64_t backward = p_.threads * rows_of_scratch * 4 * p_.vocab_tile + 56 * p_.chunk_rows;
    int64_t lasting = one_pass ? p_.chunk_rows * blocks(p_.vocab_size, p_.vocab_tile) * tile() : 0;
    if (p_.gradient_dtype == DType::kBFloat16 && p_.gradient_terms == 1) {
      const int64_t tiles =
          one_pass ? blocks(p_.chunk_rows, p_.row_tile) * blocks(p_.vocab_size, p_.vocab_tile) : p_.tiles_alive;
      backward += tiles * (4 * p_.row_tile + 6 * p_.vocab_tile) + 4 * p_.threads * p_.vocab_tile + 8 * p_.chunk_rows +
                  4 * p_.vocab_size + 132 * p_.hidden_size;
      lasting += 4 * p_.hidden_size;
    }
    forward += static_cast<int64_t>(p_.packed_bytes);
    if (!one_pass) backward += static_cast<int64_t>(p_.packed_bytes);
    if (!one_pass) forward += p_.threads * logits;
    if (!one_pass) backward += p_.tiles_alive * logits;
    if (narrow_) {
      const int64_t tile_rows = p_.row_tile + p_.vocab_tile, gathered = 2 * p_.hidden_size;
      if (p_.gemm_library == "amx" || p_.gemm_library == "bfmmla") {
        const int64_t logits_packed = packed(p_.vocab_tile, p_.hidden_size);
        forward += p_.threads * logits_packed;
        backward += p_.threads *
                    (one_pass ? std::max(packed(p_.hidden_block, p_.vocab_tile), packed(p_.hidden_size, p_.row_tile))
                              : logits_packed);
      }
      if (p_.gradient_dtype == DType::kFloat32) {
        forward += p_.threads * 1024 * tile_rows;
        backward += p_.threads * 1024 * (one_pass ? p_.hidden_size : std::max(tile_rows, p_.hidden_size));
      }
      forward += p_.threads * p_.row_tile * gathered;
      backward += (one_pass ? p_.chunk_rows : p_.tiles_alive * p_.row_tile) * gathered;
      backward += 4 * p_.chunk_rows * p_.hidden_size;
      const bool chunks = one_pass && p_.chunk_rows < p_.active_rows;
      (chunks ? lasting : backward) += 4 * p_.hidden_size * (chunks ? p_.vocab_size : 2 * p_.vocab_tile);
    }
    return std::max(forward, backward) + lasting;
  }

 private:
  static int64_t blocks(int64_t all, int64_t of) { return (all + of - 1) / of; }
  int64_t tile() const {
    const int64_t rounded = blocks(p_.vocab_tile, 16) * 16;
    return 4 * (rounded % 256 == 0 ? rounded + 16 : rounded);
  }
  // Returns the bytes that a product with n columns of depth k packs for AMX or BFMMLA.
  static int64_t packed(int64_t n, int64_t k) {
    n = blocks(n, 32) * 32;
    k = blocks(k, 32) * 32;
    return 2 * std::min(n * k, std::max<int64_t>(384 * 1024, 128 * k)) + 64 * std::min<int64_t>(k, 288) + 4160;
  }
  int64_t stretches() const {
    return std::min(blocks(p_.vocab_size, p_.vocab_tile), blocks(128, blocks(p_.chunk_rows, p_.row_tile)));
  }

  const Plan& p_;
  bool narrow_;
};

// Returns the plan with the largest padding of tile rows that a BLAS's kernels may need.
Plan with_padded_rows(Plan plan) {
  constexpr int64_t kMostPadding = 47;
  const int64_t blocks = (plan.chunk_rows + plan.row_tile - 1) / plan.row_tile;
  plan.row_tile += kMostPadding;
  plan.chunk_rows += blocks * kMostPadding;
  return plan;
}

// Returns the plan of a task for 1500 tokens and 5000 vocabulary entries, of which a part is ignored.
template <class T, class Task>
Plan planned(const ContextOptions& options, Task task, int64_t hidden_size, bool ignores, bool gradients) {
  constexpr int64_t kTokens = 1500, kVocab = 5000;
  const std::vector<T> x(static_cast<size_t>(kTokens * hidden_size)), w(static_cast<size_t>(kVocab * hidden_size));
  std::vector<T> d_x(gradients ? x.size() : 0), d_w(gradients ? w.size() : 0);
  std::vector<int64_t> ids(kTokens);
  for (size_t i = 0; ignores && i < ids.size(); ++i) ids[i] = i * 7 % 10 < 3 ? -100 : 0;
  task.targets = view(ids.data(), {kTokens});
  Gradients outputs;
  if (gradients) {
    outputs.d_hidden = view(d_x.data(), {kTokens, hidden_size});
    outputs.d_weight = view(d_w.data(), {kVocab, hidden_size});
  }
  const Logits logits = Logits::of(view(x.data(), {kTokens, hidden_size}), view(w.data(), {kVocab, hidden_size}));
  return plan(Context(options), logits, task, outputs);
}

TEST(Docs, ListsOfTheLargestLogitsAndDrawsTakeWhatThePageSays) {
  const std::string page = read_file(kRoot / "docs" / "memory.md");
  EXPECT_TRUE(has(page, "| (32 k + 280) N′ | – | (32 k + 280) C |"));
  EXPECT_TRUE(has(page, "| 24 D (N′ + P) | – | 24 D (C + P) |"));
  const auto of = [](const StatsRequest& request) {
    return planned<float>({}, TokenStatistics{.request = request}, 19, true, false);
  };
  const auto without = static_cast<int64_t>(of({}).workspace_bytes);
  for (const int64_t count : {1, 64, 256}) {
    const Plan lists = of({.top_k = count}), draws = of({.draws = count});
    const int64_t of_lists = static_cast<int64_t>(lists.workspace_bytes) - without;
    EXPECT_GE(of_lists, (32 * count + 280) * lists.active_rows);
    EXPECT_LE(of_lists, (32 * count + 280) * lists.active_rows + 128);
    const int64_t of_draws = static_cast<int64_t>(draws.workspace_bytes) - without;
    EXPECT_GE(of_draws, 24 * count * (draws.active_rows + draws.threads));
    EXPECT_LE(of_draws, 24 * count * (draws.active_rows + draws.threads) + 128);
    EXPECT_EQ(of({.draws = 9, .draw_top_k = count}).workspace_bytes, lists.workspace_bytes);
  }
}

TEST(Docs, TheMemoryFormulaIsThePlans) {
  for (const std::string& backend : gemm_backends()) {
    for (const bool narrow : {false, true}) {
      for (const PlanKind kind : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
        for (const size_t mebibytes : {6, 12, 64}) {
          ContextOptions options;
          options.plan = kind;
          options.gemm_backend = backend;
          options.threads = 3;
          options.workspace_bytes = mebibytes << 20;
          Plan plan;
          try {
            plan = narrow ? planned<bfloat16>(options, CrossEntropy(), 300, true, true)
                          : planned<float>(options, CrossEntropy(), 300, false, true);
          } catch (const InvalidInput&) {
            EXPECT_TRUE(narrow && mebibytes < 64) << mebibytes;
            continue;
          }
          SCOPED_TRACE(plan.describe());
          // Each part is rounded up to 64 bytes, and so is the total; a thread has at most 5 parts and a tile
          // 2.
          const int64_t parts = 16 + 5 * plan.threads + 2 * plan.tiles_alive;
          const auto bytes = static_cast<int64_t>(plan.workspace_bytes);
          EXPECT_GE(bytes, MemoryFormula(plan, narrow).bytes());
          EXPECT_LE(bytes, MemoryFormula(with_padded_rows(plan), narrow).bytes() + 64 * parts);
        }
      }
    }
  }
}

}  // namespace docs_test
}  // namespace logitless::testing
