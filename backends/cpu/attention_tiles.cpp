// SPDX-License-Identifier: Apache-2.0
// The softmax of ATTENTION on AMX tiles, for many rows.
//
// The query heads of a KV head are rows of one matrix: a block is some tokens of one sequence with all these heads. It
// processes the context in splits of 256 positions. A split's keys and values are rounded to bf16 and stored as tiles
// that stay in the second-level cache; then every 32 rows of the block compute scores, weights and sums with them. The
// running maximum of a row is subtracted; its sums are rescaled only if a split raises the maximum. Splits begin at
// multiples of 256 and rows are independent, so where a block begins changes no bit.
#include <immintrin.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "attention.h"
#include "attention_work.h"
#include "tile_blocks.h"

namespace cpu {
namespace {

constexpr uint32_t kBlockRows = 512;  // at most, of queries
constexpr uint32_t kGroup = 32;       // rows: two tiles

// One member's blocks of tiles.
struct FlashScratch {
  uint8_t *q, *keys, *values, *weights;
  float *scores, *sums;  // [2, kSplit / 16] and [kBlockRows / 16, head_dim / 16] tiles
  float *top, *total;    // [kBlockRows]
  float* row;            // [queries, head_dim], then maxima and weights [queries]
  FlashScratch(Arena& arena, uint64_t rows, uint64_t queries, uint64_t hd)
      : q(arena.take<uint8_t>(rows * hd * 2)),
        keys(arena.take<uint8_t>(kSplit * hd * 2)),
        values(arena.take<uint8_t>(kSplit * hd * 2)),
        weights(arena.take<uint8_t>(kGroup * kSplit * 2)),
        scores(arena.take<float>(kGroup * kSplit)),
        sums(arena.take<float>(rows * hd)),
        top(arena.take<float>(rows)),
        total(arena.take<float>(rows)),
        row(arena.take<float>(queries * (hd + 2))) {}
};

struct TilesWork {
  AttentionRows rows;
  uint64_t block_rows;  // a multiple of kGroup
  std::atomic<uint32_t>* next;
  uint64_t member_bytes;
  char* members;
  TilesWork(Arena& arena, const swy_attention_attrs& a, uint64_t row_count)
      : rows(arena, a, row_count),
        block_rows((std::max<uint64_t>(kBlockRows, a.heads / a.kv_heads) + kGroup - 1) / kGroup * kGroup),
        next(arena.take<std::atomic<uint32_t>>(1)) {
    Arena one(nullptr);
    FlashScratch(one, block_rows, a.heads / a.kv_heads, a.head_dim);
    member_bytes = one.used();
    members = arena.take<char>(member_bytes * swy::team_width);
  }
};

// A block: tokens [first, first + tokens) of a sequence, and one KV head.
class Block {
 public:
  Block(const swy::Call& call, const AttentionForm& form, const TilesWork& work, const FlashScratch& scratch,
        uint32_t seq, uint64_t head, uint64_t first, uint64_t tokens)
      : call_(call),
        form_(form),
        a_(form.a),
        s_(scratch),
        q_(work.rows.q),
        kv_(call, a_, seq),
        head_(head),
        queries_(a_.heads / a_.kv_heads),
        hd_(a_.head_dim),
        first_(first),
        rows_(tokens * queries_),
        position_(SWY_STEP_ARRAY(call.step, uint32_t, row_position_at)[first]),
        end_(position_ + tokens) {}

  void run() {
    take_queries();
    for (uint64_t begin = split_of(0); begin < end_; begin += kSplit) {
      const uint64_t n = std::min<uint64_t>(end_ - begin, kSplit), from = unread(begin, 0);
      take_keys(begin, from, n);
      take_values(begin, from, n);
      for (uint64_t r = 0; r < rows_; r += kGroup) group(begin, r);
    }
    for (uint64_t t = 0; t < rows_ / queries_; ++t) finish(t);
  }

 private:
  uint64_t position_of(uint64_t row) const { return position_ + std::min(row, rows_ - 1) / queries_; }
  // The split that has the first position that a row reads.
  uint64_t split_of(uint64_t row) const { return first_read(a_, position_of(row)) / kSplit * kSplit; }
  // Positions of a split before the first one that a row reads.
  uint64_t unread(uint64_t begin, uint64_t row) const {
    const uint64_t first = first_read(a_, position_of(row));
    return first > begin ? first - begin : 0;
  }

