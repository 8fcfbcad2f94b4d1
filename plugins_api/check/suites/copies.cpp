// SPDX-License-Identifier: Apache-2.0
// copies: between host and device, of odd sizes at odd offsets, into every type of memory.
#include <algorithm>
#include <cstring>

#include "plugins_api/check/kit.h"
#include "plugins_api/check/raw.h"
#include "plugins_api/check/suites.h"

namespace switchyard::check {
namespace {

using Bytes = std::vector<unsigned char>;

Bytes random_bytes(Random& random, uint64_t n) {
  Bytes out(n);
  for (unsigned char& b : out) b = static_cast<unsigned char>(random.word() >> 24);
  return out;
}

std::string expect(const Raw& buffer, const Bytes& wanted, const std::string& when) {
  Bytes got(wanted.size());
  buffer.read(got.data(), 0, got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] != wanted[i]) {
      return text(when, ": byte ", i, " of ", got.size(), " is ", int{got[i]}, " instead of ", int{wanted[i]});
    }
  }
  return "";
}

// Writes, reads and zeros of every size at every offset, against the same in host memory.
std::string pieces(const Kit& kit, swy_memory_type type) {
  constexpr uint64_t kBytes = 5003;
  constexpr uint64_t kSizes[] = {0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 63, 64, 65, 127, 255, 1000, 4095, 4097};
  Random random(derive(kit.request().seed, "copies"));
  const Raw buffer(kit.plugin(), type, kBytes);
  Bytes model(kBytes, 0);
  std::string problem = expect(buffer, model, "new memory is not zero");
  for (int i = 0; i < 60 && problem.empty(); ++i) {
    const uint64_t n = kSizes[random.below(std::size(kSizes))], at = random.below(kBytes - n + 1);
    const std::string what = text(i % 4 == 3 ? "fill_zero" : "write", " of ", n, " bytes at ", at);
    if (i % 4 == 3) {
      buffer.zero(at, n);
      std::fill_n(model.begin() + static_cast<ptrdiff_t>(at), n, 0);
    } else {
      const Bytes bytes = random_bytes(random, n);
      buffer.write(at, bytes.data(), n);
      std::copy(bytes.begin(), bytes.end(), model.begin() + static_cast<ptrdiff_t>(at));
    }
    problem = expect(buffer, model, what);
    Bytes part(n + 2, 0x5a);
    buffer.read(part.data() + 1, at, n);
    if (problem.empty() && (part.front() != 0x5a || part.back() != 0x5a)) problem = "a read wrote beyond its bytes";
    if (problem.empty() && std::memcmp(part.data() + 1, model.data() + at, n) != 0) problem = "a part read: " + what;
  }
  return problem;
}

// Larger than any staging: in one call, and from one end into the middle.
std::string large(const Kit& kit) {
  constexpr uint64_t kBytes = (uint64_t{9} << 20) + 13;
  Random random(derive(kit.request().seed, "large copies"));
  const Raw buffer(kit.plugin(), SWY_MEMORY_DEVICE, kBytes);
  Bytes model(kBytes);
  for (uint64_t i = 0; i < kBytes; ++i) model[i] = static_cast<unsigned char>(i * 31 + i / 4096);
  buffer.write(0, model.data(), kBytes);
  if (std::string problem = expect(buffer, model, "a large write"); !problem.empty()) return problem;
  const uint64_t n = (uint64_t{5} << 20) + 1, at = 1 + random.below(kBytes - n);
  const Bytes middle(n, 0xc3);
  buffer.write(at, middle.data(), n);
  std::copy(middle.begin(), middle.end(), model.begin() + static_cast<ptrdiff_t>(at));
  return expect(buffer, model, text("a write of ", n, " bytes at ", at));
}

std::string apart(const Kit& kit) {
  std::vector<std::unique_ptr<Raw>> all;
  for (uint64_t i = 0; i < 20; ++i) {
    all.push_back(std::make_unique<Raw>(kit.plugin(), SWY_MEMORY_DEVICE, 64 * i + i));
    const Bytes bytes(64 * i + i, static_cast<unsigned char>(i + 1));
    all.back()->write(0, bytes.data(), bytes.size());
  }
  for (uint64_t i = 0; i < 20; ++i) {
    std::string problem = expect(*all[i], Bytes(64 * i + i, static_cast<unsigned char>(i + 1)), text("buffer ", i));
    if (!problem.empty()) return problem;
  }
  return "";
}

std::string mapped(const Kit& kit) {
  const Plugin& p = kit.plugin();
  const bool must = (p.info().flags & SWY_DEVICE_HOST_MEMORY) != 0;
  if (p.api().buffer_map == nullptr) throw Unsupported("the plugin maps no buffers");
  bool any = false;
  for (const swy_memory_type type : {SWY_MEMORY_DEVICE, SWY_MEMORY_UPLOAD, SWY_MEMORY_READBACK}) {
    const Raw buffer(p, type, 777);
    auto* memory = static_cast<unsigned char*>(p.api().buffer_map(p.device(), buffer.get()));
    if (memory == nullptr && must) return text("HOST_MEMORY, but memory of type ", type, " is not mapped");
    if (memory == nullptr) continue;
    any = true;
    const Bytes ones(777, 0x11);
    buffer.write(0, ones.data(), ones.size());
    if (!std::equal(ones.begin(), ones.end(), memory)) return "mapped memory does not show what was written";
    memory[5] = 0x77;
    unsigned char got = 0;
    buffer.read(&got, 5, 1);
    if (got != 0x77) return "what was written to mapped memory is not read";
  }
  if (!any) throw Unsupported("no memory is visible to the host");
  return "";
}

std::string imported(const Kit& kit) {
  const Plugin& p = kit.plugin();
  if (p.api().buffer_import == nullptr) throw Unsupported("the plugin imports no memory");
  alignas(4096) static unsigned char memory[8192];
  for (size_t i = 0; i < sizeof memory; ++i) memory[i] = static_cast<unsigned char>(i * 7);
  swy_buffer* buffer = nullptr;
  PluginError e;
  const swy_status s = p.api().buffer_import(p.device(), memory, sizeof memory, &buffer, e.get());
  if (s == SWY_UNSUPPORTED) throw Unsupported(e.line());
  e.expect_ok(s, "buffer_import");
  Bytes got(sizeof memory);
  const swy_status read = p.api().read(p.device(), got.data(), buffer, 0, got.size(), nullptr, e.get());
  p.api().buffer_free(p.device(), buffer);
  e.expect_ok(read, "reading imported memory");
  return std::equal(got.begin(), got.end(), memory) ? "" : "imported memory reads as something else";
}

std::vector<Task> list(Session& session, std::vector<Refusal>*) {
  Kit& kit = session.kit();
  std::vector<Task> tasks;
  const auto add = [&](const char* name, auto check) {
    tasks.push_back({name, [&kit, check] { return check(kit); }, {}});
  };
  add("pieces_of_device_memory", [](const Kit& k) { return pieces(k, SWY_MEMORY_DEVICE); });
  add("pieces_of_upload_memory", [](const Kit& k) { return pieces(k, SWY_MEMORY_UPLOAD); });
  add("pieces_of_readback_memory", [](const Kit& k) { return pieces(k, SWY_MEMORY_READBACK); });
  add("large", large);
  add("buffers_apart", apart);
  add("mapped", mapped);
  add("imported", imported);
  return tasks;
}

}  // namespace

const Suite kCopiesSuite = {"copies", "host to device and back, any size and offset", true, false, {}, list};

}  // namespace switchyard::check
