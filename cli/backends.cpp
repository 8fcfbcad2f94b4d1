// SPDX-License-Identifier: Apache-2.0
// switchyard backends: the backends that were found, and their abilities.
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/runtime.h"
#include "core/base/printable.h"
#include "core/plugin/describe.h"

namespace switchyard::cli {
namespace {

struct BackendsFlags {
  Settings settings;
  bool details = false, explain = false, json = false;
};

Status backends(const BackendsFlags& o) {
  const Host host(1);
  Settings settings = o.settings;
  settings.probe_anew = o.explain;
  SWY_LET(const Registry registry, find_backends(settings, host));
  if (o.json) {
    print_json(describe_json(registry), 2);
  } else {
    fmt::print("{}", printable_lines(describe_text(registry, o.details, o.explain)));
  }
  return {};
}

}  // namespace

void add_backends(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<BackendsFlags>();
  CLI::App* c = app.add_subcommand("backends", "List the backends that were found, with their devices");
  c->footer("Example: SWITCHYARD_BACKEND_PATH=/opt/mine switchyard backends --explain");
  c->add_flag("--details", o->details, "also list the kernels of each device, and the options that --set takes");
  c->add_flag("--explain", o->explain, "try every file again, and print a line for each: accepted, or why not");
  c->add_flag("--json", o->json, "print JSON");
  add_settings(*c, o->settings);
  set_action(*c, exit_code, [o] { return backends(*o); });
}

}  // namespace switchyard::cli
