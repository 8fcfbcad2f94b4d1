// SPDX-License-Identifier: Apache-2.0
// Records the kernels of a range.
#include <mutex>

#include "attention/attention_decode.h"
#include "common/projection.cuh"
#include "gated_delta/gated_delta_batch.h"
#include "gated_delta/gated_delta_step.h"
#include "linear/linear_boxes.h"
#include "linear/linear_bytes.h"
#include "linear/linear_few_ready.h"
#include "linear/linear_router.h"
#include "moe/moe_boxes.h"
#include "moe/moe_bytes.h"
#include "moe/moe_grouped.h"
#include "range_parts.h"
#include "range_prompt.h"
#include "switchyard/sdk/negotiate.hpp"

namespace gpu {
namespace {

constexpr uint32_t kMostSpared = 8, kMostRoutedBeside = 32;  // rows

bool same(const swy_binding& a, const swy_binding& b) { return a.buffer == b.buffer && a.offset == b.offset; }

// Some of a range's operations that end with an addition, and their bindings.
struct Part {
  const swy_op* const* ops;
  const swy_bindings* const* bindings;
  uint32_t count;

  Part(const swy_range_operands& o, uint32_t first, uint32_t n)
      : ops(o.ops + first), bindings(o.bindings + first), count(n) {}
  const swy_binding& sum() const { return bindings[count - 1]->outputs[0]; }
  // The other operand of the addition; null if it does not add to the previous operation's output, if the operand is a
  // value that the range does not write, or if the operations do not read each other.
  const swy_binding* residual() const {
    const swy_binding &value = bindings[count - 2]->outputs[0], *inputs = bindings[count - 1]->inputs;
    const swy_binding* other = same(inputs[0], value) ? &inputs[1] : same(inputs[1], value) ? &inputs[0] : nullptr;
    for (uint32_t i = 0; i + 1 < count && other != nullptr; ++i) {
      const bool feeds = i + 2 == count || same(bindings[i]->outputs[0], bindings[i + 1]->inputs[0]);
      if (!feeds || same(*other, bindings[i]->outputs[0])) return nullptr;
    }
    return other;
  }
};

template <class T = float>
T* at(const swy_binding& b) {
  return b.buffer == nullptr ? nullptr : reinterpret_cast<T*>(b.buffer->data + b.offset);
}

// Multiprocessors that the output projection of so many rows leaves to the router behind it: each eight rows have a
// cluster of eight blocks there, and no block of it has room beside one of the projection. If clusters of the
// projection were everywhere, the router could not load its weights before these have ended. So it was on an H200 with
// five sessions and 32 value heads, where the delta rule has few blocks more than the card has multiprocessors. Steps
// of five to eight sessions have the same list, and with seven or eight the router finds room anyway, so these leave
// fewer (docs/evidence/cuda-five-to-eight.md). The clusters of more than 32 rows are too many.
uint32_t left_to_router(const swy_device& device, uint32_t rows) {
  const auto all = static_cast<uint32_t>(device.processors);
  return rows <= kMostSpared ? all / 8 : rows <= kMostRoutedBeside ? all / 2 : 0;
}

swy_status record_first(swy_list* list, const Part& part, char* workspace, const RouterRows* router, swy_error* error) {
  const uint32_t i = part.count - 2;
  const Operands linear_operands{*part.ops[i], *part.bindings[i]};
  const Recording linear{*list, *part.ops[i], linear_operands, error};
  Projection p = linear_projection(linear);
  p.residual = at(*part.residual());
  p.y[0] = at(part.sum());
  if (part.count != kSequenceMixer) return record_boxes(linear, p, nullptr, router);
  const Operands mixer_operands{*part.ops[0], *part.bindings[0]};
  const Recording mixer{*list, *part.ops[0], mixer_operands, error};
  const bool attends = mixer.op.id == SWY_OP_ATTENTION;
  if (attends && rows_of(linear.op) == 1) {
    if (router == nullptr) {  // its weight found no memory
      SWY_CUDA_TRY(record_attention_halves(mixer, workspace, {}));
      return record_boxes(linear, p, nullptr);
    }
    const auto parts = HeadParts::in(workspace, p.width / HeadParts::kDim);
    SWY_CUDA_TRY(record_attention_parts(mixer, parts));
    return record_boxes(linear, p, nullptr, router, &parts);
  }
  if (attends) {
    const HeadNorm heads{HalfRows::in(mixer_operands.output("y"), rows_of(linear.op), p.width)};
    SWY_CUDA_TRY(record_attention_halves(mixer, workspace, heads.x));
    return record_boxes(linear, p, &heads, router);
  }
  if (many_rows_of_prompts(part.ops, list->bucket)) {
    return record_prompts(mixer, linear, p.residual, p.y[0], workspace);
  }
  Delta d = delta_of(mixer);
  if (rows_of(linear.op) > kQuad) {
    d.few = few_rows_in(workspace, linear.op);
    SWY_CUDA_TRY(record_delta_batch(mixer, d));
    return record_few_ready(linear, p, d.few, left_to_router(*list->device, rows_of(linear.op)));
  }
  d.squares = reinterpret_cast<float*>(workspace);
  d.heads = HalfRows::in(d.y, rows_of(linear.op), d.values());
  SWY_CUDA_TRY(by_batch(*list->device, mixer.op, list->bucket) ? record_delta_batch(mixer, d)
                                                               : record_delta_raw(mixer, d));
  const HeadNorm heads{d.heads, d.squares, d.value_dim, d.norm_eps};
  return record_boxes(linear, p, &heads, router);
}

// A mixture with its norm.
struct NormedMixture {
  Operands norm_operands, moe_operands;
  Recording moe;
  InputNorm norm;

