// SPDX-License-Identifier: Apache-2.0
// Packing in advance: the same bits as packing at load, on every backend; and packed forms in a file are not trusted.
#include "core/engine/pack.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <thread>

#include "core/engine/verify_packed.h"
#include "core/program/writer.h"
#include "tests/engine/fixture.h"
#include "tests/support/files.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using testing::TemporaryFolder;

TEST(LayoutNames, HaveARevisionAfterASlash) {
  EXPECT_EQ(parse_layout_name("cpu.panels16/12").name, "cpu.panels16");
  EXPECT_EQ(parse_layout_name("cpu.panels16/12").revision, 12u);
  EXPECT_EQ(parse_layout_name("plain").name, "plain");
  EXPECT_EQ(parse_layout_name("plain").revision, 0u);
  EXPECT_EQ(parse_layout_name("a/b").name, "a/b") << "no number";
  EXPECT_EQ(parse_layout_name("a/99999999999").name, "a/99999999999") << "none that fits";
}

// The logits of a prompt and of a token after it, and what loading did.
struct Outcome {
  std::vector<float> logits;
  uint64_t copied = 0;
  size_t repacked = 0;
};

Outcome run(const std::string& path, const std::string& backend) {
  const TestModel t = make_model(path, backend, with_context(64));
  if (t.model == nullptr) return {};
  Outcome out{{}, t.model->weights().copied_bytes(), t.model->weights().repacked()};
  std::vector<int32_t> ids(20);
  std::iota(ids.begin(), ids.end(), 60);
  const auto session = t.model->session();
  for (const auto part : {std::span(ids).first(19), std::span(ids).last(1)}) {
    const auto logits = (*session)->feed(part);
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    if (logits.ok()) out.logits.insert(out.logits.end(), logits->begin(), logits->end());
  }
  return out;
}

Result<PackReport> pack(const std::string& from, const std::string& to, const std::string& backend,
                        const PackOptions& options = {}) {
  DiscoveryOptions discovery;
  discovery.cpu_features = default_discovery().cpu_features;
  discovery.search_path = SWITCHYARD_TEST_BACKENDS;
  const Registry registry = Registry::discover(Os::real(), discovery, test_host());
  SWY_LET(const auto selection, registry.select(backend));
  SWY_LET(Program loaded, Program::load(Os::real(), from));
  const auto program = std::make_shared<const Program>(std::move(loaded));
  SWY_LET(const auto uses, Model::weight_uses(program, selection.devices, selection.policy, {}));
  std::vector<PlanDevice> devices;
  for (const auto& d : selection.devices) devices.push_back(d->plan());
  return pack_program(Os::real(), *program, devices, uses, to, options);
}

TEST(Pack, ABackendThatReadsTheCanonicalFormHasNothingToPack) {
  const TemporaryFolder folder;
  const auto report = pack(SWITCHYARD_DEMO_MODEL, folder.path("x.swy"), "reference");
  EXPECT_EQ(report.status().code(), Code::unsupported);
  EXPECT_THAT(report.status().message(), HasSubstr("reference:0 reads all weights as they are"));
  EXPECT_FALSE(std::filesystem::exists(folder.path("x.swy")));
}

#ifdef SWITCHYARD_TEST_CPU

class Packed : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto report = pack(SWITCHYARD_DEMO_MODEL, path_, "cpu");
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->file_bytes, std::filesystem::file_size(path_));
    EXPECT_GT(report->packed_tensors, 50u);
    EXPECT_GT(report->packed_bytes, 8u << 20);
  }

  // Writes the packed program once more, after `change` of each packed form's description; their bytes are ones, cut or
  // extended to the new size.
  template <class Change>
  std::string altered(Change change) {
    const auto program = Program::load(Os::real(), path_);
    ProgramSpec spec = spec_of(*program);
    for (auto& t : spec.tensors) {
      for (auto& p : t.packed) change(p);
    }
    const std::string to = folder_.path("altered.swy");
    auto writer = ProgramWriter::create(Os::real(), to, spec);
    EXPECT_TRUE(writer.ok()) << writer.status().message();
    for (size_t t = 0; t < spec.tensors.size(); ++t) {
      EXPECT_TRUE(writer->write_segment(t, program->segment_bytes(program->tensors[t])).ok());
      for (size_t s = 0; s < spec.tensors[t].packed.size(); ++s) {
        const std::vector<std::byte> ones(spec.tensors[t].packed[s].bytes, std::byte{0x11});
        EXPECT_TRUE(writer->write_segment(t, ones, s + 1).ok());
      }
    }
    EXPECT_TRUE(writer->finish().ok());
    return to;
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path("packed.swy");
};

