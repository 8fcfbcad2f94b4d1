// SPDX-License-Identifier: Apache-2.0
// ProgramWriter: writes a program file in one pass over the weights, holding none of them.
//
//   SWY_LET(auto writer, ProgramWriter::create(os, "model.swy", spec));
//   for each tensor, in the order of the spec, and for each of its segments, the canonical one first:
//     SWY_TRY(writer.begin_segment(tensor, segment));
//     SWY_TRY(writer.append(bytes));  // as often as needed
//     SWY_TRY(writer.end_segment());
//   SWY_TRY(writer.finish());
//
// The description is written first with checksums missing, and again, of the same size, by `finish`. Nothing appears at
// the path before `finish` has succeeded; destroying the writer earlier leaves nothing behind. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/os.h"
#include "core/base/status.h"
#include "core/program/checksum.h"
#include "core/program/program.h"
#include "core/program/spec.h"

namespace switchyard {

class ProgramWriter {
 public:
  // Refuses a spec that the loader would refuse, before the file is created. Errors: those of the loader; io.
  static Result<ProgramWriter> create(Os& os, const std::string& path, const ProgramSpec& spec);

  // Bytes of the whole file, known from the start.
  uint64_t file_bytes() const { return file_bytes_; }
  // Bytes of a tensor's canonical segment.
  uint64_t segment_bytes(size_t tensor) const { return plan_.tensors[tensor].segments[0].bytes; }

  // Segments come in order; any other call order, or a size other than the spec's, is Code::internal.
  Status begin_segment(size_t tensor, size_t segment = 0);
  Status append(std::span<const std::byte> bytes);
  // Zeros up to byte `offset` of the segment: the padding before a plane (swy_weight_planes::scales, ::offsets).
  Status pad_to(uint64_t offset);
  // Pads with zeros what remains below one alignment (64 bytes): the padding after the last plane.
  Status end_segment();

  // begin, append, end.
  Status write_segment(size_t tensor, std::span<const std::byte> bytes, size_t segment = 0);

  // Completes the description, flushes, and renames the file to its path. Only after all segments.
  Status finish();

 private:
  ProgramWriter(std::vector<std::byte> flatbuffer, Program plan, uint64_t file_bytes);
  const Segment& current() const { return plan_.tensors[tensor_].segments[segment_]; }

  std::vector<std::byte> flatbuffer_;
  Program plan_;  // views of flatbuffer_
  uint64_t file_bytes_;
  std::unique_ptr<OutputFile> file_;
  Checksum checksum_;
  size_t tensor_ = 0;  // the next segment to be written
  size_t segment_ = 0;
  bool open_ = false;
  uint64_t written_ = 0;  // of the open segment
};

}  // namespace switchyard
