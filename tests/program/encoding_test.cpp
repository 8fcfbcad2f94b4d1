// SPDX-License-Identifier: Apache-2.0
// Names, and encodings described as data: switchyard/ops.h and weights.h.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "switchyard/weights.h"

namespace {

TEST(Name, IsAVendorANameAndARevision) {
  const std::string longest = "a." + std::string(59, 'b') + "/1";
  ASSERT_EQ(longest.size(), size_t{SWY_MAX_NAME});
  for (const char* name : {"acme.gelu/1", "a.b/9", "acme-2.x_y.z/1200", longest.c_str()}) {
    EXPECT_TRUE(swy_is_name(name)) << name;
  }
  const std::string too_long = "a." + std::string(60, 'b') + "/1", revision = "a.b/" + std::string(60, '1');
  for (const char* name : {"", "acme", "acme/1", "acme.gelu", "acme.gelu/", "acme.gelu/0", "acme.gelu/01", "acme./1",
                           ".acme.gelu/1", "acme.Gelu/1", "acme.ge lu/1", "acme.gelu/1a", "acme.gelu/1/2",
                           "9acme.gelu/1", too_long.c_str(), revision.c_str()}) {
    EXPECT_FALSE(swy_is_name(name)) << name;
  }
  EXPECT_FALSE(swy_is_name(nullptr));
}

TEST(Scale, OfEveryType) {
  EXPECT_EQ(swy_f8_e4m3_to_f32(0x38), 1.0f);
  EXPECT_EQ(swy_f8_e4m3_to_f32(0xfe), -448.0f);
  EXPECT_EQ(swy_f8_e4m3_to_f32(0x08), 0.015625f);
  EXPECT_EQ(swy_f8_e4m3_to_f32(0x81), -0.001953125f);
  EXPECT_TRUE(std::isnan(swy_f8_e4m3_to_f32(0x7f)));
  EXPECT_EQ(swy_e8m0_to_f32(127), 1.0f);
  EXPECT_EQ(swy_e8m0_to_f32(0), std::ldexp(1.0f, -127));
  EXPECT_EQ(swy_e8m0_to_f32(254), std::ldexp(1.0f, 127));
  EXPECT_TRUE(std::isnan(swy_e8m0_to_f32(255)));
  EXPECT_EQ(swy_scale_bytes(SWY_I8), 0u);
}

struct Described {
  std::vector<float> codes;
  swy_encoding encoding{};
  swy_tensor tensor{};

