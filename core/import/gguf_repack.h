// SPDX-License-Identifier: Apache-2.0
// Blocks of GGUF files as our own encodings (switchyard/weights.h), element by element, without going through fp32.
//
//   held exactly      F32, BF16; Q4_0 as i4; Q4_1 as i4a; Q5_0, Q8_0, IQ4_NL and MXFP4 as i8
//   scales rounded    Q4_K as i4a and IQ4_XS as i8; in groups of 16: Q6_K as i8, Q3_K as i4, Q2_K as i4a. A scale there
//                     is a product, which fp16 holds to 11 bits
//   nearest           Q5_1 and Q5_K as i8, whose scale is a whole part of theirs where that is better
//   through fp32      F16 as bf16
//
// Groups have 32 elements unless said otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/import/gguf_blocks.h"
#include "core/models/source.h"

namespace switchyard {

inline constexpr uint32_t kRepackGroup = 32;  // elements of most groups, and of the largest

// The encoding for tensors of this type.
WeightEncoding encoding_of(const GgufBlock& block);

// Where the elements of one group of this encoding go: a byte each for i8, half a byte for i4 and i4a; fp16.
struct RepackedGroup {
  std::byte* quants;
  uint16_t* scale;
  uint16_t* offset;  // i4a
};

// One block of MXFP4 in our encoding of that name: elements in another order, the scale's byte as a number. False: the
// scale is no number.
bool repack_mxfp4(const std::byte* block, std::byte* quants, uint16_t* scale);

// Group `group` of a row of blocks. False: this type is not repacked, or these values cannot be.
bool repack_group(const GgufBlock& block, const std::byte* row, uint64_t group, const RepackedGroup& out);

}  // namespace switchyard
