// SPDX-License-Identifier: Apache-2.0
// The one table of cases that every backend runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plugins_api/check/case.h"

namespace switchyard::check {

struct CaseSpec {
  swy_op_id op = 0;
  std::string name;   // "linear.i4.g32.rows65": unique
  bool slow = false;  // only in a full run
  std::function<Case(Random&)> build;
};

const std::vector<CaseSpec>& all_cases();

// Some more of each operation, with shapes and row counts that the seed draws.
std::vector<CaseSpec> random_cases(uint64_t seed);

std::string op_name(swy_op_id op);
// "i4.g32", "i8.row", "bf16".
std::string encoding_name(swy_dtype encoding, uint32_t group);

struct Encoding {
  swy_dtype dtype;
  uint32_t group;
  std::string name() const { return encoding_name(dtype, group); }
};
// Every encoding, in each size of its groups.
const std::vector<Encoding>& all_encodings();

// Row counts of a step's sequences, `rows` in all: decode rows beside prefill chunks.
std::vector<uint32_t> ragged(uint32_t rows);

// Makes rows of input 0 unlike each other: of every four the second becomes zeros, the third tiny, the fourth huge.
void make_uneven(Case& c);

// Rows of a MOE or MOE_ADD whose experts, as the router chooses them, do not lead the others by several times an 8-bit
// rounding error of the input. None of other operations.
std::vector<uint64_t> unclear_rows(const Case& c);

// Inputs of ATTENTION, and the norms of its query and key heads.
void attention_inputs(Builder& b, const swy_attention_attrs& a, bool normed = true);
// Inputs, weights, states and output of GATED_DELTA; plain weights but for the decays' have this type.
void gated_delta_operands(Builder& b, const swy_gated_delta_attrs& a, swy_dtype plain);

// One per file of cases/.
void add_cases(std::vector<CaseSpec>& out);
void rms_norm_cases(std::vector<CaseSpec>& out);
void linear_cases(std::vector<CaseSpec>& out);
void embedding_cases(std::vector<CaseSpec>& out);
void moe_cases(std::vector<CaseSpec>& out);
void mlp_cases(std::vector<CaseSpec>& out);
void attention_cases(std::vector<CaseSpec>& out);
void gated_delta_cases(std::vector<CaseSpec>& out);
void lm_head_cases(std::vector<CaseSpec>& out);
void cast_cases(std::vector<CaseSpec>& out);
void sample_cases(std::vector<CaseSpec>& out);
void random_add_cases(Random& random, std::vector<CaseSpec>& out);
void random_rms_norm_cases(Random& random, std::vector<CaseSpec>& out);
void random_linear_cases(Random& random, std::vector<CaseSpec>& out);
void random_embedding_cases(Random& random, std::vector<CaseSpec>& out);
void random_moe_cases(Random& random, std::vector<CaseSpec>& out);
void random_mlp_cases(Random& random, std::vector<CaseSpec>& out);
void random_attention_cases(Random& random, std::vector<CaseSpec>& out);
void random_gated_delta_cases(Random& random, std::vector<CaseSpec>& out);
void random_lm_head_cases(Random& random, std::vector<CaseSpec>& out);
void random_cast_cases(Random& random, std::vector<CaseSpec>& out);
void random_sample_cases(Random& random, std::vector<CaseSpec>& out);

}  // namespace switchyard::check
