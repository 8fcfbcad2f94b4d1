// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/note.h"

#include <link.h>

#include <bit>
#include <cstring>

namespace switchyard::check {
namespace {

struct Search {
  uintptr_t inside;  // of the library
  std::optional<swy_note> found = {};
};

uint64_t padded(uint64_t bytes) { return (bytes + 3) / 4 * 4; }

// Looks through a segment of notes.
void look(const char* at, uint64_t bytes, Search& search) {
  ElfW(Nhdr) head;
  while (bytes >= sizeof head) {
    std::memcpy(&head, at, sizeof head);
    const uint64_t size = sizeof head + padded(head.n_namesz) + padded(head.n_descsz);
    if (size > bytes) return;
    const bool ours = head.n_type == SWY_NOTE_TYPE && head.n_namesz >= sizeof SWY_NOTE_NAME && size >= sizeof(swy_note);
    if (ours && std::memcmp(at + sizeof head, SWY_NOTE_NAME, sizeof SWY_NOTE_NAME) == 0) {
      std::memcpy(&search.found.emplace(), at, sizeof(swy_note));
      return;
    }
    at += size;
    bytes -= size;
  }
}

int visit(dl_phdr_info* library, size_t, void* arg) {
  auto& search = *static_cast<Search*>(arg);
  const ElfW(Phdr)* const begin = library->dlpi_phdr;
  const ElfW(Phdr)* const end = begin + library->dlpi_phnum;
  bool inside = false;
  for (const ElfW(Phdr)* p = begin; p != end; ++p) {
    const uintptr_t from = library->dlpi_addr + p->p_vaddr;
    inside |= p->p_type == PT_LOAD && search.inside >= from && search.inside - from < p->p_memsz;
  }
  if (!inside) return 0;
  for (const ElfW(Phdr)* p = begin; p != end && !search.found; ++p) {
    if (p->p_type != PT_NOTE) continue;
    look(reinterpret_cast<const char*>(library->dlpi_addr + p->p_vaddr), p->p_memsz, search);
  }
  return 1;
}

}  // namespace

std::optional<swy_note> note_of(swy_negotiate_fn negotiate) {
  Search search{std::bit_cast<uintptr_t>(negotiate)};
  ::dl_iterate_phdr(visit, &search);
  return search.found;
}

}  // namespace switchyard::check
