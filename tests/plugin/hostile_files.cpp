// SPDX-License-Identifier: Apache-2.0
#include "tests/plugin/hostile_files.h"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "switchyard/plugin.h"
#include "tests/plugin/support.h"

namespace switchyard::testing {
namespace {

using Patch = std::function<void(std::string&)>;

template <class T>
T get(const std::string& file, size_t at) {
  T out;
  std::memcpy(&out, file.data() + at, sizeof out);
  return out;
}
template <class T>
void put(std::string& file, size_t at, const T& value) {
  std::memcpy(file.data() + at, &value, sizeof value);
}

void replace_text(std::string& file, const std::string& from, const std::string& to) {
  const size_t at = file.find(from);
  if (at == std::string::npos || to.size() > from.size()) throw std::logic_error("no '" + from + "' in the fixture");
  file.replace(at, to.size(), to);
}

// A library that is in order until `patch` changes it.
Hostile patched(const std::string& name, const std::string& reason, const Patch& patch) {
  return {name, reason, [=](const TemporaryFolder& folder) {
            std::string file = read_file(fixture("hostile"));
            patch(file);
            return folder.write(name + ".so", file);
          }};
}

// The library that does what `fault` names.
Hostile fault(const std::string& fault, const std::string& reason) {
  std::string name = fault;
  for (char& c : name) c = c == ':' ? '_' : c;
  return patched(name, reason, [=](std::string& file) {
    std::string text = fault;
    text.resize(sizeof "SWITCHYARD-FAULT:", '\0');
    const size_t at = file.find("SWITCHYARD-FAULT:");
    if (at == std::string::npos) throw std::logic_error("no marker in the fixture");
    file.replace(at, std::max(fault.size() + 1, text.size()), std::max(text, fault + '\0'));
  });
}

// ---- places in an ELF file

size_t segment(const std::string& file, uint32_t type) {
  const auto head = get<Elf64_Ehdr>(file, 0);
  for (uint16_t i = 0; i < head.e_phnum; ++i) {
    const size_t at = head.e_phoff + i * sizeof(Elf64_Phdr);
    if (get<Elf64_Phdr>(file, at).p_type == type) return at;
  }
  throw std::logic_error("no such segment in the fixture");
}

size_t loaded_end(const std::string& file) {
  const auto head = get<Elf64_Ehdr>(file, 0);
  size_t end = 0;
  for (uint16_t i = 0; i < head.e_phnum; ++i) {
    const auto s = get<Elf64_Phdr>(file, head.e_phoff + i * sizeof(Elf64_Phdr));
    if (s.p_type == PT_LOAD) end = std::max<size_t>(end, s.p_offset + s.p_filesz);
  }
  return end;
}

size_t note(const std::string& file) {
  const size_t name = file.find(std::string(SWY_NOTE_NAME) + '\0' + '\0');
  if (name == std::string::npos) throw std::logic_error("no note in the fixture");
  return name - offsetof(swy_note, name);
}

void set_id(std::string& file, const std::string& id) {
  char field[sizeof(swy_note::id)] = {};
  std::copy_n(id.begin(), std::min(id.size(), sizeof field), field);
  put(file, note(file) + offsetof(swy_note, id), field);
}

// Makes the negotiate symbol an object, as if a plugin had exported a variable by that name.
void symbol_is_data(std::string& file) {
  const auto head = get<Elf64_Ehdr>(file, 0);
  const auto section = [&](uint32_t type) {
    for (uint16_t i = 0; i < head.e_shnum; ++i) {
      const auto s = get<Elf64_Shdr>(file, head.e_shoff + i * sizeof(Elf64_Shdr));
      if (s.sh_type == type) return s;
    }
    throw std::logic_error("no such section in the fixture");
  };
  const Elf64_Shdr symbols = section(SHT_DYNSYM);
  const auto names = get<Elf64_Shdr>(file, head.e_shoff + symbols.sh_link * sizeof(Elf64_Shdr));
  for (size_t at = symbols.sh_offset; at < symbols.sh_offset + symbols.sh_size; at += sizeof(Elf64_Sym)) {
    auto symbol = get<Elf64_Sym>(file, at);
    if (std::strcmp(file.data() + names.sh_offset + symbol.st_name, SWY_NEGOTIATE_SYMBOL) != 0) continue;
    symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
    put(file, at, symbol);
  }
}

// Sends the loader's tables to where nothing is.
void corrupt_dynamic(std::string& file) {
  const auto dynamic = get<Elf64_Phdr>(file, segment(file, PT_DYNAMIC));
  for (size_t at = dynamic.p_offset; at < dynamic.p_offset + dynamic.p_filesz; at += sizeof(Elf64_Dyn)) {
    auto entry = get<Elf64_Dyn>(file, at);
    if (entry.d_tag != DT_STRTAB) continue;
    entry.d_un.d_ptr = 0x7f0000000000;
    put(file, at, entry);
  }
}

// ---- the lists

std::vector<Hostile> things_that_are_no_files() {
  return {
      {"folder", "is not a regular file",
       [](const TemporaryFolder& f) {
         std::filesystem::create_directory(f.path("folder.so"));
         return f.path("folder.so");
       }},
      {"dangling", "cannot open",
       [](const TemporaryFolder& f) {
         std::filesystem::create_symlink("/nonexistent/plugin.so", f.path("dangling.so"));
         return f.path("dangling.so");
       }},
      {"circle", "cannot open",
       [](const TemporaryFolder& f) {
         std::filesystem::create_symlink(f.path("circle.so"), f.path("circle.so"));
         return f.path("circle.so");
       }},
      {"fifo", "is not a regular file",
       [](const TemporaryFolder& f) {
         if (::mkfifo(f.path("fifo.so").c_str(), 0600) != 0) throw std::runtime_error("mkfifo");
         return f.path("fifo.so");
       }},
      {"unreadable", ::geteuid() == 0 ? "" : "Permission denied",  // root reads everything
       [](const TemporaryFolder& f) {
         std::string path = f.write("unreadable.so", read_file(fixture("hostile")));
         ::chmod(path.c_str(), 0);
         return path;
       }},
      {"program", "no Switchyard note",
       [](const TemporaryFolder& f) { return f.write("program.so", read_file("/bin/true")); }},
  };
}

std::vector<Hostile> files_that_are_no_libraries() {
  const auto head = [](auto change) {
    return [=](std::string& file) {
      auto h = get<Elf64_Ehdr>(file, 0);
      change(h);
      put(file, 0, h);
    };
  };
  return {
      patched("empty", "not a shared library (no ELF header)", [](std::string& f) { f.clear(); }),
      patched("text", "not a shared library (no ELF header)", [](std::string& f) { f = "hello, world\n"; }),
      patched("cut_in_header", "a truncated ELF file", [](std::string& f) { f.resize(20); }),
      patched("cut_after_header", "a truncated ELF file", [](std::string& f) { f.resize(sizeof(Elf64_Ehdr)); }),
      patched("cut_in_half", "a truncated ELF file", [](std::string& f) { f.resize(loaded_end(f) / 2); }),
      patched("cut_by_a_byte", "a truncated ELF file", [](std::string& f) { f.resize(loaded_end(f) - 1); }),
      patched("machine", "built for another processor (ELF machine 22", head([](auto& h) { h.e_machine = EM_S390; })),
      patched("endian", "not a 64-bit little-endian", head([](auto& h) { h.e_ident[EI_DATA] = ELFDATA2MSB; })),
      patched("bits", "not a 64-bit little-endian", head([](auto& h) { h.e_ident[EI_CLASS] = ELFCLASS32; })),
      patched("executable", "not a shared library (ELF type 2)", head([](auto& h) { h.e_type = ET_EXEC; })),
      patched("object", "not a shared library (ELF type 1)", head([](auto& h) { h.e_type = ET_REL; })),
      patched("far_segments", "a truncated ELF file", head([](auto& h) { h.e_phoff = UINT64_MAX - 8; })),
      patched("many_segments", "truncated ELF file", head([](auto& h) { h.e_phnum = 65535; })),
      patched("dynamic", "while it is loaded", corrupt_dynamic),
  };
}

std::vector<Hostile> notes() {
  const auto change = [](auto field, auto value) {
    return [=](std::string& file) {
      auto n = get<swy_note>(file, note(file));
      n.*field = value;
      put(file, note(file), n);
    };
  };
  const auto abi = [](uint32_t min, uint32_t max) {
    return [=](std::string& file) {
      auto n = get<swy_note>(file, note(file));
      n.abi_min = min;
      n.abi_max = max;
      put(file, note(file), n);
    };
  };
  const auto id = [](const std::string& text) { return [=](std::string& file) { set_id(file, text); }; };
  return {
      patched("no_note", "no Switchyard note", [](std::string& f) { replace_text(f, "Switchyard", "Switchback"); }),
      patched("short_note", "no Switchyard note", change(&swy_note::desc_bytes, 8u)),
      patched("huge_note", "no Switchyard note", change(&swy_note::name_bytes, 0xffffffffu)),
      patched("other_note", "no Switchyard note", change(&swy_note::type, 2u)),
      patched("id_bytes", "gives the id '?\?\?\?'", id("\xff\xfe\x80\xc0")),
      patched("id_empty", "gives the id ''", id("")),
      patched("id_path", "gives the id '../../etc/passwd'", id("../../etc/passwd")),
      patched("id_capital", "gives the id 'Cpu'", id("Cpu")),
      patched("id_endless", "at most 31 bytes", id(std::string(32, 'x'))),
      patched("id_differs", "calls itself 'hostile', and its note says 'harmless'", id("harmless")),
      patched("abi_reversed", "says that it speaks ABI 2 to 1", abi(2, 1)),
      patched("abi_old", "speaks ABI 0 to 0", abi(0, 0)),
      patched("abi_new", "speaks ABI 9 to 9", abi(9, 9)),
      patched("processor", "needs the processor feature 'warpdrive'",
              [](std::string& f) { put(f, note(f) + offsetof(swy_note, cpu), "warpdrive"); }),
  };
}

std::vector<Hostile> links() {
  return {
      patched("no_symbol", "no symbol switchyard_plugin_negotiate",
              [](std::string& f) { replace_text(f, SWY_NEGOTIATE_SYMBOL, "switchyard_plugin_negotiat3"); }),
      patched("data_symbol", "is data, not a function", symbol_is_data),
      patched("missing_library", "libc.so.7", [](std::string& f) { replace_text(f, "libc.so.6", "libc.so.7"); }),
      patched("undefined_symbol", "close_rang3", [](std::string& f) { replace_text(f, "close_range", "close_rang3"); }),
      {"text_relocations", "", [](const TemporaryFolder&) { return fixture("text_relocations"); }},
      {"clashes", "", [](const TemporaryFolder&) { return fixture("clashes"); }},
  };
}

std::vector<Hostile> answers() {
  return {
      fault("refuse:silent", "refused: hostile: the backend gave no reason"),
      fault("refuse:status", "seventy-seven (status 77)"),
      fault("refuse:negative", "minus five (status -5)"),
      fault("refuse:lines", "refused: hostile: one two?[2J"),
      fault("refuse:overrun", "crashes in negotiate"),
      fault("refuse:no_end", "refused: hostile: xxx"),
      fault("answer:abi", "answered ABI 7, this runtime speaks 1"),
      fault("answer:id", "calls itself 'other', and its note says 'hostile'"),
      fault("answer:no_id", "gave no id or no table"),
      fault("answer:endless_id", "and its note says 'hostile'"),
      fault("answer:endless_version", "its version does not end within 4096 bytes"),
      fault("table:none", "gave no id or no table"),
      fault("table:wild", "crashes in negotiate: signal 11"),
      fault("table:size_0", "gave no id or no table"),
      fault("table:short", "lacks the mandatory entry write"),
      fault("table:huge", "says that its table has 4294967295 bytes"),
  };
}

std::vector<Hostile> missing_entries() {
  std::vector<Hostile> out;
  for (const char* entry :
       {"device_count", "device_info",   "device_open", "device_close", "kernel_count", "kernel_at",
        "buffer_alloc", "buffer_free",   "buffer_map",  "write",        "read",         "fill_zero",
        "packed_bytes", "pack",          "layout_name", "state_layout", "state_export", "state_import",
        "list_begin",   "list_finalize", "list_submit", "list_free"}) {
    out.push_back(fault(std::string("null:") + entry, std::string("lacks the mandatory entry ") + entry));
  }
  return out;
}

std::vector<Hostile> tables() {
  return {
      fault("option:no_list", "has 1 options and no list of them"),
      fault("option:null", "option 0 is NULL"),
      fault("option:no_name", "the name of option 0 is NULL"),
      fault("option:endless", "the help of option fast does not end"),
      fault("option:type", "option fast is of the unknown type 99"),
      fault("option:size", "option 0 has a struct_size of 0"),
      fault("option:count", "has 4294967295 options"),
      fault("option:wild", "crashes in its options: signal 11"),
      fault("count:crash", "crashes in device_count: signal 11"),
      fault("count:unset", "device_count: succeeded and did not set the count"),
      fault("count:status", "device_count: returned the unknown status -1"),
      fault("count:zero", "device_count: counted no device and gave no reason"),
      fault("count:zero_with_reason", ""),
      fault("count:huge", "has 4294967280 devices"),
      fault("info:crash", "crashes in device_info: signal 11"),
      fault("info:size", "device_info: filled a struct_size of 4000"),
      fault("info:name", "device_info: gave no name or no arch"),
      fault("info:endless", "the name of device 0 does not end"),
      fault("info:escape", "the name of device 0 holds the control character 27"),
      fault("info:alignment", "buffer_alignment is 48"),
      fault("open:crash", "crashes in device_open"),
      fault("open:throw", "throws an exception in device_open: out of ideas"),
      fault("open:nothing", "device_open: succeeded and did not set the output pointer"),
      fault("open:overrun", "device_open: wrote beyond the error text's capacity"),
      fault("close:crash", "crashes in device_close: signal 11"),
      fault("kernel:null", "kernel_at(1) is NULL"),
      fault("kernel:count", "kernel_count is 4294967280"),
      fault("kernel:no_name", "kernel 1 has no name"),
      fault("kernel:empty_name", "kernel 1 has no name"),
      fault("kernel:endless", "the name of kernel 1 does not end"),
      fault("kernel:escape", "the name of a kernel holds the control character 27"),
      fault("kernel:twice", "two kernels are named add.one"),
      fault("kernel:no_record", "kernel add.two has no record"),
      fault("kernel:short", "kernel 1"),
      fault("kernel:unknown_op", ""),  // of a later version: never used
  };
}

std::vector<Hostile> deeds() {
  return {
    fault("load:crash", "crashes while it is loaded: signal 11"),
        fault("load:exit", "exits with code 0 while it is loaded"),
        fault("load:print", "writes to standard output: hello"),
#if defined(__x86_64__)
        fault("load:flush_to_zero", "changes how floating point rounds or flushes to zero"),
#endif
        fault("throw", "throws an exception in negotiate: I throw"),
        fault("throw_int", "throws an exception in negotiate"), fault("exit0", "exits with code 0 in negotiate"),
        fault("exit1", "exits with code 1 in negotiate"), fault("_exit", "exits with code 0 in negotiate"),
        fault("abort", "crashes in negotiate: signal 6"), fault("crash", "crashes in negotiate: signal 11"),
        fault("trap", "crashes in negotiate: signal"), fault("kill", "crashes in negotiate: signal 9"),
        fault("stop", "stops its process in negotiate: signal 19"),
        fault("kill_parent", "the trial process ended without a result"),
        fault("recursion", "crashes in negotiate: signal 11"),
        fault("memory", "throws an exception in negotiate: std::bad_alloc"),
        fault("close_all", "closes a file descriptor that it did not open"),
        fault("close_stdin", "closes a file descriptor that it did not open"), fault("handler", "takes over signal 11"),
        fault("ignore", "takes over signal 13"), fault("alarm", "starts a timer of the process"),
        fault("chdir", "changes the working directory"), fault("locale", "changes the locale"),
        fault("umask", "changes the mask of new files' rights"),
        fault("print", "writes to standard output: hello, world"),
        fault("stderr", "crashes in negotiate: signal 6 (Aborted); it said: the last words"),
        fault("child", "starts a process while it is loaded or negotiates"),
        fault("daemon", "starts a process while it is loaded or negotiates"),
        fault("fork_wait", "starts a process while it is loaded or negotiates"), fault("fork_return", "(fork)"),
        fault("open:fork_wait", ""),
        fault("open:fork_return", "leaves"),  // a copy of its process: its own words, or those of the trial
        fault("open:child", "leaves processes running that it started (1)"),
        fault("open:daemon", "leaves processes running that it started (1)"),
        fault("extension:crash", "crashes in get_extension: signal 11"),
        fault("extension:size", "the extension swy.sampling/1 has a struct_size of 3"),
        fault("extension:any", "get_extension gives something for swy.none/1, which does not exist"),
        fault("thread", "crashes after it was asked everything: signal 11"),
        fault("exit:crash", "crashes at exit: signal 11"), fault("exit:abort", "crashes at exit: signal 6"),
        fault("exit:code", "exits with code 3 at exit"), fault("exit:print", "writes to standard output: bye"),
  };
}

}  // namespace

std::vector<Hostile> hanging_files() {
  return {fault("load:hang", "hangs while it is loaded"),
          fault("load:spin", "hangs while it is loaded"),
          fault("hang", "hangs in negotiate"),
          fault("spin", "hangs in negotiate"),
          fault("flood", "hangs in negotiate"),
          fault("fork_bomb", "hangs in negotiate"),
          fault("count:hang", "hangs in device_count"),
          fault("exit:hang", "hangs at exit")};
}

std::vector<Hostile> hostile_files() {
  std::vector<Hostile> all;
  for (auto list :
       {things_that_are_no_files, files_that_are_no_libraries, notes, links, answers, missing_entries, tables, deeds}) {
    for (Hostile& h : list()) all.push_back(std::move(h));
  }
  return all;
}

}  // namespace switchyard::testing
