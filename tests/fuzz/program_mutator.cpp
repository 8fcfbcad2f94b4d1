// SPDX-License-Identifier: Apache-2.0
// Mutations of a program that leave it well-formed: an operand, a shape, an encoding, an attribute or an operation is
// changed, the shapes around it are made to fit where that is easy, and the file is written anew. Mutated bytes alone
// hardly ever get past the verifier.

#include <algorithm>
#include <cstdio>
#include <random>

#include "core/program/decode.h"
#include "core/program/encode.h"
#include "core/program/op_names.h"
#include "core/program/verify.h"
#include "tests/fuzz/program_input.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace switchyard::testing {
namespace {

constexpr uint64_t kSizes[] = {0,  1,  2,  3,  4,  5,   7,   8,   9,   15,  16,  17,  31,   32,
                               33, 63, 64, 65, 96, 127, 128, 129, 255, 256, 257, 512, 1024, UINT32_MAX};
constexpr float kFloats[] = {0, 1e-30f, 1e-6f, 0.5f, 0.999f, 1, 2, 1e4f, 1e30f, -1, -1e30f};
constexpr swy_dtype kEncodings[] = {SWY_F32, SWY_BF16, SWY_I8, SWY_I4, SWY_I4A, SWY_MXFP4, SWY_ENCODED};

class Mutator {
 public:
  // Mostly of the main function; at times of one that operations with a name are done by.
  Mutator(ProgramSpec& spec, uint32_t seed) : spec_(spec), f_(some_function(spec, seed)), random_(seed) {}

  void change() {
    switch (below(8)) {
      case 0:
        return rewire(some_op().inputs, f_.values, alike_values);
      case 1:
        return rewire(some_op().weights, spec_.tensors, alike_tensors);
      case 2:
        return rewire(some_op().states, spec_.states, alike_states);
      case 3:
        return resize();
      case 4:
        return encode();
      case 5:
        return attribute();
      case 6:
        return below(2) == 0 ? remove(below(f_.ops.size())) : repeat(below(f_.ops.size()));
      default:
        return retype();
    }
  }

 private:
  using Op = ProgramSpec::Op;
  static ProgramSpec::Function& some_function(ProgramSpec& spec, uint32_t seed) {
    ProgramSpec::Function& f = spec.functions[seed % 4 == 0 ? seed / 4 % spec.functions.size() : 0];
    return f.ops.empty() || f.values.empty() ? spec.functions[0] : f;
  }
  size_t below(size_t n) { return n == 0 ? 0 : random_() % n; }
  template <class T>
  auto& pick(T& list) {
    return list[below(std::size(list))];
  }
  Op& some_op() { return pick(f_.ops); }

  static bool alike_values(const ProgramSpec::Value& a, const ProgramSpec::Value& b) {
    return a.width == b.width && a.dtype == b.dtype && a.rows == b.rows;
  }
  static bool alike_tensors(const ProgramSpec::Tensor& a, const ProgramSpec::Tensor& b) { return a.dims == b.dims; }
  static bool alike_states(const ProgramSpec::State& a, const ProgramSpec::State& b) { return a.dims == b.dims; }

  // Another operand, mostly one of the same shape.
  template <class T>
  void rewire(std::vector<uint32_t>& list, const std::vector<T>& all, bool (*alike)(const T&, const T&)) {
    if (list.empty() || all.empty()) return;
    uint32_t& operand = pick(list);
    std::vector<uint32_t> fit;
    for (uint32_t i = 0; i < all.size(); ++i) {
      if (i != operand && operand < all.size() && alike(all[i], all[operand])) fit.push_back(i);
    }
    operand = fit.empty() || below(6) == 0 ? static_cast<uint32_t>(below(all.size())) : pick(fit);
  }

  // A size, where it stands or wherever the program has it.
  void resize() {
    std::vector<uint64_t*> sizes;
    for (auto& t : spec_.tensors) {
      for (uint64_t& d : t.dims) sizes.push_back(&d);
    }
    for (auto& s : spec_.states) {
      for (uint64_t& d : s.dims) sizes.push_back(&d);
    }
    for (auto& v : f_.values) sizes.push_back(&v.width);
    if (sizes.empty()) return;
    const uint64_t from = *pick(sizes), to = size_near(from);
    if (below(2) == 0) {
      *pick(sizes) = to;
      return;
    }
    for (uint64_t* size : sizes) *size = *size == from ? to : *size;
    for (Op& op : f_.ops) {
      for (size_t i = 1; i < op.attrs.size() / 4; ++i) {
        if (word(op, i) == from) set_word(op, i, static_cast<uint32_t>(to));
      }
    }
  }
  uint64_t size_near(uint64_t from) {
    switch (below(4)) {
      case 0:
        return from + 1;
      case 1:
        return from * 2;
      case 2:
        return from / 2;
      default:
        return pick(kSizes);
    }
  }

