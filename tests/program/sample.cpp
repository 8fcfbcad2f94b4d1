// SPDX-License-Identifier: Apache-2.0
#include "tests/program/sample.h"

#include <optional>
#include <stdexcept>

#include "core/program/decode.h"
#include "core/program/encode.h"
#include "core/program/file_header.h"
#include "core/program/writer.h"
#include "switchyard/weights.h"
#include "tests/program/spec_builder.h"

namespace switchyard::testing {
namespace {

using Indices = SpecBuilder::Indices;
using Attrs = SpecBuilder::Attrs;

constexpr uint64_t kHidden = 40;  // no multiple of a group
constexpr uint64_t kVocab = 50;
constexpr uint32_t kHeads = 2, kKvHeads = 1, kHeadDim = 16;
constexpr uint32_t kKeyHeads = 1, kValueHeads = 2, kKeyDim = 8, kValueDim = 12, kKernel = 4;
constexpr uint64_t kDelta = kValueHeads * kValueDim, kChannels = 2 * kKeyHeads * kKeyDim + kDelta;
constexpr uint32_t kExperts = 4, kTopK = 2, kWidth = 12, kShared = 20;
const Attrs kNorm = attr_bytes(swy_rms_norm_attrs{0, 1e-6f, 1.0f, 0});
const Attrs kAttention =
    attr_bytes(swy_attention_attrs{0, kHeads, kKvHeads, kHeadDim, 4, 10000.0f, 0.25f, 1e-6f, 1.0f, 1, {}, 0, 0, 0, 0},
               SWY_OP_ATTENTION, 1);
const Attrs kGatedDelta =
    attr_bytes(swy_gated_delta_attrs{0, kKeyHeads, kValueHeads, kKeyDim, kValueDim, kKernel, 1e-6f, 1e-6f});

Attrs moe_attrs(uint32_t experts, uint32_t width, uint32_t shared_width) {
  swy_moe_attrs a{};
  a.experts = experts, a.top_k = kTopK, a.width = width, a.shared_width = shared_width;
  return attr_bytes(a, SWY_OP_MOE, 1);
}
const Attrs kMoe = moe_attrs(kExperts, kWidth, kShared);

Attrs heads_attrs(uint32_t heads, uint32_t head_dim) {
  return attr_bytes(swy_heads_attrs{0, heads, head_dim, 1e-6f, 1.0f, 4, 10000.0f, 0});
}

struct Weights {
  uint32_t embed, norm, head;
  Indices qkv, attention, delta_in, delta, moe;
  uint32_t attention_out, delta_out;
  uint32_t kv, kv2, conv, delta_state, conv2, delta_state2;
};

Weights add_weights(SpecBuilder& b) {
  Weights w;
  const uint64_t q = kHeads * kHeadDim, kv = kKvHeads * kHeadDim;
  w.embed = b.tensor("embed", SWY_I4, 32, {kVocab, kHidden});
  w.norm = b.tensor("norm", SWY_BF16, 0, {kHidden});
  w.head = b.tensor("head", SWY_I8, 0, {kVocab, kHidden});
  w.qkv = {b.tensor("q", SWY_I8, 32, {2 * q, kHidden}), b.tensor("k", SWY_I8, 64, {kv, kHidden}),
           b.tensor("v", SWY_I4A, 128, {kv, kHidden})};
  w.attention = {b.tensor("q_norm", SWY_BF16, 0, {kHeadDim}), b.tensor("k_norm", SWY_F32, 0, {kHeadDim})};
  w.attention_out = b.tensor("o", SWY_I4A, 32, {kHidden, q});
  w.delta_in = {b.tensor("in_qkv", SWY_I4, 0, {kChannels, kHidden}), b.tensor("in_z", SWY_I4A, 0, {kDelta, kHidden}),
                b.tensor("in_b", SWY_BF16, 0, {kValueHeads, kHidden}),
                b.tensor("in_a", SWY_F32, 0, {kValueHeads, kHidden})};
  w.delta = {b.tensor("conv", SWY_BF16, 0, {kChannels, kKernel}), b.tensor("a_log", SWY_F32, 0, {kValueHeads}),
             b.tensor("dt_bias", SWY_BF16, 0, {kValueHeads}), b.tensor("delta_norm", SWY_F32, 0, {kValueDim})};
  w.delta_out = b.tensor("delta_out", SWY_I4, 64, {kHidden, kDelta});
  w.moe = {b.tensor("router", SWY_BF16, 0, {kExperts, kHidden}),
           b.tensor("gate_up", SWY_I4, 32, {kExperts, 2 * kWidth, kHidden}),
           b.tensor("down", SWY_I4A, 64, {kExperts, kHidden, kWidth}),
           b.tensor("shared_gate_proj", SWY_I8, 128, {kShared, kHidden}),
           b.tensor("shared_up_proj", SWY_I4, 128, {kShared, kHidden}),
           b.tensor("shared_down_proj", SWY_BF16, 0, {kHidden, kShared}),
           b.tensor("shared_gate", SWY_F32, 0, {1, kHidden})};
  b.spec.tensors[w.head].packed = {{"example.tile16", 3, 100}};
  w.kv = b.state("kv", SWY_STATE_PAGED, SWY_F32, {2, kKvHeads, kHeadDim});
  w.kv2 = b.state("kv2", SWY_STATE_PAGED, SWY_BF16, {2, kKvHeads, kHeadDim});
  w.conv = b.state("conv", SWY_STATE_SLOTTED, SWY_F32, {kChannels, kKernel - 1});
  w.delta_state = b.state("delta", SWY_STATE_SLOTTED, SWY_F32, {kValueHeads, kKeyDim, kValueDim});
  w.conv2 = b.state("conv2", SWY_STATE_SLOTTED, SWY_BF16, {kChannels, kKernel - 1});
  w.delta_state2 = b.state("delta2", SWY_STATE_SLOTTED, SWY_F32, {kValueHeads, kKeyDim, kValueDim});
  return w;
}

void add_main(SpecBuilder& b, const Weights& w) {
  const uint64_t q = kHeads * kHeadDim, kv = kKvHeads * kHeadDim;
  b.function("main");
  const auto x0 = b.value(kHidden), n0 = b.value(kHidden), vq = b.value(2 * q), vk = b.value(kv), vv = b.value(kv);
  b.op(SWY_OP_EMBEDDING, {}, {}, {w.embed}, {}, {x0});
  b.op(SWY_OP_RMS_NORM, kNorm, {x0}, {w.norm}, {}, {n0});
  b.op(SWY_OP_LINEAR, {}, {n0}, w.qkv, {}, {vq, vk, vv});
  const auto at = b.value(q), x1 = b.value(kHidden), x2 = b.value(kHidden), n2 = b.value(kHidden);
  b.op(SWY_OP_ATTENTION, kAttention, {vq, vk, vv}, w.attention, {w.kv}, {at});
  b.op(SWY_OP_LINEAR_ADD, {}, {at, x0}, {w.attention_out}, {}, {x1});
  b.op(SWY_OP_ADD_RMS_NORM, kNorm, {x1, x0}, {w.norm}, {}, {x2, n2});
  const auto m = b.value(kHidden), x3 = b.value(kHidden, SWY_BF16);
  b.op(SWY_OP_MOE, kMoe, {n2}, w.moe, {}, {m});
  b.op(SWY_OP_ADD, {}, {x2, m}, {}, {}, {x3});
  const auto dq = b.value(kChannels), dz = b.value(kDelta), db = b.value(kValueHeads), da = b.value(kValueHeads);
  Indices projections = {w.norm};
  projections.insert(projections.end(), w.delta_in.begin(), w.delta_in.end());
  b.op(SWY_OP_RMS_NORM_LINEAR, kNorm, {x3}, projections, {}, {dq, dz, db, da});
  const auto d = b.value(kDelta), x4 = b.value(kHidden), x5 = b.value(kHidden);
  b.op(SWY_OP_GATED_DELTA, kGatedDelta, {dq, dz, db, da}, w.delta, {w.conv, w.delta_state}, {d});
  b.op(SWY_OP_LINEAR, {}, {d}, {w.delta_out}, {}, {x4});
  b.op(SWY_OP_MOE_ADD, kMoe, {x4, x3}, w.moe, {}, {x5});
  const auto logits = b.value(kVocab, SWY_F32, SWY_ROWS_LOGITS);
  b.op(SWY_OP_LM_HEAD, {}, {x5}, {w.head}, {}, {logits});
  b.spec.functions.back().outputs = {logits, x5};
}

void add_attention_pieces(SpecBuilder& b, const Weights& w) {
  const uint64_t q = kHeads * kHeadDim, kv = kKvHeads * kHeadDim;
  const auto qg = b.input(2 * q), k = b.input(kv), v = b.input(kv);
  const auto q0 = b.value(q), gate = b.value(q), q1 = b.value(q), q2 = b.value(q), at = b.value(q), y = b.value(q);
  b.op(SWY_OP_HEAD_SPLIT, heads_attrs(kHeads, kHeadDim), {qg}, {}, {}, {q0, gate});
  b.op(SWY_OP_HEAD_RMS_NORM, heads_attrs(kHeads, kHeadDim), {q0}, {w.attention[0]}, {}, {q1});
  b.op(SWY_OP_ROPE, heads_attrs(kHeads, kHeadDim), {q1}, {}, {}, {q2});
  b.op(SWY_OP_KV_APPEND, kAttention, {k, v}, {}, {w.kv2}, {});
  b.op(SWY_OP_ATTEND, kAttention, {q2}, {}, {w.kv2}, {at});
  b.op(SWY_OP_SIGMOID_MUL, {}, {at, gate}, {}, {}, {y});
  b.spec.functions.back().outputs.push_back(y);
}

void add_delta_pieces(SpecBuilder& b, const Weights& w) {
  const auto qkv = b.input(kChannels), z = b.input(kDelta), bb = b.input(kValueHeads), a = b.input(kValueHeads);
  const auto u = b.value(kChannels), beta = b.value(kValueHeads), g = b.value(kValueHeads), o = b.value(kDelta);
  const auto y = b.value(kDelta);
  b.op(SWY_OP_CAUSAL_CONV, kGatedDelta, {qkv}, {w.delta[0]}, {w.conv2}, {u});
  b.op(SWY_OP_DELTA_GATES, kGatedDelta, {bb, a}, {w.delta[1], w.delta[2]}, {}, {beta, g});
  b.op(SWY_OP_DELTA_RULE, kGatedDelta, {u, beta, g}, {}, {w.delta_state2}, {o});
  b.op(SWY_OP_GATED_RMS_NORM, heads_attrs(kValueHeads, kValueDim), {o, z}, {w.delta[3]}, {}, {y});
  b.spec.functions.back().outputs.push_back(y);
}

void add_moe_pieces(SpecBuilder& b, const Weights& w) {
  const auto x = b.input(kHidden), logits = b.input(kExperts), s = b.input(kHidden), g = b.input(1);
  const auto ids = b.value(kTopK, SWY_I32), weights = b.value(kTopK), y = b.value(kHidden), act = b.value(kHidden);
  const auto sum = b.value(kHidden), cast = b.value(kHidden, SWY_BF16);
  const auto rows = b.value(kHidden, SWY_BF16, SWY_ROWS_LOGITS), injected = b.value(kHidden);
  b.op(SWY_OP_ROUTER_TOPK, kMoe, {logits}, {}, {}, {ids, weights});
  b.op(SWY_OP_EXPERTS, kMoe, {x, ids, weights}, {w.moe[1], w.moe[2]}, {}, {y});
  b.op(SWY_OP_SILU_MUL, {}, {x, s}, {}, {}, {act});
  b.op(SWY_OP_SIGMOID_SCALE_ADD, {}, {y, act, g}, {}, {}, {sum});
  b.op(SWY_OP_CAST, {}, {sum}, {}, {}, {cast});
  b.op(SWY_OP_GATHER_ROWS, {}, {cast}, {}, {}, {rows});
  b.op(SWY_OP_MOE, kMoe, {x, ids, weights}, w.moe, {}, {injected});
  b.spec.functions.back().outputs.insert(b.spec.functions.back().outputs.end(), {rows, injected});
}

// std::span over a vector, as a mapped file.
class MemoryFile final : public MappedFile {
 public:
  explicit MemoryFile(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  std::span<const std::byte> bytes() const override { return bytes_; }
  void release(size_t, size_t) const override {}

 private:
  std::vector<std::byte> bytes_;  // operator new aligns to 16
};

class MemoryOutput final : public OutputFile {
 public:
  MemoryOutput(MemoryOs& os, std::string path) : os_(os), path_(std::move(path)) {}
  Status append(std::span<const std::byte> bytes) override {
    if (bytes.size() > os_.capacity - bytes_.size()) return error(Code::io, "the disk is full");
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return {};
  }
  Status write_at(uint64_t offset, std::span<const std::byte> bytes) override {
    if (os_.fail_write_at || offset + bytes.size() > bytes_.size()) return error(Code::io, "write_at was refused");
    std::copy(bytes.begin(), bytes.end(), bytes_.begin() + static_cast<ptrdiff_t>(offset));
    return {};
  }
  uint64_t size() const override { return bytes_.size(); }
  Status commit() override {
    if (os_.fail_commit) return error(Code::io, "the rename was refused");
    os_.files[path_] = bytes_;
    return {};
  }

