// SPDX-License-Identifier: Apache-2.0
// Which instruction sets this backend uses.
#pragma once

#include <cstdint>
#include <string>

namespace cpu {

// Each level includes those before it.
enum class Isa : uint32_t {
  baseline = 0,  // x86-64-v2
  avx2 = 1,      // AVX2, FMA, F16C
  avx512 = 2,    // F, BW, DQ, VL, CD, VNNI
  amx = 3,       // AMX-TILE, AMX-INT8, AMX-BF16, which the operating system must permit
};

// The highest level of this processor that the operating system enables. Requests the permission to use AMX once.
Isa best_isa();

// The level in use: best_isa(), or less if the option `isa` says so. Call set_isa only while opening the device.
Isa isa();
void set_isa(Isa level);

// Whether activations stay in floating point (the option `exact`) instead of being rounded to 8 bits.
bool exact();
void set_exact(bool on);

const char* isa_name(Isa level);
// Why a level is not available here: "the processor lacks avx512_vnni", "the operating system does not permit AMX".
const std::string& isa_missing(Isa level);

}  // namespace cpu
