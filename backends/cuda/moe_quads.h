// The experts of few rows, four at a time (moe_quads.cu).
#pragma once

#include "moe.cuh"
#include "quad_rows.cuh"

namespace gpu {

// What the router leaves for these kernels.
struct Quads {
  uint16_t* ids;  // [rows, top_k]: the experts of a row
  uint32_t most_rows;
  uint32_t room;  // places of every expert: row i of expert e has e * room + i
  QuadRows x, h;  // of rows; of places
};

// What there is room for.
constexpr uint32_t kMostQuadRows = 64, kQuadExperts = 256, kQuadChosen = 8;

// Whether these kernels can do `op`, of up to kMostQuadRows rows.
bool supports_quads(const swy_op& op);
// What lies in the workspace, with `room` places for every expert.
Quads place_quads(Arena& arena, const swy_op& op, uint32_t room);
// pairs [places, hidden] = what experts make of their rows, bf16.
swy_status record_quads(const Recording& r, const Mixture& m, const Quads& q, uint16_t* pairs);

}  // namespace gpu
