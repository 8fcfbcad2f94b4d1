// SPDX-License-Identifier: Apache-2.0
// negotiation: older and newer hosts, hosts that offer little, hosts whose structs are larger than the plugin knows.
//
// Every check runs in a separate process, since a plugin keeps its host.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "plugins_api/check/host.h"
#include "plugins_api/check/kit.h"
#include "plugins_api/check/note.h"
#include "plugins_api/check/suites.h"

namespace switchyard::check {
namespace {

constexpr uint32_t kAbi = SWY_ABI_VERSION;
constexpr size_t kMore = 256;  // bytes by which a newer host's structs are larger

// A struct of a newer host: ours, followed by further fields with poison, for readers that take them for known fields.
template <class T>
struct Newer {
  T known{};
  unsigned char unknown[kMore];
  Newer() {
    std::memset(unknown, 0xab, sizeof unknown);
    known.struct_size = sizeof(T) + kMore;
  }
  bool unknown_is_untouched() const {
    for (const unsigned char c : unknown) {
      if (c != 0xab) return false;
    }
    return true;
  }
};

// A host's parameters, and the plugin's answer.
struct Talk {
  swy_negotiate_in in{sizeof in, kAbi, kAbi, 0, SWY_NEGOTIATE_MAGIC, the_host()};
  swy_negotiate_out out{};
  char line[512] = {};
  swy_error error{sizeof error, sizeof line, line, SWY_REASON_NONE, 0};
  Talk() {
    out.struct_size = sizeof out;
    out.error = &error;
  }
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;
};

std::string expect_agreement(swy_status status, const swy_negotiate_out& out, const char* line) {
  if (status != SWY_OK) return text("refused a host that it could work with: ", line, " (status ", status, ")");
  if (out.abi != kAbi) return text("chose ABI ", out.abi, " where the host offers ", kAbi);
  if (out.id == nullptr || out.version == nullptr || out.plugin == nullptr)
    return "agreed without id, version or table";
  return "";
}

std::string expect_refusal(swy_status status, swy_status wanted, bool reason, const char* line) {
  if (status == SWY_OK) return "agreed";
  if (wanted != SWY_OK && status != wanted) return text("refused with status ", status, " instead of ", wanted);
  if (std::strchr(line, '\n') != nullptr) return text("gave a reason of several lines: ", line);
  return reason && line[0] == '\0' ? "refused without a reason" : "";
}

std::string agrees_on_range(swy_negotiate_fn negotiate, uint32_t min, uint32_t max) {
  Talk t;
  t.in.abi_min = min;
  t.in.abi_max = max;
  return expect_agreement(negotiate(&t.in, &t.out), t.out, t.line);
}

std::string refuses_range(swy_negotiate_fn negotiate, uint32_t min, uint32_t max) {
  Talk t;
  t.in.abi_min = min;
  t.in.abi_max = max;
  return expect_refusal(negotiate(&t.in, &t.out), SWY_ABI_MISMATCH, true, t.line);
}

// Capacity and text of the error that a refusal is written to, between guards.
std::string bounded_refusal(swy_negotiate_fn negotiate, uint32_t capacity, bool there) {
  char room[64];
  std::memset(room, 0x5a, sizeof room);
  Talk t;
  t.in.abi_min = t.in.abi_max = kAbi + 7;
  t.error = {sizeof(swy_error), capacity, there ? room + 16 : nullptr, SWY_REASON_NONE, 0};
  if (negotiate(&t.in, &t.out) == SWY_OK) return "agreed";
  for (uint32_t i = 0; i < sizeof room; ++i) {
    const bool ours = there && i >= 16 && i < 16 + capacity;
    if (!ours && room[i] != 0x5a) return text("wrote beyond an error buffer of ", capacity, " bytes");
  }
  if (there && capacity > 0 && std::memchr(room + 16, 0, capacity) == nullptr) return "left the text without its end";
  return "";
}

std::string refuses_without_error(swy_negotiate_fn negotiate) {
  Talk t;
  t.in.abi_min = t.in.abi_max = kAbi + 7;
  t.out.error = nullptr;
  return expect_refusal(negotiate(&t.in, &t.out), SWY_ABI_MISMATCH, false, "");
}

std::string newer_structs(swy_negotiate_fn negotiate) {
  Newer<swy_negotiate_in> in;
  Newer<swy_negotiate_out> out;
  Newer<swy_host> host;
  Talk t;
  const uint32_t host_size = host.known.struct_size, in_size = in.known.struct_size, out_size = out.known.struct_size;
  host.known = *the_host();
  host.known.struct_size = host_size;
  in.known = t.in;
  in.known.struct_size = in_size;
  in.known.abi_max = kAbi + 5;
  in.known.host = &host.known;
  out.known.struct_size = out_size;
  out.known.error = &t.error;
  const swy_status s = negotiate(&in.known, &out.known);
  if (!in.unknown_is_untouched() || !out.unknown_is_untouched() || !host.unknown_is_untouched()) {
    return "wrote to fields that it cannot know";
  }
  if (out.known.struct_size > out_size) return "raised the struct_size of the answer";
  return expect_agreement(s, out.known, t.line);
}

std::string short_structs(swy_negotiate_fn negotiate, uint32_t in_size, uint32_t out_size) {
  unsigned char guard[sizeof(swy_negotiate_out)];
  Talk t;
  t.in.struct_size = in_size;
  t.out.struct_size = out_size;
  // Bytes past struct_size are not a field: a reader must not use them.
  if (in_size < sizeof t.in) std::memset(reinterpret_cast<char*>(&t.in) + in_size, 0xab, sizeof t.in - in_size);
  if (out_size < sizeof t.out) std::memset(reinterpret_cast<char*>(&t.out) + out_size, 0xab, sizeof t.out - out_size);
  std::memcpy(guard, &t.out, sizeof guard);
  const swy_status s = negotiate(&t.in, &t.out);
  if (std::memcmp(reinterpret_cast<char*>(&t.out) + out_size, guard + out_size, sizeof guard - out_size) != 0) {
    return text("wrote beyond an answer of ", out_size,
                " bytes; refuse an answer that is too short for what it must hold (SWY_HAS), and leave it as it is");
  }
  return s == SWY_OK ? "agreed with a host whose structs lack what every host has" : "";
}

// Features that a host need not have.
std::string poor_host(swy_negotiate_fn negotiate, void (*strip)(swy_host&)) {
  static swy_host host;
  host = *the_host();
  strip(host);
  Talk t;
  t.in.host = &host;
  const swy_status s = negotiate(&t.in, &t.out);
  if (s == SWY_OK) return expect_agreement(s, t.out, t.line);
  return expect_refusal(s, SWY_OK, true, t.line);
}

std::string same_again(swy_negotiate_fn negotiate) {
  Talk a, b;
  if (std::string problem = expect_agreement(negotiate(&a.in, &a.out), a.out, a.line); !problem.empty()) return problem;
  if (std::string problem = expect_agreement(negotiate(&b.in, &b.out), b.out, b.line); !problem.empty()) {
    return "the second time: " + problem;
  }
  const bool same = a.out.abi == b.out.abi && a.out.plugin == b.out.plugin && std::strcmp(a.out.id, b.out.id) == 0 &&
                    std::strcmp(a.out.version, b.out.version) == 0;
  return same ? "" : "answered otherwise the second time";
}

std::string agrees_after_refusing(swy_negotiate_fn negotiate) {
  if (std::string problem = refuses_range(negotiate, kAbi + 1, kAbi + 1); !problem.empty()) return problem;
  return agrees_on_range(negotiate, kAbi, kAbi);
}

std::string wrong_magic(swy_negotiate_fn negotiate) {
  Talk t;
  t.in.magic ^= 1;
  return expect_refusal(negotiate(&t.in, &t.out), SWY_OK, false, t.line);
}

// The open files of /dev, except terminals and the like.
std::vector<std::string> open_device_files() {
  std::vector<std::string> out;
  for (int fd = 0; fd < 1024; ++fd) {
    char path[256] = {};
    const ssize_t n = ::readlink(text("/proc/self/fd/", fd).c_str(), path, sizeof path - 1);
    const std::string file(path, n > 0 ? static_cast<size_t>(n) : 0);
    const bool plain = file == "/dev/null" || file == "/dev/zero" || file == "/dev/urandom" || file == "/dev/tty" ||
                       file.starts_with("/dev/pts/") || file.starts_with("/dev/shm/");
    if (file.starts_with("/dev/") && !plain) out.push_back(file);
  }
  return out;
}

// Files that devices are reached by: none may be open after negotiation that was not before.
std::string touches_no_device(swy_negotiate_fn negotiate) {
  const std::vector<std::string> before = open_device_files();
  Talk t;
  if (std::string problem = expect_agreement(negotiate(&t.in, &t.out), t.out, t.line); !problem.empty()) return problem;
  for (const std::string& now : open_device_files()) {
    if (std::find(before.begin(), before.end(), now) == before.end()) return "negotiation opened " + now;
  }
  return "";
}

std::string id_is_well_formed(swy_negotiate_fn negotiate) {
  Talk t;
  if (std::string problem = expect_agreement(negotiate(&t.in, &t.out), t.out, t.line); !problem.empty()) return problem;
  const std::string id = t.out.id;
  const std::string letters = "abcdefghijklmnopqrstuvwxyz", more = letters + "0123456789_-";
  const bool good = !id.empty() && id.size() <= 31 && letters.find(id[0]) != std::string::npos &&
                    id.find_first_not_of(more) == std::string::npos;
  return good ? "" : "the id '" + id + "' is not [a-z][a-z0-9_-]*, at most 31 bytes";
}

std::string characters(const char* text, size_t most) { return {text, ::strnlen(text, most)}; }

// Hosts read the note before they run any code, and refuse a plugin that then gives another id.
std::string note_agrees(swy_negotiate_fn negotiate) {
  Talk t;
  if (std::string problem = expect_agreement(negotiate(&t.in, &t.out), t.out, t.line); !problem.empty()) return problem;
  const std::optional<swy_note> note = note_of(negotiate);
  if (!note) return "the file has no note of the plugin, and no host opens it: put SWY_PLUGIN_NOTE at file scope once";
  const std::string id = characters(note->id, sizeof note->id),
                    version = characters(note->version, sizeof note->version);
  if (id != t.out.id) return text("calls itself '", t.out.id, "', and its note says '", id, "'");
  if (version != t.out.version) return text("is of version '", t.out.version, "', and its note says '", version, "'");
  if (note->abi_min <= kAbi && note->abi_max >= kAbi) return "";
  return text("agreed on ABI ", kAbi, ", and its note says that it speaks ", note->abi_min, " to ", note->abi_max);
}

std::vector<Task> list(Session& session, std::vector<Refusal>*) {
  const std::string path = session.options().plugin;
  std::vector<Task> tasks;
  const auto add = [&](const char* name, auto check) {
    tasks.push_back({name, [path, check] { return check(open_library(path)); }, {}});
  };
  add("same_abi", [](auto f) { return agrees_on_range(f, kAbi, kAbi); });
  add("host_speaks_older_too", [](auto f) { return agrees_on_range(f, 0, kAbi); });
  add("host_speaks_newer_too", [](auto f) { return agrees_on_range(f, kAbi, kAbi + 1); });
  add("host_speaks_all", [](auto f) { return agrees_on_range(f, 0, UINT32_MAX); });
  add("host_is_newer", [](auto f) { return refuses_range(f, kAbi + 1, kAbi + 9); });
  add("host_is_older", [](auto f) { return refuses_range(f, 0, kAbi - 1); });
  add("range_is_empty", [](auto f) { return refuses_range(f, kAbi + 1, kAbi - 1); });
  add("newer_structs", newer_structs);
  add("short_request", [](auto f) { return short_structs(f, 16, sizeof(swy_negotiate_out)); });
  add("short_answer", [](auto f) { return short_structs(f, sizeof(swy_negotiate_in), 16); });
  add("structs_of_size_0", [](auto f) { return short_structs(f, 0, 0); });
  add("wrong_magic", wrong_magic);
  add("no_error_buffer", refuses_without_error);
  add("error_of_capacity_0", [](auto f) { return bounded_refusal(f, 0, true); });
  add("error_of_capacity_1", [](auto f) { return bounded_refusal(f, 1, true); });
  add("error_of_capacity_8", [](auto f) { return bounded_refusal(f, 8, true); });
  add("error_without_text", [](auto f) { return bounded_refusal(f, 32, false); });
  add("host_without_executor", [](auto f) { return poor_host(f, [](swy_host& h) { h.executor = nullptr; }); });
  add("host_without_allocator", [](auto f) {
    return poor_host(f, [](swy_host& h) {
      h.alloc = nullptr;
      h.free = nullptr;
    });
  });
  add("host_without_log", [](auto f) { return poor_host(f, [](swy_host& h) { h.log = nullptr; }); });
  add("host_without_extensions", [](auto f) { return poor_host(f, [](swy_host& h) { h.get_extension = nullptr; }); });
  add("twice", same_again);
  add("after_a_refusal", agrees_after_refusing);
  add("touches_no_device", touches_no_device);
  add("id", id_is_well_formed);
  add("note", note_agrees);
  return tasks;
}

}  // namespace

const Suite kNegotiationSuite = {"negotiation", "older and newer hosts, and such as offer little", false, true, {},
                                 list};

}  // namespace switchyard::check
