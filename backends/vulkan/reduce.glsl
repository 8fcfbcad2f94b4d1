// SPDX-License-Identifier: Apache-2.0
// Sums over a workgroup of 256 threads, for subgroups of 8 to 128 lanes.
#ifndef SWITCHYARD_REDUCE_GLSL_
#define SWITCHYARD_REDUCE_GLSL_

shared float reduce_scratch[32];

// Every thread must call this, and gets the sum.
float workgroup_sum(float x) {
  x = subgroupAdd(x);
  if (subgroupElect()) reduce_scratch[gl_SubgroupID] = x;
  barrier();
  float sum = 0;
  for (uint i = 0; i < gl_NumSubgroups; ++i) sum += reduce_scratch[i];
  barrier();
  return sum;
}

#endif
