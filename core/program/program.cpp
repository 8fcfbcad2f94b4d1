// SPDX-License-Identifier: Apache-2.0
#include "core/program/program.h"

#include <algorithm>

#include "core/program/checksum.h"
#include "core/program/decode.h"
#include "core/program/file_header.h"
#include "core/program/op_names.h"
#include "core/program/verify.h"

namespace switchyard {
namespace {

// Of a verified program.
Result<IdRanges> read_shortlist(const Program& program) {
  const auto entry = std::find_if(program.metadata.begin(), program.metadata.end(),
                                  [](const auto& pair) { return pair.first == kShortlistKey; });
  if (entry == program.metadata.end()) return IdRanges();
  const Function& main = program.main();
  SWY_LET(IdRanges ids, IdRanges::parse(entry->second, static_cast<uint32_t>(main.values[main.outputs[0]].width)));
  for (const Function& f : program.functions) {
    if (f.name != kMtpFunction || f.outputs.empty()) continue;
    const uint64_t width = f.values[f.outputs[0]].width;
    if (width == ids.count()) continue;
    return error(Code::invalid_data,
                 "the shortlist has {} tokens, and the layer that guesses from it makes logits of {}", ids.count(),
                 width);
  }
  return ids;
}

}  // namespace

Result<Program> Program::parse(std::shared_ptr<const MappedFile> mapped) {
  const auto bytes = mapped->bytes();
  SWY_LET(const auto flatbuffer, open_header(bytes));
  SWY_LET(Program program, decode_program(flatbuffer));
  SWY_TRY(verify_program(program, bytes.size()));
  Result<IdRanges> shortlist = read_shortlist(program);
  if (!shortlist.ok()) return shortlist.status().in(std::string(kShortlistKey));
  program.mtp_shortlist = std::move(*shortlist);
  program.file = std::move(mapped);
  return program;
}

Result<Program> Program::load(Os& os, const std::string& path) {
  SWY_LET(std::unique_ptr<MappedFile> mapped, os.map(path));
  Result<Program> program = parse(std::move(mapped));
  if (!program.ok()) return program.status().in(path);
  return program;
}

const Tensor* Program::find_tensor(std::string_view name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

std::span<const std::byte> Program::segment_bytes(const Segment& segment) const {
  file->require(segment.offset, segment.bytes);
  return file->bytes().subspan(segment.offset, segment.bytes);
}

Status Program::verify_weights(const Progress& progress) const {
  constexpr uint64_t kChunk = uint64_t{4} << 20;
  uint64_t total = 0;
  uint64_t done = 0;
  for (const Segment& segment : segments) total += segment.bytes;
  Checksum checksum;
  for (const Tensor& tensor : tensors) {
    for (const Segment& segment : tensor.segments) {
      checksum.reset();
      const auto bytes = segment_bytes(segment);
      for (uint64_t at = 0; at < bytes.size(); at += kChunk) {
        const uint64_t size = std::min<uint64_t>(kChunk, bytes.size() - at);
        checksum.add(bytes.subspan(at, size));
        file->release(segment.offset + at, size);
        done += size;
        if (progress && !progress(done, total))
          return error(Code::cancelled, "stopped before all weights were checked");
      }
      if (checksum.value() != segment.checksum) {
        return error(Code::invalid_data,
                     "the weights of '{}' are damaged (the checksum of their {} segment differs); {}", tensor.name,
                     segment.layout.empty() ? "canonical" : segment.layout, "copy the file again");
      }
    }
  }
  return {};
}

namespace {

swy_tensor describe_dims(swy_dtype dtype, uint32_t rank, const std::array<uint64_t, 4>& dims) {
  swy_tensor out{};
  out.struct_size = sizeof out;
  out.dtype = dtype;
  out.rank = rank;
  std::copy(dims.begin(), dims.end(), out.dims);
  return out;
}

}  // namespace

std::string op_kind(const Op& op) { return op.id == SWY_OP_NAMED ? std::string(op.name) : op_name(op.id); }

std::string encoding_name(const Tensor& tensor) {
  return tensor.encoding == nullptr ? dtype_name(tensor.dtype) : std::string(tensor.encoding->name);
}

swy_tensor describe(const Tensor& tensor) {
  swy_tensor out = describe_dims(tensor.dtype, tensor.rank, tensor.dims);
  out.group = tensor.group;
  out.encoding = tensor.encoding == nullptr ? nullptr : &tensor.encoding->desc;
  return out;
}

swy_tensor describe(const State& state) {
  swy_tensor out = describe_dims(state.dtype, state.rank, state.dims);
  out.state = state.kind;
  return out;
}

swy_tensor describe(const Value& value, uint64_t rows) {
  swy_tensor out = describe_dims(value.dtype, 2, {rows, value.width, 1, 1});
  out.rows = value.rows;
  return out;
}

}  // namespace switchyard
