// SPDX-License-Identifier: Apache-2.0
// memory: every allocation fails once, and from there on for good, until a whole life of a kernel succeeds: open, pack,
// record, submit, free, close; of a life with very many, not each beyond the first 400. Each time the status must say
// so, with a line, and nothing may leak or break.
#include <malloc.h>

#include <algorithm>
#include <future>
#include <set>

#include "plugins_api/check/host.h"
#include "plugins_api/check/kit.h"
#include "plugins_api/check/suites.h"

namespace switchyard::check {
namespace {

// Memory is back, whatever happens.
struct Plenty {
  ~Plenty() { set_shortage(Shortage::kNone, 0); }
};

struct Life {
  std::string problem;
  bool whole = false;  // no allocation failed
};

// One life of a kernel while the n-th allocation fails.
Life live(const Kit& kit, const Check& check, const Case& c, const Outcome& wanted, Shortage shortage, uint64_t n) {
  const Library library(kit.request().plugin);
  size_t index = 0;
  while (kit.plugin().kernels()[index] != check.kernel) ++index;
  const std::string when = text("without memory from allocation ", n, " on: ");
  bool refused = false;
  try {
    const Plenty after;
    set_shortage(shortage, n);
    const Plugin plugin(library, kit.request().settings);
    Execution e(plugin, *plugin.kernels()[index], c);
    const Outcome got = e.run(c);
    const bool met = shortage_met();
    const std::string problem = compare(c, wanted, got, activations_of(*check.kernel, check.types), nullptr);
    if (!problem.empty()) return {when + problem, false};
    if (!met) return {"", true};
  } catch (const Refused& r) {
    refused = true;
    if (!shortage_met()) return {r.what(), false};
    if (r.status != SWY_OUT_OF_HOST_MEMORY && r.status != SWY_OUT_OF_DEVICE_MEMORY) {
      return {text(when, r.what(), ", which is no status for missing memory"), false};
    }
    if (!r.has_line) return {text(when, r.what(), " was given without a line"), false};
  }
  return {"", !refused && !shortage_met()};
}

std::string starve(const Kit& kit, const Check& check) {
  constexpr uint64_t kEach = 400;  // this many are tried one by one, later ones in growing steps
  const Case c = kit.build(check);
  const Outcome wanted = kit.expected(check, c);
  if (const Life first = live(kit, check, c, wanted, Shortage::kNone, 0); !first.problem.empty()) return first.problem;
  const uint64_t blocks = host_blocks();
  for (const Shortage shortage : {Shortage::kOnce, Shortage::kForGood}) {
    for (uint64_t n = 1;; n += n < kEach ? 1 : n / 8) {
      const Life l = live(kit, check, c, wanted, shortage, n);
      if (!l.problem.empty()) return kit.line(check, l.problem);
      if (host_blocks() != blocks) {
        return kit.line(check, text("without memory from allocation ", n, " on: ", host_blocks() - blocks,
                                    " blocks of the host's memory leaked"));
      }
      if (l.whole) break;
    }
  }
  return "";
}

std::string absurd_sizes(const Kit& kit) {
  const Plugin& p = kit.plugin();
  for (const uint64_t bytes : {uint64_t{1} << 47, uint64_t{1} << 62, UINT64_MAX - 4096, UINT64_MAX - 1, UINT64_MAX}) {
    for (const swy_memory_type type : {SWY_MEMORY_DEVICE, SWY_MEMORY_UPLOAD, SWY_MEMORY_READBACK}) {
      swy_buffer* b = nullptr;
      PluginError e;
      const swy_status s = p.api().buffer_alloc(p.device(), type, bytes, &b, e.get());
      if (s == SWY_OK || b != nullptr) return text("gave a buffer of ", bytes, " bytes");
      if (s != SWY_OUT_OF_HOST_MEMORY && s != SWY_OUT_OF_DEVICE_MEMORY && s != SWY_INVALID_ARGUMENT) {
        return text("refused ", bytes, " bytes with status ", s, ": ", e.line());
      }
      if (!e.has_line()) return text("refused ", bytes, " bytes without a line");
    }
  }
  const Memory after(p, SWY_MEMORY_DEVICE, 100, "a buffer after the absurd ones");
  after.expect_guards();
  return "";
}

// Devices that come and go give all back.
std::string nothing_leaks(const Kit& kit) {
  const Library library(kit.request().plugin);
  const std::vector<Check> checks = sample_of(kit.claims(), kit.request().seed, {{1, 70}});
  uint64_t blocks = 0;
  for (int i = 0; i < 3; ++i) {
    {
      const Plugin plugin(library, kit.request().settings);
      for (size_t k = 0; k < checks.size(); k += 7) {
        const Case c = kit.build(checks[k]);
        const Execution e(kit.plugin(), *checks[k].kernel, c);
      }
    }
    if (i > 0 && host_blocks() != blocks)
      return text(host_blocks() - blocks, " blocks leaked when a device was closed");
    blocks = host_blocks();
  }
  return "";
}

// ---- the process's own heap: what a plugin takes from malloc

// Bytes that malloc has given out.
uint64_t heap_bytes() {
  const auto m = mallinfo2();
  return m.uordblks + m.hblkhd;
}

// What `times` calls of a function add to the process's heap: the least of three rounds after a first one, in which
// caches fill up. Each round has a thread of its own: what malloc keeps for a thread counts as given out until it ends.
uint64_t growth(uint64_t times, const std::function<void()>& once) {
  constexpr int kWarm = 1, kRounds = 3;
  uint64_t least = UINT64_MAX;
  for (int round = 0; round < kWarm + kRounds; ++round) {
    const uint64_t before = heap_bytes();
    std::async(std::launch::async, [&] {
      for (uint64_t i = 0; i < times; ++i) once();
    }).get();
    const uint64_t after = heap_bytes();
    if (round >= kWarm) least = std::min(least, after > before ? after - before : 0);
  }
  return least;
}

// A leak grows with the number of calls. What threads of the backend or of its driver keep does not, so that a
// suspicion is tried again with more of them.
std::string heap(const char* what, const std::function<void()>& once) {
  constexpr uint64_t kBlock = 32;  // the smallest that malloc gives; what is less is its own rounding
  uint64_t grown = 0;
  for (const uint64_t times : {8u, 64u}) {
    grown = growth(times, once) / times;
    if (grown < kBlock) return "";
  }
  return text(what, " leaks ", grown, " bytes of the process's heap each time");
}

// On the smallest case of the first kernel of each operation.
std::string heap_of_lists(const Kit& kit, bool submissions) {
  std::set<swy_op_id> seen;
  for (const Check& check : sample_of(kit.claims(), kit.request().seed, {{1, 1}})) {
    if (!seen.insert(check.spec->op).second) continue;
    const Case c = kit.build(check);
    if (c.weights.size() > 4) continue;  // the same functions, and much to pack
    const auto problem = [&] {
      if (!submissions) return heap("recording and freeing a list", [&] { Execution(kit.plugin(), *check.kernel, c); });
      Execution e(kit.plugin(), *check.kernel, c);
      e.run(c);
      return heap("list_submit", [&] {
        e.submit(nullptr);
        e.wait();  // what is under way takes memory
      });
    }();
    if (!problem.empty()) return kit.line(check, problem);
  }
  return "";
}

std::string heap_of_devices(const Kit& kit) {
  const Library library(kit.request().plugin);
  return heap("opening and closing a device", [&] { Plugin(library, kit.request().settings); });
}

std::vector<Task> list(Session& session, std::vector<Refusal>*) {
  Kit& kit = session.kit();
  std::vector<Task> tasks = {{"absurd_sizes", [&kit] { return absurd_sizes(kit); }, {}},
                             {"nothing_leaks", [&kit] { return nothing_leaks(kit); }, {}},
                             {"heap_of_submissions", [&kit] { return heap_of_lists(kit, true); }, {}},
                             {"heap_of_lists", [&kit] { return heap_of_lists(kit, false); }, {}},
                             {"heap_of_devices", [&kit] { return heap_of_devices(kit); }, {}}};
  std::set<swy_op_id> seen;
  for (const Check& c : sample_of(kit.claims(), kit.request().seed, {{1, 20}})) {
    if (!seen.insert(c.spec->op).second) continue;
    tasks.push_back({c.name(), [&kit, c] { return starve(kit, c); }, {}});
  }
  return tasks;
}

}  // namespace

const Suite kMemorySuite = {"memory", "out of memory at every allocation, and absurd sizes", true, false, {}, list};

}  // namespace switchyard::check
