// SPDX-License-Identifier: Apache-2.0
// Operations and encodings that have a name: what is written is read, and files that break a rule are refused with one
// line that says which.
#include <gtest/gtest.h>

#include <cmath>

#include "core/program/decoded.h"
#include "switchyard/weights.h"
#include "tests/program/sample.h"

namespace switchyard {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

enum : size_t { kMain, kGelu, kGated, kConv };  // functions of named_spec

TEST(Named, RoundTrip) {
  const auto program = parse(file_of(named_spec()));
  ASSERT_TRUE(program.ok()) << program.status().message();
  const Op& gated = program->main().ops[3];
  EXPECT_EQ(op_kind(gated), "acme.gated/1");
  EXPECT_EQ(gated.function, kGated);
  EXPECT_EQ(program->functions[kGated].weights.size(), 1u);
  EXPECT_EQ(program->functions[kConv].states.size(), 1u);
  EXPECT_EQ(op_kind(program->functions[kGated].ops[1]), "acme.gelu/1");
  const Tensor& up = *program->find_tensor("layers.1.up");
  EXPECT_EQ(encoding_name(up), "acme.nf4/1");
  ASSERT_NE(describe(up).encoding, nullptr);
  EXPECT_EQ(describe(up).encoding->codes[15], 1.0f);
  EXPECT_EQ(describe(*program->find_tensor("layers.1.conv")).encoding, nullptr);
  const auto again = parse(file_of(spec_of(*program)));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->main().ops[3].function, kGated);
}

TEST(Named, AMovedProgramKeepsItsEncodings) {
  auto program = parse(file_of(named_spec()));
  ASSERT_TRUE(program.ok());
  const Program moved = std::move(*program);
  EXPECT_STREQ(describe(moved.tensors[0]).encoding->name, "acme.nf4/1");
}

TEST(Named, AWeightIsDecoded) {
  const auto program = parse(file_of(named_spec()));
  ASSERT_TRUE(program.ok());
  const Tensor& up = *program->find_tensor("layers.0.up");
  const swy_tensor encoded = describe(up);
  swy_weight_planes planes;
  ASSERT_EQ(swy_weight_planes_of(&encoded, &planes), 0);
  std::vector<float> row(encoded.dims[1]);
  for (const swy_dtype dtype : {SWY_F32, SWY_BF16}) {
    const swy_tensor form = decoded_form(encoded, dtype);
    swy_weight_planes plain;
    ASSERT_EQ(swy_weight_planes_of(&form, &plain), 0);
    std::vector<std::byte> bytes(plain.total_bytes);
    decode_weight(encoded, program->segment_bytes(up).data(), dtype, bytes.data());
    std::vector<float> now(encoded.dims[1]);
    for (uint64_t r = 0; r < planes.rows; ++r) {
      swy_weight_row(&encoded, &planes, program->segment_bytes(up).data(), r, row.data());
      swy_weight_row(&form, &plain, bytes.data(), r, now.data());
      for (size_t i = 0; i < row.size(); ++i) {
        ASSERT_EQ(now[i], dtype == SWY_F32 ? row[i] : swy_bf16_to_f32(swy_f32_to_bf16(row[i])));
      }
    }
  }
}

struct NamedFault {
  const char* name;
  void (*change)(ProgramSpec& spec);
  const char* message;
};
std::ostream& operator<<(std::ostream& out, const NamedFault& m) { return out << m.name; }

ProgramSpec::Op& gated(ProgramSpec& s) { return s.functions[kMain].ops[3]; }
ProgramSpec::Op& gelu(ProgramSpec& s) { return s.functions[kGated].ops[1]; }

// An encoding that no tensor has.
void add_encoding(ProgramSpec& s, uint32_t bits, uint32_t group, swy_dtype scales, size_t codes, float code = 0) {
  s.encodings.push_back({"acme.other/1", bits, group, scales, false, std::vector<float>(codes, code)});
}

// Functions that each have `ops` operations on the one before: additions in the first.
void tower(ProgramSpec& s, size_t functions, size_t ops) {
  const size_t first = s.functions.size();
  for (size_t f = 0; f < functions; ++f) {
    ProgramSpec::Function& made = s.functions.emplace_back();
    made.name = fmt::format("tower{}", f);
    made.values.push_back({"in", SWY_F32, SWY_ROWS_STEP, 64});
    made.inputs = {0};
    for (uint32_t i = 0; i < ops; ++i) {
      made.values.push_back({fmt::format("v{}", i), SWY_F32, SWY_ROWS_STEP, 64});
      ProgramSpec::Op op{SWY_OP_ADD, 1, {}, {i, i}, {}, {}, {i + 1}};
      if (f != 0) {
        op.id = SWY_OP_NAMED;
        op.inputs = {i};
        op.name = "acme.tower/1";
        op.function = fmt::format("tower{}", f - 1);
      }
      made.ops.push_back(op);
    }
    made.outputs = {static_cast<uint32_t>(ops)};
  }
  gelu(s).function = s.functions[first + functions - 1].name;
}