TEST_F(Packed, GivesTheBitsOfPackingAtLoadWithoutCopies) {
  const Outcome before = run(SWITCHYARD_DEMO_MODEL, "cpu"), after = run(path_, "cpu");
  EXPECT_EQ(after.logits, before.logits);
  EXPECT_GT(before.copied, 8u << 20);
  EXPECT_EQ(after.copied, 0u) << "everything is mapped";
  EXPECT_EQ(after.repacked, 0u);
}

TEST_F(Packed, RunsOnOtherBackendsAsBefore) {
  EXPECT_EQ(run(path_, "reference").logits, run(SWITCHYARD_DEMO_MODEL, "reference").logits);
}

TEST_F(Packed, PassesItsChecksums) {
  const auto program = Program::load(Os::real(), path_);
  ASSERT_TRUE(program.ok());
  const Status s = program->verify_weights();
  EXPECT_TRUE(s.ok()) << s.message();
}

TEST_F(Packed, PackingAgainChangesNothingWhateverThreadsAndMemory) {
  PackOptions narrow;
  narrow.threads = 3;
  narrow.memory_bytes = 1;
  const auto report = pack(path_, folder_.path("again.swy"), "cpu", narrow);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(read_file(folder_.path("again.swy")), read_file(path_));
  ASSERT_TRUE(pack(path_, path_, "cpu").ok()) << "onto itself";
  EXPECT_EQ(read_file(folder_.path("again.swy")), read_file(path_));
}

