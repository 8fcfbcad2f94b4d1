// SPDX-License-Identifier: Apache-2.0
#include "panels.h"

#include <algorithm>
#include <cstring>

#include "switchyard/sdk/error.hpp"
#include "switchyard/weights.h"

namespace cpu {
namespace {

constexpr uint32_t kRowBlock = kMostBlock;  // for weights with one scale per row

uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

// Moves one panel: rows [first, first + count) of the canonical tensor.
class Packer {
 public:
  Packer(const swy_tensor& tensor, const PanelShape& shape, const void* canonical)
      : shape_(shape), from_(static_cast<const uint8_t*>(canonical)), group_(tensor.group) {
    swy_weight_planes_of(&tensor, &planes_);
  }

  void panel(uint64_t first, uint32_t count, uint8_t* to) const {
    std::memset(to, 0, shape_.panel_bytes);
    for (uint32_t n = 0; n < count; ++n) {
      const uint8_t* row = from_ + (first + n) * planes_.row_bytes;
      if (shape_.dtype == SWY_F32) {
        for (uint64_t k = 0; k < shape_.width; ++k) std::memcpy(to + (k * kPanelRows + n) * 4, row + 4 * k, 4);
      } else if (shape_.dtype == SWY_BF16) {
        for (uint64_t k = 0; k < shape_.width; ++k) {
          std::memcpy(to + (k / 2 * 2 * kPanelRows + 2 * n + k % 2) * 2, row + 2 * k, 2);
        }
      } else {
        quants(row, n, to);
        scales(first + n, n, to);
      }
    }
  }

 private:
  // Spreads the nibbles of 16 bits into bytes.
  static uint32_t spread(uint32_t nibbles) {
    const uint32_t pairs = (nibbles | (nibbles << 8)) & 0x00ff00ffu;
    return (pairs | (pairs << 4)) & 0x0f0f0f0fu;
  }

  // The bytes [at, at + count) of a group, as one word; zeros beyond.
  static uint32_t word(const uint8_t* q, uint64_t at, uint64_t count) {
    uint32_t w = 0;
    std::memcpy(&w, q + at, std::min<uint64_t>(count, 4));
    return w;
  }

  // Row n of the panel: one word goes into each line.
  void quants(const uint8_t* row, uint32_t n, uint8_t* to) const {
    const uint64_t group = group_ != 0 ? group_ : shape_.width, step = shape_.dtype == SWY_I8 ? 4 : 8;
    for (uint64_t k = 0; k < shape_.width; k += step, to += 64) {
      const uint8_t* q = row + k / group * planes_.group_bytes;
      const uint64_t at = k % group, left = std::min(step, shape_.width - k);
      uint32_t packed;
      if (shape_.dtype == SWY_I8) {
        packed = word(q, at, left) ^ 0x80808080u;
      } else {
        const uint32_t w = word(q, at / 2, (left + 1) / 2);
        packed = spread(w & 0xffffu) | (spread(w >> 16) << 4);
      }
      std::memcpy(to + n * 4, &packed, 4);
    }
  }

  void scales(uint64_t row, uint32_t n, uint8_t* to) const {
    for (uint64_t g = 0; g < shape_.groups; ++g) {
      if (shape_.dtype == SWY_MXFP4) {
        to[shape_.scales_at + g * kPanelRows + n] = from_[planes_.scales + row * planes_.groups + g];
        continue;
      }
      const uint64_t from = (row * planes_.groups + g) * 2, at = (g * kPanelRows + n) * 2;
      std::memcpy(to + shape_.scales_at + at, from_ + planes_.scales + from, 2);
      if (shape_.dtype == SWY_I4A) std::memcpy(to + shape_.offsets_at + at, from_ + planes_.offsets + from, 2);
    }
  }

  const PanelShape& shape_;
  swy_weight_planes planes_{};
  const uint8_t* from_;
  uint32_t group_;
};

}  // namespace

swy_status panel_shape(const swy_tensor& tensor, uint32_t layout, PanelShape* out, swy_error* error) {
  swy_weight_planes planes;
  if ((layout != kPanels && layout != kHalvedPanels) || tensor.rank < 2 ||
      swy_weight_planes_of(&tensor, &planes) != 0) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_LAYOUT, "layout %u does not hold this tensor", layout);
  }
  PanelShape s;
  s.dtype = tensor.dtype;
  s.width = tensor.dims[tensor.rank - 1];
  s.rows = tensor.dims[tensor.rank - 2];
  s.matrices = planes.rows / s.rows;
  if (layout == kHalvedPanels) {
    if (s.rows % 2 != 0) {
      return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "%llu rows have no halves",
                       static_cast<unsigned long long>(s.rows));
    }
    s.rows /= 2;
    s.matrices *= 2;
  }
  s.panels = (s.rows + kPanelRows - 1) / kPanelRows;
  if (s.dtype == SWY_F32 || s.dtype == SWY_BF16) {
    s.block = s.dtype == SWY_F32 ? 16 : 32;
    s.blocks = (s.width + s.block - 1) / s.block;
    s.block_bytes = 64 * 16;
    s.panel_bytes = s.blocks * s.block_bytes;
  } else {
    s.block = tensor.group != 0 ? tensor.group : kRowBlock;
    if (!is_block(s.block)) {
      return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "groups of %u, not of 16, 32, 64, 128 or a row",
                       tensor.group);
    }
    s.blocks = (s.width + s.block - 1) / s.block;
    s.block_bytes = uint64_t{s.block} * kPanelRows / (s.dtype == SWY_I8 ? 1 : 2);
    s.groups = tensor.group != 0 ? s.blocks : 1;
    s.group_bytes = kPanelRows * planes.scale_bytes;
    s.scales_at = s.blocks * s.block_bytes;
    s.offsets_at = s.scales_at + s.groups * s.group_bytes;
    s.panel_bytes = round_up(s.dtype == SWY_I4A ? s.offsets_at + s.groups * s.group_bytes : s.offsets_at, 64);
  }
  s.bytes = s.matrices * s.panels * s.panel_bytes;
  *out = s;
  return SWY_OK;
}

swy_status packed_bytes(const swy_tensor* tensor, uint32_t layout, uint64_t* bytes, swy_error* error) {
  PanelShape shape;
  if (const swy_status s = panel_shape(*tensor, layout, &shape, error); s != SWY_OK) return s;
  *bytes = shape.bytes;
  return SWY_OK;
}

swy_status pack(const swy_tensor* tensor, uint32_t layout, const void* canonical, void* packed, swy_error* error) {
  PanelShape shape;
  if (const swy_status s = panel_shape(*tensor, layout, &shape, error); s != SWY_OK) return s;
  const Packer packer(*tensor, shape, canonical);
  auto* to = static_cast<uint8_t*>(packed);
  for (uint64_t m = 0; m < shape.matrices; ++m) {
    for (uint64_t p = 0; p < shape.panels; ++p, to += shape.panel_bytes) {
      const uint64_t left = shape.rows - p * kPanelRows;
      packer.panel(m * shape.rows + p * kPanelRows, static_cast<uint32_t>(std::min<uint64_t>(left, kPanelRows)), to);
    }
  }
  return SWY_OK;
}

const char* layout_name(uint32_t layout) {
  return layout == kPanels ? "cpu.panels16/1" : layout == kHalvedPanels ? "cpu.halved_panels16/1" : nullptr;
}

Panels panels_of(const swy_tensor& tensor, const void* packed) {
  Panels p;
  panel_shape(tensor, tensor.layout, &p.shape, nullptr);
  p.data = static_cast<const uint8_t*>(packed);
  return p;
}

}  // namespace cpu
