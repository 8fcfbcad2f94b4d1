// SPDX-License-Identifier: Apache-2.0
// LINEAR, LINEAR_ADD and RMS_NORM_LINEAR of 2 to 64 rows, from 9.0 on (linear_few.cuh).
#include "linear_few.cuh"

#include <algorithm>
#include <bit>

namespace gpu {
namespace {

// With up to eight rows 16 warps have half of the registers, so that blocks of the next kernel fit beside them.
template <int N, bool kAffine, bool kWgmma>
__global__ void __launch_bounds__(kFewMostWarps * 32, N == 1 ? 2 : 1)
    linear_few(const __grid_constant__ FewMaps maps, const __grid_constant__ Few f, const swy_step* step) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ char dynamic[];
  __shared__ FewShared shared;
  FewProducts<N, kAffine, kWgmma> block(f, shared, dynamic);
  block.run(maps, step);
#endif
}

constexpr uint32_t kRowsBesideStates = 8;  // with a row of each sequence; steps of up to four have other kernels
constexpr uint32_t kRowsOfMma = 16;        // with more, wgmma saves more than its operand costs

uint32_t rows_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "x").dims[0]); }
uint32_t width_of(const swy_op& op) { return static_cast<uint32_t>(swy::tensor(op, "x").dims[1]); }

// The work to be divided.
struct FewWork {
  uint32_t rows, slices, tiles, plain_tiles;
  bool ready;   // the rows
  bool wgmma;   // multiplies them
  Weight like;  // one of the quantized weights
};
FewWork work_of(const swy_op& op, bool ready) {
  FewWork work{rows_of(op), width_of(op) / kSlice, 0, 0, ready, false, {}};
  for (uint32_t i = first_weight(op); i < op.weight_count; ++i) {
    const Weight w = weight_of(*op.weights[i], nullptr);
    if (is_quantized(w.dtype)) work.like = w;
    (is_quantized(w.dtype) ? work.tiles : work.plain_tiles) += ceil_div(w.rows, kTileRows);
  }
  return work;
}
FewWork work_on(const swy_device& device, const swy_op& op, bool ready) {
  FewWork work = work_of(op, ready);
  work.wgmma = device.features.wgmma && work.rows > kRowsOfMma;
  return work;
}

// Tiles of the fullest quarter of a multiprocessor; a quarter gets every fourth warp of a team.
uint32_t most_of_quarter(uint32_t tiles, uint32_t team) {
  uint32_t first = 0;
  for (uint32_t w = 0; w < team; w += 4) first += w + team < tiles ? 2 : 1;
  return first;
}
// Warps for this many tiles: the fewest that leave the fullest quarter with the fewest tiles.
uint32_t team_for(uint32_t tiles) {
  uint32_t best = ceil_div(tiles, kFewWarpTiles);
  for (uint32_t team = best + 1; team <= std::min(tiles, kFewMostWarps); ++team) {
    if (most_of_quarter(tiles, team) < most_of_quarter(tiles, best)) best = team;
  }
  return best;
}

// Microseconds of an H200 besides the weights, with the clusters' rounds one after the other. A multiprocessor reads
// and converts activations at 18 GB/s, or copies those that are ready at some 40, all but the first chunk beside
// products. Its fullest quarter takes 33 cycles for products of 16 rows, 64 columns and 8 rows of activations, or 55 to
// unpack the weights. Results go to other blocks at 14 GB/s.
double time_of(const FewWork& work, const FewCut& c, uint32_t at_once) {
  const double rows = c.padded * 8, elements = rows * c.groups * kFewGroup;
  const double load = 1 + (work.ready ? elements * 2 / 40e3 / kFewChunks : elements * 4 / 18e3);
  const double products =
      1 + std::max(55.0, 33.0 * c.padded) * most_of_quarter(c.tiles, c.team) * c.groups * 1.2 / 1750;
  const double copied = work.ready ? elements * 2 / 40e3 : 0;
  const double pushed = c.tiles * kTileRows * rows * 4 * c.parts / 14e3;
  const uint32_t rounds = ceil_div(c.clusters + c.plain_clusters, std::max(at_once, 1u));
  return rounds * (load + std::max(products, copied) + pushed);
}

