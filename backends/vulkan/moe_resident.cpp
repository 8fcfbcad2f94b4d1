// SPDX-License-Identifier: Apache-2.0
// MOE and MOE_ADD of one row in one launch (moe_resident.comp), on devices that say how many workgroups run at once.
//
// The workgroups wait for each other, so all must run: one for each processor, small enough to fit whatever the
// registers are. Vulkan does not promise that workgroups which wait make progress. If a driver runs only some of them,
// the launch ends after seconds with a row of NaN.
#include <algorithm>
#include <utility>

#include "moe.h"

namespace gpu {
namespace {

#include "moe_resident.comp.h"
constexpr Shader kShader = SWY_SHADER(moe_resident_comp);
#ifdef SWITCHYARD_VULKAN_RESIDENT_THREADS
constexpr uint32_t kResidentThreads = SWITCHYARD_VULKAN_RESIDENT_THREADS;
#else
constexpr uint32_t kResidentThreads =
    512;  // 128 registers each, and 132 such groups have a subgroup for each row of 2,048
#endif
constexpr uint32_t kMostExperts = 512, kMostLooks = 1u << 20;

struct Push {
  uint64_t before, before_x, before_residual, x, y, residual, norm, work, counter, step, router, gate_up, down, more;
  float eps, bias;
};
static_assert(sizeof(Push) <= kPushBytes);

// Beside, of the shader.
struct Beside {
  uint64_t normed, mix, shared_gate, shared_up, shared_down;
};

struct Shape {
  uint32_t blocks, forms, threads;
  uint64_t first_h, h;  // elements of the workspace
};

uint32_t form_at(const swy_op& op, swy::OperandName weight) { return weight_of(swy::tensor(op, weight), 0).form; }

Shape shape_of(const swy_device& device, const swy_op& op) {
  const swy_moe_attrs a = moe_attrs(op);
  const auto hidden = static_cast<uint32_t>(swy::tensor(op, "x").dims[1]);
  Shape s{};
  s.h = uint64_t{a.top_k} * a.width + a.shared_width;
  s.first_h = (uint64_t{a.experts} + 64) / 64 * 64;
  s.blocks = ceil_div(static_cast<uint32_t>(std::max<uint64_t>(hidden, s.h)), 32);
  s.forms = 4 | form_of(form_at(op, "gate_up")) | form_of(form_at(op, "down"));  // the router multiplies floats
  if (a.shared_width != 0)
    s.forms |= form_of(form_at(op, "shared_gate_proj")) | form_of(form_at(op, "shared_down_proj"));
  s.threads = device.features.subgroup >= 32 ? kResidentThreads : kThreads;
  return s;
}

uint64_t shared_bytes(const Shape& s, const swy_moe_attrs& a) {
  const uint64_t floats = 8 * (s.blocks + 1) * 16 + s.blocks * 8;
  const uint64_t bytes = s.blocks * (((s.forms & 1) != 0 ? 64 : 0) + ((s.forms & 2) != 0 ? 64 : 0) + 8);
  return floats + bytes + a.experts * 4 + ceil_div(a.experts, 32) * at_most(a.top_k, 32) * 8 + 1024;
}

// The router and the shared expert's gate are multiplied in floats.
bool plain(const swy_op& op, swy::OperandName weight) { return !is_quantized(swy::tensor(op, weight).dtype); }

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket& bucket, swy_error* error) {
  if (device.resident_groups == 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "it is not known how many workgroups run at once");
  }
  SWY_VK_TRY(supports_mixture_dot(device, op, bucket, error));
  const swy_moe_attrs a = moe_attrs(op);
  const uint64_t rows = swy::tensor(op, "x").dims[0];
  if (rows != 1 || swy::has(op, "expert_ids") || a.experts > kMostExperts || a.width % 4 != 0 ||
      a.shared_width % 4 != 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "%llu rows, %u experts of %u; it serves one row whose experts it chooses of at most %u",
                     static_cast<unsigned long long>(rows), a.experts, a.width, kMostExperts);
  }
  if (!plain(op, "router") || (a.shared_width != 0 && !plain(op, "shared_gate"))) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_DTYPE, "the router is quantized");
  }
  if (!readable_in_pieces(swy::tensor(op, "router")) ||
      shared_bytes(shape_of(device, op), a) > device.features.shared_bytes) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "rows of %llu and %u do not fit the shared memory",
                     static_cast<unsigned long long>(swy::tensor(op, "x").dims[1]), a.top_k * a.width);
  }
  return SWY_OK;
}

