// SPDX-License-Identifier: Apache-2.0
// The op table: that it is well formed, says what ops.h declares, and is found by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "core/program/op_names.h"
#include "core/program/shape.h"
#include "switchyard/sdk/operands.hpp"

namespace switchyard {
namespace {

std::span<const swy_attr_spec> fields(const swy_op_spec& op) { return {op.attrs, op.attr_count}; }
std::span<const swy_operand_spec> operands(const swy_op_spec& op) { return {op.operands, op.operand_count}; }

std::string ops_header() {
  std::ifstream file(SWITCHYARD_OPS_H);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Attributes in which every u32 is 2.
std::array<uint32_t, 64> twos() {
  std::array<uint32_t, 64> attrs{};
  attrs.fill(2);
  return attrs;
}

size_t count(const swy_op_spec& op, uint32_t list) {
  return static_cast<size_t>(std::count_if(operands(op).begin(), operands(op).end(), [&](const swy_operand_spec& o) {
    return o.list == list && o.when != SWY_GIVEN;
  }));
}

class OpTable : public ::testing::TestWithParam<swy_op_spec> {};

TEST_P(OpTable, FieldsAreThoseOfTheStruct) {
  const std::string header = ops_header();
  std::set<uint32_t> offsets{0};
  for (const swy_attr_spec& field : fields(GetParam())) {
    EXPECT_TRUE(offsets.insert(field.offset).second) << field.name;
    EXPECT_LE(field.offset + 4, GetParam().attrs_size) << field.name;
    const std::string type = field.kind == SWY_ATTR_U32 ? "uint32_t " : "float ";
    EXPECT_NE(std::string::npos, header.find("  " + type + field.name + ";")) << type << field.name;
  }
}

TEST_P(OpTable, RangesNameEarlierFields) {
  const auto words = twos();
  const std::span attrs = std::as_bytes(std::span(words));
  for (size_t i = 0; i < fields(GetParam()).size(); ++i) {
    const swy_attr_spec& field = fields(GetParam())[i];
    EXPECT_EQ(field.kind == SWY_ATTR_U32, field.most != nullptr) << field.name;
    swy_op_spec before = GetParam();
    before.attr_count = static_cast<uint32_t>(i);
    for (const char* expression : {field.most, field.multiple_of, field.divides}) {
      if (expression == nullptr) continue;
      EXPECT_TRUE(evaluate(expression, ShapeNames(before, attrs))) << field.name << ": " << expression;
    }
  }
}

TEST_P(OpTable, EveryNameOfAShapeIsAFieldOrBound) {
  const auto words = twos();
  ShapeNames names(GetParam(), std::as_bytes(std::span(words)));
  for (const swy_operand_spec& o : operands(GetParam())) {
    const auto shape = dimensions_of(o.shape);
    if (o.list == SWY_REF_INPUT || o.list == SWY_REF_OUTPUT) {
      EXPECT_EQ(1u, shape.size()) << o.name;
    }
    EXPECT_LE(shape.size(), 4u) << o.name;
    for (const std::string_view dimension : shape) {
      const std::string_view name = whole_name(dimension);
      if (!evaluate(dimension, names) && !name.empty()) names.bind(name, 0, 7);
      EXPECT_TRUE(evaluate(dimension, names)) << o.name << ": " << dimension;
      EXPECT_TRUE(o.most > 1 || !name.ends_with("[i]")) << o.name;
    }
  }
}

TEST_P(OpTable, OperandsAreInOrder) {
  std::set<std::string_view> seen;
  std::array<bool, 4> given{};  // by list: whether one that may be left out was seen
  for (const swy_operand_spec& o : operands(GetParam())) {
    EXPECT_TRUE(seen.insert(o.name).second) << o.name;
    EXPECT_NE(0u, o.dtypes) << o.name;
    ASSERT_LE(o.list, static_cast<uint32_t>(SWY_REF_OUTPUT)) << o.name;
    EXPECT_EQ(o.list == SWY_REF_STATE, o.state != SWY_STATE_NONE) << o.name;
    EXPECT_TRUE(o.only_read == 0 || o.list == SWY_REF_STATE) << o.name;
    EXPECT_TRUE(!given[o.list] || o.when == SWY_GIVEN) << o.name;
    given[o.list] = o.when == SWY_GIVEN;
    if (o.when != SWY_ALWAYS && o.when != SWY_GIVEN) {
      EXPECT_TRUE(std::any_of(fields(GetParam()).begin(), fields(GetParam()).end(), [&](const swy_attr_spec& field) {
        return field.offset == o.when && field.kind == SWY_ATTR_U32;
      })) << o.name;
    }
    if (o.most > 1) {
      for (const swy_operand_spec& out : operands(GetParam())) {
        EXPECT_TRUE(out.list != SWY_REF_OUTPUT || out.most == o.most) << "one output for each " << o.name;
      }
    }
  }
}

TEST_P(OpTable, FusedOperationsHaveTheOperandsOfTheirParts) {
  const swy_op_spec& fused = GetParam();
  if (fused.first == 0) return;
  const swy_op_spec* first = nullptr;
  const swy_op_spec* second = nullptr;
  for (uint32_t revision = 1; revision <= fused.revision; ++revision) {
    if (const swy_op_spec* op = swy_find_op(fused.first, revision)) first = op;
    if (const swy_op_spec* op = swy_find_op(fused.second, revision)) second = op;
  }
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_EQ(fused.revision, std::max(first->revision, second->revision));
  EXPECT_EQ(count(*first, SWY_REF_INPUT) + count(*second, SWY_REF_INPUT), count(fused, SWY_REF_INPUT) + 1);
  for (const uint32_t list : {SWY_REF_WEIGHT, SWY_REF_STATE}) {
    EXPECT_EQ(count(*first, list) + count(*second, list), count(fused, list));
  }
  EXPECT_EQ(count(*second, SWY_REF_OUTPUT) + fused.keeps, count(fused, SWY_REF_OUTPUT));
  EXPECT_TRUE(first->attrs_size == 0 || second->attrs_size == 0) << "attributes are those of one part";
  EXPECT_EQ(first->attrs_size + second->attrs_size, fused.attrs_size);
  EXPECT_TRUE(first->rows_in == fused.rows_in && second->rows_out == fused.rows_out);
}

INSTANTIATE_TEST_SUITE_P(Entries, OpTable, ::testing::ValuesIn(swy_op_table), [](const auto& entry) {
  return fmt::format("{}_{}", entry.param.name, entry.param.revision);
});

TEST(OpTables, EveryIdOfTheHeaderHasAnEntryOfItsName) {
  const std::string header = ops_header();
  const std::regex id(R"(SWY_OP_([A-Z_]+) = (\d+),)");
  std::set<uint32_t> declared;
  for (std::sregex_iterator m(header.begin(), header.end(), id), end; m != end; ++m) {
    const auto number = static_cast<uint32_t>(std::stoul((*m)[2]));
    std::string name = (*m)[1];
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    EXPECT_EQ(name, op_name(number));
    EXPECT_EQ(swy_find_op(number, 0), find_op(name));
    EXPECT_NE(nullptr, swy_find_op(number, 1)) << name;
    declared.insert(number);
  }
  EXPECT_GE(declared.size(), 31u);
  std::pair<uint32_t, uint32_t> last{0, 0};
  for (const swy_op_spec& op : known_ops()) {
    EXPECT_TRUE(declared.contains(op.id)) << op.name;
    EXPECT_LT(last, std::pair(op.id, op.revision)) << "sorted by id and revision";
    last = {op.id, op.revision};
  }
  EXPECT_EQ(nullptr, find_op("no such op"));
  EXPECT_EQ(nullptr, swy_find_op(SWY_OP_ADD, 99));
  EXPECT_EQ("#99", op_name(99));
  EXPECT_EQ("type 99", dtype_name(99));
}

// An operation of this many inputs, weights, states and outputs.
swy_op op_of(uint32_t id, const void* attrs, std::array<uint32_t, 4> counts) {
  swy_op op{};
  op.struct_size = sizeof op;
  op.id = id;
  op.revision = 1;
  op.attrs = attrs;
  op.input_count = counts[0];
  op.weight_count = counts[1];
  op.state_count = counts[2];
  op.output_count = counts[3];
  return op;
}

swy_ref found(const swy_op& op, const char* name) { return swy_operand(&op, name); }

TEST(OpTables, OperandsAreFoundByName) {
  swy_moe_attrs moe{};
  moe.shared_width = 8;
  EXPECT_EQ(SWY_REF(SWY_REF_WEIGHT, 6), found(op_of(SWY_OP_MOE, &moe, {1, 7, 0, 1}), "shared_gate"));
  moe.shared_width = 0;
  EXPECT_EQ(SWY_REF_NONE, found(op_of(SWY_OP_MOE, &moe, {1, 3, 0, 1}), "shared_gate"));
  EXPECT_EQ(SWY_REF_NONE, found(op_of(SWY_OP_MOE, &moe, {1, 3, 0, 1}), "expert_weights"));
  EXPECT_EQ(SWY_REF(SWY_REF_INPUT, 2), found(op_of(SWY_OP_MOE, &moe, {3, 3, 0, 1}), "expert_weights"));
  EXPECT_EQ(SWY_REF(SWY_REF_WEIGHT, 1), found(op_of(SWY_OP_RMS_NORM_LINEAR, nullptr, {1, 4, 0, 3}), "w"));
  EXPECT_EQ(SWY_REF(SWY_REF_STATE, 0), found(op_of(SWY_OP_SAMPLE, nullptr, {1, 0, 1, 1}), "counts"));
  EXPECT_EQ(SWY_REF_NONE, found(op_of(SWY_OP_SAMPLE, nullptr, {1, 0, 0, 1}), "counts"));
  EXPECT_EQ(SWY_REF_NONE, found(op_of(SWY_OP_ADD, nullptr, {2, 0, 0, 1}), "no such operand"));
  EXPECT_EQ(SWY_REF_NONE, found(op_of(SWY_OP_NAMED, nullptr, {2, 0, 0, 1}), "x"));
}

TEST(OpTables, PlacesAsConstantsAreThoseFoundAtRunTime) {
  using Moe = swy::Operands<SWY_OP_MOE, SWY_OP_MOE_ADD>;
  static_assert(Moe::weight("router") == 0 && swy::Operands<SWY_OP_LINEAR, SWY_OP_LINEAR_ADD>::output("y") == 0);
  swy_moe_attrs moe{};
  moe.shared_width = 8;
  for (const swy_op& op : {op_of(SWY_OP_MOE, &moe, {1, 7, 0, 1}), op_of(SWY_OP_MOE_ADD, &moe, {2, 7, 0, 1})}) {
    EXPECT_EQ(Moe::weight("down"), swy::at(op, "down"));
    EXPECT_EQ(Moe::weight("shared_down_proj"), swy::at(op, "shared_down_proj"));
    EXPECT_EQ(Moe::weight("shared_gate"), swy::at(op, "shared_gate"));
    EXPECT_FALSE(swy::has(op, "expert_ids"));
  }
  const swy_op sample = op_of(SWY_OP_SAMPLE, nullptr, {1, 0, 1, 3});
  EXPECT_EQ(swy::Operands<SWY_OP_SAMPLE>::output("likely_logprobs"), swy::at(sample, "likely_logprobs"));
  EXPECT_EQ(swy::Operands<SWY_OP_GATED_DELTA>::state("delta_state"),
            swy::at(op_of(SWY_OP_GATED_DELTA, nullptr, {4, 4, 2, 1}), "delta_state"));
  EXPECT_EQ(UINT32_MAX, swy::at(op_of(SWY_OP_SAMPLE, nullptr, {1, 0, 0, 1}), "counts"));
}

TEST(OpTables, DescriptionsAreFoundByName) {
  const swy_tensor q{}, k{}, norm{}, kv{}, y{};
  const swy_tensor *inputs[] = {&q, &k, &k}, *weights[] = {&norm, &norm}, *states[] = {&kv}, *outputs[] = {&y};
  const swy_attention_attrs attrs{};
  swy_op op = op_of(SWY_OP_ATTENTION, &attrs, {3, 2, 1, 1});
  op.inputs = inputs, op.weights = weights, op.states = states, op.outputs = outputs;
  EXPECT_EQ(&q, swy_operand_tensor(&op, "q"));
  EXPECT_EQ(&norm, swy_operand_tensor(&op, "k_norm"));
  EXPECT_EQ(&kv, swy_operand_tensor(&op, "kv"));
  EXPECT_EQ(&y, swy_operand_tensor(&op, "y"));
  EXPECT_EQ(nullptr, swy_operand_tensor(&op, "sinks"));
}

TEST(ShapeExpressions, AreEvaluated) {
  swy_moe_attrs attrs{};
  attrs.experts = 4, attrs.width = 12;
  ShapeNames names(*swy_find_op(SWY_OP_MOE, 1), std::as_bytes(std::span(&attrs, 1)));
  names.bind("hidden", 3, 40);
  names.bind("out[i]", 1, 7);
  EXPECT_EQ(24u, evaluate("2*width", names));
  EXPECT_EQ(40u, evaluate("hidden", names));
  EXPECT_EQ(7u, evaluate("out[i]", names, 1));
  EXPECT_EQ(std::nullopt, evaluate("out[i]", names, 0));
  EXPECT_EQ(10u, evaluate("experts + 2*(width - 9)", names));
  EXPECT_EQ(6u, evaluate("experts - 2 + 4", names)) << "from left to right";
  EXPECT_EQ(24u, evaluate("width / 2*experts", names)) << "from left to right";
  for (const char* bad :
       {"width / 5", "width / 0", "width /", "", "nothing", "1 +", "(1", "1)", "1 2", "*", "2a", "99999999999999999999",
        "experts - 5", "18446744073709551615 + 1", "4294967296*4294967296", "1,2", "A"}) {
    EXPECT_EQ(std::nullopt, evaluate(bad, names)) << bad;
  }
  EXPECT_EQ((std::vector<std::string_view>{"experts", "2*width", "hidden"}), dimensions_of("experts, 2*width,hidden "));
  EXPECT_EQ("out[i]", whole_name("out[i]"));
  EXPECT_EQ("", whole_name("2"));
  EXPECT_EQ("", whole_name("2*a"));
}

}  // namespace
}  // namespace switchyard
