// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Profiles: which entry a shape gets, what a Context is made of, and the exact line that a wrong file earns.
#include <string>
#include <vector>

#include "folder_test.h"
#include "io/profile_file.h"
#include "logitless/error.h"
#include "logitless/profile.h"

namespace logitless {
namespace {

using io::ProfileEntry;
using io::ProfileMachine;

constexpr ProfileShape kShape{.tokens = 1000, .hidden_size = 64, .vocab_size = 5000};
constexpr size_t kBudget = size_t{256} << 20;

const ProfileMachine kMachine = {"a CPU", 4, "AVX2", "openblas", "Haswell"};

ProfileEntry entry(const ProfileShape& shape, int64_t row_tile, size_t budget = kBudget) {
  ProfileEntry out = io::entry_for(kMachine, shape, budget);
  out.row_tile = row_tile;
  return out;
}

// The row tile of the entry that is chosen, or why there is none.
std::string chosen(const std::vector<ProfileEntry>& entries, const ProfileShape& shape = kShape,
                   const ProfileMachine& machine = kMachine, size_t budget = kBudget) {
  const io::ProfileChoice choice = io::choose_entry(entries, machine, shape, budget);
  return choice.entry ? std::to_string(choice.entry->row_tile) : choice.why_none;
}

TEST(Profile, ServesFromHalfToTwiceOfEachSize) {
  const std::vector<ProfileEntry> entries = {entry(kShape, 7)};
  const auto with = [](int64_t ProfileShape::*size, int64_t value) {
    ProfileShape shape = kShape;
    shape.*size = value;
    return shape;
  };
  for (const auto size : {&ProfileShape::tokens, &ProfileShape::hidden_size, &ProfileShape::vocab_size}) {
    EXPECT_EQ(chosen(entries, with(size, kShape.*size / 2)), "7");
    EXPECT_EQ(chosen(entries, with(size, kShape.*size * 2)), "7");
    EXPECT_NE(chosen(entries, with(size, kShape.*size / 2 - 1)), "7");
    EXPECT_NE(chosen(entries, with(size, kShape.*size * 2 + 1)), "7");
  }
}

TEST(Profile, TheNearestOfSeveralEntriesServes) {
  ProfileShape larger = kShape;
  larger.tokens = 1600;
  for (const bool turned : {false, true}) {
    std::vector<ProfileEntry> entries = {entry(kShape, 1), entry(larger, 2)};
    if (turned) std::swap(entries[0], entries[1]);
    ProfileShape shape = kShape;
    shape.tokens = 1200;
    EXPECT_EQ(chosen(entries, shape), "1");
    shape.tokens = 1300;
    EXPECT_EQ(chosen(entries, shape), "2");
  }
}

TEST(Profile, OfTwoWorkspacesTheLargerOneThatIsAllowedServes) {
  const std::vector<ProfileEntry> entries = {entry(kShape, 1, kBudget / 2), entry(kShape, 2, kBudget)};
  EXPECT_EQ(chosen(entries, kShape, kMachine, kBudget), "2");
  EXPECT_EQ(chosen(entries, kShape, kMachine, kBudget - 1), "1");
}

TEST(Profile, SaysWhyNoEntryServes) {
  EXPECT_EQ(chosen({}), "it is empty");
  ProfileMachine other = kMachine;
  other.threads = 8;
  EXPECT_EQ(chosen({entry(kShape, 1)}, kShape, other), "it was made on another machine (threads 4 there and 8 here)");
  other = kMachine;
  other.cpu = "another CPU";
  EXPECT_EQ(chosen({entry(kShape, 1)}, kShape, other),
            "it was made on another machine (CPU a CPU there and another CPU here)");
  other = kMachine;
  other.blas_core = "Zen";
  EXPECT_EQ(chosen({entry(kShape, 1)}, kShape, other),
            "it was made on another machine (BLAS core Haswell there and Zen here)");
  ProfileShape shape = kShape;
  shape.dtype = DType::kBFloat16;
  EXPECT_EQ(chosen({entry(kShape, 1)}, shape), "it has no entry for bfloat16 and layout vocab_hidden");
  shape = kShape;
  shape.stored_hidden_vocab = true;
  EXPECT_EQ(chosen({entry(kShape, 1)}, shape), "it has no entry for float32 and layout hidden_vocab");
  shape = kShape;
  shape.tokens = 1;
  EXPECT_EQ(chosen({entry(kShape, 1)}, shape),
            "it has no entry whose ranges hold 1 tokens, hidden size 64 and vocabulary 5000");
  EXPECT_EQ(chosen({entry(kShape, 1)}, kShape, kMachine, kBudget - 1),
            "its entries for this shape were made for a larger workspace");
}

TEST(Profile, OfFinishedLogitsIsApart) {
  ProfileShape logits = kShape;
  logits.hidden_size = 0;
  const std::vector<ProfileEntry> entries = {entry(kShape, 1), entry(logits, 2)};
  EXPECT_EQ(chosen(entries), "1");
  EXPECT_EQ(chosen(entries, logits), "2");
  logits.stored_hidden_vocab = true;  // there is no head
  EXPECT_EQ(chosen(entries, logits), "2");
}

TEST(Profile, AnEntryReplacesThatOfItsShapeMachineAndWorkspace) {
  EXPECT_TRUE(entry(kShape, 1).replaces(entry(kShape, 2)));
  EXPECT_FALSE(entry(kShape, 1).replaces(entry(kShape, 2, kBudget / 2)));
  ProfileShape shape = kShape;
  shape.tokens = 1001;
  EXPECT_FALSE(entry(kShape, 1).replaces(entry(shape, 1)));
  ProfileEntry elsewhere = entry(kShape, 1);
  elsewhere.machine.threads = 1;
  EXPECT_FALSE(entry(kShape, 1).replaces(elsewhere));
}

class ProfileFileTest : public testing::FolderTest {
 protected:
  ProfileFileTest() { unsetenv("LOGITLESS_PROFILE"); }

