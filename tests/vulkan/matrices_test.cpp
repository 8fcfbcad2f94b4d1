// SPDX-License-Identifier: Apache-2.0
// Shaders for the KHR extension for matrices, translated from those that the compiler here made for NVIDIA's.
#include "matrices.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

namespace {

#include "linear_tiles.comp.h"
#include "linear_tiles.cooperative_128.h"
#include "linear_tiles.cooperative_32.h"
#include "moe_tiles.cooperative_up_128.h"

using Words = std::vector<uint32_t>;
using testing::IsEmpty;

template <size_t N>
Words words_of(const uint32_t (&array)[N]) {
  return Words(array, array + N);
}

// Numbers of SPIR-V's registry.
constexpr uint32_t kExtension = 10, kCapability = 17, kTypeFloat = 22, kConstant = 43, kLoad = 61;
constexpr uint32_t kTypeKhr = 4456, kLoadKhr = 4457, kStoreKhr = 4458, kMulAddKhr = 4459;
constexpr uint32_t kTypeNv = 5358, kLengthNv = 5362;  // in the order of KHR's
constexpr uint32_t kMatricesNv = 5357;                // a capability

struct Instruction {
  uint32_t op = 0;
  Words a;
};

struct Module {
  uint32_t bound = 0;
  std::vector<Instruction> all;
  std::map<uint32_t, uint32_t> constants, float_bits, types;  // value; bits; the type of a result
  std::map<uint32_t, Words> matrices;                         // operands of a type

  explicit Module(const Words& words) : bound(words.at(3)) {
    for (size_t i = 5; i < words.size(); i += words[i] >> 16) {
      Instruction one{words[i] & 0xffffu, {}};
      one.a.assign(words.begin() + static_cast<ptrdiff_t>(i) + 1,
                   words.begin() + static_cast<ptrdiff_t>(i + (words[i] >> 16)));
      if (one.op == kConstant) constants[one.a[1]] = one.a[2];
      if (one.op == kTypeFloat) float_bits[one.a[0]] = one.a[1];
      if (one.op == kTypeKhr) matrices[one.a[0]] = one.a;
      if (one.op == kLoad || one.op == kLoadKhr || one.op == kMulAddKhr) types[one.a[1]] = one.a[0];
      all.push_back(std::move(one));
    }
  }
  size_t count(uint32_t op) const {
    return static_cast<size_t>(std::count_if(all.begin(), all.end(), [&](const auto& i) { return i.op == op; }));
  }
  // The role of a result's matrices in a product: first factors 0, second ones 1, sums 2.
  uint32_t use_of(uint32_t result) const { return constants.at(matrices.at(types.at(result)).at(5)); }
};

bool has_text(const Module& m, const std::string& text) {
  for (const Instruction& i : m.all) {
    if (i.op == kExtension && std::memcmp(i.a.data(), text.c_str(), text.size() + 1) == 0) return true;
  }
  return false;
}

void expect_translated(const Words& nv) {
  const Words khr = gpu::with_khr_matrices(nv);
  ASSERT_FALSE(khr.empty());
  EXPECT_FALSE(gpu::uses_nv_matrices(khr));
  const Module before(nv), after(khr);
  EXPECT_EQ(after.bound, before.bound + 3);
  EXPECT_EQ(after.all.size(), before.all.size() + 3);
  EXPECT_TRUE(has_text(after, "SPV_KHR_cooperative_matrix"));
  EXPECT_FALSE(has_text(after, "SPV_NV_cooperative_matrix"));
  for (uint32_t op = kTypeNv; op <= kLengthNv; ++op) {
    EXPECT_EQ(after.count(op), 0u) << op;
    EXPECT_EQ(after.count(op - kTypeNv + kTypeKhr), before.count(op)) << op;
  }
  for (const Instruction& i : after.all) {
    if (i.op == kCapability) {
      EXPECT_NE(i.a[0], kMatricesNv);
    } else if (i.op == kTypeKhr) {
      const bool sums = after.float_bits.at(i.a[1]) == 32;
      EXPECT_EQ(after.constants.at(i.a[5]) == 2, sums);
    } else if (i.op == kLoadKhr) {
      EXPECT_EQ(after.constants.at(i.a[3]), after.use_of(i.a[1])) << "B lies by columns, A by rows";
    } else if (i.op == kStoreKhr) {
      EXPECT_EQ(after.constants.at(i.a[2]), 0u);
    } else if (i.op == kMulAddKhr) {
      EXPECT_EQ(after.use_of(i.a[1]), 2u);
      EXPECT_EQ(after.use_of(i.a[2]), 0u);
      EXPECT_EQ(after.use_of(i.a[3]), 1u);
      EXPECT_EQ(after.use_of(i.a[4]), 2u);
    }
  }
  EXPECT_GT(after.count(kMulAddKhr), 0u);
  EXPECT_GT(after.count(kStoreKhr), 0u);
}

TEST(Matrices, ShadersAreTranslated) {
  expect_translated(words_of(linear_tiles_cooperative_128));
  expect_translated(words_of(linear_tiles_cooperative_32));
  expect_translated(words_of(moe_tiles_cooperative_up_128));
}

TEST(Matrices, WhatIsNotOfMatricesStays) {
  const Words nv = words_of(linear_tiles_cooperative_128), khr = gpu::with_khr_matrices(nv);
  const Module before(nv), after(khr);
  size_t at = 0;
  for (const Instruction& i : before.all) {
    while (after.all.at(at).op == kConstant && after.all[at].a[1] >= before.bound) ++at;
    const Instruction& same = after.all.at(at++);
    const bool matrices = i.op >= kTypeNv && i.op <= kLengthNv;
    const bool declares = i.op == kCapability || i.op == kExtension;
    if (matrices) {
      EXPECT_EQ(same.op, i.op - kTypeNv + kTypeKhr);
    } else {
      EXPECT_EQ(same.op, i.op);
      EXPECT_TRUE(declares || same.a == i.a);
    }
  }
  EXPECT_EQ(at, after.all.size());
}

TEST(Matrices, OthersAreLeftAlone) {
  const Words plain = words_of(linear_tiles_comp);
  EXPECT_FALSE(gpu::uses_nv_matrices(plain));
  EXPECT_THAT(gpu::with_khr_matrices(plain), IsEmpty());
  EXPECT_THAT(gpu::with_khr_matrices({}), IsEmpty());
}

TEST(Matrices, ModulesThatBreakOffAreRefused) {
  const Words whole = words_of(linear_tiles_cooperative_128);
  for (const size_t words : {1, 5, 6, 200}) {
    const Words part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(words));
    EXPECT_THAT(gpu::with_khr_matrices(part), IsEmpty()) << words;
  }
  Words torn = whole;  // an instruction that is longer than the module
  torn[5] |= 0xffff0000u;
  EXPECT_THAT(gpu::with_khr_matrices(torn), IsEmpty());
}

}  // namespace
