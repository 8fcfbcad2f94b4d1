// SPDX-License-Identifier: Apache-2.0
// The checked entries for kernels, command lists and timelines.
#include <cmath>

#include "core/plugin/validate_call.h"

namespace switchyard {

// ---- kernels

uint32_t Validator::kernel_count(swy_device* device) {
  Call call(*this, "kernel_count", nullptr);
  call.known(device);
  if (!call.ok()) return 0;
  const uint32_t count = real_.kernel_count(device);
  const std::lock_guard lock(mutex_);
  const size_t opened = devices_[device].kernels.size();
  call.rule(count == opened, "is {} and was {} when the device was opened", count, opened);
  return static_cast<uint32_t>(opened);
}

const swy_kernel* Validator::kernel_at(swy_device* device, uint32_t index) {
  Call call(*this, "kernel_at", nullptr);
  call.known(device);
  if (!call.ok()) return nullptr;
  const swy_kernel* now = real_.kernel_at(device, index);
  const std::lock_guard lock(mutex_);
  const auto& kernels = devices_[device].kernels;
  const swy_kernel* then = index < kernels.size() ? kernels[index]->original : nullptr;
  call.rule(now == then, "kernel {} is not the one that it was when the device was opened", index);
  return then == nullptr ? nullptr : &kernels[index]->copy;
}

swy_status Validator::supports(swy_device* device, const swy_kernel* self, const swy_op* op, const swy_bucket* bucket,
                               swy_error* error) {
  Call call(*this, "supports", error);
  call.known(device);
  const Kernel* k = find_kernel(self);
  call.rule(k != nullptr && k->device == device, "the kernel is not one of the device");
  const swy_status s =
      call.run([&](swy_error* e) { return k->original->supports(device, k->original, op, bucket, e); });
  if (s == SWY_UNSUPPORTED) {
    call.rule(call.reason() != SWY_REASON_NONE, "kernel {} is unsupported and gives no reason", k->copy.name);
  }
  return call.report(s);
}

swy_status Validator::cost(swy_device* device, const swy_kernel* self, const swy_op* op, const swy_bucket* bucket,
                           double* microseconds, swy_error* error) {
  Call call(*this, "cost", error);
  call.known(device);
  const Kernel* k = find_kernel(self);
  call.rule(k != nullptr && k->device == device, "the kernel is not one of the device");
  double us = -1;
  const swy_status s =
      call.run([&](swy_error* e) { return k->original->cost(device, k->original, op, bucket, &us, e); });
  if (s == SWY_OK) {
    call.rule(std::isfinite(us) && us >= 0, "kernel {} costs {} us", k->copy.name, us);
    *microseconds = us;
  }
  return call.report(s);
}

swy_status Validator::prepare(swy_device* device, const swy_kernel* self, const swy_op* op, const swy_bucket* bucket,
                              swy_prepared* out, swy_error* error) {
  Call call(*this, "prepare", error);
  call.known(device);
  const Kernel* k = find_kernel(self);
  call.rule(k != nullptr && k->device == device, "the kernel is not one of the device");
  const uint32_t given = out->struct_size;
  const swy_status s =
      call.run([&](swy_error* e) { return k->original->prepare(device, k->original, op, bucket, out, e); });
  if (s == SWY_OK) call.filled(given, out->struct_size);
  return call.report(s);
}

swy_status Validator::record(swy_list* list, const swy_kernel* self, const swy_op* op, const swy_bindings* bindings,
                             swy_error* error) {
  Call call(*this, "record", error);
  call.recording(list, false);
  const Kernel* k = find_kernel(self);
  call.rule(k != nullptr, "the kernel is not one of an open device");
  if (!call.ok()) return call.report(SWY_INTERNAL);
  swy_device* device = nullptr;
  {
    const std::lock_guard lock(mutex_);
    device = lists_[list].device;
  }
  call.rule(k->device == device, "kernel {} belongs to another device than the list", k->copy.name);
  const struct {
    const char* name;
    const swy_binding* bindings;
    uint32_t count;
  } kinds[] = {{"input", bindings->inputs, op->input_count},
               {"weight", bindings->weights, op->weight_count},
               {"state", bindings->states, op->state_count},
               {"output", bindings->outputs, op->output_count},
               {"workspace", &bindings->workspace, 1}};
  std::set<swy_buffer*> bound;
  for (const auto& kind : kinds) {
    call.rule(kind.bindings != nullptr || kind.count == 0, "has {} {}s and no bindings for them", kind.count,
              kind.name);
    for (uint32_t i = 0; call.ok() && i < kind.count; ++i) {
      call.aligned(device, kind.bindings[i], kind.name, i);
      if (kind.bindings[i].buffer != nullptr) bound.insert(kind.bindings[i].buffer);
    }
  }
  const swy_status s = call.run([&](swy_error* e) { return k->original->record(list, k->original, op, bindings, e); });
  if (s == SWY_OK) {
    const std::lock_guard lock(mutex_);
    lists_[list].buffers.merge(bound);
  }
  return call.report(s);
}

// ---- command lists

swy_status Validator::list_begin(swy_device* device, const swy_list_info* info, swy_list** out, swy_error* error) {
  Call call(*this, "list_begin", error);
  call.serial(device);
  call.rule(info->bucket != nullptr, "the list has no bucket");
  call.aligned(device, info->step, "step", 0);
  call.aligned(device, info->tokens, "tokens", 0);
  swy_list* made = nullptr;
  const swy_status s = call.run([&](swy_error* e) { return real_.list_begin(device, info, &made, e); });
  ListState state;
  state.device = device;
  for (swy_buffer* b : {info->step.buffer, info->tokens.buffer}) {
    if (b != nullptr) state.buffers.insert(b);
  }
  return adopted(call, s, lists_, made, std::move(state), out);
}

swy_status Validator::list_finalize(swy_list* list, swy_error* error) {
  Call call(*this, "list_finalize", error);
  call.serial(list);
  call.recording(list, false);
  const swy_status s = call.run([&](swy_error* e) { return real_.list_finalize(list, e); });
  if (s == SWY_OK) {
    const std::lock_guard lock(mutex_);
    lists_[list].finalized = true;
  }
  return call.report(s);
}

swy_status Validator::list_submit(swy_list* list, const swy_submit* submit, swy_error* error) {
  Call call(*this, "list_submit", error);
  call.serial(list);
  call.recording(list, true);
  call.bound_alive(list);
  call.allocates_nothing();
  return call.report(call.run([&](swy_error* e) { return real_.list_submit(list, submit, e); }));
}

void Validator::list_free(swy_list* list) {
  Call call(*this, "list_free", nullptr);
  call.serial(list);
  if (!call.ok()) return;
  {
    const std::lock_guard lock(mutex_);
    const char* busy = lists_[list].busy;
    call.rule(busy == nullptr, "{} still runs on the list", busy == nullptr ? "" : busy);
    if (!call.ok()) return;
    lists_.erase(list);
  }
  real_.list_free(list);
}

// ---- further steps of a list

const void* Validator::get_extension(swy_device* device, const char* name) {
  Call call(*this, "get_extension", nullptr);
  call.known(device);
  if (!call.ok()) return nullptr;
  const void* table = real_.get_extension(device, name);
  if (table == nullptr || std::strcmp(name, SWY_EXT_AHEAD) != 0) return table;
  const auto* ahead = static_cast<const swy_ahead*>(table);
  if (!SWY_HAS(swy_ahead, ahead, next_step)) return table;
  const std::lock_guard lock(mutex_);
  devices_[device].ahead = ahead;
  return &ahead_;
}

swy_status Validator::next_step(swy_list* list, const swy_list_info* info, swy_error* error) {
  Call call(*this, "next_step", error);
  call.serial(list);
  call.recording(list, false);
  if (!call.ok()) return call.report(SWY_INTERNAL);
  swy_device* device = nullptr;
  const swy_ahead* ahead = nullptr;
  {
    const std::lock_guard lock(mutex_);
    device = lists_[list].device;
    ahead = devices_[device].ahead;
  }
  call.rule(ahead != nullptr, "the list's device does not have " SWY_EXT_AHEAD);
  call.rule(info->bucket != nullptr, "the step has no bucket");
  call.aligned(device, info->step, "step", 0);
  call.aligned(device, info->tokens, "tokens", 0);
  const swy_status s = call.run([&](swy_error* e) { return ahead->next_step(list, info, e); });
  {
    const std::lock_guard lock(mutex_);
    ListState& state = lists_[list];
    state.failed = s != SWY_OK;
    for (swy_buffer* b : {info->step.buffer, info->tokens.buffer}) {
      if (b != nullptr) state.buffers.insert(b);
    }
  }
  return call.report(s);
}

// ---- timelines

swy_status Validator::timeline_create(swy_device* device, swy_timeline** out, swy_error* error) {
  Call call(*this, "timeline_create", error);
  call.known(device);
  swy_timeline* made = nullptr;
  const swy_status s = call.run([&](swy_error* e) { return real_.timeline_create(device, &made, e); });
  return adopted(call, s, timelines_, made, device, out);
}

void Validator::timeline_free(swy_device* device, swy_timeline* timeline) {
  Call call(*this, "timeline_free", nullptr);
  call.known(device);
  call.known(timeline);
  if (!call.ok()) return;
  {
    const std::lock_guard lock(mutex_);
    timelines_.erase(timeline);
  }
  real_.timeline_free(device, timeline);
}

uint64_t Validator::timeline_value(swy_timeline* timeline) {
  Call call(*this, "timeline_value", nullptr);
  call.known(timeline);
  call.allocates_nothing();
  return call.ok() ? call.guarded([&] { return real_.timeline_value(timeline); }) : SWY_TIMELINE_FAILED;
}

swy_status Validator::timeline_wait(swy_timeline* timeline, uint64_t value, uint64_t timeout_ns, swy_error* error) {
  Call call(*this, "timeline_wait", error);
  call.known(timeline);
  return call.report(call.run([&](swy_error* e) { return real_.timeline_wait(timeline, value, timeout_ns, e); }));
}

}  // namespace switchyard
