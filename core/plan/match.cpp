// SPDX-License-Identifier: Apache-2.0
#include "core/plan/match.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "core/plugin/call.h"
#include "core/plugin/kernel_names.h"
#include "core/program/op_names.h"

namespace switchyard {
namespace {

// Errors of plugins land in a buffer of ours.
struct ErrorBuffer {
  std::array<char, 512> text{};
  swy_error error{sizeof(swy_error), static_cast<uint32_t>(text.size()), text.data(), SWY_REASON_NONE, 0};
  std::string str(const char* fallback) const { return text[0] != '\0' ? std::string(text.data()) : fallback; }
};

// The first of the operation's weights whose encoding the kernel does not name; NULL: it names all.
const GraphTensor* foreign_weight(const Graph& graph, const swy_kernel& kernel, const std::vector<uint32_t>& weights) {
  for (const uint32_t w : weights) {
    const swy_encoding* e = graph.weights[w].desc.encoding;
    if (e == nullptr) continue;
    const auto known = encodings_of(kernel);
    if (std::find(known.begin(), known.end(), e->name) == known.end()) return &graph.weights[w];
  }
  return nullptr;
}

// The types of quantizable weights that a kernel takes, besides SWY_ENCODED.
uint32_t weight_types(const swy_kernel& kernel) {
  constexpr uint32_t before_masks = SWY_DTYPE_BIT(SWY_I4A + 1) - 1;  // of headers whose kernels could not name others
  return kernel.weight_dtypes != 0 ? kernel.weight_dtypes : before_masks;
}

bool is_activation(swy_dtype d) { return d == SWY_F32 || d == SWY_BF16; }

// Whether ops.h allows weight `index` to be quantized. Of an operation with a name: matrices.
bool is_quantizable(const swy_op& op, uint32_t index) {
  const swy_op_spec* spec = swy_find_op(op.id, op.revision);
  if (spec == nullptr) return op.weights[index]->rank >= 2;
  uint32_t place = 0;
  for (const swy_operand_spec& o : std::span(spec->operands, spec->operand_count)) {
    if (o.list != SWY_REF_WEIGHT) continue;
    place += swy_operand_places(&o, op.attrs, place, op.weight_count, op.output_count);
    if (index < place) return (o.dtypes & SWY_DTYPE_BIT(SWY_I8)) != 0;
  }
  return false;
}

// Why the kernel cannot read a weight, by its type alone; empty: it can.
std::string foreign_type(const swy_kernel& kernel, const swy_op& op) {
  for (uint32_t i = 0; i < op.weight_count; ++i) {
    const swy_dtype d = op.weights[i]->dtype;
    if (d == SWY_ENCODED || (weight_types(kernel) & SWY_DTYPE_BIT(d)) != 0 || !is_quantizable(op, i)) continue;
    return fmt::format("no {} weights", dtype_name(d));
  }
  return {};
}

// Whether a kernel knows all that the operation says: its revision, and how its weights are stored.
bool knows(const Graph& graph, const swy_kernel& kernel, const GraphOp& op) {
  if (foreign_weight(graph, kernel, op.weights) != nullptr) return false;
  const auto foreign = [&](uint32_t w) {
    const swy_dtype d = graph.weights[w].desc.dtype;
    return d == SWY_MXFP4 && (weight_types(kernel) & SWY_DTYPE_BIT(d)) == 0;
  };
  const bool revision = op.id == SWY_OP_NAMED || kernel.op_revision >= op.revision;
  return revision && std::none_of(op.weights.begin(), op.weights.end(), foreign);
}

}  // namespace

bool serves(const swy_kernel& kernel, const GraphOp& op) {
  return kernel.op == op.id && (op.id != SWY_OP_NAMED || named_op_of(kernel) == op.named);
}

bool is_announced(const PlanDevice& device, const GraphOp& op) {
  for (uint32_t i = 0; i < device.api->kernel_count(device.handle); ++i) {
    const swy_kernel* k = device.api->kernel_at(device.handle, i);
    if (k != nullptr && serves(*k, op)) return true;
  }
  return false;
}

bool is_known(const PlanDevice& device, const Graph& graph, const GraphOp& op) {
  const auto known_first = [&](uint32_t w) { return graph.weights[w].desc.dtype <= SWY_I4A; };
  if (op.id != SWY_OP_NAMED && op.revision == 1 && std::all_of(op.weights.begin(), op.weights.end(), known_first)) {
    return true;
  }
  for (uint32_t i = 0; i < device.api->kernel_count(device.handle); ++i) {
    const swy_kernel* k = device.api->kernel_at(device.handle, i);
    if (k != nullptr && serves(*k, op) && knows(graph, *k, op)) return true;
  }
  return false;
}

const swy_kernel* kernel_named(const PlanDevice& device, swy_op_id op, const std::string& name) {
  for (uint32_t i = 0; i < device.api->kernel_count(device.handle); ++i) {
    const swy_kernel* k = device.api->kernel_at(device.handle, i);
    if (k != nullptr && k->op == op && name == k->name) return k;
  }
  return nullptr;
}

swy_dtype preferred_dtype(swy_dtype declared, uint32_t mask) {
  if (!is_activation(declared) || mask == 0 || (mask & SWY_DTYPE_BIT(declared)) != 0) return declared;
  return declared == SWY_F32 ? SWY_BF16 : SWY_F32;
}

void set_kernel_dtypes(const swy_kernel& kernel, OpView& view) {
  for (swy_tensor& t : view.inputs()) t.dtype = preferred_dtype(t.dtype, kernel.input_dtypes);
  for (swy_tensor& t : view.outputs()) t.dtype = preferred_dtype(t.dtype, kernel.output_dtypes);
}

Matcher::Matcher(const std::vector<PlanDevice>& devices, const std::vector<VariantRule>& variants,
                 const swy_bucket& bucket, const Tuning* tuning, const Refusals* refusals)
    : devices_(devices), variants_(variants), bucket_(bucket), refusals_(refusals) {
  if (tuning == nullptr || (bucket.flags & SWY_BUCKET_DETERMINISTIC) != 0) return;
  for (const PlanDevice& d : devices) tuned_.push_back(tuning->find(d));
}

// The kernel that was measured to be fastest; equal ones as estimated. If one of them was not measured, estimates
// decide. A kernel whose results repeat is never replaced by one whose results do not.
void Matcher::choose_tuned(const Graph& graph, const GraphOp& op, uint32_t device, std::span<Considered> answers,
                           Match& best) const {
  const TunedDevice* tuned = tuned_.empty() ? nullptr : tuned_[device];
  if (tuned == nullptr || !best.weights.empty()) return;  // what was measured reads other weights
  for (Considered& c : answers) {
    if (!c.accepted) continue;
    const auto us = Tuning::cost(*tuned, graph, op, c.kernel, bucket_);
    if (!us) {
      for (Considered& all : answers) all.tuned_us = 0;
      return;
    }
    c.tuned_us = *us;
  }
  const uint32_t needed = best.kernel->flags & SWY_KERNEL_DETERMINISTIC;
  const Considered* first = nullptr;
  for (const Considered& c : answers) {
    const swy_kernel* kernel = c.accepted ? kernel_named(devices_[device], op.id, c.kernel) : nullptr;
    if (kernel == nullptr || (kernel->flags & needed) != needed) continue;
    if (first != nullptr && std::pair(c.tuned_us, c.cost_us) >= std::pair(first->tuned_us, first->cost_us)) continue;
    first = &c;
    best.kernel = kernel;
  }
  best.source = "tuned " + tuned->date;
}

bool Matcher::supports(uint32_t device, const swy_kernel& kernel, const OpView& view) const {
  ErrorBuffer e;
  const auto ask = [&](swy_error* x) {
    return kernel.supports(devices_[device].handle, &kernel, view.get(), &bucket_, x);
  };
  return kernel.supports == nullptr ||
         call_plugin(devices_[device].label, "supports", kernel.name, &e.error, ask) == SWY_OK;
}

std::string Matcher::forced(const std::string& op) const {
  std::string names;
  for (const VariantRule& rule : variants_) {
    if (rule.op == op && !rule.forbid) names += (names.empty() ? "" : ", ") + rule.kernel;
  }
  return names;
}

std::string Matcher::ruled_out(const std::string& op, const std::string& kernel) const {
  bool named = false;
  for (const VariantRule& rule : variants_) {
    if (rule.op != op || rule.kernel != kernel) continue;
    if (rule.forbid) return "forbidden by --variant";
    named = true;
  }
  const std::string others = named ? "" : forced(op);
  return others.empty() ? "" : "--variant forces " + others;
}

std::string Matcher::dropped(uint32_t device, const std::string& kernel, const std::string& op) const {
  if (refusals_ == nullptr || refusals_->count() == 0) return {};
  return refusals_->find(device, kernel, op, any_bucket_ ? nullptr : &bucket_);
}

std::string Matcher::refuse(const PlanDevice& device, const swy_kernel& kernel, const GraphOp& op, OpView& view) const {
  if (std::string reason = ruled_out(op_kind(op), kernel.name); !reason.empty()) return reason;
  if (refusals_ != nullptr && refusals_->count() != 0) {
    const auto index = static_cast<uint32_t>(&device - devices_.data());
    if (std::string reason = dropped(index, kernel.name, op.name); !reason.empty()) return reason;
  }
  if (op.id != SWY_OP_NAMED && kernel.op_revision < op.revision) {
    return fmt::format("implements revision {}, the program needs {}", kernel.op_revision, op.revision);
  }
  constexpr uint32_t invariant = SWY_KERNEL_DETERMINISTIC | SWY_KERNEL_BATCH_INVARIANT;
  if ((bucket_.flags & SWY_BUCKET_DETERMINISTIC) != 0 && (kernel.flags & invariant) != invariant) {
    return "not batch-invariant, which --deterministic requires";
  }
  if ((kernel.flags & SWY_KERNEL_CAPTURE_SAFE) == 0)
    return "cannot be recorded and replayed (not SWY_KERNEL_CAPTURE_SAFE)";
  if (bucket_.rows < kernel.min_rows || (kernel.max_rows != 0 && bucket_.rows > kernel.max_rows)) {
    return fmt::format("takes {} to {} rows, the bucket has {}", kernel.min_rows, kernel.max_rows, bucket_.rows);
  }
  constexpr uint32_t activations = SWY_DTYPE_BIT(SWY_F32) | SWY_DTYPE_BIT(SWY_BF16);
  for (const uint32_t mask : {kernel.input_dtypes, kernel.output_dtypes}) {
    if (mask != 0 && (mask & activations) == 0) return "has inputs or outputs that are neither f32 nor bf16";
  }
  if (op.id == SWY_OP_CAST) {
    const swy_dtype from = view.inputs()[0].dtype, to = view.outputs()[0].dtype;
    if (preferred_dtype(from, kernel.input_dtypes) != from || preferred_dtype(to, kernel.output_dtypes) != to) {
      return fmt::format("does not cast {} to {}", dtype_name(from), dtype_name(to));
    }
  }
  if (std::string reason = foreign_type(kernel, *view.get()); !reason.empty()) return reason;
  if (kernel.supports != nullptr) {
    ErrorBuffer e;
    const auto ask = [&](swy_error* x) { return kernel.supports(device.handle, &kernel, view.get(), &bucket_, x); };
    if (call_plugin(device.label, "supports", kernel.name, &e.error, ask) != SWY_OK) {
      return e.str("refused without a reason");
    }
  }
  return {};
}

void Matcher::ask(const PlanDevice& d, const swy_kernel& kernel, const Graph& graph, const GraphOp& op,
                  Considered& c) const {
  OpView view(graph, op, bucket_);
  if (op.id != SWY_OP_CAST) set_kernel_dtypes(kernel, view);
  c.reason = refuse(d, kernel, op, view);
  if (c.reason.empty() && kernel.cost != nullptr) {
    ErrorBuffer e;
    const auto cost = [&](swy_error* x) { return kernel.cost(d.handle, &kernel, view.get(), &bucket_, &c.cost_us, x); };
    if (call_plugin(d.label, "cost", kernel.name, &e.error, cost) != SWY_OK || !std::isfinite(c.cost_us) ||
        c.cost_us < 0) {
      c.reason = "cannot estimate its cost: " + e.str("no reason given");
    }
  }
  c.accepted = c.reason.empty();
}

// Asks with the weights whose encodings the kernel does not name decoded: to bf16, or to fp32 where it does not take
// that. Returns the weights that it then reads.
std::vector<uint32_t> Matcher::ask_decoded(const PlanDevice& d, const swy_kernel& kernel, const Graph& graph,
                                           const GraphOp& op, Considered& c) const {
  const GraphTensor& foreign = *foreign_weight(graph, kernel, op.weights);
  GraphOp decoded = op;
  std::string reasons;
  for (const auto form : {&GraphTensor::bf16, &GraphTensor::f32}) {
    for (size_t i = 0; i < op.weights.size(); ++i) {
      if (foreign_weight(graph, kernel, {op.weights[i]}) == nullptr) continue;
      decoded.weights[i] = graph.weights[op.weights[i]].*form;
    }
    ask(d, kernel, graph, decoded, c);
    if (c.accepted) return decoded.weights;
    if (reasons.find(c.reason) == std::string::npos) reasons += (reasons.empty() ? "" : "; ") + c.reason;
  }
  c.reason = fmt::format("no {} weights, and decoded: {}", foreign.desc.encoding->name, reasons);
  return {};
}

std::optional<Match> Matcher::best(const Graph& graph, const GraphOp& op, uint32_t device, const std::string& as,
                                   std::vector<Considered>& considered) const {
  const PlanDevice& d = devices_[device];
  std::optional<Match> best;
  bool any = false;
  const size_t before = considered.size();
  for (uint32_t i = 0; i < d.api->kernel_count(d.handle); ++i) {
    const swy_kernel* kernel = d.api->kernel_at(d.handle, i);
    if (kernel == nullptr || !serves(*kernel, op)) continue;
    any = true;
    Considered c{d.name, kernel->name, as, false, 0, ""};
    std::vector<uint32_t> weights;
    if (foreign_weight(graph, *kernel, op.weights) == nullptr) {
      ask(d, *kernel, graph, op, c);
    } else {
      weights = ask_decoded(d, *kernel, graph, op, c);
    }
    if (c.accepted && (!best || c.cost_us < best->cost_us)) {
      best = Match{kernel, c.cost_us, "estimate", std::move(weights)};
    }
    considered.push_back(std::move(c));
  }
  if (!any && as == "composite") {
    considered.push_back({d.name, "", as, false, 0, fmt::format("no kernel for {}", op_kind(op))});
  }
  if (!best) return best;
  if (!forced(op_kind(op)).empty()) {
    best->source = "forced";
  } else {
    choose_tuned(graph, op, device, std::span(considered).subspan(before), *best);
  }
  return best;
}

}  // namespace switchyard
