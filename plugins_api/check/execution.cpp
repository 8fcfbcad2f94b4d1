// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/execution.h"

#include <algorithm>
#include <utility>

#include "plugins_api/check/floating.h"
#include "plugins_api/check/host.h"
#include "plugins_api/check/sampling_needs.h"
#include "plugins_api/check/step_block.h"
#include "switchyard/weights.h"

namespace switchyard::check {
namespace {

uint64_t element_bytes(swy_dtype dtype) { return dtype == SWY_BF16 ? 2 : 4; }
uint64_t operand_bytes(const swy_tensor& t) { return t.dims[0] * t.dims[1] * element_bytes(t.dtype); }

std::vector<std::byte> bytes_of(const Values& v, swy_dtype dtype) {
  const uint64_t n = dtype == SWY_I32 ? v.ints.size() : v.floats.size();
  std::vector<std::byte> out(n * element_bytes(dtype));
  if (dtype == SWY_BF16) {
    for (uint64_t i = 0; i < n; ++i) {
      const uint16_t h = swy_f32_to_bf16(v.floats[i]);
      std::memcpy(out.data() + 2 * i, &h, 2);
    }
  } else if (!out.empty()) {
    std::memcpy(out.data(), dtype == SWY_I32 ? static_cast<const void*>(v.ints.data()) : v.floats.data(), out.size());
  }
  return out;
}

std::vector<swy_binding> bindings(const auto& list) {
  std::vector<swy_binding> out;
  for (const auto& m : list) out.push_back(m.binding());
  return out;
}

}  // namespace

std::vector<swy_tensor*> OpView::copies(const auto& list) {
  std::vector<swy_tensor*> out;
  for (const auto& o : list) out.push_back(forms_.of(o.desc));
  return out;
}

OpView::OpView(const Case& c, Form form)
    : forms_(form),
      inputs_(copies(c.inputs)),
      weights_(copies(c.weights)),
      states_(copies(c.states)),
      outputs_(copies(c.outputs)) {
  swy_op op{};
  op.struct_size = sizeof op;
  op.id = c.op;
  op.revision = c.revision;
  if (!c.attrs.empty()) {
    const auto bytes = static_cast<uint32_t>(c.attrs.size());
    op.attrs = forms_.of(c.attrs.data(), bytes);
    op.attrs_size = bytes + forms_.newer();
  }
  op.input_count = static_cast<uint32_t>(inputs_.size());
  op.weight_count = static_cast<uint32_t>(weights_.size());
  op.state_count = static_cast<uint32_t>(states_.size());
  op.output_count = static_cast<uint32_t>(outputs_.size());
  op.inputs = inputs_.data();
  op.weights = weights_.data();
  op.states = states_.data();
  op.outputs = outputs_.data();
  op_ = forms_.of(op);
}

void set_types(Case& c, Types types) {
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (!c.inputs[i].fixed) c.inputs[i].desc.dtype = types.input;
    if (c.inputs[i].desc.dtype != SWY_BF16) continue;
    for (Step& s : c.steps) {
      for (float& x : s.inputs[i].floats) x = swy_bf16_to_f32(swy_f32_to_bf16(x));
    }
  }
  for (Operand& o : c.outputs) {
    if (!o.fixed) o.desc.dtype = types.output;
  }
}

bool takes(const Plugin& plugin, const swy_kernel& kernel, const Case& c, std::string* why, bool* by_machine,
           Form form) {
  const auto refuse = [&](const std::string& reason) {
    if (why != nullptr) *why = reason;
    return false;
  };
  if (kernel.min_rows != 0 && c.bucket.rows < kernel.min_rows) return refuse("too few rows");
  if (kernel.max_rows != 0 && c.bucket.rows > kernel.max_rows) return refuse("too many rows");
  if (c.op == SWY_OP_CAST && kernel.input_dtypes != 0 &&
      ((kernel.input_dtypes & SWY_DTYPE_BIT(c.inputs[0].desc.dtype)) == 0 ||
       (kernel.output_dtypes & SWY_DTYPE_BIT(c.outputs[0].desc.dtype)) == 0)) {
    return refuse("does not cast between these types");
  }
  if ((sampling_needs(c) & ~plugin.info().sampling_steps) != 0) return refuse("the device's sampler does not cover it");
  if (kernel.op_revision < c.revision) {
    return refuse(text("implements revision ", kernel.op_revision, ", the case needs ", c.revision));
  }
  constexpr uint32_t unless_named = SWY_DTYPE_BIT(SWY_I4A + 1) - 1;
  const uint32_t types = kernel.weight_dtypes != 0 ? kernel.weight_dtypes : unless_named;
  for (const Weight& w : c.weights) {
    if (w.quantizable && (types & SWY_DTYPE_BIT(w.desc.dtype)) == 0) {
      return refuse(text("no ", swy_dtype_name(w.desc.dtype), " weights"));
    }
  }
  if (kernel.supports == nullptr) return true;
  const OpView op(c, form);
  Forms forms(form);
  PluginError e;
  const swy_status s = kernel.supports(plugin.device(), &kernel, op.get(), forms.of(c.bucket), e.get());
  if (s == SWY_OK) return true;
  if (by_machine != nullptr) *by_machine = e.get()->reason == SWY_REASON_ARCH || e.get()->reason == SWY_REASON_FLAGS;
  if (s == SWY_UNSUPPORTED) return refuse(e.line());
  e.expect_ok(s, "supports");
  return false;
}

