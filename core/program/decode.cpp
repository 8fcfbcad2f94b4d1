// SPDX-License-Identifier: Apache-2.0
#include "core/program/decode.h"

#include <map>

#include "core/base/printable.h"
#include "core/program/file_header.h"
#include "program_generated.h"

namespace switchyard {
namespace {

template <class T>
using Tables = flatbuffers::Vector<flatbuffers::Offset<T>>;

std::string_view text(const flatbuffers::String* string) {
  return string == nullptr ? std::string_view() : std::string_view(string->c_str(), string->size());
}

template <class T>
uint64_t count(const flatbuffers::Vector<T>* vector) {
  return vector == nullptr ? 0 : vector->size();
}

std::span<const uint32_t> indices(const flatbuffers::Vector<uint32_t>* vector) {
  return vector == nullptr ? std::span<const uint32_t>() : std::span(vector->data(), vector->size());
}

std::span<const std::byte> raw(const flatbuffers::Vector<uint8_t>* vector) {
  return vector == nullptr ? std::span<const std::byte>() : std::as_bytes(std::span(vector->Data(), vector->size()));
}

// The memory that the structs of this program will take, and that verify_program needs: a pointer and a bit per value,
// a bit per state, and an index per segment, tensor and state.
uint64_t memory_needed(const fb::Program& in) {
  uint64_t bytes = count(in.required_features()) * sizeof(std::string_view);
  bytes += count(in.metadata()) * sizeof(std::pair<std::string_view, std::string_view>);
  bytes += count(in.tensors()) * (sizeof(Tensor) + 4) + count(in.states()) * (sizeof(State) + 4 + 1);
  if (in.encodings() != nullptr) {
    for (const fb::Encoding* e : *in.encodings()) bytes += sizeof(Encoding) + count(e->codes()) * sizeof(float);
  }
  if (in.tensors() != nullptr) {
    for (const fb::Tensor* tensor : *in.tensors()) bytes += count(tensor->segments()) * (sizeof(Segment) + 4);
  }
  for (const fb::Function* function : *in.functions()) {
    bytes += sizeof(Function) + count(function->values()) * (sizeof(Value) + sizeof(void*) + 1) +
             count(function->ops()) * sizeof(Op);
  }
  return bytes;
}

// The rank is copied unchecked; verify_program checks it.
void read_dims(const flatbuffers::Vector<uint64_t>& in, uint32_t& rank, std::array<uint64_t, 4>& dims) {
  rank = in.size();
  // The verifier does not ask that a vector's elements be aligned, so they are copied as bytes.
  std::memcpy(dims.data(), in.Data(), std::min<size_t>(rank, dims.size()) * sizeof(uint64_t));
}

// All at once: tensors and descriptions point to them.
void read_encodings(const Tables<fb::Encoding>& in, Program& out) {
  out.encodings.reserve(in.size());
  for (const fb::Encoding* e : in) {
    Encoding& made = out.encodings.emplace_back();
    made.name = text(e->name());
    made.codes.resize(e->codes()->size());
    if (!made.codes.empty()) std::memcpy(made.codes.data(), e->codes()->Data(), made.codes.size() * sizeof(float));
    made.desc = {
        sizeof made.desc,          e->bits(), e->group(),         e->scale_dtype(),
        e->has_offset() ? 1u : 0u, 0,         e->name()->c_str(), made.codes.empty() ? nullptr : made.codes.data()};
  }
}

Status read_tensors(const Tables<fb::Tensor>& in, Program& out) {
  std::map<std::string_view, const Encoding*> encodings;
  for (const Encoding& e : out.encodings) encodings.emplace(e.name, &e);
  uint64_t segments = 0;
  for (const fb::Tensor* tensor : in) segments += tensor->segments()->size();
  out.segments.reserve(segments);  // all at once: tensors point into it
  out.tensors.reserve(in.size());
  for (const fb::Tensor* tensor : in) {
    Tensor& made = out.tensors.emplace_back();
    made.name = text(tensor->name());
    made.dtype = tensor->dtype();
    made.group = tensor->group();
    read_dims(*tensor->dims(), made.rank, made.dims);
    const size_t first = out.segments.size();
    for (const fb::Segment* s : *tensor->segments()) {
      out.segments.push_back({text(s->layout()), s->layout_revision(), s->offset(), s->bytes(), s->checksum()});
    }
    made.segments = std::span(out.segments).subspan(first);
    if (tensor->encoding() == nullptr) continue;
    const auto found = encodings.find(text(tensor->encoding()));
    if (found == encodings.end()) {
      return error(Code::invalid_data, "tensor '{}' has the encoding '{}', which the program does not describe",
                   printable(made.name), printable(text(tensor->encoding())));
    }
    made.encoding = found->second;
  }
  return {};
}

void read_states(const Tables<fb::State>& in, Program& out) {
  out.states.reserve(in.size());
  for (const fb::State* state : in) {
    State& made = out.states.emplace_back();
    made.name = text(state->name());
    made.kind = state->kind();
    made.dtype = state->dtype();
    read_dims(*state->dims(), made.rank, made.dims);
  }
}

Status read_functions(const Tables<fb::Function>& in, Program& out) {
  std::map<std::string_view, uint32_t> names;
  for (uint32_t i = 0; i < in.size(); ++i) names.emplace(text(in.Get(i)->name()), i);
  out.functions.reserve(in.size());
  for (const fb::Function* function : in) {
    Function& made = out.functions.emplace_back();
    made.name = text(function->name());
    made.inputs = indices(function->inputs());
    made.outputs = indices(function->outputs());
    made.weights = indices(function->weights());
    made.states = indices(function->states());
    made.values.reserve(function->values()->size());
    for (const fb::Value* v : *function->values()) {
      made.values.push_back({text(v->name()), v->dtype(), v->rows(), v->width()});
    }
    made.ops.reserve(function->ops()->size());
    for (const fb::Op* op : *function->ops()) {
      made.ops.push_back({op->id(), op->revision(), raw(op->attrs()), indices(op->inputs()), indices(op->weights()),
                          indices(op->states()), indices(op->outputs()), text(op->name())});
      if (op->function() == nullptr) continue;
      const auto found = names.find(text(op->function()));
      if (found == names.end()) {
        return error(Code::invalid_data, "op '{}' is to be done by function '{}', which the program does not have",
                     printable(text(op->name())), printable(text(op->function())));
      }
      made.ops.back().function = found->second;
    }
  }
  return {};
}

void read_metadata(const fb::Program& in, Program& out) {
  out.architecture = text(in.architecture());
  out.context_length = in.context_length();
  out.eos_ids = indices(in.eos_ids());
  out.source_config = text(in.source_config());
  out.quantization = text(in.quantization());
  out.tokenizer_json = text(in.tokenizer_json());
  out.chat_template = text(in.chat_template());
  if (in.metadata() != nullptr) {
    out.metadata.reserve(in.metadata()->size());
    for (const fb::KeyValue* pair : *in.metadata()) out.metadata.emplace_back(text(pair->key()), text(pair->value()));
  }
  if (in.required_features() != nullptr) {
    out.required_features.reserve(in.required_features()->size());
    for (const flatbuffers::String* feature : *in.required_features()) out.required_features.push_back(text(feature));
  }
}

}  // namespace

Result<Program> decode_program(std::span<const std::byte> flatbuffer) {
  constexpr size_t kSmallest = 16;  // root offset, identifier, a table: below it the verifier would read beyond the end
  const auto* data = reinterpret_cast<const uint8_t*>(flatbuffer.data());
  if (reinterpret_cast<uintptr_t>(data) % 8 != 0) {
    return error(Code::internal, "a program must be mapped at an address that is a multiple of 8");
  }
  if (flatbuffer.size() < kSmallest || flatbuffer.size() > kMaxFlatbufferBytes ||
      !fb::ProgramBufferHasIdentifier(data)) {
    return error(Code::invalid_data,
                 "the description of the model is not one (no 'SWYP' mark); convert the model again");
  }
  flatbuffers::Verifier verifier(data, flatbuffer.size());
  if (!fb::VerifyProgramBuffer(verifier)) {
    return error(Code::invalid_data, "the description of the model is malformed; convert the model again");
  }
  const fb::Program& in = *fb::GetProgram(data);
  if (const uint64_t needed = memory_needed(in); needed > 2 * flatbuffer.size()) {
    return error(
        Code::invalid_data,
        "the description of the model would take {} bytes in memory, more than twice its {} in the file, because "
        "parts of it are listed many times; convert the model again",
        needed, flatbuffer.size());
  }
  Program out;
  out.schema_version = in.schema_version();
  out.flatbuffer_bytes = flatbuffer.size();
  read_metadata(in, out);
  if (in.encodings() != nullptr) read_encodings(*in.encodings(), out);
  if (in.tensors() != nullptr) SWY_TRY(read_tensors(*in.tensors(), out));
  if (in.states() != nullptr) read_states(*in.states(), out);
  SWY_TRY(read_functions(*in.functions(), out));
  return out;
}

}  // namespace switchyard
