// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_run_impl.h"
#include "core/base/status.h"

#include <algorithm>

namespace switchyard::cli {

using bench::Reply;
using bench::State;
using nlohmann::json;

json BenchRun::check_request(const char* what, const std::string& file) const {
  return {{"do", what},
          {"tokens", o_.check_tokens[0]},
          {"decoded", o_.check_tokens[1]},
          {"seconds", o_.time_limit},
          {"text", o_.text_tokens()},
          {"file", file}};
}

Status BenchRun::ask_reference(const std::vector<Sitting>& sittings) {
  for (const ProcessPlan& asked : plan_.processes) {
    const std::string& model = asked.worker.settings.model;
    if (!asked.unsupported.empty() || sayings_.contains(model) || !nobody_interrupts()) continue;
    SayingFile& file = sayings_[model];
    SWY_LET(file.path, folder_.file(std::to_string(sayings_.size())));
    const auto own = std::find_if(processes_.begin(), processes_.end(), [&](const BenchProcess& p) {
      return is_reference(*p.plan) && p.plan->worker.settings.model == model && p.state == State::measured;
    });
    ProcessPlan plan = asked;
    plan.worker.settings.backend = "reference";
    plan.worker.settings.sets.clear();
    plan.worker.settings.exact = false;
    plan.worker.settings.variants.clear();
    plan.worker.settings.backend_libs.clear();
    plan.worker.settings.sessions = 2;
    plan.worker.settings.context = o_.check_tokens[0] + o_.check_tokens[1];
    BenchProcess extra;
    extra.plan = &plan;
    BenchProcess& p = own != processes_.end() ? *own : extra;
    ready(p);
    json request = check_request("say", file.path);
    if (own == processes_.end()) request["text"] = 0;
    const Reply r = call(p, request, 1.5 * o_.time_limit + 1, "the reference's logits");
    if (!r.ok()) {
      file.state = r.state;
      file.reason = "reference: " + r.reason;
    }
    if (own != processes_.end() && !together(sittings)) {
      leave(p);
      p.worker.reset();
      p.loaded = false;
    }
  }
  return {};
}

void BenchRun::check(BenchProcess& p) {
  if (!o_.checks() || is_reference(*p.plan) || p.correctness || !nobody_interrupts()) return;
  bench::Correctness c;
  c.against = "reference";
  const SayingFile& file = sayings_[p.plan->worker.settings.model];
  c.state = file.state;
  c.reason = file.reason;
  if (c.state == State::measured) {
    const Reply r = call(p, check_request("compare", file.path), 1.5 * o_.time_limit + 1, "checking its logits");
    c.state = r.state;
    c.reason = r.reason;
    if (r.ok()) c.state = take_part(r, c.reason, [&](const auto& part) { c = *part.correctness; });
  }
  if (o_.check_ops && p.alive()) {
    const Reply r =
        call(p, {{"do", "op_errors"}, {"seconds", o_.time_limit}}, 1.5 * o_.time_limit + 1, "checking its operations");
    std::string reason = r.reason;
    const State state =
        r.ok() ? take_part(r, reason, [&](const auto& part) { c.ops = part.correctness->ops; }) : r.state;
    if (c.state == State::measured && state != State::measured) {
      c.state = state;
      c.reason = "its operations: " + reason;
    }
  }
  p.correctness = std::move(c);
}

}  // namespace switchyard::cli
