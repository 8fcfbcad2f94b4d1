// SPDX-License-Identifier: Apache-2.0
// GATED_DELTA and DELTA_RULE: a run of rows, and where its states and its pending rows are.
#include <algorithm>

#include "gated_delta.h"

namespace cpu {

DeltaShape::DeltaShape(const swy_gated_delta_attrs& a)
    : ratio(a.value_heads / a.key_heads),
      channels(2 * uint64_t{a.key_heads} * a.key_dim + uint64_t{a.value_heads} * a.value_dim),
      columns(2 * uint64_t{a.key_dim} + uint64_t{ratio} * a.value_dim),
      columns_padded((columns + 63) / 32 * 32),
      out_stride((uint64_t{a.value_dim} + 31) / 32 * 32) {}

DeltaScratch::DeltaScratch(Arena& arena, const swy_gated_delta_attrs& a, const DeltaShape& s)
    : conv(arena, a.conv_kernel, s.columns_padded),
      mixed(arena.take<float>((kDeltaTokens + 1) * s.columns_padded)),
      out(arena.take<float>(kDeltaTokens * s.out_stride)),
      block(arena.take<float>(uint64_t{a.key_dim} * 32)),
      log_decay(arena.take<float>(kDeltaTokens)),
      decay(arena.take<float>(kDeltaTokens)),
      beta(arena.take<float>(kDeltaTokens)),
      qk(arena.take<float>(kDeltaTokens)) {}

const float* DeltaUnit::state_from(uint32_t head, uint64_t t0) const {
  const SequenceRows& q = conv.seq;
  if (t0 > q.applied()) return dropped(head);
  if (t0 > 0) return written(head);
  return q.fresh ? nullptr : state + (uint64_t{q.read_slot} * heads + head) * head_elements;
}
float* DeltaUnit::written(uint32_t head) const {
  return state + (uint64_t{conv.seq.write_slot} * heads + head) * head_elements;
}

void DeltaUnit::move_states() const {
  const SequenceRows& q = conv.seq;
  if (!q.active || q.applied() > 0 || (!q.fresh && q.read_slot == q.write_slot)) return;
  for (uint32_t h = key_head * shape.ratio; h < (key_head + 1) * shape.ratio; ++h) {
    if (q.fresh) {
      std::fill_n(written(h), head_elements, 0.0f);
    } else {
      std::copy_n(state_from(h, 0), head_elements, written(h));
    }
  }
}

void DeltaUnit::keep_pending(const swy::Call& call) const {
  const SequenceRows& q = conv.seq;
  if (!q.active) return;
  const uint64_t head = uint64_t{key_head} * shape.ratio;
  for (uint64_t r = 0; r < q.own(); ++r) {
    const uint64_t row = q.first + r;
    float* to = q.stays + r * q.stride;
    for (const ConvPiece& p : conv.pieces) {
      std::copy_n(call.input(kChannels) + row * shape.channels + p.channel, p.width, to + p.channel);
    }
    to += shape.channels + head;
    std::copy_n(call.input(GatedDelta::input("b")) + row * heads + head, shape.ratio, to);
    std::copy_n(call.input(GatedDelta::input("a")) + row * heads + head, shape.ratio, to + heads);
  }
}

SequenceRows run_of(const swy::Call& call, uint32_t seq) {
  SequenceRows q(call.step, seq);
  if (call.op->id != SWY_OP_GATED_DELTA || call.op->revision == 1 || call.step->seq_kept_at == 0) return q;
  constexpr uint32_t kPending = GatedDelta::state("pending");
  const uint32_t word = SWY_STEP_ARRAY(call.step, uint32_t, seq_kept_at)[seq];
  const uint64_t rows = call.op->states[kPending]->dims[0];
  auto* all = static_cast<float*>(call.states[kPending]);
  q.kept = SWY_KEPT_COUNT(word);
  q.pending = (word & SWY_KEPT_PENDING) != 0;
  q.stride = call.op->states[kPending]->dims[1];
  q.stands = all + q.read_slot * rows * q.stride;
  q.stays = all + q.write_slot * rows * q.stride;
  return q;
}

}  // namespace cpu
