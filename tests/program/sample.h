// SPDX-License-Identifier: Apache-2.0
// A small program with every op and every encoding, and the means to write it and to break it.
#pragma once

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/os.h"
#include "core/program/program.h"
#include "core/program/spec.h"

namespace switchyard::testing {

// Function "main": every composite and fused composite but those that sample, which no file may have. Function
// "pieces": every primitive, over values that its caller supplies. Tensors of every encoding and group, most with a
// short last group.
ProgramSpec sample_spec();

// Every primitive in one function that can be run.
ProgramSpec pieces_spec();

// A model of one layer that can be run, of second revisions, MLP and MXFP4 weights; the same operations in pieces
// beside it. With sample_spec(), every revision of every operation that a file may have.
ProgramSpec revisions_spec();

// The least that is a program: an embedding, and logits from it.
ProgramSpec tiny_spec();

// A program of operations that this runtime does not know, each with the function that does the same, and of weights of
// an encoding that it does not know. Per layer: acme.conv/1 with a weight and a state, acme.gated/1 with a weight,
// whose function ("gated") has a linear operation and acme.gelu/1 (function "gelu": x * sigmoid(2 x)), and a linear
// operation. All large weights have the encoding acme.nf4/1.
ProgramSpec named_spec();

// The first op of this id in a function.
ProgramSpec::Op& find_op_in(ProgramSpec& spec, size_t function, swy_op_id id);

// The bytes of the sample's segments: any bytes will do, as the format does not examine them.
std::vector<std::byte> sample_bytes(size_t tensor, uint64_t size);

// The whole file of a spec, written through an Os in memory.
std::vector<std::byte> file_of(const ProgramSpec& spec);

// The file of a spec that the writer may refuse: encoded as it is, with a valid header and checksum and zeroed weights.
std::vector<std::byte> unchecked_file_of(const ProgramSpec& spec);

// Gives a changed FlatBuffer in `file` a valid checksum again.
void seal(std::span<std::byte> file);

// Parses bytes as Program::load does a file.
Result<Program> parse(std::vector<std::byte> bytes);

// An Os whose files live in memory. `capacity` is the disk's size; `fail_commit` and `fail_create` refuse those calls.
class MemoryOs : public Os {
 public:
  std::map<std::string, std::vector<std::byte>> files;
  uint64_t capacity = UINT64_MAX;
  bool fail_create = false;
  bool fail_write_at = false;
  bool fail_commit = false;

  Result<std::unique_ptr<MappedFile>> map(const std::string& path) override;
  Result<std::string> read(const std::string& path, uint64_t max_bytes) override;
  Result<std::unique_ptr<OutputFile>> create(const std::string& path, WhenMapped when_mapped) override;
  bool exists(const std::string& path) override { return files.contains(path); }
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Result<uint64_t> free_bytes(const std::string&) override { return capacity; }
  Result<void*> open_library(const std::string& path) override;
  Result<void*> symbol(void* library, const char* name) override;
  uint64_t now_ns() override { return 0; }
};

}  // namespace switchyard::testing
