// SPDX-License-Identifier: Apache-2.0
// A meeting of all workgroups of a launch, which must all run at once. Writes through coherent references before
// `arrive` are visible through such references after `await`.
//
// One counter serves all launches of a list, with any numbers of workgroups. The first workgroup of each meeting also
// arrives for those that are missing to a power of two. So the bits above it say how many meetings there have been,
// even when the counter wraps around.
#ifndef SWITCHYARD_MEETING_GLSL_
#define SWITCHYARD_MEETING_GLSL_

layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Arrivals { uint count; };
layout(constant_id = 16) const uint kMostLooks = 1;  // seconds of waiting; then a workgroup does not run, and never will
layout(constant_id = 17) const bool kAllLook = false;  // llvmpipe ends loops after 65,535 turns; there all threads look
shared bool gave_up, met;
uint ticket;  // of thread 0

uint power_of_groups() { return 1u << uint(findMSB(gl_NumWorkGroups.x - 1) + 1); }

void arrive(uint64_t counter) {
  memoryBarrierBuffer();
  barrier();
  if (gl_LocalInvocationIndex != 0) return;
  ticket = atomicAdd(Arrivals(counter).count, gl_WorkGroupID.x == 0 ? power_of_groups() - gl_NumWorkGroups.x + 1 : 1);
}

// Whether the meeting of `ticket` is over.
bool look(uint64_t counter) {
  return ((atomicOr(Arrivals(counter).count, 0u) ^ ticket) & ~(power_of_groups() - 1)) != 0;
}

void await(uint64_t counter) {
  bool first = gl_LocalInvocationIndex == 0;
  if (kAllLook) {
    for (uint looks = 0; looks < kMostLooks; ++looks) {
      if (first) met = look(counter);
      barrier();
      bool done = met;
      barrier();
      if (done) break;
    }
    if (first && !met) gave_up = true;
  } else if (first) {
    uint looks = 0;
    while (!look(counter) && looks < kMostLooks) ++looks;
    if (looks == kMostLooks) gave_up = true;
  }
  if (first) memoryBarrierBuffer();
  barrier();
}

#endif
