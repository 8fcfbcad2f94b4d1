// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/elf_note.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <sstream>

#include "switchyard/plugin.h"

namespace switchyard {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
constexpr uint16_t kMachine = EM_NONE;
#endif

// A struct at `offset`, if it lies inside the file.
template <class T>
std::optional<T> load(std::span<const std::byte> file, uint64_t offset) {
  if (offset > file.size() || sizeof(T) > file.size() - offset) return std::nullopt;
  T out;
  std::memcpy(&out, file.data() + offset, sizeof out);
  return out;
}

template <size_t N>
std::string text(const char (&field)[N]) {
  return std::string(field, ::strnlen(field, N));
}

// With a question mark for every byte that is not a visible character of ASCII.
std::string ascii(std::string untrusted) {
  std::replace_if(
      untrusted.begin(), untrusted.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return untrusted;
}

// Looks for the note in one PT_NOTE segment.
std::optional<PluginNote> find_note(std::span<const std::byte> segment) {
  uint64_t at = 0;
  while (const auto head = load<Elf64_Nhdr>(segment, at)) {
    const uint64_t name = (uint64_t{head->n_namesz} + 3) / 4 * 4, desc = (uint64_t{head->n_descsz} + 3) / 4 * 4;
    const uint64_t next = at + sizeof *head + name + desc;
    const auto note = load<swy_note>(segment, at);
    if (note && note->name_bytes == 12 && note->type == SWY_NOTE_TYPE && note->desc_bytes >= sizeof(swy_note) - 24 &&
        std::memcmp(note->name, SWY_NOTE_NAME, sizeof SWY_NOTE_NAME) == 0) {
      return PluginNote{note->abi_min, note->abi_max, text(note->id), text(note->version), text(note->cpu)};
    }
    if (next > segment.size()) break;
    at = next;
  }
  return std::nullopt;
}

}  // namespace

Result<PluginNote> read_plugin_note(std::span<const std::byte> file) {
  const auto head = load<Elf64_Ehdr>(file, 0);
  if (file.size() < SELFMAG || std::memcmp(file.data(), ELFMAG, SELFMAG) != 0) {
    return error(Code::invalid_data, "not a shared library (no ELF header)");
  }
  if (!head) return error(Code::invalid_data, "a truncated ELF file");
  if (head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_ident[EI_DATA] != ELFDATA2LSB) {
    return error(Code::invalid_data, "not a 64-bit little-endian library");
  }
  if (head->e_machine != kMachine) {
    return error(Code::invalid_data, "built for another processor (ELF machine {}, this one is {})", head->e_machine,
                 kMachine);
  }
  if (head->e_type != ET_DYN) return error(Code::invalid_data, "not a shared library (ELF type {})", head->e_type);
  std::optional<PluginNote> note;
  for (uint32_t i = 0; i < head->e_phnum; ++i) {
    const auto segment = load<Elf64_Phdr>(file, head->e_phoff + uint64_t{i} * sizeof(Elf64_Phdr));
    if (!segment) return error(Code::invalid_data, "a truncated ELF file");
    if (segment->p_offset > file.size() || segment->p_filesz > file.size() - segment->p_offset) {
      return error(Code::invalid_data, "a truncated ELF file");
    }
    if (segment->p_type != PT_NOTE || note) continue;
    note = find_note(file.subspan(segment->p_offset, segment->p_filesz));
  }
  if (!note) return error(Code::invalid_data, "not a Switchyard plugin (no Switchyard note)");
  return *note;
}

bool is_plugin_id(const std::string& id) {
  if (id.empty() || id.size() >= sizeof(swy_note::id) || id[0] < 'a' || id[0] > 'z') return false;
  return id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-") == std::string::npos;
}

Status check_plugin_note(const PluginNote& note, const std::string& cpu_features) {
  if (!is_plugin_id(note.id)) {
    return error(Code::invalid_data, "its note gives the id '{}', which is not [a-z][a-z0-9_-]* of at most 31 bytes",
                 ascii(note.id));
  }
  if (note.abi_min > note.abi_max) {
    return error(Code::invalid_data, "its note says that it speaks ABI {} to {}", note.abi_min, note.abi_max);
  }
  if (note.abi_min > SWY_ABI_VERSION || note.abi_max < SWY_ABI_VERSION) {
    return error(Code::unsupported,
                 "speaks ABI {} to {}, this runtime speaks {}; install the plugin's matching version", note.abi_min,
                 note.abi_max, SWY_ABI_VERSION);
  }
  if (const std::string feature = missing_cpu_feature(note.cpu, cpu_features); !feature.empty()) {
    return error(Code::unsupported, "needs the processor feature '{}', which this machine lacks", ascii(feature));
  }
  return {};
}

std::string missing_cpu_feature(const std::string& needed, const std::string& available) {
  std::istringstream words(needed);
  const std::string padded = fmt::format(" {} ", available);
  for (std::string word; words >> word;) {
    if (padded.find(fmt::format(" {} ", word)) == std::string::npos) return word;
  }
  return "";
}

}  // namespace switchyard
