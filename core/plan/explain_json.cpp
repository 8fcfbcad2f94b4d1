// SPDX-License-Identifier: Apache-2.0
#include "core/plan/explain_json.h"

#include <nlohmann/json.hpp>

namespace switchyard {

nlohmann::ordered_json explain_json(const Plan& plan) {
  nlohmann::ordered_json ops = nlohmann::ordered_json::array();
  for (const PlanDecision& d : plan.decisions) {
    nlohmann::ordered_json considered = nlohmann::ordered_json::array();
    for (const Considered& c : d.considered) {
      considered.push_back({{"device", c.device},
                            {"kernel", c.kernel},
                            {"as", c.as},
                            {"accepted", c.accepted},
                            {"cost_us", c.cost_us},
                            {"tuned_us", c.tuned_us},
                            {"reason", c.reason}});
    }
    ops.push_back({{"op", d.op},
                   {"kind", d.op_kind},
                   {"chosen", d.chosen},
                   {"reason", d.reason},
                   {"source", d.source},
                   {"moves", d.moves},
                   {"considered", std::move(considered)}});
  }
  return {{"rows", plan.bucket.rows},   {"context", plan.bucket.context},   {"devices", plan.device_names},
          {"nodes", plan.nodes.size()}, {"segments", plan.segments.size()}, {"casts", plan.casts()},
          {"copies", plan.copies()},    {"arena_bytes", plan.arena_bytes},  {"warnings", plan.warnings},
          {"ops", std::move(ops)}};
}

}  // namespace switchyard