// A cluster gets so many tiles: its warps, and the clusters of plain tiles.
void share_out(const FewWork& work, uint32_t tiles, FewCut& c) {
  c.tiles = tiles;
  c.clusters = ceil_div(work.tiles, tiles);
  c.team = c.wgmma ? std::min(ceil_div(tiles, 4u) * 4, kFewMostWarps) : team_for(tiles);
  const uint32_t most = c.padded == 1 ? kFewMostWarps : 12, whole = c.wgmma ? 2 : 1;  // groups of a part
  for (c.parts = 1; c.warps() * 2 <= most && c.groups % (c.parts * 2 * whole) == 0;) c.parts *= 2;
  c.plain_parts = std::min(ceil_div(c.groups, kFewPlainGroups), 8u);
  if (work.plain_tiles == 0) return;
  c.plain_parts = std::min(c.plain_parts, c.warps());
  c.plain_tiles = std::min(c.warps() / c.plain_parts, work.plain_tiles);
  c.plain_clusters = ceil_div(work.plain_tiles, c.plain_tiles);
}

// Divides the work for clusters of 2^shift blocks, of which `at_once` can run at once; tiles is 0 if it does not fit.
FewCut cut_for(const FewWork& work, uint32_t shift, uint32_t at_once, uint64_t most_bytes) {
  FewCut c{};
  c.shift = shift;
  c.groups = work.slices / c.blocks() * 4;
  c.wgmma = work.wgmma;
  c.ready = work.ready;
  c.padded = std::bit_ceil(ceil_div(work.rows, 8));
  c.affine = work.like.offsets != nullptr || work.like.dtype == SWY_I4A;
  c.scale_shift = work.like.groups == 1 ? 31 : std::bit_width(work.like.group / kFewGroup) - 1;
  c.scales = std::max(c.groups >> c.scale_shift, 1u);
  const uint64_t group = uint64_t{1} << c.scale_shift;  // of one scale, in groups of 64 columns
  const bool whole = work.like.groups == 1 || c.groups % group == 0 || group % std::max(c.groups, 1u) == 0;
  if (!whole || work.slices % c.blocks() != 0 || c.slices() > kFewMostSlices || at_once == 0) return c;
  const uint32_t most = std::min(kFewMostWarps * kFewWarpTiles, work.tiles);
  const uint32_t fewest = std::min(ceil_div(work.tiles, at_once), most);
  uint32_t tiles = fewest;  // more where the clusters of plain tiles would not run at once with the others
  const auto waits = [&] { return share_out(work, tiles, c), c.clusters + c.plain_clusters > at_once; };
  while (tiles < most && waits()) ++tiles;
  if (waits()) tiles = fewest;
  for (; tiles > 0; --tiles) {
    share_out(work, tiles, c);
    for (const bool apart : {true, false}) {
      c.apart = apart;
      if (c.bytes() + sizeof(float) * (kFewMostSlices + kFewMostCluster + 1) * kFewMostRows <= most_bytes) return c;
    }
  }
  c.tiles = 0;
  return c;
}

// The fastest division for a device with this many multiprocessors. A single block is no cluster, so it could not push.
// Of ready rows small clusters are preferred, since the kernel in front still has some multiprocessors: with up to
// eight rows of two blocks, with 9 to 16 of four, with more those with at most 512 columns a block. That is what was
// measured inside steps.
FewCut best_cut(const FewWork& work, uint32_t processors, uint64_t most_bytes, double* time) {
  FewCut best{};
  *time = 1e9;
  for (uint32_t shift = 1; 1u << shift <= kFewMostCluster; ++shift) {
    const FewCut c = cut_for(work, shift, processors >> shift, most_bytes);
    if (c.tiles == 0) continue;
    const double t = time_of(work, c, processors >> shift);
    const bool preferred = work.ready && (c.padded <= 2 ? shift == c.padded : c.groups <= 8);
    if (t < *time || preferred) best = c, *time = t;
    if (preferred) break;
  }
  return best;
}

