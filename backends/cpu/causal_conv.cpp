// SPDX-License-Identifier: Apache-2.0
// CAUSAL_CONV: silu of a causal convolution per channel, over the rows [rows, channels] of each sequence.
#include "causal_conv.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "causal_conv.cpp"
#include "simd.h"
// after simd.h
#include <hwy/foreach_target.h>

#include "causal_conv-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cpu {
namespace HWY_NAMESPACE {

// `block` is one piece.
void convolve_block(const swy::Call& call, const ConvBlock& block) {
  for (uint64_t r = block.seq.first; r < block.seq.last; ++r) {
    convolve_row(call, block, r - block.seq.first,
                 call.output(CausalConv::output("y")) + r * block.channels + block.pieces[0].channel);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cpu {

SequenceRows::SequenceRows(const swy_step* step, uint32_t seq)
    : first(SWY_STEP_ARRAY(step, uint32_t, row_start_at)[seq]),
      last(SWY_STEP_ARRAY(step, uint32_t, row_start_at)[seq + 1]),
      read_slot(SWY_STEP_ARRAY(step, uint32_t, seq_read_slot_at)[seq]),
      write_slot(SWY_STEP_ARRAY(step, uint32_t, seq_write_slot_at)[seq]),
      active(SWY_STEP_ARRAY(step, uint32_t, seq_active_at)[seq] != 0),
      fresh(first < last && SWY_STEP_ARRAY(step, uint32_t, row_position_at)[first] == 0) {}

ConvScratch::ConvScratch(Arena& arena, uint32_t kernel, uint64_t stride_)
    : stride(stride_),
      rows(arena.take<const float*>(kernel)),
      history(arena.take<float>(kernel * stride)),
      taps(arena.take<float>(kernel * stride)) {}

void ConvBlock::read_taps(const swy::Call& call) const {
  const uint32_t kernel = call.attrs<swy_gated_delta_attrs>().conv_kernel;
  for (const ConvPiece& piece : pieces) {
    for (uint64_t i = 0; i < piece.width; ++i) {
      const uint64_t ch = piece.channel + i, c = piece.column + i;
      float taps[16];
      for (uint32_t j = 0; j < kernel; j += 16) {
        const uint32_t n = std::min(16u, kernel - j);
        load_plain(*call.op->weights[kConv], call.weights[kConv], ch * kernel + j, n, 0, taps);
        for (uint32_t k = 0; k < n; ++k) scratch.taps[(j + k) * scratch.stride + c] = taps[k];
      }
    }
  }
}

void ConvBlock::read_state(const swy::Call& call) const {
  const uint64_t keep = call.attrs<swy_gated_delta_attrs>().conv_kernel - 1;
  const float* before = static_cast<const float*>(call.states[kConvState]) + seq.read_slot * channels * keep;
  for (const ConvPiece& piece : pieces) {
    for (uint64_t j = 0; j < keep; ++j) {
      float* to = scratch.history + j * scratch.stride + piece.column;
      for (uint64_t i = 0; i < piece.width; ++i) to[i] = seq.fresh ? 0.0f : before[(piece.channel + i) * keep + j];
    }
  }
}

void ConvBlock::write_state(const swy::Call& call) const {
  if (!seq.active) return;
  if (seq.applied() == 0 && !seq.fresh && seq.read_slot == seq.write_slot) return;
  const uint64_t keep = call.attrs<swy_gated_delta_attrs>().conv_kernel - 1;
  float* after = static_cast<float*>(call.states[kConvState]) + seq.write_slot * channels * keep;
  for (const ConvPiece& piece : pieces) {
    for (uint64_t j = 0; j < keep; ++j) {
      const float* x = row(call, piece, seq.applied() + j);
      for (uint64_t i = 0; i < piece.width; ++i) after[(piece.channel + i) * keep + j] = x[i];
    }
  }
}

const float* ConvBlock::row(const swy::Call& call, const ConvPiece& piece, uint64_t i) const {
  const uint64_t keep = call.attrs<swy_gated_delta_attrs>().conv_kernel - 1;
  if (i < keep) return scratch.history + i * scratch.stride + piece.column;
  if (i - keep < seq.kept) return seq.stands + (i - keep) * seq.stride + piece.channel;
  return call.input(kChannels) + seq.step_row(i - keep) * channels + piece.channel;
}

namespace {

constexpr uint64_t kBlock = 128;  // channels, whose taps stay in the nearest cache

uint64_t member_bytes(const swy_gated_delta_attrs& a) {
  Arena arena(nullptr);
  ConvScratch(arena, a.conv_kernel, kBlock);
  return arena.used();
}

uint64_t workspace(const swy_op& op, const swy_bucket&) {
  return member_bytes(*static_cast<const swy_gated_delta_attrs*>(op.attrs)) * swy::team_width;
}

void causal_conv(const swy::Call& call) {
  const auto& a = call.attrs<swy_gated_delta_attrs>();
  const uint64_t channels = call.op->inputs[kChannels]->dims[1], seqs = call.step->seqs;
  Arena arena(call.work<char>(member_bytes(a) * call.rank()));
  const ConvScratch scratch(arena, a.conv_kernel, kBlock);
  const auto run = CPU_BEST(convolve_block);
  const auto [first, last] = call.split((channels + kBlock - 1) / kBlock * seqs);
  for (uint64_t unit = first; unit < last; ++unit) {
    const uint64_t channel = unit / seqs * kBlock;
    const ConvPiece piece{channel, 0, std::min(kBlock, channels - channel)};
    const ConvBlock block{scratch, {&piece, 1}, channels, {call.step, static_cast<uint32_t>(unit % seqs)}};
    if (unit == first || unit % seqs == 0) block.read_taps(call);
    if (block.seq.first == block.seq.last) continue;
    block.read_state(call);
    run(call, block);
    block.write_state(call);
  }
}

double cost(const swy_op& op, const swy_bucket& bucket) {
  const auto& a = *static_cast<const swy_gated_delta_attrs*>(op.attrs);
  return cost_of(static_cast<double>(op.inputs[kChannels]->dims[1]) * (1.0 + bucket.rows) * a.conv_kernel);
}

constexpr swy::HostKernel kKernels[] = {
    {.name = "causal_conv.vector", .op = SWY_OP_CAUSAL_CONV, .cost = cost, .run = causal_conv, .workspace = workspace},
};

}  // namespace

std::span<const swy::HostKernel> causal_conv_kernels() { return kKernels; }

}  // namespace cpu
#endif
