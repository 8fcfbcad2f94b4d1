// SPDX-License-Identifier: Apache-2.0
// sizes: hosts whose structs are longer than the plugin knows, and as short as in the first version. A reader takes the
// smaller size: neither may change an answer, and nothing may be written beyond what both know.
#include "plugins_api/check/forms.h"
#include "plugins_api/check/kit.h"
#include "plugins_api/check/suites.h"

namespace switchyard::check {
namespace {

const char* describe(Form form) { return form == Form::kNewer ? "longer structs" : "the structs of the first version"; }

std::string answers(const Kit& kit, const Check& check, Form form) {
  const Case c = kit.build(check);
  std::string why;
  if (!takes(kit.plugin(), *check.kernel, c, &why, nullptr, form)) {
    return kit.line(check, text("refuses from a host with ", describe(form), " what it takes otherwise: ", why));
  }
  const Outcome wanted = Execution(kit.plugin(), *check.kernel, c).run(c);
  const Outcome got = Execution(kit.plugin(), *check.kernel, c, {.form = form}).run(c);
  const std::string problem = compare(c, wanted, got, activations_of(*check.kernel, check.types), nullptr);
  return problem.empty() ? "" : kit.line(check, text("from a host with ", describe(form), ": ", problem));
}

std::string device_info(const Kit& kit) {
  for (const uint32_t given :
       {uint32_t{40}, uint32_t{sizeof(swy_device_info)}, uint32_t{sizeof(swy_device_info)} + 64}) {
    Forms forms(Form::kNewer);
    swy_device_info* info = forms.of(swy_device_info{});
    std::memset(info, 0xab, sizeof *info);
    info->struct_size = given;
    PluginError e;
    e.expect_ok(kit.plugin().api().device_info(0, info, e.get()), "device_info");
    swy_device_info out;
    if (!Forms::take(info, given, &out))
      return text("device_info wrote beyond a struct of ", given, " bytes, or raised its size");
    if (out.type != kit.plugin().info().type) return text("device_info fills a struct of ", given, " bytes otherwise");
  }
  return "";
}

std::vector<Task> list(Session& session, std::vector<Refusal>*) {
  Kit& kit = session.kit();
  std::vector<Task> tasks = {{"device_info", [&kit] { return device_info(kit); }, {}}};
  for (const Check& c : sample_of(kit.claims(), kit.request().seed, {{2, 70}})) {
    tasks.push_back({c.name() + ".newer", [&kit, c] { return answers(kit, c, Form::kNewer); }, {}});
    tasks.push_back({c.name() + ".first", [&kit, c] { return answers(kit, c, Form::kFirst); }, {}});
  }
  return tasks;
}

}  // namespace

const Suite kSizesSuite = {"sizes", "structs of newer and of older hosts", true, false, {}, list};

}  // namespace switchyard::check
