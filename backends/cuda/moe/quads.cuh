// SPDX-License-Identifier: Apache-2.0
// Products of 4-bit weights with four rows of activations on Hopper, at the rate of memory (boxes.cuh explains the
// integer products). The eight columns of the second operand are the high and low bytes of four rows.
//
// A team of four warps walks through tasks: 64 rows of each of two weights, one box of each at a time. A box has 256
// columns of the 64 rows, or of a *flat* part 1,024 columns of 16 rows: then memory gets requests for 512 neighbouring
// bytes instead of 128. A warp multiplies 16 rows of 256 columns of both boxes, so the four warps' results of a flat
// part have to be added up. The last warp to read a stage of the team's ring requests the stage's next contents, so the
// next task is requested before this one is finished, and three warps of four go on without making a request.
#pragma once

#include "common/quad_rows.cuh"
#include "common/slices.cuh"

namespace gpu {

constexpr uint32_t kQuadTeam = 4, kQuadTeams = 4;  // warps of a team; teams of a block
constexpr uint32_t kQuadWarps = kQuadTeam * kQuadTeams, kQuadThreads = 32 * kQuadWarps;
constexpr uint32_t kBoxRows = kQuadTeam * kTileRows, kBoxSize = kQuadTeam * kTileBytes;  // of a task; of a box
constexpr uint32_t kMostQuadStages = 4, kStepBytes = 2 * kBoxSize;                       // of a ring; of two boxes
constexpr uint32_t kAtOnce = 2;  // groups of 64 columns in registers

// What the warps of a team share of their ring, in shared memory.
struct RingMarks {
  uint64_t arrived[kMostQuadStages];
  uint32_t readers[kMostQuadStages];  // how many times a warp has read a stage
};

// The layout of a block's memory: for every team stages of two boxes each, then the scales of several tasks.
struct QuadShape {
  uint32_t stages, slots, slot_bytes;

  __host__ __device__ uint32_t boxes_bytes() const { return stages * kStepBytes; }  // of a team
  __host__ __device__ uint32_t scales_bytes() const { return slots * slot_bytes; }
  __host__ __device__ uint32_t bytes() const { return 1024 + kQuadTeams * (boxes_bytes() + scales_bytes()); }
};
// slot_bytes: scales of a task. steps: the least number of steps of a task. stages is 0 if two do not fit.
inline QuadShape quad_shape(uint32_t memory, uint32_t slot_bytes, uint32_t steps) {
  QuadShape s{kMostQuadStages, 0, slot_bytes};
  for (; s.stages > 1; --s.stages) {
    s.slots = ceil_div(s.stages - 1, steps) + 1;  // asking is up to so many tasks ahead
    if (s.bytes() <= memory) return s;
  }
  return {};
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// ---- teams

// A team's place among the block's, and a warp's in its team.
__device__ inline uint32_t team_of_warp() { return threadIdx.x / (32 * kQuadTeam); }
__device__ inline uint32_t warp_of_team() { return threadIdx.x / 32 % kQuadTeam; }

// ---- activations

// Four groups of four rows in the layout of lane 4 g + t: column g of the second operand, and scales of row t.
struct QuadX {
  uint4 words[4];
  float4 scales[2];
};
struct QuadPlace {
  const uint4* words;
  const float4* scales;

  // own: the row of this lane's column; other: the row of its results.
  __device__ QuadPlace(const QuadRows& from, uint32_t own, uint32_t other, uint32_t groups)
      : words(from.words + uint64_t{own} * groups * 8 + threadIdx.x % 8),
        scales(reinterpret_cast<const float4*>(from.scales + uint64_t{other} * groups)) {}
  __device__ QuadX load(uint32_t slice) const {
    QuadX x;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) x.words[i] = words[(slice * 4 + i) * 8];
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) x.scales[i] = scales[slice * 2 + i];
    return x;
  }
};

// ---- weights

// A task of a list: its entry, and its number among that entry's tasks.
struct TaskPlace {
  uint32_t entry, part;
};

// The weights of a task: 64 rows of two weights, of `slices`, and where their scales and offsets begin.
struct BoxPair {
  const CUtensorMap* map[2];
  const uint16_t *scales[2], *offsets[2];
  uint32_t row[2], slices;
  uint32_t scale_bytes;  // of one of them

