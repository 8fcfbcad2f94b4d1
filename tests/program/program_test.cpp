// SPDX-License-Identifier: Apache-2.0
// A program is read back as it was written.
#include "core/program/program.h"

#include <gtest/gtest.h>

#include "core/program/op_names.h"
#include "switchyard/weights.h"
#include "tests/program/sample.h"

namespace switchyard {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

std::vector<uint32_t> list(std::span<const uint32_t> s) { return {s.begin(), s.end()}; }

void expect_same(const ProgramSpec::Function& want, const Function& have) {
  EXPECT_EQ(want.name, have.name);
  EXPECT_EQ(want.inputs, list(have.inputs));
  EXPECT_EQ(want.outputs, list(have.outputs));
  ASSERT_EQ(want.values.size(), have.values.size());
  for (size_t i = 0; i < want.values.size(); ++i) {
    EXPECT_EQ(want.values[i].name, have.values[i].name);
    EXPECT_EQ(want.values[i].dtype, have.values[i].dtype);
    EXPECT_EQ(want.values[i].rows, have.values[i].rows);
    EXPECT_EQ(want.values[i].width, have.values[i].width);
  }
  ASSERT_EQ(want.ops.size(), have.ops.size());
  for (size_t i = 0; i < want.ops.size(); ++i) {
    EXPECT_EQ(want.ops[i].id, have.ops[i].id);
    EXPECT_EQ(want.ops[i].revision, have.ops[i].revision);
    EXPECT_TRUE(std::equal(want.ops[i].attrs.begin(), want.ops[i].attrs.end(), have.ops[i].attrs.begin(),
                           have.ops[i].attrs.end()));
    EXPECT_EQ(want.ops[i].inputs, list(have.ops[i].inputs));
    EXPECT_EQ(want.ops[i].weights, list(have.ops[i].weights));
    EXPECT_EQ(want.ops[i].states, list(have.ops[i].states));
    EXPECT_EQ(want.ops[i].outputs, list(have.ops[i].outputs));
  }
}

TEST(Program, RoundTrip) {
  const ProgramSpec spec = sample_spec();
  MemoryOs os;
  os.files["m.swy"] = file_of(spec);
  const auto loaded = Program::load(os, "m.swy");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  ASSERT_EQ(spec.functions.size(), loaded->functions.size());
  for (size_t i = 0; i < spec.functions.size(); ++i) expect_same(spec.functions[i], loaded->functions[i]);
  ASSERT_EQ(spec.tensors.size(), loaded->tensors.size());
  for (size_t i = 0; i < spec.tensors.size(); ++i) {
    const Tensor& t = loaded->tensors[i];
    EXPECT_EQ(spec.tensors[i].name, t.name);
    EXPECT_EQ(spec.tensors[i].dtype, t.dtype);
    EXPECT_EQ(spec.tensors[i].group, t.group);
    EXPECT_EQ(spec.tensors[i].dims, std::vector<uint64_t>(t.dims.begin(), t.dims.begin() + t.rank));
    ASSERT_EQ(spec.tensors[i].packed.size() + 1, t.segments.size());
    for (size_t s = 0; s < t.segments.size(); ++s) {
      const auto bytes = loaded->segment_bytes(t.segments[s]);
      const auto want = sample_bytes(i + s, bytes.size());
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), want.begin(), want.end())) << t.name;
    }
  }
  ASSERT_EQ(spec.states.size(), loaded->states.size());
  for (size_t i = 0; i < spec.states.size(); ++i) {
    const State& s = loaded->states[i];
    EXPECT_EQ(spec.states[i].name, s.name);
    EXPECT_EQ(spec.states[i].kind, s.kind);
    EXPECT_EQ(spec.states[i].dtype, s.dtype);
    EXPECT_EQ(spec.states[i].dims, std::vector<uint64_t>(s.dims.begin(), s.dims.begin() + s.rank));
  }
  EXPECT_EQ("qwen3_5_moe", loaded->architecture);
  EXPECT_EQ(4096u, loaded->context_length);
  EXPECT_EQ(spec.eos_ids, list(loaded->eos_ids));
  EXPECT_EQ(spec.source_config, loaded->source_config);
  EXPECT_EQ(spec.quantization, loaded->quantization);
  EXPECT_EQ(spec.tokenizer_json, loaded->tokenizer_json);
  EXPECT_EQ(spec.chat_template, loaded->chat_template);
  ASSERT_EQ(2u, loaded->metadata.size());
  EXPECT_EQ("two\nlines", loaded->metadata[1].second);
}