  NormedMixture(swy_list* list, const Part& part, swy_error* error)
      : norm_operands{*part.ops[0], *part.bindings[0]},
        moe_operands{*part.ops[1], *part.bindings[1]},
        moe{*list, *part.ops[1], moe_operands, error} {
    const auto& a = *static_cast<const swy_rms_norm_attrs*>(norm_operands.op.attrs);
    norm = {norm_operands.weight("w"), a.eps, a.weight_bias};
  }
  Mixture mixture(const Part& part, Arena& arena) const {
    Mixture m = mixture_of(moe, arena);
    m.x = norm_operands.input("x");
    m.residual = at(*part.residual());
    m.y = at(part.sum());
    return m;
  }
};

// `next`, or `bytes`: the rows of the projection behind the mixture, or none.
swy_status record_second(swy_list* list, const Part& part, char* workspace, const NextRows& next, swy_error* error,
                         const NormedBytes* bytes = nullptr) {
  const NormedMixture n(list, part, error);
  const auto* x = n.norm_operands.input("x");
  const auto* residual = at(*part.residual());
  if (many_rows(n.moe.op)) return record_normed_bytes(n.moe, workspace, x, n.norm, residual, at(part.sum()), bytes);
  if (!by_boxes(*list->device, n.moe.op)) {
    return record_normed_grouped(n.moe, workspace, x, n.norm, residual, at(part.sum()), next);
  }
  Arena arena(workspace);
  const Mixture m = n.mixture(part, arena);
  return record_moe_boxes(n.moe, m, arena, &n.norm);
}

// Both parts, with the router's logits from the projection. SWY_OUT_OF_DEVICE_MEMORY, and nothing recorded: there is no
// memory for the weight that this needs.
swy_status record_layer(swy_list* list, const Part& first, const Part& second, char* workspace, char* of_mixture,
                        swy_error* error) {
  const NormedMixture n(list, second, error);
  Arena arena(of_mixture);
  const Mixture m = n.mixture(second, arena);
  RouterRows router{m.router, m.shared_mix, n.norm.weight, n.norm.bias, {}, nullptr, m.logits, m.shared_p};
  const uint32_t linear = first.count - 2;
  SWY_CUDA_TRY(derive_router(n.moe, Operands{*first.ops[linear], *first.bindings[linear]}.weight("w"), router));
  SWY_CUDA_TRY(record_first(list, first, workspace, &router, error));
  return record_moe_boxes(n.moe, m, arena, &n.norm, true);
}

// A mixture, then the norm and the projection behind it, whose rows the mixture's last kernel makes.
swy_status record_with_next(swy_list* list, const swy_range_operands& o, uint32_t first, char* workspace,
                            swy_error* error) {
  const Part mixture(o, first, kMixture);
  const uint32_t norm = first + kMixture, last = norm + 1;
  const Operands norm_operands{*o.ops[norm], *o.bindings[norm]}, linear_operands{*o.ops[last], *o.bindings[last]};
  const Recording linear{*list, *o.ops[last], linear_operands, error};
  const auto& a = *static_cast<const swy_rms_norm_attrs*>(o.ops[norm]->attrs);
  const Weight weight = norm_operands.weight("w");
  if (many_rows(linear.op)) {
    const ReadyBytes ready = bytes_ready_in(workspace + moe_bytes_workspace(*o.ops[first + 1]), linear.op);
    const NormedBytes bytes{ready.rows, {true, weight, a.eps, a.weight_bias, ready.inverse}};
    SWY_CUDA_TRY(record_second(list, mixture, workspace, {}, error, &bytes));
    return record_bytes_normed(linear, bytes, at(mixture.sum()));
  }
  char* rows = workspace + moe_grouped_workspace(*o.ops[first + 1]);
  const NextRows next{few_rows_in(rows, linear.op), {weight, a.eps, a.weight_bias}};
  SWY_CUDA_TRY(record_second(list, mixture, workspace, next, error));
  // The sum over experts has a multiprocessor for each row. With more rows, too few would be left.
  const uint32_t count = rows_of(*o.ops[first + 1]), busy = count <= kMostSpared ? count : 0;
  return record_few_ready(linear, linear_projection(linear), next.rows,
                          busy * 4 <= static_cast<uint32_t>(list->device->processors) ? busy : 0);
}

void warn(const char* line) {
  if (const swy_host* host = swy::the_host; host != nullptr) host->log(host->ctx, SWY_LOG_WARNING, line);
}

}  // namespace

swy_status record_parts(swy_list* list, const swy_range_operands& o, const swy_binding& workspace, swy_error* error) {
  const Parts p = parts_of(o.ops, o.op_count);
  const Part first(o, 0, p.projection), second(o, p.projection, p.mixture);
  const auto feeds = [&](uint32_t op) { return same(o.bindings[op - 1]->outputs[0], o.bindings[op]->inputs[0]); };
  bool fed = !p.layer() || feeds(p.projection);
  for (uint32_t op = p.count() - p.next; op < p.count(); ++op) fed = fed && feeds(op);
  if (!fed || (p.projection != 0 && first.residual() == nullptr) || (p.mixture != 0 && second.residual() == nullptr)) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE,
                     "the operations of a range do not feed each other; forbid it: --variant 'range=!swy.range/1'");
  }
  char *own = at<char>(workspace), *of_mixture = own + workspace_of_projection(*list->device, p, o.ops, list->bucket);
  if (p.layer()) {
    const swy_status s = record_layer(list, first, second, own, of_mixture, error);
    if (s != SWY_OUT_OF_DEVICE_MEMORY) return s;
    static std::once_flag said;
    std::call_once(said, warn, "no memory for products of routers and projections: some layers have one kernel more");
  }
  if (p.projection != 0) SWY_CUDA_TRY(record_first(list, first, own, nullptr, error));
  if (p.next != 0) return record_with_next(list, o, p.projection, of_mixture, error);
  return p.mixture != 0 ? record_second(list, second, of_mixture, {}, error) : SWY_OK;
}

}  // namespace gpu