  void encode() {
    if (spec_.tensors.empty()) return;
    auto& t = pick(spec_.tensors);
    t.dtype = pick(kEncodings);
    constexpr uint32_t groups[] = {0, 16, 32, 64, 128};
    t.group = t.dtype >= SWY_I8 ? pick(groups) : 0;
    t.packed.clear();
    t.encoding.clear();
    if (t.dtype != SWY_ENCODED) return;
    if (spec_.encodings.empty() || below(4) == 0) describe_encoding();
    const auto& e = pick(spec_.encodings);
    t.encoding = e.name;
    t.group = e.group;
  }

  void describe_encoding() {
    constexpr swy_dtype scales[] = {SWY_F32, SWY_F16, SWY_BF16, SWY_E8M0, SWY_F8_E4M3};
    constexpr uint32_t groups[] = {0, 3, 16, 32, 1000};
    ProgramSpec::Encoding& e = spec_.encodings.emplace_back();
    e.name = fmt::format("fuzz.e{}/1", spec_.encodings.size());
    e.bits = static_cast<uint32_t>(1 + below(8));
    e.group = pick(groups);
    e.scale_dtype = pick(scales);
    e.has_offset = e.scale_dtype <= SWY_F16 && below(2) == 0;
    for (size_t i = 0; i < size_t{1} << e.bits; ++i) e.codes.push_back(pick(kFloats));
  }

  void attribute() {
    Op& op = some_op();
    if (op.attrs.size() < 8) return;
    const size_t i = 1 + below(op.attrs.size() / 4 - 1);
    const uint32_t now = word(op, i);
    if (now > 1u << 20) {  // a float
      const float f = pick(kFloats);
      uint32_t bits = 0;
      std::memcpy(&bits, &f, sizeof bits);
      set_word(op, i, bits);
    } else {
      set_word(op, i, static_cast<uint32_t>(size_near(now)));
    }
  }
  static uint32_t word(const Op& op, size_t i) {
    uint32_t w = 0;
    std::memcpy(&w, op.attrs.data() + 4 * i, sizeof w);
    return w;
  }
  static void set_word(Op& op, size_t i, uint32_t w) { std::memcpy(op.attrs.data() + 4 * i, &w, sizeof w); }

  // What it made comes from an earlier value of the same shape.
  void remove(size_t at) {
    if (f_.ops.size() < 2) return;
    const Op gone = f_.ops[at];
    f_.ops.erase(f_.ops.begin() + static_cast<ptrdiff_t>(at));
    for (const uint32_t output : gone.outputs) {
      if (output >= f_.values.size()) continue;
      uint32_t instead = 0;
      for (uint32_t i = 0; i < f_.values.size(); ++i) {
        const bool made = std::find(gone.outputs.begin(), gone.outputs.end(), i) != gone.outputs.end();
        if (!made && alike_values(f_.values[i], f_.values[output])) instead = i;
      }
      for_each_use([&](uint32_t& v) { v = v == output ? instead : v; });
    }
    std::vector<uint32_t> made(gone.outputs);
    std::sort(made.rbegin(), made.rend());
    for (const uint32_t output : made) {
      if (output >= f_.values.size()) continue;
      f_.values.erase(f_.values.begin() + output);
      for_each_use([&](uint32_t& v) { v -= v > output ? 1 : 0; });
      for (Op& op : f_.ops) {
        for (uint32_t& v : op.outputs) v -= v > output ? 1 : 0;
      }
    }
  }
  template <class Body>
  void for_each_use(Body body) {
    for (Op& op : f_.ops) std::for_each(op.inputs.begin(), op.inputs.end(), body);
    std::for_each(f_.outputs.begin(), f_.outputs.end(), body);
  }

  // The op again, on states of its own; one of its results takes the place of the first's somewhere.
  void repeat(size_t at) {
    Op again = f_.ops[at];
    for (uint32_t& state : again.states) {
      if (state >= spec_.states.size()) continue;
      spec_.states.push_back(spec_.states[state]);
      state = static_cast<uint32_t>(spec_.states.size() - 1);
      spec_.states.back().name = fmt::format("s{}", state);
    }
    std::vector<std::pair<uint32_t, uint32_t>> renamed;
    for (uint32_t& output : again.outputs) {
      if (output >= f_.values.size()) continue;
      f_.values.push_back(f_.values[output]);
      renamed.emplace_back(output, static_cast<uint32_t>(f_.values.size() - 1));
      output = renamed.back().second;
    }
    for (size_t i = at + 1; i < f_.ops.size(); ++i) {
      for (uint32_t& v : f_.ops[i].inputs) {
        for (const auto& [from, to] : renamed) v = v == from && below(2) == 0 ? to : v;
      }
    }
    f_.ops.insert(f_.ops.begin() + static_cast<ptrdiff_t>(at) + 1, std::move(again));
  }

  void retype() {
    constexpr swy_dtype dtypes[] = {SWY_F32, SWY_BF16, SWY_I32};
    switch (below(4)) {
      case 0:
        pick(f_.values).dtype = pick(dtypes);
        return;
      case 1:
        if (!spec_.states.empty()) pick(spec_.states).dtype = pick(dtypes);
        return;
      case 2:
        some_op().id = pick(swy_op_table).id;
        return;
      default:
        spec_.context_length = pick(kSizes);
    }
  }

