// SPDX-License-Identifier: Apache-2.0
// timelines: lists and copies that the host does not wait for: their order, what they wait for, and when they signal.
#include <chrono>
#include <iterator>
#include <thread>

#include "plugins_api/check/kit.h"
#include "plugins_api/check/raw.h"
#include "plugins_api/check/suites.h"
#include "switchyard/extensions.h"

namespace switchyard::check {
namespace {

using Bytes = std::vector<unsigned char>;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kBytes = uint64_t{256} << 10;

// What a busy device copies. It stays as it is until the process ends: copies that are not waited for may read it late.
const std::vector<Bytes>& contents() {
  static const std::vector<Bytes> all = [] {
    std::vector<Bytes> out;
    for (int i = 0; i < 40; ++i) out.emplace_back(kBytes, static_cast<unsigned char>(i + 1));
    return out;
  }();
  return all;
}

// Keeps a device busy for a while with copies into a buffer, whose last one leaves this content and signals.
const Bytes& keep_busy(const Raw& buffer, const swy_timeline_point* signals = nullptr) {
  for (const Bytes& content : contents()) {
    const swy_submit s = submission(nullptr, &content == &contents().back() ? signals : nullptr);
    buffer.write(0, content.data(), content.size(), &s);
  }
  return contents().back();
}

std::string expect(const Raw& buffer, const Bytes& wanted, const std::string& when) {
  Bytes got(wanted.size());
  buffer.read(got.data(), 0, got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] != wanted[i]) return text(when, ": byte ", i, " is ", int{got[i]}, " instead of ", int{wanted[i]});
  }
  return "";
}

// Waits for all work on a device before what it works on is gone, whatever a check has found.
class Drained {
 public:
  explicit Drained(const Raw& buffer) : buffer_(buffer) {}
  Drained(const Drained&) = delete;
  Drained& operator=(const Drained&) = delete;
  ~Drained() {
    try {
      buffer_.write(0, "", 1);
    } catch (const std::exception&) {  // the check has its answer
    }
  }

 private:
  const Raw& buffer_;
};

// Looks at the timeline until it reaches the value, without a wait that could let other work be done.
void watch(const Timeline& t, uint64_t value) {
  const auto end = Clock::now() + std::chrono::seconds(20);
  while (t.value() < value) {
    if (Clock::now() > end)
      throw Failure(text("a timeline is at ", t.value(), " 20 s after ", value, " was submitted"));
    std::this_thread::yield();
  }
}

// Many writes to one place and reads of it, none waited for: each read gets the last write before it. Backends may copy
// some sizes in other ways than others.
std::string order(const Kit& kit) {
  const Plugin& p = kit.plugin();
  const Timeline t(p);
  if (t.value() != 0) return text("a new timeline is at ", t.value());
  constexpr uint64_t kRounds = 50, kSizes[] = {4099, 16, 1028, 32768, 65536, 65540}, kMost = 65540;
  const Raw buffer(p, SWY_MEMORY_DEVICE, kMost);
  std::vector<Bytes> sent, got;
  const Drained drained(buffer);
  for (uint64_t i = 0; i < kRounds; ++i) {
    Bytes& bytes = sent.emplace_back(kSizes[i % std::size(kSizes)]);
    for (uint64_t j = 0; j < bytes.size(); ++j) bytes[j] = static_cast<unsigned char>(i + j + j / 251);
    got.emplace_back(bytes.size());
  }
  for (uint64_t i = 0; i < kRounds; ++i) {
    const swy_timeline_point written = t.at(2 * i + 1), read = t.at(2 * i + 2);
    swy_submit s = submission(nullptr, &written);
    buffer.write(0, sent[i].data(), sent[i].size(), &s);
    s = submission(&written, &read);
    buffer.read(got[i].data(), 0, got[i].size(), &s);
  }
  for (uint64_t i = 0; i < kRounds; ++i) {
    t.wait(2 * i + 2);
    if (t.value() < 2 * i + 2) return text("waited for ", 2 * i + 2, ", and the timeline is at ", t.value());
    if (got[i] != sent[i]) return text("read ", i, " does not have what write ", i, " put there");
  }
  return "";
}

std::string wait_in_vain(const Kit& kit) {
  const Timeline t(kit.plugin());
  PluginError e;
  const swy_status s = kit.plugin().api().timeline_wait(t.get(), 1, 1'000'000, e.get());
  if (s == SWY_OK) return "a wait for what nobody signals succeeded";
  if (s != SWY_CANCELLED) return text("a wait that timed out has status ", s, " instead of SWY_CANCELLED");
  if (t.value() != 0) return text("the timeline is at ", t.value(), " though nobody signals it");
  return e.has_line() ? "" : "a wait timed out without a line";
}

// A fill comes after the copies that were submitted before it, and before those after it.
std::string fills(const Kit& kit) {
  const Timeline t(kit.plugin());
  const Raw buffer(kit.plugin(), SWY_MEMORY_DEVICE, kBytes);
  const Drained drained(buffer);
  keep_busy(buffer);
  buffer.zero(0, kBytes);
  std::string problem = expect(buffer, Bytes(kBytes), "fill_zero did not wait for the writes before it");
  if (!problem.empty()) return problem;
  buffer.zero(0, kBytes);
  const Bytes& last = keep_busy(buffer);
  return expect(buffer, last, "a write did not wait for the fill_zero before it");
}