// Nothing is packed ahead of what may be held: one tensor, while the first is still being written.
TEST_F(Packed, KeepsWithinItsMemory) {
  static std::atomic<int> begun;
  static swy_plugin real;
  begun = 0;
  DiscoveryOptions discovery;
  discovery.cpu_features = default_discovery().cpu_features;
  discovery.search_path = SWITCHYARD_TEST_BACKENDS;
  const Registry registry = Registry::discover(Os::real(), discovery, test_host());
  const auto selection = registry.select("cpu");
  auto loaded = Program::load(Os::real(), SWITCHYARD_DEMO_MODEL);
  ASSERT_TRUE(selection.ok() && loaded.ok());
  const auto program = std::make_shared<const Program>(std::move(*loaded));
  const auto uses = Model::weight_uses(program, selection->devices, selection->policy, {});
  ASSERT_TRUE(uses.ok());
  std::vector<PlanDevice> devices = {selection->devices[0]->plan()};
  real = *devices[0].api;
  swy_plugin counting = real;
  counting.pack = [](const swy_tensor* tensor, uint32_t layout, const void* from, void* to, swy_error* error) {
    ++begun;
    return real.pack(tensor, layout, from, to, error);
  };
  devices[0].api = &counting;
  PackOptions options;
  options.threads = 2;
  options.memory_bytes = 1;
  options.progress = [](uint64_t, uint64_t) {
    for (int i = 0; i < 30 && begun < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return false;  // at the first bytes: nothing was written and freed yet
  };
  EXPECT_EQ(pack_program(Os::real(), *program, devices, *uses, folder_.path("x.swy"), options).status().code(),
            Code::cancelled);
  EXPECT_LE(begun.load(), 1);
}

TEST_F(Packed, AnotherRevisionIsPackedAgain) {
  const Outcome out = run(altered([](auto& p) { ++p.layout_revision; }), "cpu");
  EXPECT_EQ(out.logits, run(SWITCHYARD_DEMO_MODEL, "cpu").logits);
  EXPECT_GT(out.repacked, 50u);
}

TEST_F(Packed, AnotherSizeIsPackedAgain) {
  for (const int64_t more : {-64, 64}) {
    const Outcome out = run(altered([&](auto& p) { p.bytes += static_cast<uint64_t>(more); }), "cpu");
    EXPECT_EQ(out.logits, run(SWITCHYARD_DEMO_MODEL, "cpu").logits);
    EXPECT_GT(out.repacked, 50u);
  }
}

TEST_F(Packed, FormsOfOtherBackendsAreIgnoredAndKept) {
  const std::string other = altered([](auto& p) { p.layout = "mine." + p.layout; });
  const Outcome out = run(other, "cpu");
  EXPECT_EQ(out.logits, run(SWITCHYARD_DEMO_MODEL, "cpu").logits);
  EXPECT_EQ(out.repacked, 0u) << "they are nothing of cpu's";
  ASSERT_TRUE(pack(other, folder_.path("both.swy"), "cpu").ok());
  const auto program = Program::load(Os::real(), folder_.path("both.swy"));
  const Tensor* head = program->find_tensor("lm_head.weight");
  ASSERT_NE(head, nullptr);
  ASSERT_EQ(head->segments.size(), 3u);
  EXPECT_EQ(head->segments[1].layout, "mine.cpu.panels16");
  EXPECT_EQ(program->segment_bytes(head->segments[1])[0], std::byte{0x11});
  EXPECT_EQ(head->segments[2].layout, "cpu.panels16");
  EXPECT_EQ(run(folder_.path("both.swy"), "cpu").copied, 0u);
}

// With right checksums: the bits that a file calls packed are what runs, whatever its canonical weights are.
TEST_F(Packed, IsComparedWithItsCanonicalWeights) {
  const auto verify = [](const std::string& path, const char* backend) {
    DiscoveryOptions discovery;
    discovery.cpu_features = default_discovery().cpu_features;
    discovery.search_path = SWITCHYARD_TEST_BACKENDS;
    const Registry registry = Registry::discover(Os::real(), discovery, test_host());
    const auto program = Program::load(Os::real(), path);
    EXPECT_TRUE(program->verify_weights().ok());
    const std::vector<PlanDevice> devices = {registry.select(backend)->devices[0]->plan()};
    return verify_packed(*program, devices);
  };
  EXPECT_EQ(*verify(path_, "cpu"), std::set<std::string>());
  EXPECT_EQ(*verify(path_, "reference"), (std::set<std::string>{"cpu.halved_panels16/1", "cpu.panels16/1"}));
  const std::string other = altered([](auto&) {});
  const auto found = verify(other, "cpu");
  EXPECT_EQ(found.status().code(), Code::invalid_data);
  EXPECT_THAT(found.status().message(), HasSubstr("panels16/1 form of '"));
  EXPECT_THAT(found.status().message(), HasSubstr("is not what its weights make"));
  EXPECT_TRUE(verify(other, "reference").ok()) << "nothing that it would run";
  EXPECT_FALSE(verify(altered([](auto& p) { p.bytes += 64; }), "cpu").ok());
}

TEST_F(Packed, StoppedOrRefusedLeavesNothing) {
  PackOptions stop;
  stop.progress = [](uint64_t done, uint64_t) { return done < (1u << 20); };
  EXPECT_EQ(pack(SWITCHYARD_DEMO_MODEL, folder_.path("x.swy"), "cpu", stop).status().code(), Code::cancelled);
  EXPECT_FALSE(std::filesystem::exists(folder_.path("x.swy")));
  const std::string note = folder_.path("note.txt");
  std::ofstream(note) << "keep me";
  EXPECT_EQ(pack(SWITCHYARD_DEMO_MODEL, note, "cpu").status().code(), Code::usage);
  EXPECT_EQ(read_file(note), "keep me");
}

#endif

}  // namespace
}  // namespace switchyard