  // Queries as tiles; the scores will be logarithms to base 2. Rows are padded with zeros to a whole group.
  void take_queries() {
    const __m512 scale = broadcast(kLog2e);
    for (uint64_t r = 0; r < (rows_ + kGroup - 1) / kGroup * kGroup; ++r) {
      uint8_t* to = s_.q + r / kTileRows * kTileRows * hd_ * 2 + r % kTileRows * 64;
      const float* x = q_ + ((first_ + r / queries_) * a_.heads + head_ * queries_ + r % queries_) * hd_;
      for (uint64_t i = 0; i < hd_; i += kTileDepth, to += kTileBytes) {
        const auto at = [&](uint64_t c) { return _mm512_mul_ps(_mm512_loadu_ps(x + c), scale); };
        _mm512_store_si512(to, r < rows_ ? line_of(at(i), at(i + 16)) : _mm512_setzero_si512());
      }
    }
  }

  // Element i of 16 keys that are in several pages, or of which fewer are read: zeros before `from` and after n.
  __m512 keys_at(uint64_t begin, uint64_t from, uint64_t n, uint64_t i) const {
    __m512 x = _mm512_setzero_ps();
    for (uint64_t t = begin + from; t < begin + n;) {
      const uint64_t in_page = t % kv_.page, count = std::min(kv_.page - in_page, begin + n - t);
      const auto lanes = static_cast<__mmask16>(first_lanes(static_cast<int64_t>(count)) << (t - begin));
      x = _mm512_mask_expandloadu_ps(x, lanes, kv_.keys(t, head_) + i * kv_.page + in_page);
      t += count;
    }
    return x;
  }

  // Positions [from, n) of the split. What is older is not read, whatever it holds; from the tile on in which `from`
  // is, it counts as zeros.
  void take_keys(uint64_t begin, uint64_t from, uint64_t n) {
    const uint64_t tile_column = 16 * hd_ * 2;
    for (uint64_t t = from / kTileDepth * kTileDepth; t < n;) {
      const uint64_t in_page = (begin + t) % kv_.page;
      const uint64_t whole = t < from ? 0 : std::min(n - t, kv_.page - in_page) / 16;
      uint8_t* to = s_.keys + t / 16 * tile_column;
      if (whole != 0) {  // an element of all these keys is contiguous
        const float* k = kv_.keys(begin + t, head_) + in_page;
        for (uint64_t i = 0; i < hd_; i += 2, k += 2 * kv_.page, to += 64) {
          for (uint64_t c = 0; c < whole; ++c) {
            const __m512 even = _mm512_loadu_ps(k + c * 16), odd = _mm512_loadu_ps(k + kv_.page + c * 16);
            _mm512_store_si512(to + c * tile_column, pair_of(even, odd));
          }
        }
        t += whole * 16;
      } else {
        const uint64_t count = std::min<uint64_t>(n - t, 16), skip = t < from ? std::min(from - t, count) : 0;
        for (uint64_t i = 0; i < hd_; i += 2, to += 64) {
          _mm512_store_si512(to, pair_of(keys_at(begin + t, skip, count, i), keys_at(begin + t, skip, count, i + 1)));
        }
        t += 16;
      }
    }
    const uint64_t tiles = (n + 15) / 16;  // two at a time are multiplied
    if (tiles % 2 != 0) std::memset(s_.keys + tiles * tile_column, 0, tile_column);
  }

  // Before `from` and after the context, weights are zeros, and values must be numbers.
  void take_values(uint64_t begin, uint64_t from, uint64_t n) {
    const uint64_t depth = (n + kTileDepth - 1) / kTileDepth;
    for (uint64_t t = from / kTileDepth * kTileDepth; t < depth * kTileDepth; t += 2) {
      const auto at = [&](uint64_t k) {
        return k >= from && k < n ? kv_.values(begin + k, head_) + (begin + k) % kv_.page * hd_ : nullptr;
      };
      const float *even = at(t), *odd = at(t + 1);
      uint8_t* to = s_.values + t / kTileDepth * kTileBytes + t % kTileDepth * 32;
      for (uint64_t c = 0; c < hd_; c += 16, to += kSplit / kTileDepth * kTileBytes) {
        const __m512 x = even != nullptr ? _mm512_loadu_ps(even + c) : _mm512_setzero_ps();
        _mm512_store_si512(to, pair_of(x, odd != nullptr ? _mm512_loadu_ps(odd + c) : _mm512_setzero_ps()));
      }
    }
  }

