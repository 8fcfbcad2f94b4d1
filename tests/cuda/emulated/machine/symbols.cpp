// SPDX-License-Identifier: Apache-2.0
// Names of places in this plugin's code, from its own table of symbols.
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>

#include "machine/machine.h"

namespace emulated {
namespace {

struct Symbol {
  uint64_t at, size;
  std::string name;
};

// The functions of a file of this machine, in order of their addresses.
std::vector<Symbol> read_symbols(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  std::vector<Symbol> all;
  if (bytes.size() < sizeof(Elf64_Ehdr)) return all;
  const auto* head = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(bytes.data() + head->e_shoff);
  for (uint32_t i = 0; i < head->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(bytes.data() + sections[i].sh_offset);
    const char* names = bytes.data() + sections[sections[i].sh_link].sh_offset;
    for (uint64_t s = 0; s < sections[i].sh_size / sizeof(Elf64_Sym); ++s) {
      if (ELF64_ST_TYPE(symbols[s].st_info) != STT_FUNC || symbols[s].st_size == 0) continue;
      all.push_back({symbols[s].st_value, symbols[s].st_size, names + symbols[s].st_name});
    }
  }
  std::sort(all.begin(), all.end(), [](const Symbol& a, const Symbol& b) { return a.at < b.at; });
  return all;
}

const Symbol* find(uint64_t at) {
  static const std::vector<Symbol> all = [] {
    Dl_info self{};
    dladdr(reinterpret_cast<const void*>(&find), &self);
    return read_symbols(self.dli_fname);
  }();
  auto found = std::upper_bound(all.begin(), all.end(), at, [](uint64_t a, const Symbol& s) { return a < s.at; });
  if (found == all.begin() || at >= (found - 1)->at + (found - 1)->size) return nullptr;
  return &*(found - 1);
}

uint64_t in_file(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return 0;
  return static_cast<uint64_t>(static_cast<const char*>(address) - static_cast<const char*>(info.dli_fbase));
}

// Adds a line to the list of places, where one is wanted: "0x1234 barrier kernel".
void note_place(const char* what, const void* site) {
  static std::FILE* const file = [] {
    const char* path = std::getenv("SWITCHYARD_EMULATED_PLACES");
    return path == nullptr ? nullptr : std::fopen(path, "a");
  }();
  static std::set<const void*> seen;
  if (file == nullptr || !seen.insert(site).second) return;
  std::fprintf(file, "0x%llx %s %s\n", static_cast<unsigned long long>(in_file(site)), what,
               name_of(current->warp->block->launch->kernel).c_str());
  std::fflush(file);
}

}  // namespace

std::string name_of(const void* function) {
  const Symbol* s = find(in_file(function));
  if (s == nullptr) return "?";
  int status = 0;
  char* plain = abi::__cxa_demangle(s->name.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 ? plain : s->name;
  std::free(plain);
  for (const char* hidden : {"(anonymous namespace)::", "void ", "gpu::"}) {
    for (size_t at = 0; (at = name.find(hidden)) != std::string::npos;) name.erase(at, std::strlen(hidden));
  }
  int depth = 0;  // the parameters are left out, not those of the template
  for (size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
    if (name[i] == '(' && depth == 0) return name.substr(0, i);
  }
  return name;
}

std::string place(const void* address) {
  char text[32];
  std::snprintf(text, sizeof text, " (0x%llx)", static_cast<unsigned long long>(in_file(address)));
  return name_of(address) + text;
}

bool dropped(const char* what, const void* site) {
  static const char* const text = std::getenv("SWITCHYARD_EMULATED_DROP");
  static const uint64_t drop = text == nullptr ? 0 : std::strtoull(text, nullptr, 16);
  note_place(what, site);
  return drop != 0 && in_file(site) == drop;
}

}  // namespace emulated
