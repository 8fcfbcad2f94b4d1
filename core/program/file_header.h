// SPDX-License-Identifier: Apache-2.0
// The first 64 bytes of a program file. Little-endian, like the whole file.
//
//   0  magic [8]        16  size of the FlatBuffer in bytes        32  reserved, zero [24]
//   8  file version u32 24  size of the whole file in bytes        56  XXH3-64 of bytes 0..55 and the FlatBuffer
//   12 header size u32
//
// The FlatBuffer follows at byte 64; weight segments follow it, each at a multiple of 64 bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/base/status.h"

namespace switchyard {

inline constexpr size_t kHeaderBytes = 64;
inline constexpr uint32_t kFileVersion = 1;
inline constexpr uint64_t kSegmentAlignment = 64;
inline constexpr uint64_t kMaxFlatbufferBytes = (uint64_t{1} << 31) - 1024;  // what FlatBuffers can address
// Like PNG's: a byte beyond ASCII and both line ends, so that a transfer as text is noticed.
inline constexpr std::array<unsigned char, 8> kMagic = {0x89, 'S', 'W', 'Y', 'P', '\r', '\n', 0x1a};

using HeaderBytes = std::array<std::byte, kHeaderBytes>;

// Whether a file that begins with these bytes claims to be a program; nothing else is checked.
inline bool is_program_file(std::span<const std::byte> file) {
  return file.size() >= kMagic.size() && std::memcmp(file.data(), kMagic.data(), kMagic.size()) == 0;
}

// The header of a file of `file_bytes` that begins with this FlatBuffer.
HeaderBytes make_header(std::span<const std::byte> flatbuffer, uint64_t file_bytes);

// The FlatBuffer inside `file`, a whole program file. Errors: invalid_data if it is not a program, or is truncated or
// damaged; unsupported for a newer file version.
Result<std::span<const std::byte>> open_header(std::span<const std::byte> file);

}  // namespace switchyard
