// SPDX-License-Identifier: Apache-2.0
#include "core/program/encode.h"

#include "core/program/file_header.h"
#include "program_generated.h"
#include "switchyard/weights.h"

namespace switchyard {
namespace {

using flatbuffers::Offset;
using Builder = flatbuffers::FlatBufferBuilder;
using Indices = Offset<flatbuffers::Vector<uint32_t>>;

constexpr uint32_t kSchemaVersion = 1;

Indices indices(Builder& b, const std::vector<uint32_t>& list) {
  return list.empty() ? Indices() : b.CreateVector(list);
}

Offset<flatbuffers::String> text(Builder& b, const std::string& s) {
  return s.empty() ? Offset<flatbuffers::String>() : b.CreateString(s);
}

Offset<flatbuffers::String> shared(Builder& b, const std::string& s) {
  return s.empty() ? Offset<flatbuffers::String>() : b.CreateSharedString(s);
}

Result<uint64_t> canonical_bytes(const ProgramSpec& spec, const ProgramSpec::Tensor& tensor) {
  swy_tensor shape{};
  shape.struct_size = sizeof shape;
  shape.dtype = tensor.dtype;
  shape.group = tensor.group;
  shape.rank = static_cast<uint32_t>(tensor.dims.size());
  std::copy_n(tensor.dims.begin(), std::min<size_t>(tensor.dims.size(), 4), shape.dims);
  swy_encoding encoding{};
  for (const ProgramSpec::Encoding& e : spec.encodings) {
    if (e.name != tensor.encoding || e.bits > 8 || e.codes.size() != size_t{1} << e.bits) continue;
    encoding = {sizeof encoding, e.bits, e.group, e.scale_dtype, e.has_offset, 0, e.name.c_str(), e.codes.data()};
    shape.encoding = &encoding;
  }
  swy_weight_planes planes;
  if (swy_weight_planes_of(&shape, &planes) != 0) {
    return error(Code::invalid_data, "tensor '{}' is not a weight: type {}, [{}]", tensor.name, tensor.dtype,
                 fmt::join(tensor.dims, ", "));
  }
  return planes.total_bytes;
}

// Offsets are counted from the first segment here; encode_program adds where that begins.
class SegmentPlacer {
 public:
  Result<Offset<fb::Segment>> place(Builder& b, const std::string& layout, uint32_t revision, uint64_t bytes) {
    if (bytes > kLimit - end_) return error(Code::invalid_data, "the weights take more than 2^62 bytes");
    const uint64_t offset = end_;
    end_ += swy_align64(bytes);
    return fb::CreateSegment(b, b.CreateSharedString(layout), revision, offset, bytes, 0);
  }