// A kernel without states on one step.
const Check& plain_check(const Claims& claims) {
  for (const Check& check : claims.checks) {
    Random random = Random::shapes_only();
    const Case c = check.spec->build(random);
    const bool plain = c.steps.size() == 1 && c.states.empty() && c.tokens.empty() && !c.outputs.empty();
    if (plain && c.outputs[0].desc.dtype == SWY_F32 && c.steps[0].rows() > 2) return check;
  }
  throw Unsupported("no kernel takes a case without states");
}

// Once a list has signalled, the host sees its output.
std::string lists_signal(const Kit& kit) {
  const Plugin& p = kit.plugin();
  const Timeline t(p);
  const Claims claims = kit.claims();
  const Check& check = plain_check(claims);
  const Case c = kit.build(check);
  Execution e(p, *check.kernel, c, {.outputs = SWY_MEMORY_READBACK});
  e.run(c);
  const Memory& output = e.output(0);
  const volatile unsigned char* seen = output.mapped();
  if (seen == nullptr) throw Unsupported("memory for reading back is not visible to the host");
  const Raw other(p, SWY_MEMORY_DEVICE, kBytes);
  const Drained drained(other);
  const uint64_t bytes = c.steps[0].rows() * c.outputs[0].desc.dims[1] * 4;
  Bytes early(bytes), late(bytes);
  for (uint64_t round = 1; round <= 5; ++round) {
    output.poison();
    keep_busy(other);
    const swy_timeline_point point = t.at(round);
    const swy_submit s = submission(nullptr, &point);
    e.submit(&s);
    watch(t, round);
    for (uint64_t i = 0; i < bytes; ++i) early[i] = seen[i];
    output.read(late.data(), bytes);
    if (early != late) return kit.line(check, text("list_submit raised its timeline before the list had run"));
  }
  return "";
}

// A submission waits for a point that another device of the plugin will raise.
std::string waits(const Kit& kit) {
  const Library library(kit.request().plugin);
  const Plugin busy(library, kit.request().settings), idle(library, kit.request().settings);
  const Timeline raised(busy), mine(idle);
  const Raw far(busy, SWY_MEMORY_DEVICE, kBytes), near(idle, SWY_MEMORY_DEVICE, 64);
  const Drained far_drained(far), near_drained(near);
  const swy_timeline_point last = raised.at(1), after = mine.at(1);
  keep_busy(far, &last);
  static const char data[64] = {};  // read late, too
  const swy_submit s = submission(&last, &after);
  near.write(0, data, sizeof data, &s);
  watch(mine, 1);
  const uint64_t reached = raised.value();
  raised.wait(1);
  return reached >= 1 ? "" : "a write did not wait for the point of another device's timeline that its `waits` name";
}

// swy.cancel/1: a wait for what is under way ends, with what was asked for or with SWY_CANCELLED; the device goes on.
std::string cancels(const Kit& kit) {
  const Plugin& p = kit.plugin();
  const auto* extension = static_cast<const swy_cancel*>(p.api().get_extension(p.device(), SWY_EXT_CANCEL));
  if (extension == nullptr) throw Unsupported("the device does not offer swy.cancel/1");
  if (!SWY_HAS(swy_cancel, extension, cancel) || extension->cancel == nullptr) return "swy.cancel/1 has no function";
  const Raw buffer(p, SWY_MEMORY_DEVICE, kBytes);
  const Drained drained(buffer);
  for (int round = 0; round < 20; ++round) {
    const Timeline t(p), later(p);
    const swy_timeline_point last = t.at(1), after = later.at(1);
    keep_busy(buffer, &last);
    std::thread other([&] { extension->cancel(p.device()); });
    PluginError e;
    const swy_status s = p.api().timeline_wait(t.get(), 1, 10'000'000'000, e.get());
    other.join();
    if (s != SWY_OK && s != SWY_CANCELLED) return text("a wait that was cancelled has status ", s);
    if (s == SWY_CANCELLED && !e.has_line()) return "a wait was cancelled without a line";
    if (s == SWY_CANCELLED && t.value() != SWY_TIMELINE_FAILED) {
      return text("a cancelled wait left its timeline at ", t.value(), ", which should have failed");
    }
    const swy_submit next = submission(nullptr, &after);
    buffer.write(0, contents().front().data(), kBytes, &next);
    later.wait(1);
    std::string problem = expect(buffer, contents().front(), "the first write after swy.cancel/1");
    if (!problem.empty()) return problem;
  }
  return "";
}

std::vector<Task> list(Session& session, std::vector<Refusal>*) {
  Kit& kit = session.kit();
  std::vector<Task> tasks;
  const auto add = [&](const char* name, std::string (*check)(const Kit&)) {
    tasks.push_back({name, [&kit, check] { return check(kit); }, {}});
  };
  add("order", order);
  add("wait_in_vain", wait_in_vain);
  add("fills", fills);
  add("lists_signal", lists_signal);
  add("waits", waits);
  add("cancels", cancels);
  return tasks;
}

}  // namespace

const Suite kTimelinesSuite = {"timelines", "what the host does not wait for: order, waits, signals", true, false, {},
                               list};

}  // namespace switchyard::check
