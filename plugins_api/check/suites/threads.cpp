// SPDX-License-Identifier: Apache-2.0
// threads: the entries that plugin.h tags [thread-safe], called from several threads at once, must give the answers
// that they give one thread.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <mutex>
#include <thread>

#include "plugins_api/check/kit.h"
#include "plugins_api/check/suites.h"

namespace switchyard::check {
namespace {

constexpr unsigned kThreads = 4;
constexpr int kTurns = 40;

// Runs `part(thread, turn)` on all threads at the same time. Gives the first problem.
template <class Part>
std::string together(const Part& part) {
  std::barrier start(kThreads);
  std::mutex mutex;
  std::string first;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      std::string problem;
      try {
        for (int i = 0; i < kTurns && problem.empty(); ++i) problem = part(t, i);
      } catch (const std::exception& e) {
        problem = e.what();
      }
      const std::lock_guard lock(mutex);
      if (first.empty()) first = problem;
    });
  }
  for (std::thread& t : threads) t.join();
  return first;
}

std::string devices(const Kit& kit) {
  const swy_plugin& api = kit.plugin().api();
  return together([&](unsigned, int) -> std::string {
    uint32_t count = 0;
    swy_device_info info{};
    info.struct_size = sizeof info;
    PluginError e;
    e.expect_ok(api.device_count(&count, e.get()), "device_count");
    e.expect_ok(api.device_info(0, &info, e.get()), "device_info");
    const swy_device_info& one = kit.plugin().info();
    const bool same = count > 0 && info.flags == one.flags && info.buffer_alignment == one.buffer_alignment &&
                      info.sampling == one.sampling && std::string(info.name) == one.name;
    return same ? "" : "device_info says something else from several threads";
  });
}

std::string kernel_lists(const Kit& kit) {
  const Plugin& p = kit.plugin();
  return together([&](unsigned, int) -> std::string {
    if (p.api().kernel_count(p.device()) != p.kernels().size()) return "kernel_count changes";
    for (uint32_t i = 0; i < p.kernels().size(); ++i) {
      if (p.api().kernel_at(p.device(), i) != p.kernels()[i]) return text("kernel ", i, " changes");
    }
    return p.extension("swy.nothing/1") == nullptr ? "" : "claims an unknown extension";
  });
}

// supports, cost and prepare on one operation of every kernel.
std::string questions(const Kit& kit) {
  const Plugin& p = kit.plugin();
  std::vector<Case> cases;
  const std::vector<Check> checks = sample_of(kit.claims(), kit.request().seed, {{1, 200}});
  for (const Check& c : checks) {
    Random random = Random::shapes_only();
    cases.push_back(c.spec->build(random));
    set_types(cases.back(), c.types);
  }
  const auto ask = [&](size_t i) {
    const OpView op(cases[i]);
    const swy_kernel& k = *checks[i].kernel;
    swy_prepared prepared{};
    prepared.struct_size = sizeof prepared;
    double us = 0;
    PluginError e;
    if (k.supports != nullptr) {
      e.expect_ok(k.supports(p.device(), &k, op.get(), &cases[i].bucket, e.get()), text(k.name, ": supports"));
    }
    if (k.cost != nullptr) e.expect_ok(k.cost(p.device(), &k, op.get(), &cases[i].bucket, &us, e.get()), "cost");
    if (k.prepare != nullptr) {
      e.expect_ok(k.prepare(p.device(), &k, op.get(), &cases[i].bucket, &prepared, e.get()), "prepare");
    }
    return text(us, " ", prepared.workspace_bytes, " ", prepared.weight_layouts[0]);
  };
  if (checks.empty()) throw Unsupported("no kernel takes a case");
  std::vector<std::string> alone;
  for (size_t i = 0; i < checks.size(); ++i) alone.push_back(ask(i));
  return together([&](unsigned t, int turn) -> std::string {
    const size_t i = (t * 7 + static_cast<size_t>(turn)) % checks.size();
    const std::string now = ask(i);
    return now == alone[i] ? "" : text(checks[i].kernel->name, " answers '", now, "' instead of '", alone[i], "'");
  });
}

std::string buffers(const Kit& kit) {
  const Plugin& p = kit.plugin();
  std::mutex copying;  // copies are [device-serial]
  return together([&](unsigned t, int turn) -> std::string {
    const uint64_t bytes = 1000 + 100 * t + static_cast<uint64_t>(turn);
    swy_buffer* b = nullptr;
    PluginError e;
    e.expect_ok(p.api().buffer_alloc(p.device(), SWY_MEMORY_DEVICE, bytes, &b, e.get()), "buffer_alloc");
    std::vector<unsigned char> mine(bytes, static_cast<unsigned char>(16 * t + 1)), got(bytes);
    {
      const std::lock_guard lock(copying);
      e.expect_ok(p.api().write(p.device(), b, 0, mine.data(), bytes, nullptr, e.get()), "write");
    }
    std::this_thread::yield();
    {
      const std::lock_guard lock(copying);
      e.expect_ok(p.api().read(p.device(), got.data(), b, 0, bytes, nullptr, e.get()), "read");
    }
    p.api().buffer_free(p.device(), b);
    return got == mine ? "" : "a buffer of one thread has what another wrote";
  });
}

