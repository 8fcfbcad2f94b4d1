// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA, any number of rows, token by token: convolution (causal_conv.cu), norms of q and k, delta rule, gated
// norm. DELTA_RULE: the norms and the rule. kPends: with pending rows. Those that stand are computed like the step's,
// in the same pass over the state.
#include "gated_delta.cuh"

namespace gpu {
namespace {

// What DELTA_RULE gets made already.
struct GivenGates {
  const float *beta, *g;  // [rows, value_heads]; null: computed from a and b
};

// q and k to unit length, q also times key_dim^-1/2; and the gates. A warp per head; blockIdx.y: rows.
template <bool kPends>
__global__ void normalise(const __grid_constant__ Delta d, const GivenGates given, const swy_step* step) {
  depend();
  release_next();
  const uint32_t head = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  for (uint32_t n = blockIdx.y; n < run_rows<kPends>(d, step); n += gridDim.y) {
    uint32_t row = n;
    const float* standing = nullptr;
    if constexpr (kPends) {
      const RunRow any = run_row<kPends>(d, step, n);
      if (!any.there) continue;
      row = any.place;
      if (!any.own) standing = d.pending_row(any.run.read, any.nth);
    }
    for (uint32_t h = blockIdx.x * blockDim.x + threadIdx.x; h < d.value_heads; h += gridDim.x * blockDim.x) {
      const uint64_t at = uint64_t{row} * d.value_heads + h;
      d.gate[at] = standing != nullptr     ? pending_gates(d, gate_weights(d, h), standing, h)
                   : given.beta == nullptr ? gates(d, row, h)
                                           : make_float2(given.beta[at], expf(given.g[at]));
    }
    if (head >= 2 * d.key_heads) continue;
    const uint64_t at = uint64_t{row} * d.channels() + head * d.key_dim;
    const float* x = d.convolved + at;
    float* y = d.mixed + at;
    float squares = 0;
    for (uint32_t i = lane; i < d.key_dim; i += 32) squares = fmaf(x[i], x[i], squares);
    float scale = rsqrtf(warp_sum(squares) + d.l2_eps);
    if (head < d.key_heads) scale *= rsqrtf(static_cast<float>(d.key_dim));
    for (uint32_t i = lane; i < d.key_dim; i += 32) y[i] = x[i] * scale;
  }
}

// The rule. A warp owns four columns of one head's state, in registers: eight lanes per column, each with N groups of
// four keys. blockIdx.y: value head, blockIdx.z: sequence. kI16: states of 16 bits. Writes o to y.
constexpr uint32_t kColumns = 4;
template <int N, bool kPends, bool kI16>
__global__ void __launch_bounds__(256) delta_rule(const __grid_constant__ Delta d, const swy_step* step) {
  const uint32_t head = blockIdx.y, lane = threadIdx.x % 32, part = lane % 8;
  const uint32_t column = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * kColumns + lane / 8;
  depend();
  release_next();
  if (blockIdx.z >= step->seqs) return;
  const Run s = run_of<kPends>(step, blockIdx.z);
  if (!s.active) return;
  const bool there = column < d.value_dim;
  const uint32_t of_state = head * d.value_dim + column;
  LaneBits<kI16, N, false> bits;
  bits.ask(d.states, s.read, of_state, part, there && !s.fresh);
  float state[N][4];
  bits.get(state);
  // Rounds after each row, so that results do not depend on where steps begin.
  const auto round = [&] { bits.put(state), bits.get(state); };
  const auto store = [&] { bits.write(d.states, s.write, of_state, part, there); };
  if (kPends && s.applied() == 0 && s.moves()) store();
  const uint32_t key_head = head / (d.value_heads / d.key_heads);
  // The run's rows are numbered like the step's, in numbers that wrap around: those that stand come before its first.
  const uint32_t begin = s.first - s.kept, end = s.first + s.rows, applied = begin + s.applied();
  const auto own = [&](uint32_t row) { return !kPends || row - begin >= s.kept; };
  const auto after = [&](uint32_t row) { return !kPends ? min(row + 1, end - 1) : row + 1 == end ? row : row + 1; };
  const auto place_of = [&](uint32_t row) {
    return own(row) ? row : d.first_pending + blockIdx.z * d.pending_rows + (row - begin);
  };
  // Inputs of one row. The next row's are loaded while this one is computed.
  struct Row {
    float4 q[N], k[N];
    float v;
    float2 gate;
  };
  const auto fetch = [&](uint32_t row, Row& to) {
    const uint64_t first = uint64_t{row} * d.channels();
    const float* mixed = d.mixed + first;
    const float *q = mixed + key_head * d.key_dim, *k = q + d.keys();
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const uint32_t i = n * 32 + part * 4;
      const bool in = i < d.key_dim;
      to.q[n] = in ? *reinterpret_cast<const float4*>(q + i) : make_float4(0, 0, 0, 0);
      to.k[n] = in ? *reinterpret_cast<const float4*>(k + i) : make_float4(0, 0, 0, 0);
    }
    to.v = there ? d.convolved[first + 2 * d.keys() + head * d.value_dim + column] : 0.0f;
    to.gate = d.gate[uint64_t{row} * d.value_heads + head];
  };
  Row now, next;
  fetch(place_of(begin), now);
  for (uint32_t row = begin; kPends ? row != end : row < end; ++row) {
    fetch(place_of(after(row)), next);
    float dot = 0, out = 0;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float key[4] = {now.k[n].x, now.k[n].y, now.k[n].z, now.k[n].w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        state[n][j] *= now.gate.y;
        dot = fmaf(state[n][j], key[j], dot);
      }
    }
#pragma unroll
    for (int o = 1; o < 8; o *= 2) dot += __shfl_xor_sync(kAll, dot, o);
    const float delta = now.gate.x * (now.v - dot);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float key[4] = {now.k[n].x, now.k[n].y, now.k[n].z, now.k[n].w};
      const float query[4] = {now.q[n].x, now.q[n].y, now.q[n].z, now.q[n].w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        state[n][j] = fmaf(key[j], delta, state[n][j]);
        out = fmaf(state[n][j], query[j], out);
      }
    }
#pragma unroll
    for (int o = 1; o < 8; o *= 2) out += __shfl_xor_sync(kAll, out, o);
    if (there && part == 0 && own(row)) {
      d.y[uint64_t{row} * d.values() + head * d.value_dim + column] = out;
    }
    round();
    if (kPends && row + 1 == applied) store();
    now = next;
  }
  if (!kPends) store();
}

