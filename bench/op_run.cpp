// SPDX-License-Identifier: Apache-2.0
#include "bench/op_run.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "core/plan/match.h"
#include "switchyard/weights.h"

namespace switchyard::bench {
namespace {

constexpr uint64_t kAlign = 4096;

uint64_t aligned(uint64_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

// [rows, width] of normal numbers that bf16 holds, so that both types can have the same; of expert ids, distinct ones
// per row. Inputs differ, so that a kernel that takes one for another is noticed.
std::vector<float> random_values(const GraphValue& value, uint64_t rows, uint32_t experts, size_t input) {
  std::vector<float> numbers(rows * value.width);
  std::minstd_rand random(static_cast<uint32_t>(7 + input));
  std::normal_distribution<float> normal;
  for (uint64_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = value.dtype == SWY_I32
                     ? static_cast<float>((i / value.width * 31 + i % value.width) % std::max(experts, 1u))
                     : swy_bf16_to_f32(swy_f32_to_bf16(normal(random)));
  }
  return numbers;
}

uint32_t experts_of(const GraphOp& op) {
  if (op.id != SWY_OP_EXPERTS && op.id != SWY_OP_MOE && op.id != SWY_OP_MOE_ADD) return 1;
  return op.attrs_as<swy_moe_attrs>().experts;
}

}  // namespace

OpRun::~OpRun() {
  if (list_ != nullptr) context_.device.api->list_free(list_);
}

Result<std::unique_ptr<OpRun>> OpRun::create(const OpContext& context, const swy_kernel& kernel,
                                             std::span<const GraphOp> ops, uint32_t least_ops) {
  std::unique_ptr<OpRun> run(new OpRun(context, kernel));
  run->graph_ = *context.graph;
  SWY_TRY(run->lay_out(ops[0]));
  SWY_TRY(run->fill(ops[0]));
  SWY_TRY(run->write_step());
  const PlanDevice& device = run->context_.device;
  PluginError e;
  swy_list_info info{};
  info.struct_size = sizeof info;
  info.bucket = &run->context_.bucket;
  info.step = run->step_.all();
  info.tokens = run->tokens_.all();
  SWY_TRY(e.status(device.api->list_begin(device.handle, &info, &run->list_, e.get()), device.name));
  std::vector<std::vector<swy_binding>> states(ops.size());
  for (size_t i = 0; i < ops.size(); ++i) SWY_TRY(run->allocate_states(ops[i], states[i]));
  do {
    for (size_t i = 0; i < ops.size(); ++i) SWY_TRY(run->record(ops[i], states[i]));
  } while (run->count_ < least_ops);
  SWY_TRY(e.status(device.api->list_finalize(run->list_, e.get()), device.name));
  return run;
}

// All operations use the activations of the first one: only weights and states are large enough to matter.
Status OpRun::lay_out(const GraphOp& op) {
  for (const uint32_t v : op.inputs) {
    graph_.values[v].dtype = preferred_dtype(graph_.values[v].dtype, kernel_.input_dtypes);
  }
  for (const uint32_t v : op.outputs) {
    graph_.values[v].dtype = preferred_dtype(graph_.values[v].dtype, kernel_.output_dtypes);
  }
  const PlanDevice& device = context_.device;
  PluginError e;
  prepared_.struct_size = sizeof prepared_;
  if (kernel_.prepare != nullptr) {
    const OpView view(graph_, op, context_.bucket);
    SWY_TRY(e.status(kernel_.prepare(device.handle, &kernel_, view.get(), &context_.bucket, &prepared_, e.get()),
                     kernel_.name));
  }
  uint64_t total = 0;
  const auto add = [&](uint64_t bytes) {
    offsets_.push_back(total);
    sizes_.push_back(bytes);
    total += aligned(bytes);
  };
  for (const uint32_t v : op.inputs) add(value_bytes(graph_.values[v], context_.bucket));
  inputs_ = op.inputs;
  outputs_ = op.outputs;
  for (const uint32_t v : op.outputs) add(value_bytes(graph_.values[v], context_.bucket));
  add(prepared_.workspace_bytes);
  SWY_LET(arena_, DeviceBuffer::allocate(device, SWY_MEMORY_DEVICE, std::max(total, kAlign), "activations"));
  return {};
}

Status OpRun::fill(const GraphOp& op) {
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const GraphValue& value = graph_.values[op.inputs[i]];
    SWY_TRY(set_input(i, random_values(value, value_rows(value, context_.bucket), experts_of(op), i)));
  }
  return {};
}

Status OpRun::set_input(size_t i, const std::vector<float>& numbers) {
  return arena_.write(offsets_[i], bytes_of(numbers, graph_.values[inputs_[i]].dtype));
}

// Sequences that are alike, their rows from `position` on.
Status OpRun::write_step() {
  const swy_bucket& b = context_.bucket;
  std::vector<int32_t> tokens(b.rows);
  std::minstd_rand random(11);
  for (int32_t& t : tokens) t = static_cast<int32_t>(random() % context_.vocab);
  std::vector<uint32_t> pages(b.pages);
  for (uint32_t i = 0; i < b.pages; ++i) pages[i] = i;
  const uint32_t rows = b.rows / b.seqs, per_seq = b.pages / b.seqs;
  std::vector<StepSequence> sequences;
  for (uint32_t i = 0; i < b.seqs; ++i) {
    const uint32_t logits = b.seqs == 1 ? b.logit_rows : i < b.logit_rows ? 1 : 0;
    sequences.push_back({std::span(tokens).subspan(uint64_t{i} * rows, rows), context_.position, i, i,
                         std::span(pages).subspan(uint64_t{i} * per_seq, per_seq), logits});
  }
  StepBuilder builder({b.rows, b.seqs, per_seq, b.page_size, 0});
  SWY_LET(const auto block, builder.build(sequences, 1));
  SWY_LET(step_, DeviceBuffer::allocate(context_.device, SWY_MEMORY_UPLOAD, block.size(), "steps"));
  SWY_LET(tokens_, DeviceBuffer::allocate(context_.device, SWY_MEMORY_DEVICE, uint64_t{b.seqs} * 4, "tokens"));
  return step_.write(0, block);
}

Status OpRun::allocate_states(const GraphOp& op, std::vector<swy_binding>& bindings) {
  const PlanDevice& device = context_.device;
  for (uint32_t i = 0; i < op.states.size(); ++i) {
    if (context_.states != nullptr) {
      SWY_LET(const swy_binding state, context_.states->get(device, graph_, op, i, context_.bucket));
      bindings.push_back(state);
      continue;
    }
    const OpView view(graph_, op, context_.bucket);
    swy_state_layout layout{};
    layout.struct_size = sizeof layout;
    PluginError e;
    SWY_TRY(
        e.status(device.api->state_layout(device.handle, view.get(), i, &context_.bucket, &layout, e.get()), op.name));
    const bool paged = graph_.states[op.states[i]].desc.state == SWY_STATE_PAGED;
    const uint64_t units = paged ? context_.bucket.pages : context_.bucket.slots;
    SWY_LET(DeviceBuffer state,
            DeviceBuffer::allocate(device, SWY_MEMORY_DEVICE, layout.unit_bytes * units, "state of " + op.name));
    states_.push_back(std::move(state));
    bindings.push_back(states_.back().all());
  }
  return {};
}

Status OpRun::record(const GraphOp& op, const std::vector<swy_binding>& states) {
  std::vector<swy_binding> inputs, weights, outputs;
  for (size_t i = 0; i < op.inputs.size(); ++i) inputs.push_back(place(i));
  for (size_t i = 0; i < op.outputs.size(); ++i) outputs.push_back(place(op.inputs.size() + i));
  for (size_t i = 0; i < op.weights.size(); ++i) {
    SWY_LET(const swy_binding w, context_.weights->get(weight_use(graph_, op.weights[i], context_.device_index,
                                                                  prepared_.weight_layouts[i])));
    weights.push_back(w);
  }
  // The activations are the first operation's in type, too: a later one of its shape may have been cast elsewhere.
  swy_bindings bindings{sizeof(swy_bindings), 0, inputs.data(), weights.data(), states.data(), outputs.data(), {}};
  if (prepared_.workspace_bytes != 0) bindings.workspace = place(sizes_.size() - 1);
  OpView view(graph_, op, context_.bucket);
  set_kernel_dtypes(kernel_, view);
  view.set_layouts(prepared_.weight_layouts);
  PluginError e;
  ++count_;
  return e.status(kernel_.record(list_, &kernel_, view.get(), &bindings, e.get()), "recording " + op.name);
}

Status OpRun::run() {
  const PlanDevice& device = context_.device;
  PluginError e;
  SWY_TRY(e.status(device.api->list_submit(list_, nullptr, e.get()), device.name));
  if ((device.info.flags & SWY_DEVICE_SYNCHRONOUS) != 0) return {};
  std::byte end[4];  // a read waits for earlier submissions
  return arena_.read(0, end);
}

Result<std::vector<float>> OpRun::numbers(uint32_t value, size_t place) const {
  const GraphValue& v = graph_.values[value];
  std::vector<std::byte> bytes(value_rows(v, context_.bucket) * v.width * dtype_bytes(v.dtype));
  SWY_TRY(arena_.read(offsets_[place], bytes));
  return numbers_of(bytes, v.dtype);
}

Result<std::vector<std::vector<float>>> OpRun::inputs() const {
  std::vector<std::vector<float>> all(inputs_.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    SWY_LET(all[i], numbers(inputs_[i], i));
  }
  return all;
}

Result<std::vector<std::vector<float>>> OpRun::outputs() const {
  std::vector<std::vector<float>> all(outputs_.size());
  for (size_t i = 0; i < outputs_.size(); ++i) {
    SWY_LET(all[i], numbers(outputs_[i], inputs_.size() + i));
  }
  return all;
}

}  // namespace switchyard::bench