using FewKernel = void (*)(const FewMaps, const Few, const swy_step*);
FewKernel kernel_for(const FewCut& c) {
  const auto of = [&]<bool kAffine>() -> FewKernel {
    if (c.wgmma) return c.padded == 4 ? linear_few<4, kAffine, true> : linear_few<8, kAffine, true>;
    return c.padded == 1   ? linear_few<1, kAffine, false>
           : c.padded == 2 ? linear_few<2, kAffine, false>
           : c.padded == 4 ? linear_few<4, kAffine, false>
                           : linear_few<8, kAffine, false>;
  };
  return c.affine ? of.operator()<true>() : of.operator()<false>();
}

// How many clusters the device can run at once. That is less than multiprocessors / blocks if the device's groups of
// multiprocessors are no multiple of a cluster.
uint32_t clusters_at_once(const FewCut& c, FewKernel kernel, uint32_t processors) {
  const auto* function = reinterpret_cast<const void*>(kernel);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {c.blocks(), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = (c.clusters + c.plain_clusters) * c.blocks();
  config.blockDim = c.warps() * 32;
  config.dynamicSmemBytes = c.bytes();
  config.attrs = &attribute;
  config.numAttrs = 1;
  int found = 0;
  if (allow_shared(function, static_cast<int>(c.bytes()), nullptr) != SWY_OK ||
      cudaOccupancyMaxActiveClusters(&found, function, &config) != cudaSuccess) {
    cudaGetLastError();
  }
  return std::min(found > 0 ? found : 1u << 16, processors >> c.shift);
}

swy_status record_rows(const Recording& r, const Projection& p, const FewRows& ready, uint32_t busy) {
  Few f{};
  FewMaps maps{};
  f.p = p;
  f.ready = ready;
  const FewWork work = work_on(r.device(), r.op, ready.words != nullptr);
  uint32_t processors = static_cast<uint32_t>(r.device().processors) - busy;
  double time = 0;
  f.cut = best_cut(work, processors, r.device().features.block_memory, &time);
  if (f.cut.tiles == 0) {  // too few are left
    processors += busy;
    f.cut = best_cut(work, processors, r.device().features.block_memory, &time);
  }
  const FewKernel kernel = kernel_for(f.cut);
  const uint32_t room = clusters_at_once(f.cut, kernel, processors);
  f.cut = cut_for(work, f.cut.shift, room, r.device().features.block_memory);
  uint32_t next = 0;
  for (uint32_t i = 0; i < f.p.count; ++i) {
    const Weight& w = f.p.weights[i];
    const bool quantized = is_quantized(w.dtype);
    const uint32_t tiles = ceil_div(w.rows, kTileRows);
    f.first[0][i + 1] = f.first[0][i] + (quantized ? tiles : 0);
    f.first[1][i + 1] = f.first[1][i] + (quantized ? 0 : tiles);
    if (!quantized) continue;
    f.like = w;
    f.map[i] = next;
    SWY_CUDA_TRY(map_boxes(w, kTileRows, &maps.of[next++], r.error));
  }
  const uint32_t blocks = (f.cut.clusters + f.cut.plain_clusters) * f.cut.blocks();
  return launch_clusters(r, kernel, f.cut.blocks(), blocks, f.cut.warps() * 32, f.cut.bytes(), maps, f, r.list.step);
}

swy_status record(const Recording& r) { return record_rows(r, linear_projection(r), {}, 0); }
swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  return supports_few(device, op, error);
}
double cost_of_rows(const swy_device& device, const swy_op& op, bool ready) {
  double bytes = 0, time = 0;
  for (uint32_t i = first_weight(op); i < op.weight_count; ++i) bytes += weight_bytes(*op.weights[i]);
  const auto processors = static_cast<uint32_t>(device.processors);
  best_cut(work_on(device, op, ready), processors, device.features.block_memory, &time);
  return 2 + device.rates.bytes(bytes, 3.5e6) + time;
}
double cost(const swy_device& device, const swy_op& op, const swy_bucket&) { return cost_of_rows(device, op, false); }