  __device__ void set(int i, const CUtensorMap* of, const uint16_t* all_scales, const uint16_t* all_offsets,
                      uint32_t groups, uint32_t first) {
    const uint64_t at = uint64_t{first} * groups;
    map[i] = of, row[i] = first, scales[i] = all_scales + at, offsets[i] = all_offsets + at;
    scale_bytes = kBoxRows * groups * 2;
  }
};

// The position of a lane's requests. Part: the tasks; pair(entry's first word, part) gives a task's boxes. That word is
// read one task ahead.
template <class Part>
struct Asker {
  const Part& part;
  uint32_t left;
  TaskPlace at;
  uint32_t known;

  __device__ explicit Asker(const Part& of) : part(of), left(of.tasks.count), at(of.tasks.begin()) {
    known = left != 0 ? part.tasks.entry(at).x : 0;
  }
  // Moves on to the next task's boxes; false if there is none.
  __device__ bool next(BoxPair& to) {
    if (left == 0) return false;
    to = part.pair(known, at.part);
    if (--left == 0) return true;
    at = part.tasks.after(at);
    known = part.tasks.entry(at).x;
    return true;
  }
};

// A warp's view of its team's ring. Every warp's first lane follows the requests; one of the four makes them.
template <bool kOffsets, bool kFlat = false>
class QuadRing {
 public:
  // The block meets before requests are made.
  __device__ QuadRing(const QuadShape& shape, char* memory, RingMarks& marks)
      : shape_(shape), readers_(marks.readers), barriers_(shared_at(marks.arrived)) {
    at_ = shared_at(memory) + team_of_warp() * shape.boxes_bytes();
    scales_ = shared_at(memory) + kQuadTeams * shape.boxes_bytes() + team_of_warp() * shape.scales_bytes();
    policy_ = cache_policy(true);
    pin(at_), pin(scales_), pin(barriers_);
    if (threadIdx.x % (32 * kQuadTeam) == 0) {
      for (uint32_t i = 0; i < shape.stages; ++i) barrier_init(barriers_ + i * 8, 1), readers_[i] = 0;
      publish_barriers();
    }
    __syncwarp();
  }
  // Requests the first stages.
  template <class Part>
  __device__ void fill(Asker<Part>& asker) {
    if (threadIdx.x % 32 != 0) return;
    for (uint32_t i = 0; i < shape_.stages; ++i) ask(asker, i, warp_of_team() == 0);
  }
  __device__ void wait() const { barrier_wait(barriers_ + stage_ * 8, parity_); }
  __device__ uint32_t tiles() const { return at_ + stage_ * kStepBytes + warp_of_team() * kTileBytes; }
  __device__ uint32_t scales() const { return scales_ + slot_ * shape_.slot_bytes; }
  // The warp has read the current stage. This relies on the hardware: shared memory serves a warp's reads before its
  // addition to `readers`. PTX promises that only of additions that release, which would wait for all earlier loads.
  template <class Part>
  __device__ void give_back(Asker<Part>& asker) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ask(asker, stage_, atomicAdd(readers_ + stage_, 1u) % kQuadTeam == kQuadTeam - 1);
    if (++stage_ == shape_.stages) stage_ = 0, parity_ ^= 1;
  }
  __device__ void next_task() {
    if (++slot_ == shape_.slots) slot_ = 0;
  }

 private:
  // One lane of each warp calls this: the next data go into a stage. makes: this lane requests them.
  template <class Part>
  __device__ void ask(Asker<Part>& asker, uint32_t stage, bool makes) {
    const bool first = asked_slice_ == 0 && (!kFlat || asked_row_ == 0);
    if (first && !asker.next(pair_)) return;
    if (makes) {
      const uint32_t barrier = barriers_ + stage * 8, to = at_ + stage * kStepBytes;
      barrier_expect(barrier, kStepBytes + (first ? (kOffsets ? 4 : 2) * pair_.scale_bytes : 0));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if constexpr (kFlat) {
          const uint3 at = make_uint3(0, pair_.row[i] + asked_row_, asked_slice_);
          copy_box(to + i * kBoxSize, *pair_.map[i], at, barrier, policy_);
        } else {
          copy_box(to + i * kBoxSize, *pair_.map[i], asked_slice_ * kBoxBytes, pair_.row[i], barrier, policy_);
        }
      }
      if (first) ask_scales(barrier);
    }
    if (first && ++asked_slot_ == shape_.slots) asked_slot_ = 0;
    asked_slice_ += kFlat ? kQuadTeam : 1;
    if (asked_slice_ != pair_.slices) return;
    asked_slice_ = 0;
    if (kFlat) asked_row_ = (asked_row_ + kTileRows) % kBoxRows;
  }
  __device__ void ask_scales(uint32_t barrier) {
    uint32_t to = scales_ + asked_slot_ * shape_.slot_bytes;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      copy_in(to, pair_.scales[i], pair_.scale_bytes, barrier), to += pair_.scale_bytes;
      if (kOffsets) copy_in(to, pair_.offsets[i], pair_.scale_bytes, barrier), to += pair_.scale_bytes;
    }
  }

  const QuadShape& shape_;
  uint32_t* readers_;
  uint32_t barriers_;
  uint64_t policy_;
  uint32_t at_, scales_, stage_ = 0, parity_ = 0, slot_ = 0;
  uint32_t asked_slice_ = 0, asked_row_ = 0, asked_slot_ = 0;  // asked_row_: only kFlat
  BoxPair pair_{};
};

