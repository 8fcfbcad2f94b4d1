// SPDX-License-Identifier: Apache-2.0
// switchyard plan: which kernel runs every operation, and why.
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/runtime.h"
#include "core/plan/explain_json.h"

namespace switchyard::cli {
namespace {

struct PlanFlags {
  Settings settings;
  uint32_t rows = 1, tokens = 256;
  bool explain = false, load = true, json = false;
};

std::string gib(uint64_t bytes) { return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1u << 30)); }

// Of the model file; devices in host memory read them there where their kernels take that layout.
uint64_t stored_bytes(const Program& program) {
  uint64_t bytes = 0;
  for (const Tensor& t : program.tensors) bytes += t.segments[0].bytes;
  return bytes;
}

std::string memory_text(const MemoryNeed& n) {
  const std::string free = n.free == 0 ? "" : fmt::format("; {} are free", gib(n.free));
  return fmt::format(
      "memory of {}: copies of weights {}, states {} ({} session{} of {} tokens), a step of {} rows {}{}\n", n.device,
      gib(n.weights), gib(n.states()), n.sessions, n.sessions == 1 ? "" : "s", n.context, n.step_rows, gib(n.steps),
      free);
}

nlohmann::ordered_json memory_json(const MemoryNeed& n) {
  return {{"devices", n.device},       {"free_bytes", n.free},    {"copied_weight_bytes", n.weights},
          {"state_bytes", n.states()}, {"sessions", n.sessions},  {"context", n.context},
          {"step_bytes", n.steps},     {"step_rows", n.step_rows}};
}

Status plan(PlanFlags& o) {
  o.settings.load = o.load;
  SWY_LET(const Runtime r, load_runtime(o.settings));
  if (o.tokens > r.model->context() || o.rows > r.model->chunk()) {
    return error(Code::usage, "--rows may be at most {} and --tokens at most {} here; --chunk and --ctx raise them",
                 r.model->chunk(), r.model->context());
  }
  SWY_LET(const Plan plan, r.model->plan(o.rows, 1, o.tokens));
  Plan layer;
  if (r.model->mtp() != nullptr) {
    SWY_LET(layer, r.model->plan_mtp(o.rows, o.tokens));
  }
  if (o.json) {
    nlohmann::ordered_json json = explain_json(plan);
    if (r.model->mtp() != nullptr) json["mtp"] = explain_json(layer);
    if (!r.model->mtp_left_out().empty()) json["mtp_left_out"] = r.model->mtp_left_out();
    if (!o.load) {
      json["weight_bytes"] = stored_bytes(*r.program);
      for (const MemoryNeed& need : r.model->memory()) json["memory"].push_back(memory_json(need));
    }
    print_json(json, 2);
  } else {
    fmt::print("{}", explain_text(plan, o.explain));
    if (r.model->mtp() != nullptr) {
      fmt::print("\nthe multi-token prediction layer:\n{}", explain_text(layer, o.explain));
    } else if (!r.model->mtp_left_out().empty()) {
      fmt::print("\nwithout the multi-token prediction layer: {}\n", r.model->mtp_left_out());
    }
    if (o.load) return {};
    fmt::print("weights in the file: {}\n", gib(stored_bytes(*r.program)));
    for (const MemoryNeed& need : r.model->memory()) fmt::print("{}", memory_text(need));
  }
  return {};
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<PlanFlags>();
  CLI::App* c = app.add_subcommand("plan", "Show which kernel runs each operation of a model");
  c->footer(
      "Examples:\n"
      "  switchyard plan --backend mine,reference --explain\n"
      "  switchyard plan -m synth:qwen3.5-397b-a17b --no-load     how much memory a model takes");
  c->add_option("--rows", o->rows, "tokens in the step; 1 is decoding")
      ->check(CLI::Range(1u, 65536u))
      ->capture_default_str();
  c->add_option("--tokens", o->tokens, "length of the context")->check(CLI::Range(1u, 1u << 24))->capture_default_str();
  c->add_flag("--explain", o->explain, "also every kernel that was considered, and what it answered");
  c->add_flag("!--no-load", o->load,
              "do not load the weights, and say how much memory the model takes: quick, and for a model of any size; "
              "kernels that refuse only when they are recorded count as able");
  c->add_flag("--json", o->json, "print JSON, with everything that was considered");
  add_speculate(*c, o->settings);
  add_settings(*c, o->settings, "program");
  set_action(*c, exit_code, [o] { return plan(*o); });
}

}  // namespace switchyard::cli