Execution::Execution(const Plugin& plugin, const swy_kernel& kernel, const Case& c, Placement placement)
    : plugin_(plugin),
      kernel_(kernel),
      case_(c),
      forms_(placement.form),
      op_(case_, placement.form),
      placement_(placement) {
  swy_prepared prepared{};
  prepared.struct_size = sizeof prepared;
  PluginError e;
  if (kernel.prepare != nullptr) {
    swy_prepared* out = forms_.of(prepared);
    const uint32_t given = out->struct_size;
    e.expect_ok(kernel.prepare(plugin.device(), &kernel, op_.get(), forms_.of(case_.bucket), out, e.get()), "prepare");
    if (!Forms::take(out, given, &prepared)) throw Failure(text("prepare wrote beyond a struct of ", given, " bytes"));
  }
  const auto place = [&](const std::vector<Operand>& list, std::vector<Memory>& to, swy_memory_type type,
                         const char* what) {
    for (size_t i = 0; i < list.size(); ++i) {
      to.emplace_back(plugin, type, operand_bytes(list[i].desc), text(what, " ", i));
    }
  };
  place(case_.inputs, inputs_, SWY_MEMORY_DEVICE, "input");
  place(case_.outputs, outputs_, placement.outputs, "output");
  for (uint32_t i = 0; i < case_.weights.size(); ++i) prepare_weight(i, prepared.weight_layouts[std::min(i, 15u)]);
  for (uint32_t i = 0; i < case_.states.size(); ++i) states_.emplace_back(plugin, op_.get(), case_, i);
  other_.emplace_back(plugin, SWY_MEMORY_UPLOAD, step_block_bytes(case_, forms_.newer()), "the step");
  other_.emplace_back(plugin, SWY_MEMORY_DEVICE, std::max<uint64_t>(case_.tokens.size(), 1) * 4, "the token buffer");
  if (prepared.workspace_bytes != 0) {
    other_.emplace_back(plugin, SWY_MEMORY_DEVICE, prepared.workspace_bytes, "the workspace");
  }
  try {
    record();
  } catch (...) {
    if (list_ != nullptr) plugin.api().list_free(list_);
    throw;
  }
}

Execution::~Execution() {
  if (list_ != nullptr) plugin_.api().list_free(list_);
}

Shared<std::byte> Execution::packed(uint32_t index, uint32_t layout) const {
  const Weight& w = case_.weights[index];
  if (layout == 0) return w.segment;
  if (placement_.like != nullptr && placement_.like->layouts_[index] == layout) {
    return placement_.like->weight_bytes_[index];
  }
  const swy_plugin& api = plugin_.api();
  PluginError e;
  uint64_t size = 0;
  e.expect_ok(api.packed_bytes(&w.desc, layout, &size, e.get()), text("packed_bytes of weight ", index));
  std::vector<std::byte> bytes(size, std::byte{0}), again(size, std::byte{0xff});
  e.expect_ok(api.pack(&w.desc, layout, w.segment.data(), bytes.data(), e.get()), text("packing weight ", index));
  e.expect_ok(api.pack(&w.desc, layout, w.segment.data(), again.data(), e.get()), text("packing weight ", index));
  if (bytes != again) {
    throw Failure(text("packing weight ", index, " twice into layout ", layout,
                       " gives different bytes, or does not write all of them"));
  }
  return Shared(std::move(bytes));
}

void Execution::prepare_weight(uint32_t index, uint32_t layout) {
  const Shared<std::byte>& bytes = weight_bytes_.emplace_back(packed(index, layout));
  layouts_.push_back(layout);
  weights_.emplace_back(plugin_, SWY_MEMORY_DEVICE, bytes.size(), text("weight ", index));
  weights_.back().write(bytes.data(), bytes.size());
  op_.set_layout(index, layout);  // for `record`
}