// y = rms_norm(o) * w * silu(z), in place. A warp per value head; blockIdx.y: rows. Keeps rows that stay pending.
template <bool kPends>
__global__ void gate_rows(const __grid_constant__ Delta d, const swy_step* step) {
  depend();
  release_next();
  const uint32_t head = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  for (uint32_t row = blockIdx.y; kPends && row < step->rows; row += gridDim.y) keep_row(d, step, row);
  if (head >= d.value_heads) return;
  for (uint32_t row = blockIdx.y; row < step->rows; row += gridDim.y) {
    const uint64_t at = uint64_t{row} * d.values() + head * d.value_dim;
    const bool active =
        step_array<uint32_t>(step, step->seq_active_at)[step_array<uint32_t>(step, step->row_seq_at)[row]] != 0;
    float squares = 0;
    for (uint32_t i = lane; i < d.value_dim; i += 32) squares = fmaf(d.y[at + i], d.y[at + i], squares);
    const float scale = rsqrtf(warp_sum(squares) / static_cast<float>(d.value_dim) + d.norm_eps);
    for (uint32_t i = lane; i < d.value_dim; i += 32) {
      d.y[at + i] = active ? d.y[at + i] * scale * plain_at(d.norm, i) * silu(d.z[at + i]) : 0.0f;
    }
  }
}

template <int N, bool kPends>
auto rule_of(const Delta& d) {
  return d.states.i16 ? delta_rule<N, kPends, true> : delta_rule<N, kPends, false>;
}
template <int N>
swy_status record_rule(const Recording& r, const Delta& d, uint32_t seqs) {
  return launch(r, d.pending != nullptr ? rule_of<N, true>(d) : rule_of<N, false>(d),
                dim3(ceil_div(d.value_dim, 8 * kColumns), d.value_heads, seqs), 256, 0, d, r.list.step);
}

uint32_t at_most(uint64_t rows) { return rows < 16384 ? static_cast<uint32_t>(rows) : 16384; }

// The norms of q and k, and the rule.
swy_status record_rule_of_any(const Recording& r, const Delta& d, const GivenGates& given, uint32_t rows) {
  const uint32_t seqs = r.bucket().seqs;
  const dim3 grid(ceil_div(2 * d.key_heads, 8), at_most(rows + uint64_t{seqs} * d.pending_rows));
  SWY_CUDA_TRY(
      launch(r, d.pending != nullptr ? normalise<true> : normalise<false>, grid, 256, 0, d, given, r.list.step));
  return d.key_dim <= 32    ? record_rule<1>(r, d, seqs)
         : d.key_dim <= 64  ? record_rule<2>(r, d, seqs)
         : d.key_dim <= 128 ? record_rule<4>(r, d, seqs)
                            : record_rule<8>(r, d, seqs);
}

