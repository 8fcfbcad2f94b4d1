// SPDX-License-Identifier: Apache-2.0
// StepRunner: applies pending rows outside of a step.
#include <algorithm>

#include "core/engine/pending.h"
#include "core/engine/step_runner.h"

namespace switchyard {
namespace {

bool has_pending(const GraphOp& op) { return pending_place(op).has_value(); }

bool any_pending(const std::vector<GraphOp>& ops) { return std::any_of(ops.begin(), ops.end(), has_pending); }

// Of a plan only the operations with pending rows, each device's in one list. What they read from others is arbitrary.
void keep_pending_only(Plan& plan) {
  std::vector<PlanNode> nodes;
  std::vector<uint64_t> workspaces;
  plan.segments.clear();
  for (uint32_t device = 0; device < plan.device_names.size(); ++device) {
    PlanSegment segment{static_cast<uint32_t>(nodes.size()), 0, device};
    for (size_t i = 0; i < plan.nodes.size(); ++i) {
      if (plan.nodes[i].device != device || !(has_pending(plan.nodes[i].op) || any_pending(plan.nodes[i].range_ops))) {
        continue;
      }
      nodes.push_back(plan.nodes[i]);
      workspaces.push_back(plan.workspace_offset[i]);
    }
    segment.end = static_cast<uint32_t>(nodes.size());
    if (segment.end > segment.begin) plan.segments.push_back(segment);
  }
  plan.nodes = std::move(nodes);
  plan.workspace_offset = std::move(workspaces);
  plan.decisions = {};
}

}  // namespace

Status StepRunner::make_settling() {
  if (settling_ != nullptr || !any_pending(s_.planner->graph().ops)) return {};
  const std::vector<PlanDevice>& devices = s_.planner->devices();
  SWY_LET(Plan plan, s_.planner->plan(bucket_of({.rows = 1, .context = 2}, s_.pool, s_.max_rows)));
  keep_pending_only(plan);
  const StepBuilder::Limits limits{1, 1, s_.pages_per_seq, s_.pool.page_size, 0};
  auto made = std::make_unique<Settling>(Settling{StepBuilder(limits), {}, nullptr});
  std::vector<std::shared_ptr<DeviceBuffer>> arenas;
  for (size_t d = 0; d < devices.size(); ++d) {
    SWY_LET(DeviceBuffer step, DeviceBuffer::allocate(devices[d], SWY_MEMORY_UPLOAD, limits.block_bytes(), "a step"));
    made->steps.push_back(std::move(step));
    SWY_LET(DeviceBuffer arena,
            DeviceBuffer::allocate(devices[d], SWY_MEMORY_DEVICE, plan.arena_bytes[d], "activations"));
    arenas.push_back(std::make_shared<DeviceBuffer>(std::move(arena)));
  }
  SWY_LET(made->run,
          Executable::record(std::move(plan), devices, inputs_of(made->steps, std::move(arenas)), watch_.observer));
  settling_ = std::move(made);
  return {};
}

Status StepRunner::settle(const StepSequence& sequence) {
  SWY_TRY(make_settling());
  if (settling_ == nullptr) return error(Code::internal, "no operation has pending rows");
  SWY_LET(const auto block, settling_->builder.build({&sequence, 1}, submitted_ + 1));
  for (DeviceBuffer& step : settling_->steps) SWY_TRY(step.write(0, block));
  return settling_->run->submit(false);
}

}  // namespace switchyard
