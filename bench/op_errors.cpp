// SPDX-License-Identifier: Apache-2.0
#include "bench/op_errors.h"

#include <algorithm>

#include "bench/op_cases.h"

namespace switchyard::bench {

Result<std::vector<OpError>> op_errors(std::shared_ptr<const Program> program,
                                       const std::vector<std::shared_ptr<Device>>& devices, const PlanPolicy& policy,
                                       std::shared_ptr<Device> reference, const OpErrorRequest& request,
                                       const OpProgress& progress) {
  OpRequest r;
  r.rows = request.rows;
  r.depth = request.depth;
  r.deterministic = request.deterministic;
  r.variants = request.variants;
  r.load_threads = request.load_threads;
  r.oracle = std::move(reference);
  OpCases cases(std::move(program), devices, policy, std::move(r));
  SWY_TRY(cases.collect());
  std::vector<OpError> all;
  for (size_t i = 0; i < cases.all().size(); ++i) {
    if (!progress(i, cases.all().size())) break;
    const OpCase& c = cases.all()[i];
    if (!c.chosen) continue;
    SWY_LET(const std::optional<RowErrors> e, cases.errors(c));
    if (!e) continue;
    const OpError now{c.op() + " " + c.shape->text, c.kernel->name, e->worst, e->mean, {}};
    const auto same = std::find_if(all.begin(), all.end(),
                                   [&](const OpError& o) { return o.op == now.op && o.kernel == now.kernel; });
    if (same == all.end()) {
      all.push_back(now);
    } else if (now.worst_row > same->worst_row) {
      *same = now;
    }
  }
  return all;
}

}  // namespace switchyard::bench
