// SPDX-License-Identifier: Apache-2.0
// Programs of any number of operations, for what must stay quick on large ones.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/base/os.h"
#include "core/program/spec.h"
#include "core/program/writer.h"

namespace switchyard::testing {

// How a program of `large_spec` is made.
struct LargeProgram {
  size_t ops = 0;            // in all, at least 8
  bool one_shape = true;     // operations of a kind are alike; false: no two attentions are, and no two norms
  bool read_late = false;    // the first value of every layer is read again at the end
  uint32_t state_width = 4;  // of a head
};

// An embedding, layers of rms_norm, linear, attention on a state of their own, linear, add and adds, and a head.
inline ProgramSpec large_spec(const LargeProgram& p) {
  constexpr uint64_t kWidth = 16, kVocab = 8;
  const uint32_t head_dim = p.state_width;
  ProgramSpec spec;
  const auto tensor = [&](const char* name, std::vector<uint64_t> dims) {
    spec.tensors.push_back({name, SWY_BF16, 0, std::move(dims), {}});
    return static_cast<uint32_t>(spec.tensors.size() - 1);
  };
  const uint32_t table = tensor("table", {kVocab, kWidth}), norm = tensor("norm", {kWidth});
  const uint32_t qkv = tensor("qkv", {head_dim, kWidth}), head_norm = tensor("head_norm", {head_dim});
  const uint32_t out = tensor("out", {kWidth, head_dim});
  ProgramSpec::Function& f = spec.functions.emplace_back();
  f.name = "main";
  const auto value = [&](uint64_t width, swy_rows rows = SWY_ROWS_STEP) {
    f.values.push_back({"v" + std::to_string(f.values.size()), SWY_F32, rows, width});
    return static_cast<uint32_t>(f.values.size() - 1);
  };
  const auto eps = [&] { return p.one_shape ? 1e-6f : 1e-6f + static_cast<float>(f.ops.size()) * 1e-9f; };
  uint32_t x = value(kWidth);
  f.ops.push_back({SWY_OP_EMBEDDING, 1, {}, {}, {table}, {}, {x}});
  const auto add = [&](uint32_t other) {
    const uint32_t sum = value(kWidth);
    f.ops.push_back({SWY_OP_ADD, 1, {}, {x, other}, {}, {}, {sum}});
    x = sum;
  };
  std::vector<uint32_t> late;
  for (size_t layers = (p.ops - 2) / (p.read_late ? 6 : 5); layers > 0; --layers) {
    const uint32_t n = value(kWidth), q = value(head_dim), k = value(head_dim), v = value(head_dim);
    f.ops.push_back({SWY_OP_RMS_NORM, 1, attr_bytes(swy_rms_norm_attrs{0, eps(), 0, 0}), {x}, {norm}, {}, {n}});
    f.ops.push_back({SWY_OP_LINEAR, 1, {}, {n}, {qkv, qkv, qkv}, {}, {q, k, v}});
    const auto state = static_cast<uint32_t>(spec.states.size());
    spec.states.push_back({"kv" + std::to_string(state), SWY_STATE_PAGED, SWY_F32, {2, 1, head_dim}});
    const swy_attention_attrs attention{0, 1, 1, head_dim, 2, 1e4f, 0.5f, eps(), 0, 0, {}, 0, 0, 0, 0};
    const uint32_t a = value(head_dim), y = value(kWidth);
    f.ops.push_back({SWY_OP_ATTENTION,
                     1,
                     attr_bytes(attention, SWY_OP_ATTENTION, 1),
                     {q, k, v},
                     {head_norm, head_norm},
                     {state},
                     {a}});
    f.ops.push_back({SWY_OP_LINEAR, 1, {}, {a}, {out}, {}, {y}});
    add(y);
    if (p.read_late) late.push_back(n);
  }
  for (const uint32_t n : late) add(n);
  while (f.ops.size() + 1 < p.ops) add(x);
  const uint32_t logits = value(kVocab, SWY_ROWS_LOGITS);
  f.ops.push_back({SWY_OP_LM_HEAD, 1, {}, {x}, {table}, {}, {logits}});
  f.outputs = {logits};
  return spec;
}

// Writes it to `path`, with weights of zeros. Throws where that fails.
inline void write_large(const LargeProgram& p, const std::string& path) {
  auto writer = ProgramWriter::create(Os::real(), path, large_spec(p));
  if (!writer.ok()) throw std::runtime_error(writer.status().message());
  for (size_t t = 0; t < 5; ++t) {
    const Status s = writer->write_segment(t, std::vector<std::byte>(writer->segment_bytes(t)));
    if (!s.ok()) throw std::runtime_error(s.message());
  }
  if (const Status s = writer->finish(); !s.ok()) throw std::runtime_error(s.message());
}

}  // namespace switchyard::testing
