// SPDX-License-Identifier: Apache-2.0
// act(g, u) of ops.h. `clamped`: with its numbers alpha and limit; otherwise silu(g) * u.
float activated(bool clamped, float alpha, float limit, float g, float u) {
  if (!clamped) return silu(g) * u;
  g = min(g, limit);
  u = min(max(u, -limit), limit);
  return g * sigmoid(alpha * g) * (u + 1.0);
}