constexpr Kernel kernel(const char* name, uint32_t op) {
  return {name, op, kAlways, SWY_BF16, supports, cost, nullptr, record};
}
constexpr Kernel kKernels[] = {
    kernel("linear.few", SWY_OP_LINEAR),
    kernel("linear_add.few", SWY_OP_LINEAR_ADD),
    kernel("rms_norm_linear.few", SWY_OP_RMS_NORM_LINEAR),
};

// The eights of rows of an operation, whether it has plain weights, and whether the others have offsets.
struct ReadyShape {
  uint32_t eights;
  bool with_low, affine;
};
ReadyShape ready_shape(const swy_op& op) {
  const FewWork work = work_of(op, true);
  return {std::bit_ceil(ceil_div(work.rows, 8)), work.plain_tiles != 0,
          work.like.offsets != nullptr || work.like.dtype == SWY_I4A};
}

}  // namespace

swy_status supports_few(const swy_device& device, const swy_op& op, swy_error* error) {
  SWY_CUDA_TRY(needs_copy_engine(device, error));
  if (rows_of(op) < 2 || rows_of(op) > kFewMostRows) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "takes 2 to %u rows, the bucket has %u", kFewMostRows,
                     rows_of(op));
  }
  uint32_t quantized = 0;
  Weight like{};
  for (uint32_t i = first_weight(op); i < op.weight_count; ++i) {
    const Weight w = weight_of(*op.weights[i], nullptr);
    if (w.dtype == SWY_BF16 && w.width % kSlice == 0 && w.rows <= kFewMostPlain) continue;
    if (quantized++ == 0) like = w;
    if (!in_slices(w) || w.dtype != like.dtype || w.groups != like.groups) {
      return swy::fail(
          error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
          "weight %u (%u x %u) is neither some of bf16 nor, like the others, of 4 bits in slices of 256 and "
          "groups of 64 or a multiple",
          i, w.rows, w.width);
    }
  }
  double time = 0;
  const auto processors = static_cast<uint32_t>(device.processors);
  if (quantized == 0 || quantized > kFewMostWeights ||
      best_cut(work_on(device, op, false), processors, device.features.block_memory, &time).tiles == 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "1 to %u weights of 4 bits whose tiles fit, and an even number of slices, are needed",
                     kFewMostWeights);
  }
  return SWY_OK;
}

uint64_t few_rows_bytes(const swy_op& op) {
  const ReadyShape s = ready_shape(op);
  return FewRows::bytes(s.eights, width_of(op), s.with_low);
}
FewRows few_rows_in(char* memory, const swy_op& op) {
  const ReadyShape s = ready_shape(op);
  return FewRows::in(memory, s.eights, width_of(op), s.with_low, s.affine);
}
double few_ready_cost(const swy_device& device, const swy_op& op) { return cost_of_rows(device, op, true); }
// With gates: the delta rule is next, of which a block has room beside one of so few rows, and so requests its state
// before this kernel has ended.
swy_status record_few_ready(const Recording& r, const Projection& p, const FewRows& ready, uint32_t busy) {
  const bool sequences = (r.bucket().flags & SWY_BUCKET_DECODE) != 0 && rows_of(r.op) == kRowsBesideStates;
  const bool beside = sequences && work_of(r.op, true).plain_tiles != 0;
  return record_rows(beside ? r.with(FastMemory::shared) : r, p, ready, busy);
}

std::span<const Kernel> linear_few_kernels() { return kKernels; }

}  // namespace gpu
