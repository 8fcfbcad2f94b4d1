// SPDX-License-Identifier: Apache-2.0
// errors: arguments that no host may pass are refused, with a status and a line, and nothing is touched.
#include <array>
#include <cstring>

#include "plugins_api/check/kit.h"
#include "plugins_api/check/suites.h"

namespace switchyard::check {
namespace {

std::string expect_refusal(swy_status s, const PluginError& e, const std::string& what) {
  if (s == SWY_OK) return what + " was accepted";
  return e.has_line() ? "" : text(what, " was refused without a line (status ", s, ")");
}

// Copies that begin or end outside their buffer, including those whose end overflows.
std::string ranges(const Kit& kit) {
  const Plugin& p = kit.plugin();
  const Memory m(p, SWY_MEMORY_DEVICE, 256, "a buffer");
  const swy_binding b = m.binding();
  const uint64_t all = b.offset + b.bytes + 256;
  std::array<char, 64> host{};
  const std::pair<uint64_t, uint64_t> outside[] = {
      {all, 1}, {all + 1, 0}, {all - 1, 2}, {0, all + 1}, {UINT64_MAX, 1}, {UINT64_MAX - 3, 8}, {8, UINT64_MAX - 7}};
  for (const auto& [at, bytes] : outside) {
    PluginError w, r, z;
    const std::string where = text(" of ", bytes, " bytes at ", at, " of ", all);
    std::string problem = expect_refusal(p.api().write(p.device(), b.buffer, at, host.data(), bytes, nullptr, w.get()),
                                         w, "a write" + where);
    if (!problem.empty()) return problem;
    problem = expect_refusal(p.api().read(p.device(), host.data(), b.buffer, at, bytes, nullptr, r.get()), r,
                             "a read" + where);
    if (!problem.empty()) return problem;
    problem = expect_refusal(p.api().fill_zero(p.device(), b.buffer, at, bytes, z.get()), z, "a fill_zero" + where);
    if (!problem.empty()) return problem;
  }
  m.expect_guards();
  for (const char c : host) {
    if (c != 0) return "a refused read wrote to the host's memory";
  }
  return "";
}

std::string unknown_layouts(const Kit& kit) {
  const swy_plugin& api = kit.plugin().api();
  Random random(kit.request().seed);
  const Case c = Builder(SWY_OP_LINEAR, random).rows({1}).input(64).matrix({32, 64}, SWY_BF16, 0).output(32).done();
  for (const uint32_t layout : {0x7fffffffu, 0xdeadbeefu, UINT32_MAX}) {
    uint64_t bytes = 0;
    PluginError e, f;
    std::string problem = expect_refusal(api.packed_bytes(&c.weights[0].desc, layout, &bytes, e.get()), e,
                                         text("packed_bytes for the unknown layout ", layout));
    if (!problem.empty()) return problem;
    char room[64];
    problem = expect_refusal(api.pack(&c.weights[0].desc, layout, c.weights[0].segment.data(), room, f.get()), f,
                             text("packing into the unknown layout ", layout));
    if (!problem.empty()) return problem;
    if (api.layout_name(layout) != nullptr) return text("the unknown layout ", layout, " has a name");
  }
  return "";
}

// Layouts that kernels use have a name and a revision, so that files can hold them.
std::string known_layouts(const Kit& kit) {
  const Plugin& p = kit.plugin();
  bool any = false;
  for (const Check& check : kit.claims().checks) {
    if (check.kernel->prepare == nullptr || check.spec->slow) continue;
    Random random = Random::shapes_only();
    const Case c = check.spec->build(random);
    const OpView op(c);
    swy_prepared prepared{};
    prepared.struct_size = sizeof prepared;
    PluginError e;
    e.expect_ok(check.kernel->prepare(p.device(), check.kernel, op.get(), &c.bucket, &prepared, e.get()), "prepare");
    for (size_t i = 0; i < c.weights.size() && i < 16; ++i) {
      const uint32_t layout = prepared.weight_layouts[i];
      if (layout == 0) continue;
      any = true;
      const char* name = p.api().layout_name(layout);
      if (name == nullptr || std::strchr(name, '/') == nullptr) {
        return kit.line(check, text("asks for layout ", layout, ", whose name is not NAME/REVISION"));
      }
      uint64_t bytes = 0;
      e.expect_ok(p.api().packed_bytes(&c.weights[i].desc, layout, &bytes, e.get()), "packed_bytes");
      if (bytes == 0) return kit.line(check, text("layout ", name, " packs into no bytes"));
    }
  }
  if (!any) throw Unsupported("no kernel asks for packed weights");
  return "";
}

const Check* with_state(const Claims& claims) {
  for (const Check& c : claims.checks) {
    Random random = Random::shapes_only();
    if (!c.spec->slow && !c.spec->build(random).states.empty()) return &c;
  }
  return nullptr;
}

std::string states(const Kit& kit) {
  const Plugin& p = kit.plugin();
  const Claims claims = kit.claims();
  const Check* check = with_state(claims);
  if (check == nullptr) throw Unsupported("no kernel has a state");
  const Case c = kit.build(*check);
  const OpView op(c);
  swy_state_layout layout{};
  layout.struct_size = sizeof layout;
  PluginError a, b, d, e;
  const auto count = static_cast<uint32_t>(c.states.size());
  std::string problem = expect_refusal(p.api().state_layout(p.device(), op.get(), count, &c.bucket, &layout, a.get()),
                                       a, "a state that is not there");
  if (!problem.empty()) return problem;
  e.expect_ok(p.api().state_layout(p.device(), op.get(), 0, &c.bucket, &layout, e.get()), "state_layout");
  const Memory m(p, SWY_MEMORY_DEVICE, layout.unit_bytes, "a unit");
  const swy_binding unit = m.part(0, layout.unit_bytes);
  const uint64_t right = c.states[0].unit * 4;
  std::vector<char> canonical(right + 64, 0x5a);
  for (const uint64_t bytes : {right + 4, right - 4, uint64_t{0}}) {
    problem = expect_refusal(p.api().state_import(p.device(), &c.states[0].desc, c.bucket.page_size, &unit,
                                                  canonical.data(), bytes, b.get()),
                             b, text("importing ", bytes, " bytes into a state of ", right));
    if (!problem.empty()) return problem;
    problem = expect_refusal(p.api().state_export(p.device(), &c.states[0].desc, c.bucket.page_size, &unit,
                                                  canonical.data(), bytes, d.get()),
                             d, text("exporting ", bytes, " bytes of a state of ", right));
    if (!problem.empty()) return problem;
  }
  m.expect_guards();
  return "";
}

std::vector<Task> list(Session& session, std::vector<Refusal>*) {
  Kit& kit = session.kit();
  std::vector<Task> tasks;
  const auto add = [&](const char* name, std::string (*f)(const Kit&)) {
    tasks.push_back({name, [&kit, f] { return f(kit); }, {}});
  };
  add("ranges_of_copies", ranges);
  add("unknown_layouts", unknown_layouts);
  add("known_layouts", known_layouts);
  add("sizes_of_states", states);
  return tasks;
}

}  // namespace

const Suite kErrorsSuite = {"errors", "what no host may pass is refused, with a line", true, false, {}, list};

}  // namespace switchyard::check
