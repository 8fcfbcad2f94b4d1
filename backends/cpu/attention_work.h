// The workspace of ATTENTION.
#pragma once

#include "kernels.h"

namespace cpu {

inline constexpr uint32_t kSplit = 256;  // positions that are softmaxed as one

// What one split gives for the query heads of one KV head: maxima, weights [queries], sums [queries, head_dim].
struct SplitResult {
  float *top, *total, *out;
};

struct AttentionWork {
  bool spread;  // splits of a row go to different members
  uint32_t queries;
  uint64_t head_dim;
  float* q;      // [rows, heads, head_dim], normed, rotated, scaled
  float* turns;  // per member: cosines and sines of a row
  uint64_t turn_stride;
  double* rates;  // per member: angles per position
  uint64_t rate_stride;
  float* key;  // per member: [head_dim]
  uint64_t key_stride;
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

}  // namespace cpu
