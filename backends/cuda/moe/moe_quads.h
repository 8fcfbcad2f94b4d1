// SPDX-License-Identifier: Apache-2.0
// The experts of few rows, four rows at a time (moe_quads.cu).
#pragma once

#include "common/quad_rows.cuh"
#include "moe.cuh"

namespace gpu {

// The router's results for these kernels.
struct Quads {
  uint16_t* ids;  // [rows, top_k]: the experts of a row
  uint32_t most_rows;
  uint32_t room;  // places per expert: row i of expert e has place e * room + i
  QuadRows x, h;  // of rows; of places
};

// Limits of these kernels.
constexpr uint32_t kMostQuadRows = 64, kQuadExperts = 256, kQuadChosen = 8;

// Whether these kernels support `op`, with up to kMostQuadRows rows.
bool supports_quads(const swy_op& op);
// The parts of the workspace, with `room` places for every expert.
Quads place_quads(Arena& arena, const swy_op& op, uint32_t room);
// pairs [places, hidden]: the experts' results of their rows, bf16.
swy_status record_quads(const Recording& r, const Mixture& m, const Quads& q, uint16_t* pairs);

}  // namespace gpu