// Where a lane finds scales in a slot, in bytes: of row g of the warp's first tile; of row g + 8; of the second weight;
// offsets.
struct QuadScales {
  uint32_t at, eight, second, offsets, shift;

  __device__ QuadScales(const Weight& w, bool flat)
      : at(((flat ? 0 : warp_of_team() * kTileRows) + threadIdx.x % 32 / 4) * w.groups * 2),
        eight(16 * w.groups),
        second(scales_bytes(w, kBoxRows)),
        offsets(kBoxRows * w.groups * 2),
        shift(w.groups == 1 ? 31 : 31 - __clz(w.group / 64)) {
    pin(at), pin(eight), pin(second);
  }
};

// Scales of neighbouring groups.
__device__ inline void load_two(uint32_t at, float* v) {
  uint32_t two;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(two) : "r"(at) : "memory");
  const float2 f = __half22float2(*reinterpret_cast<const __half2*>(&two));
  v[0] = f.x, v[1] = f.y;
}

// A warp's part of a stage in registers: kAtOnce groups, lane 4 g + t with rows g and g + 8 of both tiles. kFine: every
// 64 columns have scales of their own.
template <bool kOffsets, bool kFine>
struct QuadTiles {
  uint32_t bytes[kAtOnce][2][4];
  float scale[2][2][kAtOnce], offset[2][2][kAtOnce];  // [tile][half][group]

