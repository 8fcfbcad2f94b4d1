// SPDX-License-Identifier: Apache-2.0
// abi: the plugin's table, its options, and the errors that it writes. Needs no device.
#include <cstring>
#include <set>

#include "plugins_api/check/kit.h"
#include "plugins_api/check/suites.h"

namespace switchyard::check {
namespace {

std::string table(const Library& library) {
  const swy_plugin& p = library.api();
  if (p.struct_size < 64 || p.struct_size > 65536) return text("the table has struct_size ", p.struct_size);
  if (!SWY_HAS(swy_plugin, &p, get_extension)) {
    return text("the table ends after ", p.struct_size, " bytes, before what is mandatory");
  }
#define SWY_CHECK_ENTRY(name) \
  if (p.name == nullptr) return #name " is NULL, and mandatory";
  SWY_MANDATORY_ENTRIES(SWY_CHECK_ENTRY)
#undef SWY_CHECK_ENTRY
  const int timelines = (p.timeline_create != nullptr) + (p.timeline_free != nullptr) + (p.timeline_value != nullptr) +
                        (p.timeline_wait != nullptr);
  return timelines == 0 || timelines == 4 ? "" : "has some of the four entries of timelines, and not all";
}

std::string option_table(const Library& library) {
  const swy_plugin& p = library.api();
  if (p.option_count != 0 && p.options == nullptr) return text(p.option_count, " options, and no table of them");
  std::set<std::string> names;
  for (uint32_t i = 0; i < p.option_count; ++i) {
    const swy_option* o = p.options[i];
    if (o == nullptr) return text("option ", i, " is NULL");
    if (!SWY_HAS(swy_option, o, help)) return text("option ", i, " has struct_size ", o->struct_size);
    if (!is_one_word(o->name)) return text("option ", i, " has no name of one word");
    if (o->type < SWY_OPTION_BOOL || o->type > SWY_OPTION_STRING)
      return text("option ", o->name, " has type ", o->type);
    if (o->default_value == nullptr) return text("option ", o->name, " has no default");
    if (o->help == nullptr || *o->help == '\0') return text("option ", o->name, " has no help");
    if (!names.insert(o->name).second) return text("two options are named ", o->name);
  }
  return "";
}

std::string no_such_device(const Library& library) {
  swy_device_info info{};
  info.struct_size = sizeof info;
  swy_device* device = nullptr;
  uint32_t count = 0;
  PluginError e;
  e.expect_ok(library.api().device_count(&count, e.get()), "device_count");
  for (const uint32_t index : {count, count + 1000, UINT32_MAX}) {
    PluginError a, b;
    if (library.api().device_info(index, &info, a.get()) == SWY_OK) return text("describes device ", index);
    if (!a.has_line()) return text("refuses to describe device ", index, " without a line");
    if (library.api().device_open(index, nullptr, 0, &device, b.get()) == SWY_OK) return text("opens device ", index);
    if (!b.has_line()) return text("refuses to open device ", index, " without a line");
  }
  return "";
}

// The error buffer of a call that is refused, between guards.
std::string bounded_errors(const Library& library) {
  for (const uint32_t capacity : {0u, 1u, 2u, 7u, 32u}) {
    char room[96];
    std::memset(room, 0x5a, sizeof room);
    swy_error e{sizeof e, capacity, room + 32, SWY_REASON_NONE, 0};
    swy_device* device = nullptr;
    library.api().device_open(UINT32_MAX, nullptr, 0, &device, &e);
    for (uint32_t i = 0; i < sizeof room; ++i) {
      if ((i < 32 || i >= 32 + capacity) && room[i] != 0x5a) {
        return text("wrote beyond an error buffer of ", capacity, " bytes");
      }
    }
    if (capacity > 0 && std::memchr(room + 32, 0, capacity) == nullptr) {
      return text("a text in a buffer of ", capacity, " bytes has no end");
    }
    swy_error none{sizeof none, capacity, nullptr, SWY_REASON_NONE, 0};
    library.api().device_open(UINT32_MAX, nullptr, 0, &device, &none);
    library.api().device_open(UINT32_MAX, nullptr, 0, &device, nullptr);
  }
  return "";
}

std::vector<Task> list(Session& session, std::vector<Refusal>*) {
  const Options& o = session.options();
  std::vector<Task> tasks;
  const auto add = [&](const char* name, std::string (*f)(const Library&)) {
    tasks.push_back({name, [&o, f] { return f(Library(o.plugin)); }, {}});
  };
  add("table", table);
  add("options", option_table);
  add("no_such_device", no_such_device);
  add("bounded_errors", bounded_errors);
  return tasks;
}

}  // namespace

const Suite kAbiSuite = {"abi", "the plugin's table, its options, the errors that it writes", false, false, {}, list};

}  // namespace switchyard::check