std::string packing(const Kit& kit) {
  const Plugin& p = kit.plugin();
  for (const Check& check : sample_of(kit.claims(), kit.request().seed, {{1, 200}})) {
    const Case c = kit.build(check);
    if (check.kernel->prepare == nullptr || c.weights.empty()) continue;
    const OpView op(c);
    swy_prepared prepared{};
    prepared.struct_size = sizeof prepared;
    PluginError e;
    e.expect_ok(check.kernel->prepare(p.device(), check.kernel, op.get(), &c.bucket, &prepared, e.get()), "prepare");
    const auto pack = [&](uint32_t i) {
      PluginError f;
      uint64_t bytes = 0;
      f.expect_ok(p.api().packed_bytes(&c.weights[i].desc, prepared.weight_layouts[i], &bytes, f.get()),
                  "packed_bytes");
      std::vector<std::byte> out(bytes);
      f.expect_ok(p.api().pack(&c.weights[i].desc, prepared.weight_layouts[i], c.weights[i].segment.data(), out.data(),
                               f.get()),
                  "pack");
      return out;
    };
    for (uint32_t i = 0; i < c.weights.size() && i < 16; ++i) {
      if (prepared.weight_layouts[i] == 0) continue;
      const std::vector<std::byte> alone = pack(i);
      return together([&](unsigned, int) { return pack(i) == alone ? "" : "packing depends on other threads"; });
    }
  }
  throw Unsupported("no kernel asks for packed weights");
}

// One thread's view of a copy that another made.
struct Watched {
  double copy_us = 0, longest_us = 0;  // of the copy, and of the longest call during it
  int calls = 0;                       // that ended during it
};

// Copies in one thread while another reads the value of a timeline.
template <class Copy>
Watched watch(const Plugin& p, swy_timeline* timeline, const Copy& copy) {
  using Clock = std::chrono::steady_clock;
  using Microseconds = std::chrono::duration<double, std::micro>;
  Watched w;
  std::atomic<int> stage{0};  // 1: the watcher is there, 2: the copy is made, 3: it is over
  std::thread watcher([&] {
    stage = 1;
    while (stage < 2) std::this_thread::yield();
    while (stage < 3) {
      const auto begin = Clock::now();
      p.api().timeline_value(timeline);
      w.longest_us = std::max(w.longest_us, Microseconds(Clock::now() - begin).count());
      w.calls += stage < 3 ? 1 : 0;
    }
  });
  while (stage < 1) std::this_thread::yield();
  const auto begin = Clock::now();
  stage = 2;
  try {
    copy();
  } catch (...) {
    stage = 3;
    watcher.join();
    throw;
  }
  w.copy_us = Microseconds(Clock::now() - begin).count();
  stage = 3;
  watcher.join();
  return w;
}

// A thread that reads a timeline must not wait until another's large copy is over. Two of several copies must show
// that: on a busy machine a thread may lose its processor, but a thread that holds a lock for the copy holds it each
// time.
std::string copies_hold_nobody_up(const Kit& kit) {
  constexpr uint64_t kBytes = uint64_t{96} << 20;
  constexpr int kTimes = 9, kEnough = 2;
  const Plugin& p = kit.plugin();
  if (p.api().timeline_create == nullptr) throw Unsupported("the device has no timelines: the host emulates them");
  if (p.info().memory_free_bytes < 4 * kBytes) throw Unsupported("the device has little memory left");
  swy_timeline* timeline = nullptr;
  swy_buffer* buffer = nullptr;
  PluginError e;
  e.expect_ok(p.api().buffer_alloc(p.device(), SWY_MEMORY_DEVICE, kBytes, &buffer, e.get()), "buffer_alloc");
  e.expect_ok(p.api().timeline_create(p.device(), &timeline, e.get()), "timeline_create");
  std::vector<unsigned char> host(kBytes, 0x3c);
  std::string problem;
  for (const bool writes : {true, false}) {
    int held_up = 0;
    Watched last;
    for (int i = 0; i < kTimes; ++i) {
      const Watched w = watch(p, timeline, [&] {
        PluginError f;
        f.expect_ok(writes ? p.api().write(p.device(), buffer, 0, host.data(), kBytes, nullptr, f.get())
                           : p.api().read(p.device(), host.data(), buffer, 0, kBytes, nullptr, f.get()),
                    writes ? "write" : "read");
      });
      if (w.calls >= 4 && w.longest_us < w.copy_us / 2) continue;
      ++held_up;
      last = w;
    }
    if (problem.empty() && held_up > kTimes - kEnough) {
      problem = text("timeline_value takes ", last.longest_us, " us while another thread's ", writes ? "write" : "read",
                     " takes ", last.copy_us, " us");
    }
  }
  p.api().timeline_free(p.device(), timeline);
  p.api().buffer_free(p.device(), buffer);
  return problem;
}

std::vector<Task> list(Session& session, std::vector<Refusal>*) {
  Kit& kit = session.kit();
  std::vector<Task> tasks;
  const auto add = [&](const char* name, std::string (*f)(const Kit&)) {
    tasks.push_back({name, [&kit, f] { return f(kit); }, {}});
  };
  add("devices", devices);
  add("kernel_lists", kernel_lists);
  add("questions_to_kernels", questions);
  add("buffers", buffers);
  add("packing", packing);
  add("copies_hold_nobody_up", copies_hold_nobody_up);
  return tasks;
}

}  // namespace

const Suite kThreadsSuite = {"threads", "what is tagged [thread-safe], from several threads", true, false, {}, list};

}  // namespace switchyard::check
