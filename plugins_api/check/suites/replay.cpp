// SPDX-License-Identifier: Apache-2.0
// replay: lists that are submitted with other inputs, side by side, empty, and left unfinished.
#include "plugins_api/check/kit.h"
#include "plugins_api/check/step_block.h"
#include "plugins_api/check/suites.h"

namespace switchyard::check {
namespace {

// Other contents for a recorded case: new inputs and states, the weights of before. Where a router chooses experts by
// the weights, the inputs are halved instead, which leaves its choice clear.
Case other_contents(const Kit& kit, const Check& check, const Case& c) {
  Case out = kit.build(check, 1);
  out.weights = c.weights;
  if (c.op != SWY_OP_MOE && c.op != SWY_OP_MOE_ADD) return out;
  for (size_t s = 0; s < c.steps.size(); ++s) {
    out.steps[s].inputs = c.steps[s].inputs;
    for (float& x : out.steps[s].inputs[0].floats) x *= 0.5f;
  }
  return out;
}

std::string changed_inputs(const Kit& kit, const Check& check) {
  const Case a = kit.build(check), b = other_contents(kit, check, a);
  const swy_dtype activations = activations_of(*check.kernel, check.types);
  Execution e(kit.plugin(), *check.kernel, a);
  const Outcome first = e.run(a);
  std::string problem = compare(b, kit.expected(check, b), e.run(b), activations, nullptr);
  if (!problem.empty()) return kit.line(check, "replayed with other inputs: " + problem);
  const Outcome again = e.run(a);
  problem = compare(a, kit.expected(check, a), again, activations, nullptr);
  if (!problem.empty()) return kit.line(check, "replayed with the first inputs: " + problem);
  if ((check.kernel->flags & SWY_KERNEL_DETERMINISTIC) == 0) return "";
  problem = differing_bits(a, first, again);
  return problem.empty() ? "" : kit.line(check, "DETERMINISTIC, but other bits after other inputs, in " + problem);
}

// Two lists of one kernel on one device, in turns; one is freed, and the other goes on.
std::string two_lists(const Kit& kit, const Check& check) {
  const Case c = kit.build(check);
  const swy_dtype activations = activations_of(*check.kernel, check.types);
  const Outcome wanted = kit.expected(check, c);
  Execution a(kit.plugin(), *check.kernel, c);
  std::string problem;
  {
    Execution b(kit.plugin(), *check.kernel, c);
    a.run(c);
    problem = compare(c, wanted, b.run(c), activations, nullptr);
    if (problem.empty()) problem = compare(c, wanted, a.run(c), activations, nullptr);
  }
  if (problem.empty()) problem = compare(c, wanted, a.run(c), activations, nullptr);
  return problem.empty() ? "" : kit.line(check, "beside another list: " + problem);
}

// A list without operations, to be submitted; and one that is freed before it is finalized.
std::string empty_and_unfinished(const Kit& kit) {
  const Plugin& p = kit.plugin();
  Random random(1);
  const Case c = Builder(SWY_OP_ADD, random).rows({1}).done();
  const Memory step(p, SWY_MEMORY_UPLOAD, step_block_bytes(c), "the step"), tokens(p, SWY_MEMORY_DEVICE, 64, "tokens");
  const std::vector<std::byte> block = step_block(c.steps[0], c.bucket, 1);
  step.write(block.data(), block.size());
  swy_list_info info{sizeof info, 0, &c.bucket, step.binding(), tokens.binding()};
  for (const bool finish : {true, false, true}) {
    swy_list* list = nullptr;
    PluginError e;
    e.expect_ok(p.api().list_begin(p.device(), &info, &list, e.get()), "list_begin");
    if (list == nullptr) return "list_begin gave no list";
    if (finish) {
      e.expect_ok(p.api().list_finalize(list, e.get()), "list_finalize of an empty list");
      e.expect_ok(p.api().list_submit(list, nullptr, e.get()), "list_submit of an empty list");
      e.expect_ok(p.api().list_submit(list, nullptr, e.get()), "list_submit of an empty list");
    }
    p.api().list_free(list);
  }
  step.expect_guards();
  tokens.expect_guards();
  return "";
}

std::vector<Task> list(Session& session, std::vector<Refusal>*) {
  Kit& kit = session.kit();
  std::vector<Task> tasks = {{"empty_and_unfinished_lists", [&kit] { return empty_and_unfinished(kit); }, {}}};
  for (const Check& c : sample_of(kit.claims(), kit.request().seed, {{2, 70}})) {
    tasks.push_back({c.name() + ".changed_inputs", [&kit, c] { return changed_inputs(kit, c); }, {}});
    tasks.push_back({c.name() + ".two_lists", [&kit, c] { return two_lists(kit, c); }, {}});
  }
  return tasks;
}

}  // namespace

const Suite kReplaySuite = {"replay", "lists with changed inputs, side by side, empty, unfinished", true, false, {},
                            list};

}  // namespace switchyard::check