 private:
  static constexpr uint64_t kLimit = uint64_t{1} << 62;
  uint64_t end_ = 0;
};

Result<Offset<fb::Tensor>> encode(Builder& b, const ProgramSpec& spec, const ProgramSpec::Tensor& tensor,
                                  SegmentPlacer& placer) {
  SWY_LET(const uint64_t bytes, canonical_bytes(spec, tensor));
  std::vector<Offset<fb::Segment>> segments;
  SWY_LET(const auto canonical, placer.place(b, "", 0, bytes));
  segments.push_back(canonical);
  for (const auto& packed : tensor.packed) {
    SWY_LET(const auto segment, placer.place(b, packed.layout, packed.layout_revision, packed.bytes));
    segments.push_back(segment);
  }
  const auto name = b.CreateString(tensor.name);
  const auto dims = b.CreateVector(tensor.dims);
  const auto all_segments = b.CreateVector(segments);
  return fb::CreateTensor(b, name, tensor.dtype, tensor.group, dims, all_segments, shared(b, tensor.encoding));
}

Offset<fb::Op> encode(Builder& b, const ProgramSpec::Op& op) {
  Offset<flatbuffers::Vector<uint8_t>> attrs;
  if (!op.attrs.empty()) {
    b.ForceVectorAlignment(op.attrs.size(), 1, 8);
    attrs = b.CreateVector(reinterpret_cast<const uint8_t*>(op.attrs.data()), op.attrs.size());
  }
  const auto inputs = indices(b, op.inputs);
  const auto weights = indices(b, op.weights);
  const auto states = indices(b, op.states);
  const auto outputs = indices(b, op.outputs);
  const auto name = shared(b, op.name);
  return fb::CreateOp(b, op.id, op.revision, attrs, inputs, weights, states, outputs, name, shared(b, op.function));
}

Offset<fb::Function> encode(Builder& b, const ProgramSpec::Function& function) {
  std::vector<Offset<fb::Value>> values;
  for (const auto& v : function.values) {
    values.push_back(fb::CreateValue(b, b.CreateString(v.name), v.dtype, v.rows, v.width));
  }
  std::vector<Offset<fb::Op>> ops;
  for (const auto& op : function.ops) ops.push_back(encode(b, op));
  const auto name = b.CreateString(function.name);
  const auto all_values = b.CreateVector(values);
  const auto all_ops = b.CreateVector(ops);
  const auto inputs = indices(b, function.inputs);
  const auto outputs = b.CreateVector(function.outputs);
  const auto weights = indices(b, function.weights);
  return fb::CreateFunction(b, name, all_values, all_ops, inputs, outputs, weights, indices(b, function.states));
}

Offset<flatbuffers::Vector<Offset<fb::Encoding>>> encode_encodings(Builder& b, const ProgramSpec& spec) {
  std::vector<Offset<fb::Encoding>> all;
  for (const auto& e : spec.encodings) {
    const auto name = b.CreateSharedString(e.name);
    all.push_back(fb::CreateEncoding(b, name, e.bits, e.group, e.scale_dtype, e.has_offset, b.CreateVector(e.codes)));
  }
  return all.empty() ? 0 : b.CreateVector(all);
}

// The parts of a program are made one after another, in a fixed order: the bytes must not depend on the compiler.
Status encode(Builder& b, const ProgramSpec& spec) {
  std::vector<Offset<fb::Function>> functions;
  for (const auto& function : spec.functions) functions.push_back(encode(b, function));
  SegmentPlacer placer;
  std::vector<Offset<fb::Tensor>> tensors;
  for (const auto& tensor : spec.tensors) {
    SWY_LET(const auto made, encode(b, spec, tensor, placer));
    tensors.push_back(made);
  }
  std::vector<Offset<fb::State>> states;
  for (const auto& state : spec.states) {
    const auto name = b.CreateString(state.name);
    states.push_back(fb::CreateState(b, name, state.kind, state.dtype, b.CreateVector(state.dims)));
  }
  std::vector<Offset<fb::KeyValue>> metadata;
  for (const auto& [key, value] : spec.metadata) {
    const auto made_key = b.CreateString(key);
    metadata.push_back(fb::CreateKeyValue(b, made_key, b.CreateString(value)));
  }
  const auto features = b.CreateVectorOfStrings(spec.required_features);
  const auto all_functions = b.CreateVector(functions);
  const auto all_tensors = b.CreateVector(tensors);
  const auto all_states = b.CreateVector(states);
  const auto architecture = text(b, spec.architecture);
  const auto eos_ids = indices(b, spec.eos_ids);
  const auto source_config = text(b, spec.source_config);
  const auto quantization = text(b, spec.quantization);
  const auto all_metadata = b.CreateVector(metadata);
  const auto tokenizer = text(b, spec.tokenizer_json);
  const auto chat_template = text(b, spec.chat_template);
  const auto encodings = encode_encodings(b, spec);
  b.Finish(fb::CreateProgram(b, kSchemaVersion, features, all_functions, all_tensors, all_states, architecture,
                             spec.context_length, eos_ids, source_config, quantization, all_metadata, tokenizer,
                             chat_template, encodings),
           fb::ProgramIdentifier());
  return {};
}

// FlatBuffers aborts beyond its limit, so ask first. Rows of tables are small beside the texts; 256 bytes is above
// each.
uint64_t upper_bound(const ProgramSpec& spec) {
  uint64_t bytes = 4096 + spec.source_config.size() + spec.tokenizer_json.size() + spec.chat_template.size() +
                   spec.architecture.size() + spec.quantization.size() + 4 * spec.eos_ids.size();
  for (const auto& feature : spec.required_features) bytes += 256 + feature.size();
  for (const auto& [key, value] : spec.metadata) bytes += 256 + key.size() + value.size();
  for (const auto& e : spec.encodings) bytes += 256 + e.name.size() + 4 * e.codes.size();
  for (const auto& state : spec.states) bytes += 256 + state.name.size() + 8 * state.dims.size();
  for (const auto& tensor : spec.tensors) {
    bytes += 256 + tensor.name.size() + tensor.encoding.size() + 8 * tensor.dims.size();
    for (const auto& packed : tensor.packed) bytes += 256 + packed.layout.size();
  }
  for (const auto& f : spec.functions) {
    bytes += 256 + f.name.size();
    bytes += 4 * (f.inputs.size() + f.outputs.size() + f.weights.size() + f.states.size());
    for (const auto& value : f.values) bytes += 256 + value.name.size();
    for (const auto& op : f.ops) {
      bytes += 256 + op.attrs.size() + op.name.size() + op.function.size();
      bytes += 4 * (op.inputs.size() + op.weights.size() + op.states.size() + op.outputs.size());
    }
  }
  return bytes;
}

}  // namespace

Result<std::vector<std::byte>> encode_program(const ProgramSpec& spec) {
  if (const uint64_t bytes = upper_bound(spec); bytes > kMaxFlatbufferBytes / 2) {
    return error(Code::invalid_data, "the description of the model takes about {} bytes; at most {} fit a program file",
                 bytes, kMaxFlatbufferBytes / 2);
  }
  Builder builder;
  builder.ForceDefaults(true);  // so that a checksum can be entered later without changing the size
  SWY_TRY(encode(builder, spec));
  const auto* data = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  std::vector<std::byte> out(data, data + builder.GetSize());
  const uint64_t begin = swy_align64(kHeaderBytes + out.size());
  auto& tensors = *fb::GetMutableProgram(out.data())->mutable_tensors();
  for (uint32_t t = 0; t < tensors.size(); ++t) {
    auto& segments = *tensors.GetMutableObject(t)->mutable_segments();
    for (uint32_t s = 0; s < segments.size(); ++s) {
      fb::Segment& segment = *segments.GetMutableObject(s);
      segment.mutate_offset(begin + segment.offset());
    }
  }
  return out;
}

void set_checksum(std::span<std::byte> flatbuffer, size_t tensor, size_t segment, uint64_t checksum) {
  auto* tensors = fb::GetMutableProgram(flatbuffer.data())->mutable_tensors();
  auto* segments = tensors->GetMutableObject(static_cast<uint32_t>(tensor))->mutable_segments();
  segments->GetMutableObject(static_cast<uint32_t>(segment))->mutate_checksum(checksum);
}

}  // namespace switchyard