  // An entry for this machine.
  void write_here(ContextOptions tuned, size_t budget = kBudget) const {
    ProfileEntry out = io::entry_for(io::machine_of(Context()), kShape, budget);
    out.plan = tuned.plan;
    out.row_tile = tuned.row_tile;
    out.vocab_tile = tuned.vocab_tile;
    write("p.yaml", io::profile_text({out}));
  }
  std::string error(const std::string& text) const {
    write("p.yaml", text);
    try {
      load_profile(file_, kShape);
    } catch (const InvalidInput& e) {
      return without_folder(e.what());
    }
    return "no error";
  }

  const std::string file_ = path("p.yaml");
};

TEST_F(ProfileFileTest, IsReadAsItWasWritten) {
  ProfileEntry one = entry(kShape, 256);
  one.plan = PlanKind::kTwoPass;
  one.task = "policy_loss";
  one.default_s = 0.25;
  one.tuned_s = 0.125;
  ProfileEntry two = entry({.tokens = 3, .vocab_size = 9, .dtype = DType::kBFloat16}, 0);
  two.vocab_tile = 4096;
  two.machine.cpu = "A: \"CPU\" {x86}, # 1";
  write("p.yaml", io::profile_text({one, two}));
  const std::vector<ProfileEntry> read = io::read_profile(file_);
  ASSERT_EQ(read.size(), 2u);
  for (const auto& [want, got] : {std::pair(one, read[0]), std::pair(two, read[1])}) {
    EXPECT_TRUE(got.replaces(want));
    EXPECT_EQ(got.workspace_bytes, want.workspace_bytes);
    EXPECT_EQ(got.plan, want.plan);
    EXPECT_EQ(got.row_tile, want.row_tile);
    EXPECT_EQ(got.vocab_tile, want.vocab_tile);
    EXPECT_EQ(got.task, want.task);
    EXPECT_EQ(got.default_s, want.default_s);
    EXPECT_EQ(got.tuned_s, want.tuned_s);
  }
}

TEST_F(ProfileFileTest, FillsWhatIsLeftOpen) {
  write_here({.plan = PlanKind::kTwoPass, .row_tile = 128, .vocab_tile = 768});
  std::string note = "not touched";
  ContextOptions options = load_profile(file_, kShape, {}, &note);
  EXPECT_EQ(note, "");
  EXPECT_EQ(options.plan, PlanKind::kTwoPass);
  EXPECT_EQ(options.row_tile, 128);
  EXPECT_EQ(options.vocab_tile, 768);
  options = load_profile(file_, kShape, {.plan = PlanKind::kOnePass, .row_tile = 64});
  EXPECT_EQ(options.plan, PlanKind::kOnePass);
  EXPECT_EQ(options.row_tile, 64);
  EXPECT_EQ(options.vocab_tile, 768);
}

TEST_F(ProfileFileTest, RowsOfFinishedLogitsAreThoseOfABlock) {
  ProfileShape logits = kShape;
  logits.hidden_size = 0;
  ProfileEntry out = io::entry_for(io::machine_of(Context()), logits, kBudget);
  out.row_tile = 16;
  write("p.yaml", io::profile_text({out}));
  const ContextOptions options = load_profile(file_, logits);
  EXPECT_EQ(options.row_block, 16);
  EXPECT_EQ(options.row_tile, 0);
}

TEST_F(ProfileFileTest, LeavesOptionsAsTheyAreWhereNothingFits) {
  write_here({.row_tile = 128});
  std::string note;
  const ContextOptions options = load_profile(file_, kShape, {.workspace_bytes = kBudget / 2, .vocab_tile = 9}, &note);
  EXPECT_EQ(options.row_tile, 0);
  EXPECT_EQ(options.vocab_tile, 9);
  EXPECT_EQ(note, "its entries for this shape were made for a larger workspace");
}

TEST_F(ProfileFileTest, TheEnvironmentNamesTheFileWhereThePathIsEmpty) {
  write_here({.row_tile = 128});
  EXPECT_EQ(load_profile("", kShape).row_tile, 0);
  setenv("LOGITLESS_PROFILE", file_.c_str(), 1);
  EXPECT_EQ(load_profile("", kShape).row_tile, 128);
  setenv("LOGITLESS_PROFILE", "not-there.yaml", 1);
  EXPECT_EQ(load_profile(file_, kShape).row_tile, 128);
  try {
    load_profile("", kShape);
    FAIL() << "no error";
  } catch (const InvalidInput& e) {
    EXPECT_STREQ(e.what(), "LOGITLESS_PROFILE not-there.yaml: cannot be opened: No such file or directory");
  }
  setenv("LOGITLESS_PROFILE", "", 1);
  EXPECT_EQ(load_profile("", kShape).row_tile, 0);
  unsetenv("LOGITLESS_PROFILE");
}

TEST_F(ProfileFileTest, ErrorsNameFileLineKeyAndRule) {
  const std::string machine =
      "profiles:\n"
      "  - machine: {cpu: a, threads: 2, simd_target: AVX2, gemm_backend: openblas, blas_core: Zen}\n";
  const std::string shape = "    shape: {dtype: float32, tokens: [1, 2], hidden_size: [1, 2], vocab_size: [1, 2]}\n";
  EXPECT_EQ(error(machine + shape + "    workspace: 1MiB\n    kernel: {plan: two_pass}\n"), "no error");
  EXPECT_EQ(error(""), "p.yaml: is empty; a profile needs keys");
  EXPECT_EQ(error(std::string("\0\1", 2)), "p.yaml: is not a text file; a profile is YAML");
  EXPECT_EQ(error("- 1\n"), "p.yaml:1: a profile is a list of `key: value` lines, and this is not");
  EXPECT_EQ(error("model: {}\n"), "p.yaml:1: model is not a known key of a profile");
  EXPECT_EQ(error("profiles: 3\n"), "p.yaml:1: profiles must be a list, not 3");
  EXPECT_EQ(error("profiles:\n  - 3\n"), "p.yaml:2: profiles must be a section of keys, not 3");
  EXPECT_EQ(error(machine), "p.yaml:2: profiles.shape is not given");
  EXPECT_EQ(error("profiles:\n  - machine: {cpu: a, cores: 2}\n"),
            "p.yaml:2: profiles.machine.cores is not a known key of a profile");
  EXPECT_EQ(error("profiles:\n  - machine: {cpu: a, threads: two}\n"),
            "p.yaml:2: profiles.machine.threads must be an integer from 1 to 4096, not two");
  EXPECT_EQ(error(machine + "    shape: {dtype: float31}\n"),
            "p.yaml:3: profiles.shape.dtype must be float32, bfloat16, float64 or float16, not float31");
  EXPECT_EQ(error(machine + "    shape: {dtype: float32, tokens: [2, 1]}\n"),
            "p.yaml:3: profiles.shape.tokens has a low above its high");
  EXPECT_EQ(error(machine + "    shape: {dtype: float32, tokens: 7}\n"),
            "p.yaml:3: profiles.shape.tokens must be two sizes: [low, high], not 7");
  EXPECT_EQ(error(machine + "    shape: {dtype: float32, layout: hidden_vocab, tokens: [1, 2], vocab_size: [1, 2]}\n"),
            "p.yaml:3: profiles.shape.layout is that of a head, and without hidden_size there is none");
  EXPECT_EQ(error(machine + shape + "    workspace: 1MiB\n    kernel: {plan: dense}\n"),
            "p.yaml:5: profiles.kernel.plan must be auto, one_pass or two_pass, not dense");
  EXPECT_EQ(error(machine + shape + "    workspace: 1MiB\n    kernel: {row_tile: 0}\n"),
            "p.yaml:5: profiles.kernel.row_tile must be an integer from 1 to 65536, not 0");
  EXPECT_EQ(error(machine + shape + "    workspace: auto\n"),
            "p.yaml:4: profiles.workspace must be a size above 0 such as 256MiB or 1.5GiB, not auto");
  EXPECT_EQ(error(machine + shape + "    workspace: 1MiB\n    kernel: {}\n    measured: {default_s: .nan}\n"),
            "p.yaml:6: profiles.measured.default_s must be seconds from 0 on, not .nan");
  EXPECT_EQ(error("profiles: []\nprofiles: []\n"), "p.yaml:2: profiles stands here a second time");
  EXPECT_EQ(error("[1]: 2\n"), "p.yaml:1: a key must be a plain word");
  EXPECT_EQ(error("profiles: []\n---\nprofiles: []\n"), "p.yaml:2: holds 2 YAML documents, not one");
  EXPECT_EQ(error("profiles: &a\n  - *a\n"), "p.yaml:2: holds an alias of a list or a map: write it out");
  EXPECT_EQ(error(","), "p.yaml:1: is not YAML: no value can begin here");
  EXPECT_EQ(error("profiles:\n  - machine: {cpu: \"a: \xff\"}\n"),
            "p.yaml:2: profiles.machine.cpu must be a text in UTF-8, not the text \"a: \xff\"");
}

}  // namespace
}  // namespace logitless