  // 32 rows against the split at `begin`: from the first position that any of them reads to the last.
  void group(uint64_t begin, uint64_t r) {
    const uint64_t last = position_of(r + kGroup - 1), start = split_of(r);
    if (last < begin || begin < start) return;
    const uint64_t from = unread(begin, r) / kTileDepth;  // in steps of 32 positions
    const uint64_t steps = std::min<uint64_t>(last - begin + kTileDepth, kSplit) / kTileDepth;
    const uint64_t row_bytes = kTileRows * hd_ * 2, half = kSplit / 16 * kTileFloats;
    const uint8_t* q = s_.q + r / kTileRows * row_bytes;
    for (uint64_t k = from; k < steps; ++k) {
      multiply_tiles(q, row_bytes, s_.keys + k * kTileDepth * hd_ * 2, row_bytes, hd_ / kTileDepth, true,
                     s_.scores + 2 * k * kTileFloats, half);
    }
    for (uint64_t i = 0; i < kGroup; ++i) weigh(begin, r + i, i, from, steps, begin == start);
    float* sums = s_.sums + r * hd_;
    const uint64_t column = kSplit / kTileDepth * kTileBytes;
    const uint8_t *weights = s_.weights + from * kTileBytes, *values = s_.values + from * kTileBytes;
    for (uint64_t c = 0; c < hd_ / 16; c += 2) {
      multiply_tiles(weights, column, values + c * column, column, steps - from, begin == start, sums + c * kTileFloats,
                     kTileRows * hd_);
    }
  }

  // Turns the scores of row i of a group into weights, and rescales the row's sums to its new maximum. `fresh`: this is
  // the group's first split. A row whose window begins later has no position in it; then its maximum is -inf, and its
  // sums are zeros.
  void weigh(uint64_t begin, uint64_t row, uint64_t i, uint64_t from, uint64_t steps, bool fresh) {
    const float* x = s_.scores + (i / kTileRows * kSplit + i % kTileRows) * 16;
    uint8_t* to = s_.weights + (i / kTileRows * kSplit * 32 + i % kTileRows * 64) + from * kTileBytes;
    const auto seen = static_cast<int64_t>(position_of(row)) + 1 - static_cast<int64_t>(begin);
    const auto skipped = static_cast<int64_t>(unread(begin, row));
    const auto lanes = [&](uint64_t tile) {
      const auto at = static_cast<int64_t>(tile * 16);
      return static_cast<__mmask16>(first_lanes(seen - at) & ~first_lanes(skipped - at));
    };
    const __m512 least = broadcast(-std::numeric_limits<float>::infinity());
    __m512 most0 = least, most1 = least;
    for (uint64_t t = 2 * from; t < 2 * steps; t += 2) {
      most0 = _mm512_mask_max_ps(most0, lanes(t), most0, _mm512_load_ps(x + t * kTileFloats));
      most1 = _mm512_mask_max_ps(most1, lanes(t + 1), most1, _mm512_load_ps(x + (t + 1) * kTileFloats));
    }
    const float most = _mm512_reduce_max_ps(_mm512_max_ps(most0, most1));
    if (fresh || s_.top[row] == _mm512_cvtss_f32(least)) {
      s_.top[row] = most;
      s_.total[row] = 0;
    } else if (most > s_.top[row]) {
      rescale(row, most);
    }
    const __m512 top = broadcast(s_.top[row]);
    const auto weight = [&](uint64_t t) {
      return _mm512_maskz_mov_ps(lanes(t), exp2(_mm512_sub_ps(_mm512_load_ps(x + t * kTileFloats), top)));
    };
    __m512 sum0 = _mm512_setzero_ps(), sum1 = sum0;
    for (uint64_t t = 2 * from; t < 2 * steps; t += 2, to += kTileBytes) {
      const __m512 p0 = weight(t), p1 = weight(t + 1);
      sum0 = _mm512_add_ps(sum0, p0);
      sum1 = _mm512_add_ps(sum1, p1);
      _mm512_store_si512(to, line_of(p0, p1));
    }
    s_.total[row] += _mm512_reduce_add_ps(_mm512_add_ps(sum0, sum1));
  }

