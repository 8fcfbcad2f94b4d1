// SPDX-License-Identifier: Apache-2.0
// Every encoding and group: which weights it touches, how far the values move, and what that does to the model's loss.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/engine/evaluate.h"
#include "switchyard/weights.h"
#include "tests/engine/fixture.h"
#include "tests/import/checkpoint.h"

namespace switchyard::testing {
namespace {

// The weights are random and the logits large, so the limits, about three times the measured values, are wide; a
// swapped nibble or scale exceeds them by far.
struct Encoding {
  const char* quant;
  const char* group;
  double max_kl, max_loss;  // nats, from the same model in bf16

  WeightEncoding encoding() const {
    const auto e = parse_encoding(quant, group);
    EXPECT_TRUE(e.ok());
    return *e;
  }
};
void PrintTo(const Encoding& e, std::ostream* out) { *out << e.quant << " group " << e.group; }

std::vector<Encoding> encodings() {
  std::vector<Encoding> all = {{"bf16", "64", 0, 0}};
  for (const char* group : {"16", "32", "64", "128", "row"}) {
    all.push_back({"i8", group, 0.03, 0.03});
    all.push_back({"i4", group, 1.5, 0.6});
    all.push_back({"i4a", group, 1.5, 0.6});
  }
  return all;
}

std::string name_of(const ::testing::TestParamInfo<Encoding>& info) {
  return std::string(info.param.quant) + "_" + info.param.group;
}

// widths of 72, 40 and 56: groups that are short, padded, and longer than the row
class Encodings : public ::testing::TestWithParam<Encoding> {
 protected:
  const TinyCheckpoint checkpoint_{"odd-widths"};
};

// The quantized weights: the embedding, lm_head, projections, experts and the shared expert.
bool is_large(std::string_view name) {
  for (const char* kept :
       {"norm", "conv1d", "A_log", "dt_bias", "in_proj_a", "in_proj_b", "mlp.gate.weight", "shared_expert_gate"}) {
    if (name.find(kept) != std::string_view::npos) return false;
  }
  return true;
}

TEST_P(Encodings, TouchTheLargeWeightsAlone) {
  const WeightEncoding e = GetParam().encoding();
  const Program program = converted(checkpoint_, e), plain = converted(checkpoint_);
  EXPECT_EQ(program.quantization, encoding_name(e));
  for (const Tensor& t : program.tensors) {
    const bool large = is_large(t.name);
    EXPECT_EQ(t.dtype, large ? e.dtype : swy_dtype{SWY_BF16}) << t.name;
    EXPECT_EQ(t.group, large ? e.group : 0) << t.name;
    if (!large) {
      EXPECT_EQ(weight_values(program, std::string(t.name)), weight_values(plain, std::string(t.name)));
    }
  }
}

// One group of a weight, decoded here by the format's description.
struct Group {
  float scale = 0, offset = 0;
  std::vector<int> q;
};

Group decode(const swy_tensor& t, const swy_weight_planes& p, const std::byte* segment, uint64_t row, uint64_t g,
             uint64_t count) {
  const auto half_at = [&](uint64_t plane) {
    uint16_t h = 0;
    std::memcpy(&h, segment + plane + 2 * (row * p.groups + g), 2);
    return swy_f16_to_f32(h);
  };
  Group out;
  out.scale = half_at(p.scales);
  if (t.dtype == SWY_I4A) out.offset = half_at(p.offsets);
  const std::byte* bytes = segment + row * p.row_bytes + g * p.group_bytes;
  for (uint64_t i = 0; i < count; ++i) {
    if (t.dtype == SWY_I8) {
      out.q.push_back(static_cast<int8_t>(bytes[i]));
    } else {
      const int nibble = (std::to_integer<int>(bytes[i / 2]) >> (i % 2 * 4)) & 15;
      out.q.push_back(t.dtype == SWY_I4 ? nibble - 8 : nibble);
    }
  }
  return out;
}

// The squared error of the plainest quantizer: a grid over the extremes, nearest step.
double plain_error(std::span<const float> w, swy_dtype dtype) {
  const auto [low, high] = std::minmax_element(w.begin(), w.end());
  const double extreme = std::max(std::abs(*low), std::abs(*high));
  const double steps = dtype == SWY_I8 ? 127 : dtype == SWY_I4 ? 7 : 15;
  const double scale = dtype == SWY_I4A ? (*high - *low) / steps : extreme / steps;
  const double origin = dtype == SWY_I4A ? *low : 0;
  double total = 0;
  for (const float x : w) {
    const double back = scale == 0 ? origin : std::nearbyint((x - origin) / scale) * scale + origin;
    total += (x - back) * (x - back);
  }
  return total;
}

TEST_P(Encodings, EveryValueIsWithinHalfAStep) {
  const WeightEncoding e = GetParam().encoding();
  const Program program = converted(checkpoint_, e), plain = converted(checkpoint_);
  const int least = e.dtype == SWY_I8 ? -127 : e.dtype == SWY_I4 ? -8 : 0, most = e.dtype == SWY_I8 ? 127 : least + 15;
  double ours = 0, bound = 0;
  for (const Tensor& t : program.tensors) {
    const std::vector<float> want = weight_values(plain, std::string(t.name));
    if (t.dtype == SWY_BF16) {
      EXPECT_EQ(weight_values(program, std::string(t.name)), want);
      continue;
    }
    const swy_tensor desc = describe(t);
    swy_weight_planes p;
    ASSERT_EQ(swy_weight_planes_of(&desc, &p), 0);
    const uint64_t width = desc.dims[desc.rank - 1];
    for (uint64_t row = 0; row < p.rows; ++row) {
      for (uint64_t g = 0; g < p.groups; ++g) {
        const uint64_t count = std::min(p.group_size, width - g * p.group_size);
        const auto w = std::span(want).subspan(row * width + g * p.group_size, count);
        const Group group = decode(desc, p, program.segment_bytes(t).data(), row, g, count);
        for (uint64_t i = 0; i < count; ++i) {
          ASSERT_GE(group.q[i], least);
          ASSERT_LE(group.q[i], most);
          const double back = static_cast<double>(group.q[i]) * group.scale + group.offset;
          ours += (w[i] - back) * (w[i] - back);
          const bool clipped = (group.q[i] == least && w[i] < back) || (group.q[i] == most && w[i] > back) ||
                               (group.scale < 0 && (group.q[i] == least || group.q[i] == most));
          if (!clipped) {
            ASSERT_LE(std::abs(w[i] - back), 0.5001 * std::abs(group.scale) + 1e-6) << t.name << " row " << row;
          }
        }
        bound += plain_error(w, t.dtype);
      }
    }
  }
  EXPECT_LE(ours, bound) << "clipping may only pay";
}

std::vector<float> logits_of(const std::string& file, const std::vector<int32_t>& ids) {
  const TestModel t = make_model(file);
  auto session = t.model->session();
  EXPECT_TRUE(session.ok());
  const auto logits = (*session)->feed(ids, static_cast<uint32_t>(ids.size()));
  EXPECT_TRUE(logits.ok()) << logits.status().message();
  return {logits->begin(), logits->end()};
}

TEST_P(Encodings, KeepTheLoss) {
  const TemporaryFolder out;
  ASSERT_TRUE(convert_to(checkpoint_.path(), out.path("bf16.swy")).ok());
  ASSERT_TRUE(convert_to(checkpoint_.path(), out.path("x.swy"), GetParam().encoding()).ok());
  const auto expected = nlohmann::json::parse(read_file(SWITCHYARD_TEST_DATA "/tiny/odd-widths/expected.json"));
  const auto ids = expected["prompts"][0]["ids"].get<std::vector<int32_t>>();
  const std::vector<float> base = logits_of(out.path("bf16.swy"), ids), other = logits_of(out.path("x.swy"), ids);
  ASSERT_EQ(base.size(), other.size());
  const size_t vocab = base.size() / ids.size();
  double kl = 0, nll = 0;
  for (size_t t = 0; t < ids.size(); ++t) {
    const auto a = std::span(base).subspan(t * vocab, vocab), b = std::span(other).subspan(t * vocab, vocab);
    for (size_t i = 0; i < vocab; ++i) {
      const auto id = static_cast<int32_t>(i);
      const double p = log_probability(a, id);
      kl += std::exp(p) * (p - log_probability(b, id));
    }
    if (t + 1 < ids.size()) nll += log_probability(a, ids[t + 1]) - log_probability(b, ids[t + 1]);
  }
  kl /= static_cast<double>(ids.size());
  nll /= static_cast<double>(ids.size() - 1);
  EXPECT_GE(kl, -1e-9);
  EXPECT_LE(kl, GetParam().max_kl);
  EXPECT_LE(std::abs(nll), GetParam().max_loss);
}

INSTANTIATE_TEST_SUITE_P(All, Encodings, ::testing::ValuesIn(encodings()), name_of);

TEST(EncodingNames, AreThoseOfTheCommandLine) {
  EXPECT_EQ(encoding_name(*parse_encoding("bf16", "64")), "bf16");
  EXPECT_EQ(encoding_name(*parse_encoding("i4a", "row")), "i4a group row");
  EXPECT_EQ(encoding_name(*parse_encoding("i8", "128")), "i8 group 128");
  for (const auto& [quant, group, message] :
       std::vector<std::array<const char*, 3>>{{"i3", "64", "--quant i3 is unknown; choose bf16, i8, i4 or i4a"},
                                               {"", "64", "--quant  is unknown; choose bf16, i8, i4 or i4a"},
                                               {"i4", "31", "--group 31 is unknown; choose 16, 32, 64, 128 or row"},
                                               {"bf16", "x", "--group x is unknown; choose 16, 32, 64, 128 or row"}}) {
    const auto e = parse_encoding(quant, group);
    ASSERT_FALSE(e.ok()) << quant << " " << group;
    EXPECT_EQ(e.status().code(), Code::usage);
    EXPECT_EQ(e.status().message(), message);
  }
}

TEST(Threads, DoNotChangeABit) {
  const TinyCheckpoint checkpoint;
  const TemporaryFolder out;
  std::vector<std::string> files;
  for (const uint32_t threads : {1u, 2u, 5u}) {
    ConvertOptions options;
    options.source = checkpoint.path();
    options.output = out.path("out.swy");
    options.encoding = {SWY_I4A, 32};
    options.threads = threads;
    ASSERT_TRUE(convert(Os::real(), options).ok());
    files.push_back(read_file(options.output));
  }
  EXPECT_EQ(files[0], files[1]);
  EXPECT_EQ(files[0], files[2]);
}

}  // namespace
}  // namespace switchyard::testing
