// A command list while it is recorded and after.
#pragma once

#include <vector>

#include "device.h"
#include "switchyard/step.h"

namespace gpu {

// What a kernel brings to the second-level cache for one that is recorded after it.
struct Ahead {
  const void* from[8];
  uint32_t bytes[8];  // multiples of 16; 0: nothing
};

// A mixture's router, for the projection that its input comes from: what a block has made of it, the block multiplies
// itself, and adds up in fixed point, so that the order does not matter.
struct RouteAhead {
  const uint16_t *router, *mix;  // bf16 [experts, hidden]; the shared expert's gate [hidden], or null
  const void* norm;              // [hidden], f32 or bf16
  long long* sums;               // [experts + 1], zero when the step begins
  float bias;                    // of the norm
  uint32_t experts, hidden;      // experts 0: there is no router
  uint32_t norm_is_f32;
};
constexpr uint32_t kMostSums = 264;            // of a router
constexpr float kRouteScale = 68719476736.0f;  // 2^36: a sum may be 1e8 at most

}  // namespace gpu

struct swy_list {
  swy_device* device = nullptr;
  swy_bucket bucket{};
  const swy_step* step = nullptr;  // in the device's memory
  int32_t* tokens = nullptr;
  cudaStream_t capture = nullptr;
  bool capturing = false;
  bool started = false;  // a kernel was recorded
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  uint32_t* counters = nullptr;  // zero between kernels
  uint64_t counters_used = 0;
  std::vector<gpu::Ahead> ahead;
  gpu::Ahead* ahead_on_device = nullptr;  // filled when the list is finalized
  std::vector<gpu::RouteAhead> routes;
  std::vector<const float*> route_inputs;  // what each projection writes
  gpu::RouteAhead* routes_on_device = nullptr;
  long long* route_sums = nullptr;  // [kMostRoutes, kMostSums]
  // Timestamps (profile.h), if they were on when it began.
  uint64_t* ticks = nullptr;       // in the device's memory: of the beginning, and of each launch's end
  std::vector<const char*> spans;  // names of the launches
  const char* kernel = nullptr;    // that is being recorded
  bool begins = true;              // it has launched nothing yet
};

namespace gpu {

// Counters of one kernel, by which the last of some blocks knows that it is the last; the kernel leaves them zero.
uint32_t* take_counters(swy_list& list, uint32_t n, swy_error* error);

// Where a kernel will find what it is to bring ahead, in the device's memory; null: nothing. To be filled while the
// list is recorded: last_ahead, null if there is none that is open.
const Ahead* take_ahead(swy_list& list);
Ahead* last_ahead(swy_list& list);

// The same for a router. `y`: what the projection writes; the router's must be the same.
const RouteAhead* take_route(swy_list& list, const float* y);
RouteAhead* last_route(swy_list& list, const float* x);

}  // namespace gpu