  ProgramSpec& spec_;
  ProgramSpec::Function& f_;
  std::mt19937 random_;
};

std::vector<uint64_t> numbers(const char* text) {
  std::vector<uint64_t> out;
  for (char* end = nullptr; *text >= '0' && *text <= '9'; text = *end == ',' ? end + 2 : end) {
    out.push_back(std::strtoull(text, &end, 10));
  }
  return out;
}

// Gives an operand the shape that the verifier asks for: "function 'main': op 3 (linear): weight 1 ('q') is [4, 40];
// [8, 40] is needed", "... input 0 ('v1') has width 4; 8 is needed". Returns whether there was one.
bool fit(ProgramSpec& spec, const std::string& message) {
  unsigned op = 0, i = 0;
  int kind = 0;
  const size_t needed = message.rfind("; ");
  const size_t where = message.find(": op ");
  if (needed == std::string::npos || where == std::string::npos || !message.ends_with("is needed")) return false;
  const char* after = message.c_str() + message.find("): ", where) + 3;
  auto& ops = spec.functions[0].ops;
  if (std::sscanf(message.c_str() + where, ": op %u", &op) != 1 || op >= ops.size()) return false;
  constexpr const char* kinds[] = {"input %u", "output %u", "weight %u", "state %u"};
  std::vector<uint32_t>* lists[] = {&ops[op].inputs, &ops[op].outputs, &ops[op].weights, &ops[op].states};
  while (kind < 4 && std::sscanf(after, kinds[kind], &i) != 1) ++kind;
  if (kind == 4 || i >= lists[kind]->size()) return false;
  const uint32_t index = (*lists[kind])[i];
  const char* sizes = message.c_str() + needed + 2;
  const std::vector<uint64_t> dims = numbers(*sizes == '[' ? sizes + 1 : sizes);
  if (dims.empty() || std::any_of(dims.begin(), dims.end(), [](uint64_t d) { return d > 1u << 16; })) return false;
  if (kind < 2) {
    spec.functions[0].values.at(index).width = dims[0];
  } else if (kind == 2) {
    spec.tensors.at(index).dims = dims;
  } else {
    spec.states.at(index).dims = dims;
  }
  return true;
}

// The weights of a new file, out of those of the old one.
void fill_weights(const Program& from, const Program& to, std::span<std::byte> file) {
  for (size_t t = 0; t < to.tensors.size(); ++t) {
    const auto old = from.segment_bytes(from.tensors[std::min(t, from.tensors.size() - 1)]);
    for (const Segment& s : to.tensors[t].segments) {
      for (uint64_t i = 0; i < s.bytes && !old.empty(); ++i) file[s.offset + i] = old[i % old.size()];
    }
  }
}

// A whole file made of `program`, whose weights' bytes it repeats; nothing when it would have more than `most` bytes.
std::vector<std::byte> mutate_program(const Program& program, uint32_t seed, size_t most) {
  ProgramSpec spec = spec_of(program);
  if (spec.functions[0].ops.empty() || spec.functions[0].values.empty() || spec.tensors.empty()) return {};
  Mutator mutator(spec, seed);
  for (uint32_t i = 0; i <= seed % 3; ++i) mutator.change();
  constexpr int kTries = 16;
  for (int tries = 0; tries < kTries; ++tries) {
    const auto flatbuffer = encode_program(spec);
    if (!flatbuffer.ok()) return {};
    const auto changed = decode_program(*flatbuffer);
    if (!changed.ok()) return {};
    uint64_t size = kHeaderBytes + flatbuffer->size();
    for (const Segment& s : changed->segments) size = std::max(size, s.offset + s.bytes);
    if (size > most) return {};
    const Status verified = verify_program(*changed, size);
    if (!verified.ok() && tries + 1 < kTries && fit(spec, verified.message())) continue;
    std::vector<std::byte> file(size);
    const HeaderBytes header = make_header(*flatbuffer, size);
    std::copy(header.begin(), header.end(), file.begin());
    std::copy(flatbuffer->begin(), flatbuffer->end(), file.begin() + kHeaderBytes);
    fill_weights(program, *changed, file);
    return file;
  }
  return {};
}

}  // namespace
}  // namespace switchyard::testing

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  using namespace switchyard::testing;  // NOLINT(google-build-using-namespace)
  if (seed % 8 != 0) {
    const auto program = parse_sealed(std::as_bytes(std::span(data, size)));
    if (program.ok()) {
      const auto file = mutate_program(*program, seed / 8, max_size);
      std::copy(file.begin(), file.end(), reinterpret_cast<std::byte*>(data));
      if (!file.empty()) return file.size();
    }
  }
  size = LLVMFuzzerMutate(data, size, max_size);
  seal_file(std::as_writable_bytes(std::span(data, size)));
  return size;
}
