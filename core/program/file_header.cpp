// SPDX-License-Identifier: Apache-2.0
#include "core/program/file_header.h"

#include <bit>
#include <cstring>

#include "core/program/checksum.h"

namespace switchyard {
namespace {

static_assert(std::endian::native == std::endian::little,
              "program files are read in place, and they are little-endian");

constexpr size_t kChecksumAt = 56;

struct HeaderFields {
  std::array<unsigned char, 8> magic;
  uint32_t version;
  uint32_t header_bytes;
  uint64_t flatbuffer_bytes;
  uint64_t file_bytes;
  uint64_t reserved[3];
  uint64_t checksum;
};
static_assert(sizeof(HeaderFields) == kHeaderBytes && offsetof(HeaderFields, checksum) == kChecksumAt);

uint64_t checksum_of(const HeaderFields& header, std::span<const std::byte> flatbuffer) {
  Checksum checksum;
  checksum.add(std::as_bytes(std::span(&header, 1)).first(kChecksumAt));
  checksum.add(flatbuffer);
  return checksum.value();
}

}  // namespace

HeaderBytes make_header(std::span<const std::byte> flatbuffer, uint64_t file_bytes) {
  HeaderFields header{kMagic, kFileVersion, kHeaderBytes, flatbuffer.size(), file_bytes, {}, 0};
  header.checksum = checksum_of(header, flatbuffer);
  return std::bit_cast<HeaderBytes>(header);
}

Result<std::span<const std::byte>> open_header(std::span<const std::byte> file) {
  if (file.empty()) return error(Code::invalid_data, "the file is empty; a program is made by `switchyard convert`");
  HeaderFields header{};
  std::memcpy(&header, file.data(), std::min(file.size(), sizeof header));
  if (header.magic != kMagic) {
    return error(Code::invalid_data,
                 "this is not a switchyard program (its first bytes are not those of a .swy file); "
                 "make one with `switchyard convert`");
  }
  if (file.size() < kHeaderBytes) {
    return error(Code::invalid_data, "the file is truncated: {} bytes, less than its header of {}; copy it again",
                 file.size(), kHeaderBytes);
  }
  if (header.version > kFileVersion) {
    return error(Code::unsupported,
                 "file version {} is newer than version {}, the latest known here; update switchyard", header.version,
                 kFileVersion);
  }
  if (header.version == 0 || header.header_bytes != kHeaderBytes) {
    return error(Code::invalid_data, "the header is damaged (version {}, header of {} bytes); copy the file again",
                 header.version, header.header_bytes);
  }
  if (header.file_bytes != file.size()) {
    return error(Code::invalid_data, "the file has {} bytes but its header says {}: it is {}; copy it again",
                 file.size(), header.file_bytes, file.size() < header.file_bytes ? "truncated" : "damaged");
  }
  if (header.flatbuffer_bytes > file.size() - kHeaderBytes || header.flatbuffer_bytes > kMaxFlatbufferBytes) {
    return error(Code::invalid_data, "the header is damaged (a description of {} bytes); copy the file again",
                 header.flatbuffer_bytes);
  }
  const auto flatbuffer = file.subspan(kHeaderBytes, header.flatbuffer_bytes);
  if (checksum_of(header, flatbuffer) != header.checksum) {
    return error(Code::invalid_data,
                 "the description of the model is damaged (its checksum differs); copy the file again");
  }
  return flatbuffer;
}

}  // namespace switchyard
