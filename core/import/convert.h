// SPDX-License-Identifier: Apache-2.0
// Conversion of a model into a program file: of the folder of a Hugging Face checkpoint, or of a GGUF file.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/os.h"
#include "core/base/status.h"
#include "core/models/source.h"

namespace switchyard {

struct ConvertOptions {
  std::string source;  // folder, or GGUF file
  std::string output;  // .swy
  // Of the quantizable weights. None: each keeps the encoding that the source has, or the nearest. MXFP4 stays as it is
  // where 4 bits are asked for.
  std::optional<WeightEncoding> encoding;
  // What a multi-token prediction layer guesses from, as make_shortlist has it.
  std::string mtp_shortlist = "auto";
  std::string origin;  // what the program's metadata says it was made of, for listings; "": nothing
  uint32_t threads = 1;
  // Called with the weight bytes written and in all; returning false stops with Code::cancelled.
  std::function<bool(uint64_t done, uint64_t total)> progress;
  // Called once before the weights are written, with the size of the file.
  std::function<void(uint64_t bytes)> begin;
};

struct ConvertReport {
  uint64_t file_bytes = 0;
  uint64_t parameters = 0;
  std::vector<std::string> notes;
};

// "bf16", "i8", "i4", "i4a" and "32", "64", "128", "row". Errors: usage, listing what there is.
Result<WeightEncoding> parse_encoding(const std::string& quant, const std::string& group);
std::string encoding_name(const std::optional<WeightEncoding>& encoding);

// Whether a file is a GGUF file, by its first bytes.
bool is_gguf(Os& os, const std::string& path);

// Nothing appears at the output path unless all went well, and an existing file is replaced only if it is a program
// file. Errors: usage, if it is something else; those of the checkpoint's parts; io; cancelled. Memory: a few MiB in
// addition to the scales of the largest tensor.
Result<ConvertReport> convert(Os& os, const ConvertOptions& options);

}  // namespace switchyard