void Execution::record() {
  swy_list_info info{};
  info.struct_size = sizeof info;
  info.bucket = forms_.of(case_.bucket);
  info.step = other_[0].binding();
  info.tokens = other_[1].binding();
  PluginError e;
  e.expect_ok(plugin_.api().list_begin(plugin_.device(), forms_.of(info), &list_, e.get()), "list_begin");
  const auto inputs = bindings(inputs_), weights = bindings(weights_), states = bindings(states_);
  auto outputs = bindings(outputs_);
  if (placement_.in_place) outputs[0] = inputs[0];
  swy_bindings b{sizeof b, 0, inputs.data(), weights.data(), states.data(), outputs.data(), {}};
  if (other_.size() > 2) b.workspace = other_[2].binding();
  e.expect_ok(kernel_.record(list_, &kernel_, op_.get(), forms_.of(b), e.get()), "record");
  e.expect_ok(plugin_.api().list_finalize(list_, e.get()), "list_finalize");
}

Matrix Execution::read_output(const Step& step, uint32_t index) const {
  const swy_tensor& t = case_.outputs[index].desc;
  Matrix m{step.rows(t.rows), t.dims[1], t.dtype, {}, {}};
  const uint64_t n = m.rows * m.width;
  const Memory& from = placement_.in_place && index == 0 ? inputs_[0] : outputs_[index];
  if (t.dtype == SWY_I32) {
    m.ints.resize(n);
    from.read(m.ints.data(), n * 4);
  } else if (t.dtype == SWY_BF16) {
    std::vector<uint16_t> raw(n);
    from.read(raw.data(), n * 2);
    for (const uint16_t h : raw) m.values.push_back(swy_bf16_to_f32(h));
  } else {
    std::vector<float> raw(n);
    from.read(raw.data(), n * 4);
    m.values.assign(raw.begin(), raw.end());
  }
  return m;
}

void Execution::expect_untouched_inputs(const Case& c, const Step& step) const {
  for (uint32_t i = placement_.in_place ? 1 : 0; i < inputs_.size(); ++i) {
    const std::vector<std::byte> given = bytes_of(step.inputs[i], c.inputs[i].desc.dtype);
    std::vector<std::byte> now(given.size());
    inputs_[i].read(now.data(), now.size());
    if (now != given) throw Failure(text("changed its input ", i));
  }
  for (uint32_t i = 0; i < weights_.size(); ++i) {
    if (!weights_[i].holds(weight_bytes_[i].data(), weight_bytes_[i].size())) {
      throw Failure(text("changed its weight ", i));
    }
  }
}

void Execution::run_step(const Case& c, const Step& step, std::vector<Matrix>& outputs) {
  for (uint32_t i = 0; i < inputs_.size(); ++i) {
    inputs_[i].poison();
    const std::vector<std::byte> bytes = bytes_of(step.inputs[i], c.inputs[i].desc.dtype);
    inputs_[i].write(bytes.data(), bytes.size());
  }
  for (const Memory& m : outputs_) m.poison();
  const std::vector<std::byte> block = step_block(step, case_.bucket, ++submissions_, forms_.newer());
  other_[0].write(block.data(), block.size());
  const uint64_t allocations = host_allocations();
  submit(nullptr);
  if (const std::string left = floating_misuse(); !left.empty()) throw Failure("list_submit " + left);
  if (host_allocations() != allocations) throw Failure("list_submit allocated memory of the host");
  for (uint32_t i = 0; i < outputs_.size(); ++i) outputs.push_back(read_output(step, i));
  for (const auto* list : {&inputs_, &outputs_, &other_}) {
    for (const Memory& m : *list) m.expect_guards();
  }
  for (const StateMemory& m : states_) m.expect_guards();
  expect_untouched_inputs(c, step);
}

void Execution::submit(const swy_submit* submit) const {
  PluginError e;
  e.expect_ok(plugin_.api().list_submit(list_, submit, e.get()), "list_submit");
}

void Execution::wait() const {
  uint32_t first = 0;
  other_[0].read(&first, sizeof first);  // reads come after what was submitted before
}

Outcome Execution::run(const Case& c) {
  const uint32_t page_size = case_.bucket.page_size;
  for (uint32_t i = 0; i < states_.size(); ++i) states_[i].bring(c.states[i], page_size);
  if (!c.tokens.empty()) other_[1].write(c.tokens.data(), c.tokens.size() * 4);
  Outcome out;
  for (uint32_t i = 0; i < states_.size(); ++i) {
    out.before.push_back({states_[i].content(c.states[i], page_size), states_[i].unit_bytes()});
  }
  const bool first = submissions_ == 0;
  for (const Step& step : c.steps) {
    // Later runs find the workspace as the first one left it, as the steps of a host do.
    if (first && other_.size() > 2) other_[2].poison();
    run_step(c, step, out.outputs.emplace_back());
  }
  for (uint32_t i = 0; i < states_.size(); ++i) out.states.push_back(states_[i].content(c.states[i], page_size));
  out.tokens.resize(c.tokens.size());
  other_[1].read(out.tokens.data(), out.tokens.size() * 4);
  return out;
}

}  // namespace switchyard::check
