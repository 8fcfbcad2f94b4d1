// SPDX-License-Identifier: Apache-2.0
// switchyard plan: which kernel runs every operation, and why.
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/runtime.h"
#include "core/plan/explain_json.h"

namespace switchyard::cli {
namespace {

struct PlanFlags {
  Settings settings;
  uint32_t rows = 1, tokens = 256;
  bool explain = false, json = false;
};

Status plan(const PlanFlags& o) {
  SWY_LET(const Runtime r, load_runtime(o.settings));
  if (o.tokens > r.model->context() || o.rows > r.model->chunk()) {
    return error(Code::usage, "--rows may be at most {} and --tokens at most {} here; --chunk and --ctx raise them",
                 r.model->chunk(), r.model->context());
  }
  SWY_LET(const Plan plan, r.model->plan(o.rows, 1, o.tokens));
  if (o.json) {
    print_json(explain_json(plan), 2);
  } else {
    fmt::print("{}", explain_text(plan, o.explain));
  }
  return {};
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<PlanFlags>();
  CLI::App* c = app.add_subcommand("plan", "Show which kernel runs each operation of a model");
  c->footer("Example: switchyard plan --backend mine,reference --explain");
  c->add_option("--rows", o->rows, "tokens in the step; 1 is decoding")
      ->check(CLI::Range(1u, 65536u))
      ->capture_default_str();
  c->add_option("--tokens", o->tokens, "length of the context")->check(CLI::Range(1u, 1u << 24))->capture_default_str();
  c->add_flag("--explain", o->explain, "also every kernel that was considered, and what it answered");
  c->add_flag("--json", o->json, "print JSON, with everything that was considered");
  add_settings(*c, o->settings, "program");
  set_action(*c, exit_code, [o] { return plan(*o); });
}

}  // namespace switchyard::cli