// Operations recorded before that are computed here.
struct Before {
  NotedNorm norm;
  NotedAdd add;
  bool waits = false;
};

bool same(const Span& a, const Span& b) { return a.address == b.address && a.bytes == b.bytes; }

// Removes the last launch from the list.
void take_last(swy_list& list, Before& b) {
  b.waits |= list.dispatches.back().waits;
  list.dispatches.pop_back();
}

// Takes the norm into this launch if its result is x, and the projection before the norm.
Before take_before(const Recording& r, Mixture& m, Shape& s) {
  Before b;
  swy_list& list = r.list;
  if (list.norm.at != list.dispatches.size() || !same(list.norm.y, m.x)) return b;
  b.norm = std::exchange(list.norm, {});
  take_last(list, b);
  m.x = b.norm.x;
  const NotedAdd& add = list.add;
  if (add.at != list.dispatches.size() || !same(add.y, m.x) || add.weight.rows != m.hidden) return b;
  Shape with = s;
  with.blocks = std::max(s.blocks, ceil_div(add.weight.width, 32));
  with.forms |= form_of(add.weight.form);
  if (shared_bytes(with, moe_attrs(r.op)) > r.device().features.shared_bytes) return b;
  s = with;
  b.add = std::exchange(list.add, {});
  take_last(list, b);
  return b;
}

Push push_of(const Recording& r, const Mixture& m, const Before& b, Span work, Span more) {
  return {b.add.weight.data, b.add.x.address, b.add.residual.address,
          m.x.address,       m.y.address,     m.residual.address,
          b.norm.weight,     work.address,    r.list.meeting.address,
          r.step(),          m.router.data,   m.gate_up.data,
          m.down.data,       more.address,    b.norm.eps,
          b.norm.bias};
}

swy_status record(const Recording& r) {
  Arena unused;
  Mixture m = mixture_of(r, unused);
  Shape s = shape_of(r.device(), r.op);
  const Span work = Arena(r.operands.workspace()).take((s.first_h + s.h) * 4);
  if (r.list.meeting.bytes == 0) SWY_VK_TRY(take_counters(r.list, 1, r.list.meeting, r.error));
  const Before b = take_before(r, m, s);
  const Beside beside{b.norm.y.address, m.shared_mix.data, m.shared_gate.data, m.shared_up.data, m.shared_down.data};
  Span more;
  SWY_VK_TRY(put_constants(r.list, &beside, sizeof beside, more, r.error));
  const bool normed = b.norm.y.bytes != 0, added = b.add.y.bytes != 0;
  const uint32_t flags = (m.residual.bytes != 0 ? 2u : 0u) | (normed ? 8u | (b.norm.form & 15u) << 8 : 0u) |
                         static_cast<uint32_t>(m.domain) << 4 | (m.router.form & 15u) << 12 |
                         (m.shared_mix.form & 15u) << 16;
  SWY_VK_TRY(launch(r, kShader,
                    {m.gate_up.form,
                     m.shared_gate.form,
                     m.down.form,
                     m.shared_down.form,
                     flags,
                     m.hidden,
                     m.experts,
                     m.top_k,
                     m.width,
                     m.shared_width,
                     1,
                     4,
                     2,
                     s.blocks,
                     s.forms,
                     s.threads,
                     kMostLooks,
                     r.device().features.cpu ? 1u : 0u,
                     added ? b.add.weight.form : 0,
                     added ? b.add.weight.width : 32},
                    {r.device().resident_groups}, push_of(r, m, b, work, more),
                    {added ? b.add.x : m.x, b.add.residual, m.residual},
                    {m.y, b.norm.y, added ? b.add.y : Span{}, work, r.list.meeting}));
  r.list.dispatches.back().waits |= b.waits;
  return SWY_OK;
}

// Two launches less than `*.dot`, and the weights of down are requested earlier.
double cost(const swy_op& op, const swy_bucket& bucket) { return 0.75 * cost_mixture_dot(op, bucket); }
uint64_t workspace(const swy_device& device, const swy_op& op, const swy_bucket&) {
  const Shape s = shape_of(device, op);
  return std::max((s.first_h + s.h) * 4, mixture_workspace(op));
}

// Adds in another order than kernels for more rows.
constexpr Kernel kernel(const char* name, uint32_t op) {
  return {name, op, kAlways, SWY_BF16, supports, cost, workspace, record};
}
constexpr Kernel kKernels[] = {kernel("moe.resident", SWY_OP_MOE), kernel("moe_add.resident", SWY_OP_MOE_ADD)};

}  // namespace

std::span<const Kernel> moe_resident_kernels() { return kKernels; }

}  // namespace gpu
