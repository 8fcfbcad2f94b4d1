// SPDX-License-Identifier: Apache-2.0
// Files that do everything that a plugin must not: discovery survives each, says why in one line, uses the good backend
// beside it, and leaves this process as it was.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>

#include "core/engine/session.h"
#include "core/plugin/probe/surroundings.h"
#include "tests/plugin/hostile_files.h"
#include "tests/plugin/support.h"

namespace switchyard::testing {
namespace {

using ::testing::HasSubstr;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kHangs = 8;
#else
constexpr double kHangs = 5;  // all at once; the good file beside them, on a busy machine, has no more either
#endif
constexpr double kPatience = 60;  // for files that answer: never reached

// Watches over this process while plugins are looked for: nothing of it may change, and no process may be left.
class Guard {
 public:
  Guard() : before_(Surroundings::now()), out_(::memfd_create("stdout", MFD_CLOEXEC)) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // orphaned processes become our children
    std::fflush(stdout);
    real_out_ = ::dup(1);
    ::dup2(out_, 1);
  }
  ~Guard() {
    std::fflush(stdout);
    ::dup2(real_out_, 1);
    ::close(real_out_);
    struct stat s {};
    EXPECT_EQ(::fstat(out_, &s), 0);
    EXPECT_EQ(s.st_size, 0) << "something was written to standard output";
    ::close(out_);
    pid_t child = 0;
    for (int i = 0; i < 4000 && (child = ::waitpid(-1, nullptr, WNOHANG)) >= 0; ++i) ::usleep(500);
    EXPECT_TRUE(child == -1 && errno == ECHILD) << "a process was left running";
    const Surroundings after = Surroundings::now();
    EXPECT_EQ(before_.broken_by(after), "");
    EXPECT_EQ(before_.files, after.files);
    EXPECT_EQ(before_.threads, after.threads);
  }

 private:
  Surroundings before_;
  int out_, real_out_ = -1;
};

DiscoveryOptions probing(double seconds, const std::string& memory = "") {
  DiscoveryOptions o;
  o.probe = {SWITCHYARD_PROBE, memory, seconds};
  return o;
}

Registry discover_guarded(const DiscoveryOptions& options) {
  const Host& host = test_host();  // and its threads
  const Guard guard;
  return Registry::discover(Os::real(), options, host);
}

void expect_reason(const Candidate& c, const std::string& reason) {
  if (reason.empty()) {
    EXPECT_EQ(c.reason, "");
    EXPECT_NE(c.plugin, nullptr);
  } else {
    EXPECT_THAT(c.reason, HasSubstr(reason));
    EXPECT_EQ(c.plugin, nullptr);
  }
  EXPECT_TRUE(std::none_of(c.reason.begin(), c.reason.end(), [](unsigned char b) { return b < 0x20 || b == 0x7f; }))
      << "more than one line, or what a terminal obeys: " << c.reason;
  EXPECT_LT(c.reason.size(), 500u);
}

// Tokens that the demo model gives on the reference backend.
std::vector<size_t> generate(const Registry& registry) {
  auto loaded = Program::load(Os::real(), SWITCHYARD_DEMO_MODEL);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  auto selection = registry.select("reference");
  EXPECT_TRUE(selection.ok()) << selection.status().message();
  if (!loaded.ok() || !selection.ok()) return {};
  ModelOptions options;
  options.context = 32;
  auto model = Model::create(std::make_shared<const Program>(std::move(*loaded)), std::move(selection->devices),
                             selection->policy, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return {};
  auto session = (*model)->session();
  std::vector<size_t> out;
  int32_t token = 1;
  for (int i = 0; i < 8; ++i) {
    const auto logits = (*session)->feed({&token, 1});
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    if (!logits.ok()) break;
    const std::span<const float> row = *logits;
    out.push_back(static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    token = static_cast<int32_t>(out.back());
  }
  return out;
}

// All of `files` in one folder, beside the reference backend: it generates the same as alone.
void expect_survival(const std::vector<Hostile>& files, double seconds) {
  const TemporaryFolder folder;
  for (const Hostile& h : files) {
    const std::string path = h.make(folder);
    if (path != folder.path(h.name + ".so")) std::filesystem::create_symlink(path, folder.path(h.name + ".so"));
  }
  DiscoveryOptions options = probing(seconds), alone = probing(kPatience);
  options.search_path = folder.path() + ":" + SWITCHYARD_TEST_BACKENDS;
  alone.libraries = {SWITCHYARD_TEST_BACKENDS "/switchyard_reference.so"};
  const Registry r = discover_guarded(options);
  EXPECT_GE(r.candidates().size(), files.size());
  for (const Hostile& h : files) {
    SCOPED_TRACE(h.name);
    const auto c = std::find_if(r.candidates().begin(), r.candidates().end(), [&](const Candidate& candidate) {
      return candidate.path.ends_with("/" + h.name + ".so") || candidate.path.ends_with("switchyard_" + h.name + ".so");
    });
    ASSERT_NE(c, r.candidates().end());
    if (!h.reason.empty()) expect_reason(*c, h.reason);
  }
  const auto hangs =
      std::count_if(files.begin(), files.end(), [](const Hostile& h) { return h.reason.starts_with("hangs"); });
  EXPECT_EQ(r.warnings().size(), static_cast<size_t>(hangs));
  const std::vector<size_t> beside = generate(r);
  EXPECT_EQ(beside, generate(Registry::discover(Os::real(), alone, test_host())));
  EXPECT_EQ(beside.size(), 8u);
}

TEST(Hostile, ThereAreManyAndNoTwoAreOne) {
  std::set<std::string> names;
  for (const auto& list : {hostile_files(), hanging_files()}) {
    for (const Hostile& h : list) EXPECT_TRUE(names.insert(h.name).second) << h.name;
  }
  EXPECT_GE(names.size(), 40u);
  RecordProperty("files", static_cast<int>(names.size()));
}

// Before all others: a library stays loaded.
TEST(Hostile, EachAloneIsTurnedDownWithItsReason) {
  const TemporaryFolder folder, memory;
  for (const Hostile& h : hostile_files()) {
    SCOPED_TRACE(h.name);
    DiscoveryOptions options = probing(kPatience, memory.path());
    options.libraries = {h.make(folder), fixture("good")};
    const Registry r = discover_guarded(options);
    ASSERT_EQ(r.candidates().size(), 2u);
    expect_reason(r.candidates()[0], h.reason);
    EXPECT_EQ(r.warnings().size(), 0u);
    const bool same_id = r.candidates()[0].plugin != nullptr && r.candidates()[0].id == "good";
    EXPECT_TRUE(r.select(same_id ? r.candidates()[0].id : "good").ok());
    EXPECT_TRUE(same_id || r.candidates()[1].plugin != nullptr) << r.candidates()[1].reason;
  }
}

TEST(Hostile, AllTogetherTouchNoneOfWhatIsGood) { expect_survival(hostile_files(), kPatience); }

TEST(Hostile, ThoseThatHangCostAWarningEach) { expect_survival(hanging_files(), kHangs); }

}  // namespace
}  // namespace switchyard::testing
