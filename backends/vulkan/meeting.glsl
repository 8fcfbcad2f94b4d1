// A meeting of all workgroups of a launch, which must be no more than run at once. What was written through coherent references
// before `arrive` is seen through such references behind `await`.
//
// A counter serves all launches of a list, of one number of workgroups: the first one of each arrives for as many as are
// missing to a power of two, so that the bits above it say how many meetings have been, also when the counter turns over.
#ifndef SWITCHYARD_MEETING_GLSL_
#define SWITCHYARD_MEETING_GLSL_

layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Arrivals { uint count; };
layout(constant_id = 16) const uint kMostLooks = 1;  // seconds of them: then somebody does not run, and never will
layout(constant_id = 17) const bool kAllLook = false;  // llvmpipe ends loops after 65,535 turns: there each takes long
shared bool gave_up, met;
uint ticket;  // of thread 0

uint power_of_groups() { return 1u << uint(findMSB(gl_NumWorkGroups.x - 1) + 1); }

void arrive(uint64_t counter) {
  memoryBarrierBuffer();
  barrier();
  if (gl_LocalInvocationIndex != 0) return;
  ticket = atomicAdd(Arrivals(counter).count, gl_WorkGroupID.x == 0 ? power_of_groups() - gl_NumWorkGroups.x + 1 : 1);
}

// Whether the meeting that `ticket` is of is over.
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
