// SPDX-License-Identifier: Apache-2.0
// Validator: checks at each call every rule of plugin.h that can be checked at run time.
//
// It sits between the host and one plugin, and tracks which devices, buffers, lists and timelines are alive. A call or
// an answer that breaks a rule returns SWY_INTERNAL: "validation: plugin ID, entry: the rule". If an entry returns no
// status, the violation is logged, and the plugin's next call that returns one fails with it. A call that breaks a rule
// never reaches the plugin.
//
// Checked: [device-serial], [recording] and [no-alloc] (memory of the host only); begin, record, finalize, submit in
// this order; handles foreign or already freed; objects alive when a device closes; bindings inside their buffers and
// aligned; output pointers; error texts; struct sizes; kernel tables; likewise the further steps of a list
// (swy.ahead/1). Other extensions pass through unchecked.
//
// All entries are as thread-safe as the plugin's own.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/status.h"
#include "switchyard/extensions_ahead.h"
#include "switchyard/plugin.h"

namespace switchyard {

class Call;
class Validator;

// The functions of one slot; validate.cpp.
template <size_t slot>
swy_plugin checked_entries(const swy_plugin& plugin);
template <size_t slot>
void check_kernel_entries(swy_kernel& kernel);
template <size_t slot>
void check_ahead_entries(swy_ahead& ahead);

class Validator {
 public:
  // `host` lives for ever. Errors: unsupported, when too many plugins are validated at once.
  static Result<std::unique_ptr<Validator>> create(const std::string& id, const swy_host* host);
  ~Validator();
  Validator(const Validator&) = delete;
  Validator& operator=(const Validator&) = delete;

  // The first rule that was broken, "entry: the rule"; "" when none was.
  std::string violation();
  // The host that the plugin negotiates with. Lives for ever.
  const swy_host* host() const { return host_; }
  // The same entries as `plugin`, checked; entries that are NULL stay NULL. Once.
  swy_plugin wrap(const swy_plugin& plugin);

 private:
  friend class Call;
  template <size_t slot>
  friend swy_plugin checked_entries(const swy_plugin& plugin);
  template <size_t slot>
  friend void check_kernel_entries(swy_kernel& kernel);
  template <size_t slot>
  friend void check_ahead_entries(swy_ahead& ahead);

  // A kernel as the host sees it: a copy with our functions.
  struct Kernel {
    swy_kernel copy{};
    const swy_kernel* original = nullptr;
    swy_device* device = nullptr;
  };
  struct DeviceState {
    uint64_t alignment = 1;
    const char* busy = nullptr;  // the [device-serial] entry that is running
    std::vector<std::unique_ptr<Kernel>> kernels;
    const swy_ahead* ahead = nullptr;  // the plugin's, once the host has it
  };
  struct BufferState {
    swy_device* device = nullptr;
    uint64_t bytes = 0;
  };
  struct ListState {
    swy_device* device = nullptr;
    bool finalized = false;
    bool failed = false;  // in next_step
    const char* busy = nullptr;
    std::set<swy_buffer*> buffers;  // bound to it
  };

  Validator(std::string id, size_t slot, const swy_host* host);
  std::string check_kernels(swy_device* device, DeviceState& state);
  // Ends a call that makes a handle, which is alive from here on.
  template <class Handle, class State>
  swy_status adopted(Call& call, swy_status s, std::map<Handle*, State>& alive, Handle* made,
                     std::type_identity_t<State> state, Handle** out);
  const Kernel* find_kernel(const swy_kernel* copy);

  swy_status device_count(uint32_t* count, swy_error* error);
  swy_status device_info(uint32_t index, swy_device_info* out, swy_error* error);
  swy_status device_open(uint32_t index, const swy_setting* settings, uint32_t setting_count, swy_device** out,
                         swy_error* error);
  void device_close(swy_device* device);
  uint32_t kernel_count(swy_device* device);
  const swy_kernel* kernel_at(swy_device* device, uint32_t index);
  swy_status buffer_alloc(swy_device* device, swy_memory_type type, uint64_t bytes, swy_buffer** out, swy_error* error);
  swy_status buffer_import(swy_device* device, const void* memory, uint64_t bytes, swy_buffer** out, swy_error* error);
  void buffer_free(swy_device* device, swy_buffer* buffer);
  void* buffer_map(swy_device* device, swy_buffer* buffer);
  swy_status write(swy_device* device, swy_buffer* to, uint64_t offset, const void* from, uint64_t bytes,
                   const swy_submit* submit, swy_error* error);
  swy_status read(swy_device* device, void* to, swy_buffer* from, uint64_t offset, uint64_t bytes,
                  const swy_submit* submit, swy_error* error);
  swy_status fill_zero(swy_device* device, swy_buffer* buffer, uint64_t offset, uint64_t bytes, swy_error* error);
  swy_status packed_bytes(const swy_tensor* tensor, uint32_t layout, uint64_t* bytes, swy_error* error);
  swy_status pack(const swy_tensor* tensor, uint32_t layout, const void* canonical, void* packed, swy_error* error);
  swy_status state_layout(swy_device* device, const swy_op* op, uint32_t state_index, const swy_bucket* pool,
                          swy_state_layout* out, swy_error* error);
  swy_status state_export(swy_device* device, const swy_tensor* state, uint32_t page_size, const swy_binding* unit,
                          void* canonical, uint64_t bytes, swy_error* error);
  swy_status state_import(swy_device* device, const swy_tensor* state, uint32_t page_size, const swy_binding* unit,
                          const void* canonical, uint64_t bytes, swy_error* error);
  swy_status list_begin(swy_device* device, const swy_list_info* info, swy_list** out, swy_error* error);
  swy_status list_finalize(swy_list* list, swy_error* error);
  swy_status list_submit(swy_list* list, const swy_submit* submit, swy_error* error);
  void list_free(swy_list* list);
  swy_status timeline_create(swy_device* device, swy_timeline** out, swy_error* error);
  void timeline_free(swy_device* device, swy_timeline* timeline);
  uint64_t timeline_value(swy_timeline* timeline);
  swy_status timeline_wait(swy_timeline* timeline, uint64_t value, uint64_t timeout_ns, swy_error* error);
  const void* get_extension(swy_device* device, const char* name);
  swy_status next_step(swy_list* list, const swy_list_info* info, swy_error* error);

  swy_status supports(swy_device* device, const swy_kernel* self, const swy_op* op, const swy_bucket* bucket,
                      swy_error* error);
  swy_status cost(swy_device* device, const swy_kernel* self, const swy_op* op, const swy_bucket* bucket,
                  double* microseconds, swy_error* error);
  swy_status prepare(swy_device* device, const swy_kernel* self, const swy_op* op, const swy_bucket* bucket,
                     swy_prepared* out, swy_error* error);
  swy_status record(swy_list* list, const swy_kernel* self, const swy_op* op, const swy_bindings* bindings,
                    swy_error* error);

  const std::string id_;
  const size_t slot_;
  const swy_host* const host_;
  swy_plugin real_{};
  swy_ahead ahead_{};  // what the host has of swy.ahead/1

  std::mutex mutex_;  // of all below; never held while the plugin runs
  std::map<swy_device*, DeviceState> devices_;
  std::map<swy_buffer*, BufferState> buffers_;
  std::map<swy_list*, ListState> lists_;
  std::map<swy_timeline*, swy_device*> timelines_;
  std::string pending_;  // a violation that no status has carried yet

  std::mutex first_mutex_;  // of `first_`; taken last
  std::string first_;       // violation
};

}  // namespace switchyard