const std::vector<NamedFault> kNamedFaults = {
    {"name too long", [](ProgramSpec& s) { gelu(s).name = "acme." + std::string(57, 'g') + "/1"; },
     "a name is vendor.name/revision in at most 63 of [a-z0-9._-]"},
    {"name of control codes", [](ProgramSpec& s) { gelu(s).name = "acme.\x1b[2J/1"; },
     "an op is named 'acme.\\x1B[2J/1'"},
    {"name with a NUL", [](ProgramSpec& s) { gelu(s).name = std::string("acme.gelu/1\0more", 16); }, "an op is named"},
    {"no name", [](ProgramSpec& s) { gelu(s).name = ""; }, "an op is named ''"},
    {"name of a known op", [](ProgramSpec& s) { s.functions[kMain].ops[0].name = "acme.embedding/1"; },
     "op embedding has a name or a function; only ops of id 65536 have them"},
    {"revision", [](ProgramSpec& s) { gelu(s).revision = 2; }, "op 'acme.gelu/1' has revision 2"},
    {"no function", [](ProgramSpec& s) { gelu(s).function = ""; },
     "op 'acme.gelu/1' has no function that does the same"},
    {"unknown function", [](ProgramSpec& s) { gelu(s).function = "swish"; },
     "op 'acme.gelu/1' is to be done by function 'swish', which the program does not have"},
    {"main function", [](ProgramSpec& s) { gelu(s).function = "main"; }, "is done by the main function"},
    {"attributes", [](ProgramSpec& s) { gelu(s).attrs.resize(4097); },
     "has 4097 bytes of attributes; at most 4096 are taken"},
    {"too many inputs", [](ProgramSpec& s) { gated(s).inputs.assign(17, 0); },
     "it has 17 inputs; at most 16 are taken"},
    {"unknown weight", [](ProgramSpec& s) { gated(s).weights = {99}; }, "weight 99 does not exist; there are 8"},
    {"unknown state", [](ProgramSpec& s) { s.functions[kMain].ops[1].states = {7}; }, "state 7 does not exist"},
    {"input count", [](ProgramSpec& s) { gated(s).inputs.push_back(0); },
     "op 'acme.gated/1', done by function 'gated': it has 2 inputs, and the function takes 1"},
    {"weight count", [](ProgramSpec& s) { gated(s).weights.clear(); }, "it has 0 weights, and the function takes 1"},
    {"state count", [](ProgramSpec& s) { s.functions[kMain].ops[1].states.clear(); },
     "it has 0 states, and the function takes 1"},
    {"output width",
     [](ProgramSpec& s) {
       s.functions[kGelu].values[2].width = s.functions[kGelu].values[0].width = s.functions[kGelu].values[1].width =
           32;
     },
     "input 0 is f32 [rows, 64], and the function takes f32 [rows, 32]"},
    {"weight shape", [](ProgramSpec& s) { gated(s).weights = {0}; },
     "weight 0 is acme.nf4/1 in groups of 16 [50, 32], and the function takes acme.nf4/1 in groups of 16 [64, 32]"},
    {"state shape", [](ProgramSpec& s) { s.states[1].dims[0] = 33; },
     "state 0 is slotted f32 [33, 3], and the function takes slotted f32 [32, 3]"},
    {"state written twice", [](ProgramSpec& s) { s.functions[kMain].ops[6].states = {0}; },
     "state 'layers.0.conv' is written by two ops"},
    {"state of nobody's", [](ProgramSpec& s) { s.functions[kConv].ops[0].states = {1}; },
     "function 'conv': state 'layers.1.conv' is no parameter"},
    {"parameter twice", [](ProgramSpec& s) { s.functions[kGated].weights.push_back(s.functions[kGated].weights[0]); },
     "function 'gated': a weight is listed twice among its parameters"},
    {"input that is an output", [](ProgramSpec& s) { s.functions[kGelu].outputs = {0}; },
     "function 'gelu': 'v0' is an input and an output"},
    {"cycle",
     [](ProgramSpec& s) {
       tower(s, 2, 1);
       s.functions[4].ops[0] = s.functions[5].ops[0];
       s.functions[4].ops[0].function = "tower1";
     },
     "function 'tower1' leads back to itself"},
    {"itself",
     [](ProgramSpec& s) {
       tower(s, 2, 1);
       s.functions[5].ops[0].function = "tower1";
     },
     "function 'tower1' leads back to itself"},
    {"too deep", [](ProgramSpec& s) { tower(s, 5, 1); }, "is more than 4 functions deep"},
    {"too many operations", [](ProgramSpec& s) { tower(s, 2, 256); }, "operations; at most 65536 are planned"},
    {"no bits", [](ProgramSpec& s) { add_encoding(s, 0, 32, SWY_F16, 1); },
     "encoding 'acme.other/1' (0 bits, groups of 32, scales of f16): its elements have 1 to 8 bits"},
    {"nine bits", [](ProgramSpec& s) { add_encoding(s, 9, 32, SWY_F16, 512); },
     "encoding 'acme.other/1' (9 bits, groups of 32, scales of f16): its elements have 1 to 8 bits"},
    {"huge group", [](ProgramSpec& s) { add_encoding(s, 4, UINT32_MAX, SWY_F16, 16); },
     "(4 bits, groups of 4294967295, scales of f16): its groups have at most 65,536 elements"},
    {"missing codes", [](ProgramSpec& s) { add_encoding(s, 4, 32, SWY_F16, 15); },
     "encoding 'acme.other/1' has 15 codes; 4 bits have 16"},
    {"no codes", [](ProgramSpec& s) { add_encoding(s, 4, 32, SWY_F16, 0); }, "has 0 codes; 4 bits have 16"},
    {"codes of NaN", [](ProgramSpec& s) { add_encoding(s, 4, 32, SWY_F16, 16, std::nanf("")); },
     "a code is not a finite number"},
    {"scales of i8", [](ProgramSpec& s) { add_encoding(s, 4, 32, SWY_I8, 16); },
     "its scales are f32, f16, bf16, e8m0 or f8_e4m3"},
    {"name of an encoding",
     [](ProgramSpec& s) { add_encoding(s, 4, 32, SWY_F16, 16), s.encodings.back().name = "nf4"; },
     "encoding 'nf4' (4 bits, groups of 32, scales of f16): its name is not vendor.name/revision"},
    {"one name twice", [](ProgramSpec& s) { add_encoding(s, 4, 32, SWY_F16, 16), add_encoding(s, 4, 32, SWY_F16, 16); },
     "two encodings are named 'acme.other/1'"},
    {"encoding of a plain weight", [](ProgramSpec& s) { s.tensors[1].encoding = "acme.nf4/1"; },
     "tensor 'layers.0.conv' of bf16 names an encoding"},
    {"unknown encoding", [](ProgramSpec& s) { s.tensors[1].encoding = "acme.nf5/1"; },
     "tensor 'layers.0.conv' has the encoding 'acme.nf5/1', which the program does not describe"},
    {"encoded norm",
     [](ProgramSpec& s) {
       s.tensors.push_back({"norm", SWY_ENCODED, 16, {32}, {}, "acme.nf4/1"});
       s.functions[kMain].values.push_back({"normed", SWY_F32, SWY_ROWS_STEP, 32});
       s.functions[kMain].ops.push_back({SWY_OP_RMS_NORM,
                                         1,
                                         attr_bytes(swy_rms_norm_attrs{0, 1e-6f, 0, 0}),
                                         {0},
                                         {static_cast<uint32_t>(s.tensors.size() - 1)},
                                         {},
                                         {static_cast<uint32_t>(s.functions[kMain].values.size() - 1)}});
     },
     "weight 'w' ('norm') cannot be acme.nf4/1"},
};

class NamedRules : public ::testing::TestWithParam<NamedFault> {};

TEST_P(NamedRules, ABrokenRuleIsNamed) {
  ProgramSpec spec = named_spec();
  ASSERT_TRUE(parse(unchecked_file_of(spec)).ok());
  GetParam().change(spec);
  const auto program = parse(unchecked_file_of(spec));
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(Code::invalid_data, program.status().code());
  EXPECT_NE(std::string::npos, program.status().message().find(GetParam().message)) << program.status().message();
  for (const char c : program.status().message()) EXPECT_TRUE(c >= 0x20 && c < 0x7f);
}

INSTANTIATE_TEST_SUITE_P(All, NamedRules, ::testing::ValuesIn(kNamedFaults));

TEST(Named, FunctionsMayBeFourDeep) {
  ProgramSpec spec = named_spec();
  tower(spec, 3, 1);  // main, gated, and these three
  EXPECT_TRUE(parse(unchecked_file_of(spec)).ok());
}

}  // namespace
}  // namespace switchyard