  // Groups from `first` of a slice.
  __device__ void load(uint32_t tiles, uint32_t in_box, uint32_t scales, const QuadScales& places, uint32_t slice,
                       uint32_t first) {
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
#pragma unroll
      for (uint32_t k = 0; k < kAtOnce; ++k) {
        read_rows(tiles + i * kBoxSize + (in_box ^ (32 * (first + k))), bytes[k][i]);
      }
#pragma unroll
      for (uint32_t j = 0; j < 2; ++j) {
        const uint32_t from = scales + places.at + i * places.second + j * places.eight;
        load_scales(from, places, slice * 4 + first, scale[i][j]);
        if constexpr (kOffsets) load_scales(from + places.offsets, places, slice * 4 + first, offset[i][j]);
      }
    }
  }
  static __device__ void load_scales(uint32_t from, const QuadScales& places, uint32_t group, float (&v)[kAtOnce]) {
    if constexpr (kFine) {
#pragma unroll
      for (uint32_t k = 0; k < kAtOnce; k += 2) load_two(from + 2 * (group + k), v + k);
    } else {
#pragma unroll
      for (uint32_t k = 0; k < kAtOnce; ++k) v[k] = shared_half(from + 2 * ((group + k) >> places.shift));
    }
  }
  // sum[i][j] += the products of row g + 8 j of tile i with row t of the activations.
  __device__ void multiply(const QuadX& x, uint32_t first, float (&sum)[2][2]) const {
    constexpr uint32_t kLow = 0x0f0f0f0fu;
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      const uint4 words = x.words[first + k];
      const float4 two = x.scales[(first + k) / 2];
      const float of_x = (first + k) % 2 == 0 ? two.x : two.z;
      const int start = __float_as_int((first + k) % 2 == 0 ? two.y : two.w);
      const uint32_t plain[2] = {words.x, words.y}, lower[2] = {words.z, words.w};
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t(&a)[4] = bytes[k][i];
        int c[4] = {};
        multiply_bytes(c, a[0], a[1], a[2], a[3], plain);
        multiply_bytes(c, a[0] & kLow, a[1] & kLow, a[2] & kLow, a[3] & kLow, lower);
#pragma unroll
        for (uint32_t j = 0; j < 2; ++j) {
          const int dot = c[2 * j] * 256 + c[2 * j + 1];
          if constexpr (kOffsets) {
            const float more = offset[i][j][k] * (-0.125f * static_cast<float>(start));
            sum[i][j] = fmaf(fmaf(static_cast<float>(dot), scale[i][j][k], more), of_x, sum[i][j]);
          } else {
            sum[i][j] = fmaf(static_cast<float>(dot + start) * scale[i][j][k], of_x, sum[i][j]);
          }
        }
      }
    }
  }
};

// A team's next `count` tasks, those of `part`, of `slices` of `weight`. first() gives the first task, entry(at) its
// entry in the list, place(entry) where its activations lie; store(task, at, entry, row, sum) takes the results, of a
// flat part the warp's shares in those of 16 rows, from `row` on. Activations are loaded one step ahead, and entries
// one task ahead.
template <bool kOffsets, bool kFine, class Part>
__device__ inline void walk(QuadRing<kOffsets, Part::kFlat>& ring, Asker<Part>& asker, const Part& part,
                            Stamps& stamps) {
  constexpr uint32_t kRows = Part::kFlat ? kTileRows : kBoxRows, kSlices = Part::kFlat ? kQuadTeam : 1;  // of a box
  uint32_t in_box = lane_of_box();
  pin(in_box);
  const uint32_t count = part.tasks.count, slices = part.slices(), first = Part::kFlat ? warp_of_team() : 0;
  if (count == 0) return;
  const QuadScales scales(part.weight(), Part::kFlat);
  const uint32_t box_scales = kRows * part.weight().groups * 2;  // bytes
  TaskPlace at = part.tasks.begin();
  uint4 entry = part.tasks.entry(at);
  QuadPlace from = part.place(entry);
  QuadX x = from.load(first);
#pragma unroll 1
  for (uint32_t task = 0; task < count; ++task) {
    const TaskPlace next_at = task + 1 < count ? part.tasks.after(at) : at;
    const uint4 next = part.tasks.entry(next_at);
    uint32_t scales_at = ring.scales();
#pragma unroll 1
    for (uint32_t row = 0; row < kBoxRows; row += kRows, scales_at += box_scales) {
      float sum[2][2] = {};
#pragma unroll 1
      for (uint32_t slice = first; slice < slices; slice += kSlices) {
        const bool last = slice + kSlices >= slices;
        if (last && row + kRows == kBoxRows) from = part.place(next);
        const QuadX ahead = from.load(last ? first : slice + kSlices);
        ring.wait();
        if (task == 0 && row == 0 && slice == first) stamps.note(kArrived);
#pragma unroll
        for (uint32_t k = 0; k < 4; k += kAtOnce) {
          QuadTiles<kOffsets, kFine> tiles;
          tiles.load(ring.tiles(), in_box, scales_at, scales, slice, k);
          if (k + kAtOnce == 4) ring.give_back(asker);
          tiles.multiply(x, k, sum);
        }
        x = ahead;
      }
      if (row + kRows == kBoxRows) {
        ring.next_task();
        if (task == 0) stamps.note(kMultiplied);
      }
      part.store(task, at, entry, row, sum);
    }
    at = next_at, entry = next;
  }
}

#endif

}  // namespace gpu
