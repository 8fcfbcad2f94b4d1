// SPDX-License-Identifier: Apache-2.0
#include "core/plan/executable.h"

#include <algorithm>
#include <cstring>

#include "core/plan/op_shape.h"
#include "core/plan/range_backend.h"
#include "core/plugin/call.h"

namespace switchyard {

Executable::Executable(Plan plan, const std::vector<PlanDevice>& devices, ExecutableInputs inputs)
    : plan_(std::move(plan)), devices_(devices), inputs_(std::move(inputs)) {}

Executable::~Executable() {
  for (const Recorded& r : recorded_) {
    if (r.list != nullptr) devices_[r.segment.device].api->list_free(r.list);
  }
  for (size_t d = 0; d < timelines_.size(); ++d) {
    if (timelines_[d] != nullptr) devices_[d].api->timeline_free(devices_[d].handle, timelines_[d]);
  }
}

Result<std::unique_ptr<Executable>> Executable::record(Plan plan, const std::vector<PlanDevice>& devices,
                                                       ExecutableInputs inputs, StepObserver* observer,
                                                       std::vector<Refusal>* refused) {
  std::unique_ptr<Executable> e(new Executable(std::move(plan), devices, std::move(inputs)));
  SWY_TRY(e->create_timelines());
  for (const PlanSegment& segment : e->plan_.segments) SWY_TRY(e->record_segment(segment, observer, refused));
  e->find_results();
  return e;
}

// One timeline for every asynchronous device that another waits for.
Status Executable::create_timelines() {
  timelines_.assign(devices_.size(), nullptr);
  timeline_values_.assign(devices_.size(), 0);
  for (const PlanSegment& s : plan_.segments) {
    const PlanDevice& device = devices_[s.device];
    const bool ahead = (device.info.flags & SWY_DEVICE_SYNCHRONOUS) == 0 && device.api->timeline_create != nullptr;
    if (!s.signals || s.copy || !ahead || timelines_[s.device] != nullptr) continue;
    PluginError e;
    SWY_TRY(e.status(device.api->timeline_create(device.handle, &timelines_[s.device], e.get()),
                     device.name + ": creating a timeline"));
  }
  return {};
}

Result<swy_binding> Executable::place(uint32_t value, uint32_t device) const {
  const BoundValue* const own = bound(value);
  if (own != nullptr && own->device == device) return own->memory->slice(0, own->bytes);
  const Placement* p = plan_.find(value, device);
  if (p == nullptr) {
    return error(Code::internal, "{} has no place on {}", plan_.graph.values[value].name, devices_[device].name);
  }
  return inputs_.arenas[device]->slice(p->offset, p->bytes);
}

Status Executable::record_segment(const PlanSegment& segment, StepObserver* observer, std::vector<Refusal>* refused) {
  Recorded r;
  r.segment = segment;
  const PlanDevice& device = devices_[segment.device];
  if (segment.copy) {
    const PlanNode& node = plan_.nodes[segment.begin];
    SWY_LET(r.from, place(node.op.inputs[0], static_cast<uint32_t>(node.copy_from)));
    SWY_LET(r.to, place(node.op.outputs[0], node.device));
    staging_.resize(std::max<size_t>(staging_.size(), r.from.bytes));
    recorded_.push_back(r);
    return {};
  }
  const std::string what = fmt::format("list {} of {}, of {} operations, for {} rows", recorded_.size() + 1,
                                       plan_.segments.size(), segment.end - segment.begin, plan_.bucket.rows);
  r.submit = lasting("list_submit, " + what);
  r.wait = lasting("timeline_wait, " + what);
  const swy_list_info info = list_info(segment);
  PluginError e;
  const auto begin = [&](swy_error* x) { return device.api->list_begin(device.handle, &info, &r.list, x); };
  SWY_TRY(e.status(call_plugin(device, "list_begin", e.get(), begin), device.name + ": beginning a list"));
  recorded_.push_back(r);  // owned from here on
  SWY_TRY(record_nodes(segment, r.list, refused));
  const Stretch stretch(observer, "finalize");
  const auto finalize = [&](swy_error* x) { return device.api->list_finalize(r.list, x); };
  return e.status(call_plugin(device, "list_finalize", e.get(), finalize), device.name + ": finalizing a list");
}

swy_list_info Executable::list_info(const PlanSegment& segment) const {
  swy_list_info info{};
  info.struct_size = sizeof info;
  info.bucket = &plan_.bucket;
  info.step = inputs_.steps[segment.device];
  info.tokens = inputs_.tokens[segment.device];
  return info;
}

Status Executable::record_nodes(const PlanSegment& segment, swy_list* list, std::vector<Refusal>* refused) {
  for (uint32_t n = segment.begin; n < segment.end; ++n) {
    SWY_TRY(check_cancelled(inputs_.cancelled, "a step was recorded"));
    SWY_TRY(record_node(n, list, refused));
  }
  return {};
}

const PlanSegment* Executable::only_list(bool head) const {
  const PlanSegment* only = nullptr;
  for (const Recorded& r : recorded_) {
    if (r.segment.head != head) continue;
    if (only != nullptr || r.segment.copy || r.segment.signals) return nullptr;
    only = &r.segment;
  }
  return only;
}

Status Executable::record_node(uint32_t index, swy_list* list, std::vector<Refusal>* refused) {
  const PlanNode& node = plan_.nodes[index];
  // Of a compiled range only what crosses its border has a place.
  const auto outside = [&](uint32_t v) {
    const auto among = [&](const std::vector<uint32_t>& values) {
      return std::find(values.begin(), values.end(), v) != values.end();
    };
    return node.range_code == nullptr || among(node.op.inputs) || among(node.op.outputs);
  };
  const auto bind_values = [&](const std::vector<uint32_t>& values, std::vector<swy_binding>& out) -> Status {
    for (const uint32_t v : values) {
      if (!outside(v)) {
        out.push_back({});
        continue;
      }
      SWY_LET(const swy_binding b, place(v, node.device));
      out.push_back(b);
    }
    return {};
  };
  // Binds one operation; its i-th weight is in layouts[i].
  struct Bound {
    std::vector<swy_binding> inputs, weights, states, outputs;
    swy_bindings view{};
  };
  const auto bind = [&](const GraphOp& op, const uint32_t* layouts, Bound& b) -> Status {
    SWY_TRY(bind_values(op.inputs, b.inputs));
    SWY_TRY(bind_values(op.outputs, b.outputs));
    for (size_t i = 0; i < op.weights.size(); ++i) {
      SWY_LET(const swy_binding w, inputs_.weight(op.weights[i], node.device, layouts[i]));
      b.weights.push_back(w);
    }
    for (const uint32_t s : op.states) b.states.push_back(inputs_.states[s]);
    b.view = {sizeof(swy_bindings), 0, b.inputs.data(), b.weights.data(), b.states.data(), b.outputs.data(), {}};
    return {};
  };
  const uint64_t workspace_bytes = node.prepared.workspace_bytes;
  const swy_binding workspace =
      workspace_bytes == 0 ? swy_binding{}
                           : inputs_.arenas[node.device]->slice(plan_.workspace_offset[index], workspace_bytes);
  const std::string what = devices_[node.device].name + ": recording " + node.op.name;
  PluginError e;
  const auto recorded = [&](swy_status status) {
    if (status == SWY_UNSUPPORTED && refused != nullptr) {
      *refused = refusals_like(node, e.status(status, "refused in record").message());
    }
    return e.status(status, what);
  };
  if (node.kernel != nullptr) {
    Bound b;
    SWY_TRY(bind(node.op, node.prepared.weight_layouts, b));
    b.view.workspace = workspace;
    OpView view(plan_.graph, node.op, plan_.bucket);
    view.set_layouts(node.prepared.weight_layouts);
    const auto record = [&](swy_error* x) { return node.kernel->record(list, node.kernel, view.get(), &b.view, x); };
    return recorded(call_plugin(devices_[node.device].label, "record", node.kernel->name, e.get(), record));
  }
  RangeView range(plan_.graph, node.range_ops, plan_.bucket, node.range_kept);
  std::vector<std::unique_ptr<Bound>> bound;
  std::vector<const swy_bindings*> bindings;
  size_t weight = 0;
  for (const GraphOp& op : node.range_ops) {
    range.view(bound.size()).set_layouts(node.range_layouts.data() + weight);
    bound.push_back(std::make_unique<Bound>());
    SWY_TRY(bind(op, node.range_layouts.data() + weight, *bound.back()));
    weight += op.weights.size();
    bindings.push_back(&bound.back()->view);
  }
  const swy_range_operands operands{sizeof(swy_range_operands), range.count(), range.ops(), bindings.data(),
                                    range.values()};
  return recorded(
      RangeBackend(devices_[node.device]).record(list, node.range_code.get(), operands, workspace, e.get()));
}

// All of one shape would refuse one after the other.
std::vector<Refusal> Executable::refusals_like(const PlanNode& node, const std::string& reason) const {
  const auto shape_of = [&](const PlanNode& n) {
    std::string shape = n.range == nullptr ? shape_bytes(plan_.graph, n.op) : "";
    for (const GraphOp& op : n.range_ops) shape += shape_bytes(plan_.graph, op);
    return shape;
  };
  const std::string shape = shape_of(node);
  std::vector<Refusal> all;
  for (const PlanNode& n : plan_.nodes) {
    const bool like = n.copy_from < 0 && n.device == node.device && n.kernel == node.kernel && n.range == node.range;
    if (like && shape_of(n) == shape) add_refusals(n, plan_.bucket, reason, all);
  }
  return all;
}

// The host carries a copy, so that it is done when this returns.
Status Executable::copy(const Recorded& r, SubmitCounts* counts) {
  const PlanNode& node = plan_.nodes[r.segment.begin];
  const auto source = static_cast<uint32_t>(node.copy_from);
  for (const uint32_t w : r.segment.waits) {
    swy_timeline* timeline = recorded_[w].segment.copy ? nullptr : timelines_[recorded_[w].segment.device];
    if (timeline == nullptr) continue;  // a synchronous device or a copy is done; otherwise `read` waits
    PluginError e;
    const PluginTime inside(counts, true);
    const auto wait = [&](swy_error* x) {
      return devices_[source].api->timeline_wait(timeline, recorded_[w].reached, UINT64_MAX, x);
    };
    SWY_TRY(e.status(call_plugin(devices_[source], recorded_[w].wait, e.get(), wait), devices_[source].name,
                     "waiting for a step"));
  }
  const auto& from = *inputs_.arenas[source];
  const auto& to = *inputs_.arenas[node.device];
  const PluginTime inside(counts, !synchronous(source) || !synchronous(node.device));
  if (from.map() != nullptr && synchronous(source)) {
    return to.write(r.to.offset, {from.map() + r.from.offset, r.from.bytes});
  }
  const std::span<std::byte> staging(staging_.data(), r.from.bytes);
  SWY_TRY(from.read(r.from.offset, staging));
  return to.write(r.to.offset, staging);
}

Status Executable::submit_list(Recorded& r) {
  const PlanDevice& device = devices_[r.segment.device];
  PluginError e;
  swy_status status = SWY_OK;
  if (swy_timeline* timeline = timelines_[r.segment.device]; timeline != nullptr && r.segment.signals) {
    r.reached = ++timeline_values_[r.segment.device];
    const swy_timeline_point point{timeline, r.reached};
    const swy_submit submit{sizeof(swy_submit), 0, nullptr, 1, 0, &point};
    const auto start = [&](swy_error* x) { return device.api->list_submit(r.list, &submit, x); };
    status = call_plugin(device, r.submit, e.get(), start);
  } else {
    const auto start = [&](swy_error* x) { return device.api->list_submit(r.list, nullptr, x); };
    status = call_plugin(device, r.submit, e.get(), start);
  }
  return e.status(status, device.name, "running a step");
}

bool Executable::synchronous(uint32_t device) const {
  return (devices_[device].info.flags & SWY_DEVICE_SYNCHRONOUS) != 0;
}

Status Executable::submit(bool head, const StepWatch& watch) {
  for (Recorded& r : recorded_) {
    if (r.segment.head != head) continue;
    if (r.segment.copy) {
      const Stretch stretch(watch.observer, "copy");
      SWY_TRY(copy(r, watch.counts));
      continue;
    }
    if (watch.counts != nullptr) ++watch.counts->lists;
    if (watch.observer != nullptr) watch.observer->submitting(plan_, r.segment);
    const uint64_t begin = watch.observer != nullptr ? Os::real().now_ns() : 0;
    Status done;
    {
      const PluginTime inside(watch.counts, false);
      done = submit_list(r);
    }
    if (watch.observer != nullptr) watch.observer->submitted(plan_, r.segment, begin, Os::real().now_ns());
    SWY_TRY(std::move(done));
  }
  return {};
}

// A value that was copied is on several devices; the node that produced it comes first in order.
void Executable::find_results() {
  std::vector<bool> wanted(plan_.graph.values.size());
  for (const uint32_t value : plan_.graph.results) wanted[value] = true;
  for (const PlanNode& n : plan_.nodes) {
    for (const uint32_t value : n.op.outputs) {
      if (!wanted[value]) continue;
      wanted[value] = false;
      if (const Placement* p = plan_.find(value, n.device)) results_.push_back(*p);
    }
  }
  std::sort(results_.begin(), results_.end(), [](const auto& a, const auto& b) { return a.value < b.value; });
  for (const uint32_t value : plan_.graph.inputs) {
    for (const PlanNode& n : plan_.nodes) {
      if (std::find(n.op.inputs.begin(), n.op.inputs.end(), value) == n.op.inputs.end()) continue;
      const auto reader = n.copy_from >= 0 ? static_cast<uint32_t>(n.copy_from) : n.device;
      if (const Placement* p = plan_.find(value, reader)) inputs_at_.push_back(*p);
      break;
    }
  }
}

const Placement* Executable::result(uint32_t value) const {
  const auto found = std::lower_bound(results_.begin(), results_.end(), value,
                                      [](const Placement& p, uint32_t wanted) { return p.value < wanted; });
  return found != results_.end() && found->value == value ? &*found : nullptr;
}

const BoundValue* Executable::bound(uint32_t value) const {
  const auto is = [&](const BoundValue& b) { return b.value == value; };
  const auto found = std::find_if(inputs_.bound.begin(), inputs_.bound.end(), is);
  return found == inputs_.bound.end() ? nullptr : &*found;
}

Status Executable::read(uint32_t value, uint64_t offset, std::span<std::byte> to) const {
  if (const BoundValue* own = bound(value); own != nullptr && offset + to.size() <= own->bytes) {
    return own->memory->read(offset, to);
  }
  const Placement* p = result(value);
  if (p == nullptr || offset + to.size() > p->bytes) return error(Code::internal, "value {} cannot be read", value);
  return inputs_.arenas[p->device]->read(p->offset + offset, to);
}

Status Executable::write(uint32_t value, std::span<const std::byte> from) const {
  const auto at =
      std::find_if(inputs_at_.begin(), inputs_at_.end(), [&](const Placement& p) { return p.value == value; });
  if (at == inputs_at_.end() || from.size() > at->bytes) {
    return error(Code::internal, "value {} cannot be written", value);
  }
  return inputs_.arenas[at->device]->write(at->offset, from);
}

Status Executable::read_later(uint32_t value, std::span<std::byte> to, const swy_timeline_point& done) const {
  const Placement* p = result(value);
  const BoundValue* const own = bound(value);
  const uint64_t bytes = own != nullptr ? own->bytes : p != nullptr ? p->bytes : 0;
  if (p == nullptr || to.size() > bytes) return error(Code::internal, "value {} cannot be read", value);
  const PlanDevice& device = devices_[p->device];
  const swy_submit submit{sizeof(swy_submit), 0, nullptr, 1, 0, &done};
  const swy_binding from =
      own != nullptr ? own->memory->slice(0, to.size()) : inputs_.arenas[p->device]->slice(p->offset, to.size());
  PluginError e;
  const auto read = [&](swy_error* x) {
    return device.api->read(device.handle, to.data(), from.buffer, from.offset, to.size(), &submit, x);
  };
  return e.status(call_plugin(device, "read", e.get(), read), device.name, "reading a step's results");
}

uint32_t Executable::device_of(uint32_t value) const {
  const Placement* p = result(value);
  return p == nullptr ? 0 : p->device;
}

const std::byte* Executable::view(uint32_t value) const {
  const Placement* p = result(value);
  if (p == nullptr || bound(value) != nullptr || !synchronous(p->device) || inputs_.arenas[p->device]->map() == nullptr)
    return nullptr;
  return inputs_.arenas[p->device]->map() + p->offset;
}

}  // namespace switchyard