TEST(Program, AMovedProgramKeepsItsSegments) {
  Program first = *parse(file_of(sample_spec()));
  const Program second = std::move(first);
  EXPECT_EQ(second.segments.data(), second.tensors[0].segments.data());
  EXPECT_TRUE(second.verify_weights().ok());
}

TEST(Program, DescribesOperands) {
  const Program p = *parse(file_of(sample_spec()));
  const swy_tensor t = describe(*p.find_tensor("gate_up"));
  EXPECT_EQ(sizeof t, t.struct_size);
  EXPECT_EQ(SWY_I4, static_cast<int>(t.dtype));
  EXPECT_EQ(32u, t.group);
  EXPECT_EQ(3u, t.rank);
  EXPECT_EQ(24u, t.dims[1]);
  const swy_tensor v = describe(p.main().values[0], 7);
  EXPECT_EQ(2u, v.rank);
  EXPECT_EQ(7u, v.dims[0]);
  EXPECT_EQ(40u, v.dims[1]);
  EXPECT_EQ(static_cast<uint32_t>(SWY_STATE_PAGED), describe(p.states[0]).state);
  EXPECT_EQ(nullptr, p.find_tensor("nothing"));
}

TEST(Program, TheSampleProgramsUseEveryOpInEveryRevision) {
  std::set<std::pair<uint32_t, uint32_t>> used;
  for (const ProgramSpec& spec : {sample_spec(), revisions_spec()}) {
    for (const auto& function : spec.functions) {
      for (const auto& op : function.ops) used.emplace(op.id, op.revision);
    }
  }
  for (const swy_op_spec& known : known_ops()) {
    EXPECT_EQ(used.contains({known.id, known.revision}), known.in_files != 0) << known.name << " " << known.revision;
  }
  EXPECT_EQ(nullptr, find_op("no such op"));
  EXPECT_EQ("#99", op_name(99));
}

TEST(Program, SecondRevisionsComeBackAsTheyWere) {
  const ProgramSpec spec = revisions_spec();
  const auto program = parse(file_of(spec));
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(file_of(spec), file_of(spec_of(*program)));
}

TEST(Program, VerifyWeightsFindsEveryFlippedByte) {
  const auto file = file_of(sample_spec());
  const Program good = *parse(file);
  EXPECT_TRUE(good.verify_weights().ok());
  for (const Tensor& tensor : good.tensors) {
    for (const Segment& segment : tensor.segments) {
      for (const uint64_t at : {uint64_t{0}, segment.bytes / 2, segment.bytes - 1}) {
        auto bad = file;
        bad[segment.offset + at] ^= std::byte{0x10};
        const Status status = parse(bad)->verify_weights();
        EXPECT_EQ(Code::invalid_data, status.code());
        EXPECT_NE(std::string::npos, status.message().find(fmt::format("'{}'", tensor.name))) << status.message();
      }
    }
  }
}

TEST(Program, VerifyWeightsReportsProgressAndStops) {
  const Program p = *parse(file_of(sample_spec()));
  uint64_t last = 0, whole = 0;
  EXPECT_TRUE(p.verify_weights([&](uint64_t done, uint64_t total) {
                 EXPECT_GT(done, last);
                 last = done;
                 whole = total;
                 return true;
               }).ok());
  EXPECT_EQ(whole, last);
  EXPECT_EQ(Code::cancelled, p.verify_weights([](uint64_t, uint64_t) { return false; }).code());
}

}  // namespace
}  // namespace switchyard