 private:
  MemoryOs& os_;
  std::string path_;
  std::vector<std::byte> bytes_;
};

}  // namespace

ProgramSpec sample_spec() {
  SpecBuilder b;
  const Weights w = add_weights(b);
  add_main(b, w);
  b.function("pieces");
  add_attention_pieces(b, w);
  add_delta_pieces(b, w);
  add_moe_pieces(b, w);
  b.spec.architecture = "qwen3_5_moe";
  b.spec.context_length = 4096;
  b.spec.eos_ids = {49, 47};
  b.spec.source_config = "{\"hidden_size\": 40}";
  b.spec.quantization = "mixed";
  b.spec.metadata = {{"license", "none"}, {"note", "two\nlines"}};
  b.spec.tokenizer_json = "{}";
  b.spec.chat_template = "{{ messages }}";
  return b.spec;
}

ProgramSpec pieces_spec() {
  SpecBuilder b;
  const Weights w = add_weights(b);
  for (auto& state : b.spec.states) state.dtype = SWY_F32;
  b.function("main");
  b.source = b.value(kHidden);
  b.op(SWY_OP_EMBEDDING, {}, {}, {w.embed}, {}, {*b.source});
  add_attention_pieces(b, w);
  add_delta_pieces(b, w);
  // Two mixtures, each with its router. The first has so many experts that its ids, taken by the second, lead far
  // beyond its memory; they are small instead.
  constexpr uint32_t kMany = 1100, kNarrow = 2;
  const Attrs many = moe_attrs(kMany, kNarrow, 0);
  const auto gate_up = b.tensor("many_gate_up", SWY_I4, 0, {kMany, 2 * kNarrow, kHidden});
  const auto down = b.tensor("many_down", SWY_I4, 0, {kMany, kHidden, kNarrow});
  const auto logits = b.input(kMany), ids = b.value(kTopK, SWY_I32), weights = b.value(kTopK), y = b.value(kHidden);
  b.op(SWY_OP_ROUTER_TOPK, many, {logits}, {}, {}, {ids, weights});
  b.op(SWY_OP_EXPERTS, many, {*b.source, ids, weights}, {gate_up, down}, {}, {y});
  b.source = y;
  add_moe_pieces(b, w);
  auto& f = b.spec.functions.back();
  const auto rows = f.outputs[f.outputs.size() - 2], out = b.value(kVocab, SWY_F32, SWY_ROWS_LOGITS);
  b.op(SWY_OP_LINEAR, {}, {rows}, {w.head}, {}, {out});
  f.outputs.insert(f.outputs.begin(), out);
  return b.spec;
}

ProgramSpec named_spec() {
  constexpr uint64_t kWide = 64, kNarrow = 32;
  constexpr uint32_t kGroup = 16, kLayers = 2;
  SpecBuilder b;
  b.spec.encodings = {{"acme.nf4/1",
                       4,
                       kGroup,
                       SWY_F16,
                       false,
                       {-1.0f, -0.6961928f, -0.52507305f, -0.3949175f, -0.28444138f, -0.18477343f, -0.09105004f, 0.0f,
                        0.0795803f, 0.1609302f, 0.2461123f, 0.33791524f, 0.44070983f, 0.562617f, 0.72295684f, 1.0f}}};
  const auto encoded = [&](const std::string& name, std::vector<uint64_t> dims) {
    const uint32_t t = b.tensor(name.c_str(), SWY_ENCODED, kGroup, std::move(dims));
    b.spec.tensors[t].encoding = "acme.nf4/1";
    return t;
  };
  const auto named = [&](const char* name, const char* function, Attrs attrs) {
    auto& op = b.spec.functions.back().ops.back();
    op.name = name;
    op.function = function;
    op.attrs = std::move(attrs);
  };
  const Attrs conv = attr_bytes(swy_gated_delta_attrs{0, 1, 1, 8, 16, kKernel, 1e-6f, 1e-6f});
  struct Layer {
    uint32_t conv, state, up, down;
  };
  std::vector<Layer> layers;
  const auto embed = encoded("embed", {kVocab, kNarrow});
  for (uint32_t i = 0; i < kLayers; ++i) {
    const auto name = [&](const char* what) { return fmt::format("layers.{}.{}", i, what); };
    layers.push_back({b.tensor(name("conv").c_str(), SWY_BF16, 0, {kNarrow, kKernel}),
                      b.state(name("conv").c_str(), SWY_STATE_SLOTTED, SWY_F32, {kNarrow, kKernel - 1}),
                      encoded(name("up"), {kWide, kNarrow}), encoded(name("down"), {kNarrow, kWide})});
  }
  const auto head = encoded("head", {kVocab, kNarrow});

  b.function("main");
  auto x = b.value(kNarrow);
  b.op(SWY_OP_EMBEDDING, {}, {}, {embed}, {}, {x});
  for (const Layer& layer : layers) {
    const auto mixed = b.value(kNarrow), sum = b.value(kNarrow), wide = b.value(kWide), narrow = b.value(kNarrow);
    const auto next = b.value(kNarrow);
    b.op(SWY_OP_NAMED, {}, {x}, {layer.conv}, {layer.state}, {mixed});
    named("acme.conv/1", "conv", conv);
    b.op(SWY_OP_ADD, {}, {x, mixed}, {}, {}, {sum});
    b.op(SWY_OP_NAMED, {}, {sum}, {layer.up}, {}, {wide});
    named("acme.gated/1", "gated", {});
    b.op(SWY_OP_LINEAR, {}, {wide}, {layer.down}, {}, {narrow});
    b.op(SWY_OP_ADD, {}, {sum, narrow}, {}, {}, {next});
    x = next;
  }
  const auto logits = b.value(kVocab, SWY_F32, SWY_ROWS_LOGITS);
  b.op(SWY_OP_LM_HEAD, {}, {x}, {head}, {}, {logits});
  b.spec.functions.back().outputs = {logits};

  b.function("gelu");
  const auto in = b.value(kWide), doubled = b.value(kWide), out = b.value(kWide);
  b.op(SWY_OP_ADD, {}, {in, in}, {}, {}, {doubled});
  b.op(SWY_OP_SIGMOID_MUL, {}, {in, doubled}, {}, {}, {out});
  b.spec.functions.back().inputs = {in};
  b.spec.functions.back().outputs = {out};

  b.function("gated");
  const auto from = b.value(kNarrow), up = b.value(kWide), to = b.value(kWide);
  const float factor = 2;
  std::vector<std::byte> attrs(sizeof factor);
  std::memcpy(attrs.data(), &factor, sizeof factor);
  b.op(SWY_OP_LINEAR, {}, {from}, {layers[0].up}, {}, {up});
  b.op(SWY_OP_NAMED, {}, {up}, {}, {}, {to});
  named("acme.gelu/1", "gelu", attrs);
  b.spec.functions.back().inputs = {from};
  b.spec.functions.back().outputs = {to};
  b.spec.functions.back().weights = {layers[0].up};

  b.function("conv");
  const auto row = b.value(kNarrow), convolved = b.value(kNarrow);
  b.op(SWY_OP_CAUSAL_CONV, conv, {row}, {layers[0].conv}, {layers[0].state}, {convolved});
  b.spec.functions.back().inputs = {row};
  b.spec.functions.back().outputs = {convolved};
  b.spec.functions.back().weights = {layers[0].conv};
  b.spec.functions.back().states = {layers[0].state};
  return b.spec;
}

ProgramSpec tiny_spec() {
  SpecBuilder b;
  const auto table = b.tensor("embed", SWY_BF16, 0, {4, 4});
  b.function("main");
  const auto x = b.value(4), logits = b.value(4, SWY_F32, SWY_ROWS_LOGITS);
  b.op(SWY_OP_EMBEDDING, {}, {}, {table}, {}, {x});
  b.op(SWY_OP_LM_HEAD, {}, {x}, {table}, {}, {logits});
  b.spec.functions.back().outputs = {logits};
  return b.spec;
}

ProgramSpec::Op& find_op_in(ProgramSpec& spec, size_t function, swy_op_id id) {
  for (auto& op : spec.functions.at(function).ops) {
    if (op.id == id) return op;
  }
  throw std::out_of_range("no such op");
}

std::vector<std::byte> sample_bytes(size_t tensor, uint64_t size) {
  std::vector<std::byte> out(size);
  for (uint64_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>((i * 7 + tensor * 31 + i / 251) & 63);
  return out;
}

std::vector<std::byte> file_of(const ProgramSpec& spec) {
  MemoryOs os;
  const Program plan = *parse(unchecked_file_of(spec));
  auto writer = ProgramWriter::create(os, "sample.swy", spec);
  if (!writer.ok()) throw std::runtime_error(writer.status().message());
  for (size_t t = 0; t < plan.tensors.size(); ++t) {
    for (size_t s = 0; s < plan.tensors[t].segments.size(); ++s) {
      const Status status = writer->write_segment(t, sample_bytes(t + s, plan.tensors[t].segments[s].bytes), s);
      if (!status.ok()) throw std::runtime_error(status.message());
    }
  }
  if (const Status status = writer->finish(); !status.ok()) throw std::runtime_error(status.message());
  return os.files.at("sample.swy");
}

std::vector<std::byte> unchecked_file_of(const ProgramSpec& spec) {
  const auto flatbuffer = encode_program(spec);
  if (!flatbuffer.ok()) throw std::runtime_error(flatbuffer.status().message());
  uint64_t size = swy_align64(kHeaderBytes + flatbuffer->size());
  if (const auto decoded = decode_program(*flatbuffer); decoded.ok()) {
    for (const Segment& s : decoded->segments) size = std::max(size, swy_align64(s.offset + s.bytes));
  }
  std::vector<std::byte> file(size);
  std::copy(flatbuffer->begin(), flatbuffer->end(), file.begin() + kHeaderBytes);
  const HeaderBytes header = make_header(*flatbuffer, size);
  std::copy(header.begin(), header.end(), file.begin());
  return file;
}

void seal(std::span<std::byte> file) {
  uint64_t flatbuffer_bytes = 0;
  std::memcpy(&flatbuffer_bytes, file.data() + 16, sizeof flatbuffer_bytes);
  const HeaderBytes header = make_header(file.subspan(kHeaderBytes, flatbuffer_bytes), file.size());
  std::copy(header.begin(), header.end(), file.begin());
}

Result<Program> parse(std::vector<std::byte> bytes) {
  return Program::parse(std::make_shared<MemoryFile>(std::move(bytes)));
}

Result<std::unique_ptr<MappedFile>> MemoryOs::map(const std::string& path) {
  if (!files.contains(path)) return error(Code::not_found, "no file {}", path);
  return std::unique_ptr<MappedFile>(std::make_unique<MemoryFile>(files[path]));
}
Result<std::string> MemoryOs::read(const std::string& path, uint64_t) {
  return error(Code::io, "cannot read {}", path);
}
Result<std::unique_ptr<OutputFile>> MemoryOs::create(const std::string& path, WhenMapped) {
  if (fail_create) return error(Code::io, "cannot create {}", path);
  return std::unique_ptr<OutputFile>(std::make_unique<MemoryOutput>(*this, path));
}
Result<std::vector<std::string>> MemoryOs::list(const std::string& folder) {
  return error(Code::io, "cannot list {}", folder);
}
Result<void*> MemoryOs::open_library(const std::string& path) { return error(Code::io, "cannot open {}", path); }
Result<void*> MemoryOs::symbol(void*, const char* name) { return error(Code::io, "no symbol {}", name); }

}  // namespace switchyard::testing