  Described(uint32_t bits, uint32_t group, swy_dtype scales, bool offset, uint64_t rows, uint64_t in) {
    for (uint32_t i = 0; i < (1u << bits); ++i) codes.push_back(static_cast<float>(i) - 1.5f);
    encoding = {sizeof encoding, bits, group, scales, offset, 0, "acme.test/1", codes.data()};
    tensor.struct_size = sizeof tensor;
    tensor.dtype = SWY_ENCODED;
    tensor.group = group;
    tensor.rank = 2;
    tensor.dims[0] = rows;
    tensor.dims[1] = in;
    tensor.dims[2] = tensor.dims[3] = 1;
    tensor.encoding = &encoding;
  }
};

// Every number of bits, with groups that end within a byte and a short last group, in a segment that ends where
// swy_weight_planes_of says: a sanitizer sees a read beyond it.
TEST(Encoding, RowsAreWhatTheyWerePackedFrom) {
  for (uint32_t bits = 1; bits <= 8; ++bits) {
    for (const uint32_t group : {0u, 5u, 32u}) {
      for (const swy_dtype scales : {SWY_F32, SWY_F16, SWY_BF16, SWY_E8M0, SWY_F8_E4M3}) {
        const bool offset = swy_scale_bytes(scales) != 1 && bits % 2 == 0;
        const Described d(bits, group, scales, offset, 3, 37);
        swy_weight_planes p;
        ASSERT_EQ(swy_weight_planes_of(&d.tensor, &p), 0);
        std::vector<uint8_t> segment(p.total_bytes);
        const auto put = [&](uint64_t at, uint32_t n) {  // 2^n as a scale or offset of that type
          const std::array<uint32_t, 5> one = {n == 0 ? 0x3f800000u : 0x40000000u, n == 0 ? 0x3c00u : 0x4000u,
                                               n == 0 ? 0x3f80u : 0x4000u, 127 + n, n == 0 ? 0x38u : 0x40u};
          const size_t kind = scales == SWY_F32    ? 0
                              : scales == SWY_F16  ? 1
                              : scales == SWY_BF16 ? 2
                              : scales == SWY_E8M0 ? 3
                                                   : 4;
          std::memcpy(&segment[at], &one[kind], p.scale_bytes);
        };
        const auto code = [&](uint64_t row, uint64_t i) {
          return static_cast<uint32_t>(row * 7 + i * 3) & ((1u << bits) - 1);
        };
        for (uint64_t row = 0; row < p.rows; ++row) {
          for (uint64_t i = 0; i < 37; ++i) {
            const uint64_t g = i / p.group_size, at = (i % p.group_size) * bits;
            for (uint32_t b = 0; b < bits; ++b) {
              uint8_t& byte = segment[row * p.row_bytes + g * p.group_bytes + (at + b) / 8];
              byte = static_cast<uint8_t>(byte | (code(row, i) >> b & 1) << ((at + b) % 8));
            }
            put(p.scales + (row * p.groups + g) * p.scale_bytes, g % 2);
            if (offset) put(p.offsets + (row * p.groups + g) * p.scale_bytes, 0);
          }
        }
        std::vector<float> out(37);
        for (uint64_t row = 0; row < p.rows; ++row) {
          swy_weight_row(&d.tensor, &p, segment.data(), row, out.data());
          for (uint64_t i = 0; i < 37; ++i) {
            const float scale = i / p.group_size % 2 == 0 ? 1.0f : 2.0f;
            ASSERT_EQ(out[i], d.codes[code(row, i)] * scale + (offset ? 1.0f : 0.0f))
                << bits << " " << group << " " << scales;
          }
        }
      }
    }
  }
}

// Elements and scales as the OCP's specification of microscaling formats has them; a short last group.
TEST(Encoding, Mxfp4IsWhatItsStandardSays) {
  swy_tensor t{};
  t.struct_size = sizeof t;
  t.dtype = SWY_MXFP4;
  t.group = SWY_MXFP4_GROUP;
  t.rank = 2;
  t.dims[0] = 3, t.dims[1] = 40, t.dims[2] = t.dims[3] = 1;
  swy_weight_planes p;
  ASSERT_EQ(swy_weight_planes_of(&t, &p), 0);
  EXPECT_EQ(p.group_bytes, 16u);
  EXPECT_EQ(p.row_bytes, 32u);
  EXPECT_EQ(p.scales, 128u);       // 96, rounded up
  EXPECT_EQ(p.total_bytes, 192u);  // 6 scales, rounded up
  std::vector<uint8_t> segment(p.total_bytes);
  for (uint64_t i = 0; i < p.scales; ++i) segment[i] = static_cast<uint8_t>((i % 8) * 2 | (i % 8 * 2 + 1) << 4);
  const std::array<uint8_t, 6> scales = {127, 128, 0, 1, 254, 120};
  std::copy(scales.begin(), scales.end(), segment.begin() + static_cast<ptrdiff_t>(p.scales));
  const std::array<double, 8> magnitudes = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  std::vector<float> out(40);
  for (uint64_t row = 0; row < 3; ++row) {
    swy_weight_row(&t, &p, segment.data(), row, out.data());
    for (uint64_t i = 0; i < 40; ++i) {
      const double value = (i % 16 < 8 ? 1 : -1) * magnitudes[i % 8];
      EXPECT_EQ(out[i], static_cast<float>(std::ldexp(value, scales[row * 2 + i / 32] - 127))) << row << " " << i;
      EXPECT_EQ(std::signbit(out[i]), i % 16 >= 8);
    }
  }
}

TEST(Encoding, FlawsHaveNoPlanes) {
  const auto flaw = [](auto change) {
    Described d(4, 32, SWY_F16, false, 2, 64);
    change(d);
    swy_weight_planes p;
    EXPECT_EQ(swy_weight_planes_of(&d.tensor, &p), 1);
    const char* what = swy_encoding_flaw(&d.encoding);
    return std::string(what == nullptr ? "" : what);
  };
  EXPECT_EQ(flaw([](Described& d) { d.encoding.bits = 0; }), "its elements have 1 to 8 bits");
  EXPECT_EQ(flaw([](Described& d) { d.encoding.bits = 9; }), "its elements have 1 to 8 bits");
  EXPECT_EQ(flaw([](Described& d) { d.encoding.group = d.tensor.group = 65537; }),
            "its groups have at most 65,536 elements");
  EXPECT_EQ(flaw([](Described& d) { d.encoding.codes = nullptr; }), "it has no codes");
  EXPECT_EQ(flaw([](Described& d) { d.codes[15] = std::numeric_limits<float>::quiet_NaN(); }),
            "a code is not a finite number");
  EXPECT_EQ(flaw([](Described& d) { d.encoding.scale_dtype = SWY_I8; }),
            "its scales are f32, f16, bf16, e8m0 or f8_e4m3");
  EXPECT_EQ(flaw([](Described& d) { d.encoding.has_offset = 1, d.encoding.scale_dtype = SWY_E8M0; }),
            "its offsets are f32, f16 or bf16, as its scales");
  EXPECT_EQ(flaw([](Described& d) { d.encoding.name = "nf4"; }),
            "its name is not vendor.name/revision in at most 63 of [a-z0-9._-]");
  EXPECT_EQ(flaw([](Described& d) { d.tensor.group = 64; }), "");  // not the encoding's
  EXPECT_EQ(flaw([](Described& d) { d.tensor.encoding = nullptr; }), "");
  EXPECT_EQ(flaw([](Described& d) { d.tensor.struct_size = 64; }), "");   // an older tensor, without the pointer
  EXPECT_EQ(flaw([](Described& d) { d.tensor.dtype = SWY_NVFP4; }), "");  // reserved
  EXPECT_EQ(flaw([](Described& d) { d.tensor.dtype = SWY_MXFP4, d.tensor.group = 64; }), "");
}

}  // namespace
