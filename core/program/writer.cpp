// SPDX-License-Identifier: Apache-2.0
#include "core/program/writer.h"

#include <algorithm>
#include <array>

#include "core/program/decode.h"
#include "core/program/encode.h"
#include "core/program/file_header.h"
#include "core/program/verify.h"
#include "switchyard/weights.h"

namespace switchyard {
namespace {

constexpr std::array<std::byte, 4096> kZeros{};

Status append_zeros(OutputFile& file, uint64_t count) {
  while (count > 0) {
    const uint64_t n = std::min<uint64_t>(count, kZeros.size());
    SWY_TRY(file.append(std::span(kZeros).first(n)));
    count -= n;
  }
  return {};
}

uint64_t file_size(const Program& plan) {
  uint64_t end = kHeaderBytes + plan.flatbuffer_bytes;
  for (const Segment& segment : plan.segments) end = std::max(end, segment.offset + segment.bytes);
  return end;
}

}  // namespace

ProgramWriter::ProgramWriter(std::vector<std::byte> flatbuffer, Program plan, uint64_t file_bytes)
    : flatbuffer_(std::move(flatbuffer)), plan_(std::move(plan)), file_bytes_(file_bytes) {}

Result<ProgramWriter> ProgramWriter::create(Os& os, const std::string& path, const ProgramSpec& spec) {
  SWY_LET(std::vector<std::byte> flatbuffer, encode_program(spec));
  SWY_LET(Program plan, decode_program(flatbuffer));
  const uint64_t file_bytes = file_size(plan);
  SWY_TRY(verify_program(plan, file_bytes));
  ProgramWriter writer(std::move(flatbuffer), std::move(plan), file_bytes);
  // What replaces a program is made from it: a program packed onto itself.
  SWY_LET(writer.file_, os.create(path, WhenMapped::replace));
  SWY_TRY(writer.file_->append(make_header(writer.flatbuffer_, file_bytes)));
  SWY_TRY(writer.file_->append(writer.flatbuffer_));
  return writer;
}

Status ProgramWriter::begin_segment(size_t tensor, size_t segment) {
  if (open_ || tensor != tensor_ || segment != segment_ || tensor >= plan_.tensors.size()) {
    return error(Code::internal, "segment {} of tensor {} was begun where segment {} of tensor {} was {}", segment,
                 tensor, segment_, tensor_, open_ ? "open" : "next");
  }
  SWY_TRY(append_zeros(*file_, current().offset - file_->size()));
  checksum_.reset();
  written_ = 0;
  open_ = true;
  return {};
}

Status ProgramWriter::append(std::span<const std::byte> bytes) {
  if (!open_) return error(Code::internal, "bytes were appended with no segment open");
  if (bytes.size() > current().bytes - written_) {
    return error(Code::internal, "{} bytes were appended to '{}' after {} of its {}", bytes.size(),
                 plan_.tensors[tensor_].name, written_, current().bytes);
  }
  SWY_TRY(file_->append(bytes));
  checksum_.add(bytes);
  written_ += bytes.size();
  return {};
}

Status ProgramWriter::pad_to(uint64_t offset) {
  if (!open_ || offset < written_ || offset - written_ > kSegmentAlignment) {
    return error(Code::internal, "a segment was padded to byte {} after {} bytes", offset, written_);
  }
  return append(std::span(kZeros).first(offset - written_));
}

Status ProgramWriter::end_segment() {
  if (!open_) return error(Code::internal, "a segment was ended with none open");
  if (current().bytes - written_ >= kSegmentAlignment) {
    return error(Code::internal, "the segment of '{}' was ended after {} of its {} bytes", plan_.tensors[tensor_].name,
                 written_, current().bytes);
  }
  SWY_TRY(pad_to(current().bytes));
  set_checksum(flatbuffer_, tensor_, segment_, checksum_.value());
  open_ = false;
  if (++segment_ == plan_.tensors[tensor_].segments.size()) {
    segment_ = 0;
    ++tensor_;
  }
  return {};
}

Status ProgramWriter::write_segment(size_t tensor, std::span<const std::byte> bytes, size_t segment) {
  SWY_TRY(begin_segment(tensor, segment));
  SWY_TRY(append(bytes));
  return end_segment();
}

Status ProgramWriter::finish() {
  if (open_ || tensor_ != plan_.tensors.size()) {
    return error(Code::internal, "the program was finished after {} of {} tensors", tensor_, plan_.tensors.size());
  }
  SWY_TRY(file_->write_at(0, make_header(flatbuffer_, file_bytes_)));
  SWY_TRY(file_->write_at(kHeaderBytes, flatbuffer_));
  return file_->commit();
}

}  // namespace switchyard
