// SPDX-License-Identifier: Apache-2.0
// The workspace of ATTENTION and ATTEND, and what their two forms share.
#pragma once

#include "rope.h"

namespace cpu {

inline constexpr uint32_t kSplit = 256;  // positions that are softmaxed as one

// What an ATTENTION or ATTEND of either revision says, with what it has in its weights beside the norms.
struct AttentionForm {
  swy_attention_attrs a;  // in the form of revision 2
  const float* inv_freq;  // NULL: angles from rope_theta
  const void* sinks;      // NULL: none
  bool sinks_are_floats;  // otherwise bf16

  explicit AttentionForm(const swy::Call& call);
  // Of query head h.
  float sink(uint64_t h) const {
    return sinks_are_floats ? static_cast<const float*>(sinks)[h]
                            : swy_bf16_to_f32(static_cast<const uint16_t*>(sinks)[h]);
  }
};
// The first position that the row at `position` reads.
inline uint64_t first_read(const swy_attention_attrs& a, uint64_t position) {
  return a.window == 0 || position < a.window ? 0 : position - a.window + 1;
}

// Queries in the form that the softmax reads, and each member's memory for preparing rows.
struct AttentionRows {
  float* q;  // [rows, heads, head_dim], normed, rotated, scaled
  Rotation rotation;
  uint64_t key_stride;
  float* key;  // per member: [head_dim]

  AttentionRows(Arena& arena, const swy_attention_attrs& a, uint64_t rows);
};

// Writes q, and for ATTENTION appends keys and values to the pages; a barrier must follow.
void prepare_attention(const swy::Call& call, const AttentionForm& form, const AttentionRows& rows);

// For the query heads of one KV head: maxima, weights [queries], sums [queries, head_dim].
struct SplitResult {
  float *top, *total, *out;
};

// The output of row r for the queries of KV head h: sums divided by weights, the sinks' among them, times the gate.
void finish_attention(const swy::Call& call, const AttentionForm& form, uint64_t r, uint64_t h,
                      const SplitResult& from);
// The same for a row of an inactive sequence: zeros.
void silence_attention(const swy::Call& call, const swy_attention_attrs& a, uint64_t r, uint64_t h);

struct AttentionWork {
  AttentionRows rows;
  uint64_t splits;  // that a row reads, at most
  bool spread;      // splits of a row go to different members
  uint32_t queries;
  uint64_t head_dim;
  float* scores;  // per member: [4, kSplit]
  uint64_t score_stride;

  AttentionWork(Arena& arena, const swy_attention_attrs& a, uint64_t rows, uint64_t context);
  uint64_t part_floats() const { return (2 * queries + queries * head_dim + 15) / 16 * 16; }
  SplitResult part(uint64_t i) const {
    float* p = parts_ + i * part_floats();
    return {p, p + queries, p + 2 * queries};
  }

 private:
  float* parts_;
};

// The form on AMX tiles (attention_tiles.cpp).
void attention_tiles(const swy::Call& call);
uint64_t attention_tiles_workspace(const swy_op& op, const swy_bucket& bucket);

}  // namespace cpu