void take_shape(Delta& d, const swy_gated_delta_attrs& a) {
  d.key_heads = a.key_heads;
  d.value_heads = a.value_heads;
  d.key_dim = a.key_dim;
  d.value_dim = a.value_dim;
  d.kernel = a.conv_kernel;
  d.norm_eps = a.norm_eps;
  d.l2_eps = a.l2_eps;
}

// Of the rows of a step, and of those that may stand.
void place(Delta& d, Arena& arena, const swy_op& op, const swy_bucket& bucket) {
  uint64_t rows = swy::tensor(op, "qkv").dims[0];
  d.first_pending = static_cast<uint32_t>(rows);
  if (swy::has(op, "pending")) rows += bucket.seqs * swy::tensor(op, "pending").dims[0];
  d.mixed = arena.take<float>(rows * d.channels());
  d.gate = arena.take<float2>(rows * d.value_heads);
}

swy_status record_recurrent(const Recording& r) {
  Delta d = delta_of(r);
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "qkv").dims[0]);
  Arena arena(r.operands.workspace());
  place(d, arena, r.op, r.bucket());
  d.convolved = d.mixed;
  SWY_CUDA_TRY(record_convolution(r, d));
  SWY_CUDA_TRY(record_rule_of_any(r, d, {}, rows));
  return launch(r, d.pending != nullptr ? gate_rows<true> : gate_rows<false>,
                dim3(ceil_div(d.value_heads, 8), at_most(rows)), 256, 0, d, r.list.step);
}

swy_status record_delta_rule(const Recording& r) {
  Delta d = delta_of(r);
  const auto rows = static_cast<uint32_t>(swy::tensor(r.op, "qkv").dims[0]);
  Arena arena(r.operands.workspace());
  place(d, arena, r.op, r.bucket());
  d.convolved = d.qkv;
  return record_rule_of_any(r, d, {r.operands.input("beta"), r.operands.input("g")}, rows);
}

swy_status supports_recurrent(const swy_device&, const swy_op& op, const swy_bucket&, swy_error* error) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  if (a.key_dim % 4 == 0 && a.key_dim <= 256 && swy::tensor(op, "qkv").dims[1] % 4 == 0) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                   "key_dim is %u, of %llu channels; multiples of 4 are needed, and at most 256", a.key_dim,
                   static_cast<unsigned long long>(swy::tensor(op, "qkv").dims[1]));
}

double cost_recurrent(const swy_device& device, const swy_op& op, const swy_bucket& bucket) {
  const double serial = bucket.rows > bucket.seqs ? bucket.rows - bucket.seqs + 1 : 1;  // rows of the longest sequence
  return cost_of(device, row_bytes(op) + state_bytes(device, op, bucket), 0, 5) + 0.6 * serial;
}

uint64_t workspace_recurrent(const swy_device&, const swy_op& op, const swy_bucket& bucket) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  Arena arena(nullptr);
  Delta d{};
  take_shape(d, a);
  place(d, arena, op, bucket);
  return arena.used();
}

constexpr Kernel kKernels[] = {{.name = "gated_delta.recurrent",
                                .op = SWY_OP_GATED_DELTA,
                                .flags = kInvariant,
                                .activations = SWY_F32,
                                .supports = supports_recurrent,
                                .cost = cost_recurrent,
                                .workspace = workspace_recurrent,
                                .record = record_recurrent,
                                .op_revision = 2},
                               {"delta_rule.recurrent", SWY_OP_DELTA_RULE, kInvariant, SWY_F32, supports_recurrent,
                                cost_recurrent, workspace_recurrent, record_delta_rule}};

}  // namespace

Delta delta_of(const Recording& r) {
  const auto& a = r.attrs<swy_gated_delta_attrs>();
  Delta d{};
  d.qkv = r.operands.input("qkv");
  d.z = r.operands.input("z");
  d.b = r.operands.input("b");
  d.a = r.operands.input("a");
  d.conv = r.operands.weight("conv");
  d.a_log = r.operands.weight("a_log");
  d.dt_bias = r.operands.weight("dt_bias");
  d.norm = r.operands.weight("norm");
  d.conv_state = r.operands.state("conv_state");
  d.y = r.operands.output("y");
  take_shape(d, a);
  d.states = RuleStates(r.operands.state("delta_state"), d.values(), d.key_dim, r.device().delta_i16);
  if (swy::has(r.op, "pending")) {
    d.pending = r.operands.state("pending");
    d.pending_rows = static_cast<uint32_t>(swy::tensor(r.op, "pending").dims[0]);
  }
  return d;
}

std::span<const Kernel> gated_delta_kernels() { return kKernels; }

}  // namespace gpu