  void rescale(uint64_t row, float most) {
    const __m512 share = exp2(broadcast(s_.top[row] - most));
    float* sums = s_.sums + row / kTileRows * kTileRows * hd_ + row % kTileRows * 16;
    for (uint64_t c = 0; c < hd_ / 16; ++c, sums += kTileFloats) {
      _mm512_store_ps(sums, _mm512_mul_ps(_mm512_load_ps(sums), share));
    }
    s_.top[row] = most;
    s_.total[row] *= _mm512_cvtss_f32(share);
  }

  void finish(uint64_t token) {
    const SplitResult all{s_.row + queries_ * hd_, s_.row + queries_ * (hd_ + 1), s_.row};
    for (uint64_t g = 0; g < queries_; ++g) {
      const uint64_t row = token * queries_ + g;
      const float* sums = s_.sums + row / kTileRows * kTileRows * hd_ + row % kTileRows * 16;
      for (uint64_t c = 0; c < hd_; c += 16) std::memcpy(all.out + g * hd_ + c, sums + c * 16, 64);
      all.top[g] = s_.top[row] / kLog2e;
      all.total[g] = s_.total[row];
    }
    finish_attention(call_, form_, first_ + token, head_, all);
  }

  const swy::Call& call_;
  const AttentionForm& form_;
  const swy_attention_attrs& a_;
  const FlashScratch& s_;
  const float* q_;
  const KvPages kv_;
  const uint64_t head_, queries_, hd_, first_, rows_, position_, end_;
};

}  // namespace

uint64_t attention_tiles_workspace(const swy_op& op, const swy_bucket&) {
  Arena arena(nullptr);
  TilesWork(arena, swy_attention_of(&op), op.inputs[kQueries]->dims[0]);
  return arena.used();
}

void attention_tiles(const swy::Call& call) {
  const AttentionForm form(call);
  const swy_attention_attrs& a = form.a;
  const swy_step& step = *call.step;
  const uint32_t* start = SWY_STEP_ARRAY(&step, uint32_t, row_start_at);
  const uint32_t* active = SWY_STEP_ARRAY(&step, uint32_t, seq_active_at);
  Arena arena(call.workspace);
  const TilesWork work(arena, a, call.op->inputs[kQueries]->dims[0]);
  if (call.rank() == 0) work.next->store(0, std::memory_order_relaxed);
  prepare_attention(call, form, work.rows);
  call.barrier();

  Arena own(work.members + work.member_bytes * call.rank());
  const FlashScratch scratch(own, work.block_rows, a.heads / a.kv_heads, a.head_dim);
  // Smaller blocks where the team would be idle otherwise.
  uint64_t most = std::max<uint64_t>(1, kBlockRows / (a.heads / a.kv_heads));
  while (most > 16 && step.rows * a.kv_heads < 4 * call.members() * most) most /= 2;
  tiles_begin(64);
  uint32_t mine = work.next->fetch_add(1, std::memory_order_relaxed), at = 0;
  for (uint32_t seq = 0; seq < step.seqs; ++seq) {
    const uint64_t rows = start[seq + 1] - start[seq], blocks = (rows + most - 1) / most;
    for (uint64_t b = blocks; b-- > 0;) {  // the last see most of the context
      for (uint64_t h = 0; h < a.kv_heads; ++h, ++at) {
        if (at != mine) continue;
        const uint64_t first = start[seq] + b * most, tokens = std::min(most, rows - b * most);
        if (active[seq] != 0) {
          Block(call, form, work, scratch, seq, h, first, tokens).run();
        } else {
          for (uint64_t r = first; r < first + tokens; ++r) silence_attention(call, a, r, h);
        }
        mine = work.next->fetch_add(1, std::memory_order_relaxed);
      }
    }
  }
  tiles_end();
}

}  // namespace cpu
