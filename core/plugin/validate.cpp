// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/validate.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <utility>

#include "core/plugin/validate_call.h"

namespace switchyard {
namespace {

// The ABI's functions carry no context of ours, so each validator has its own set of functions, numbered by slot.
constexpr size_t kSlots = 16;
constexpr uint32_t kMaxKernels = 4096;
constexpr size_t kMaxKernelName = 128;
std::array<std::atomic<Validator*>, kSlots> slots;

// A C function that calls member function F of the validator in a slot.
template <size_t slot, auto F>
struct Entry;
template <size_t slot, class R, class... Args, R (Validator::*F)(Args...)>
struct Entry<slot, F> {
  static R call(Args... args) { return (slots[slot].load(std::memory_order_acquire)->*F)(args...); }
};

struct TeamCall {
  swy_team_fn fn;
  void* arg;
  NoAlloc* scope;
};

}  // namespace

template <size_t slot>
swy_plugin checked_entries(const swy_plugin& plugin) {
  swy_plugin p = plugin;
  const auto put = [](auto& entry, auto checked) {
    if (entry != nullptr) entry = checked;
  };
#define SWY_CHECKED(name) put(p.name, Entry<slot, &Validator::name>::call)
  SWY_CHECKED(device_count);
  SWY_CHECKED(device_info);
  SWY_CHECKED(device_open);
  SWY_CHECKED(device_close);
  SWY_CHECKED(kernel_count);
  SWY_CHECKED(kernel_at);
  SWY_CHECKED(buffer_alloc);
  SWY_CHECKED(buffer_import);
  SWY_CHECKED(buffer_free);
  SWY_CHECKED(buffer_map);
  SWY_CHECKED(write);
  SWY_CHECKED(read);
  SWY_CHECKED(fill_zero);
  SWY_CHECKED(packed_bytes);
  SWY_CHECKED(pack);
  SWY_CHECKED(state_layout);
  SWY_CHECKED(state_export);
  SWY_CHECKED(state_import);
  SWY_CHECKED(list_begin);
  SWY_CHECKED(list_finalize);
  SWY_CHECKED(list_submit);
  SWY_CHECKED(list_free);
  SWY_CHECKED(timeline_create);
  SWY_CHECKED(timeline_free);
  SWY_CHECKED(timeline_value);
  SWY_CHECKED(timeline_wait);
  SWY_CHECKED(get_extension);
#undef SWY_CHECKED
  return p;
}

template <size_t slot>
void check_kernel_entries(swy_kernel& k) {
  if (k.supports != nullptr) k.supports = Entry<slot, &Validator::supports>::call;
  if (k.cost != nullptr) k.cost = Entry<slot, &Validator::cost>::call;
  if (k.prepare != nullptr) k.prepare = Entry<slot, &Validator::prepare>::call;
  k.record = Entry<slot, &Validator::record>::call;
}

template <size_t slot>
void check_ahead_entries(swy_ahead& ahead) {
  ahead.next_step = Entry<slot, &Validator::next_step>::call;
}

namespace {

template <size_t... slot>
swy_plugin checked_entries(size_t which, const swy_plugin& plugin, std::index_sequence<slot...>) {
  static constexpr swy_plugin (*makers[])(const swy_plugin&) = {&switchyard::checked_entries<slot>...};
  return makers[which](plugin);
}

template <size_t... slot>
void check_kernel_entries(size_t which, swy_kernel& kernel, std::index_sequence<slot...>) {
  static constexpr void (*makers[])(swy_kernel&) = {&switchyard::check_kernel_entries<slot>...};
  makers[which](kernel);
}

template <size_t... slot>
void check_ahead_entries(size_t which, swy_ahead& ahead, std::index_sequence<slot...>) {
  static constexpr void (*makers[])(swy_ahead&) = {&switchyard::check_ahead_entries<slot>...};
  makers[which](ahead);
}

}  // namespace

namespace {

// A host that notices allocations in [no-alloc] entries. It lives for ever, as the host that it passes calls on to.
struct CheckedHost {
  static const CheckedHost& of(const swy_host* real) {
    static std::mutex mutex;
    static auto* const all = new std::map<const swy_host*, std::unique_ptr<CheckedHost>>;  // never freed
    const std::lock_guard lock(mutex);
    std::unique_ptr<CheckedHost>& made = (*all)[real];
    if (made == nullptr) made = std::make_unique<CheckedHost>(real);
    return *made;
  }
  explicit CheckedHost(const swy_host* host) : real(host), table(*host) {
    table.ctx = this;
    table.log = [](void* ctx, swy_log_level level, const char* message) {
      const swy_host* h = static_cast<CheckedHost*>(ctx)->real;
      h->log(h->ctx, level, message);
    };
    if (host->trace != nullptr) {
      table.trace = [](void* ctx, const char* name, uint64_t begin_ns, uint64_t end_ns) {
        const swy_host* h = static_cast<CheckedHost*>(ctx)->real;
        h->trace(h->ctx, name, begin_ns, end_ns);
      };
    }
    table.alloc = [](void* ctx, uint64_t bytes, uint64_t alignment) {
      if (no_alloc != nullptr) no_alloc->allocated = true;
      const swy_host* h = static_cast<CheckedHost*>(ctx)->real;
      return h->alloc(h->ctx, bytes, alignment);
    };
    table.free = [](void* ctx, void* p, uint64_t bytes, uint64_t alignment) {
      const swy_host* h = static_cast<CheckedHost*>(ctx)->real;
      h->free(h->ctx, p, bytes, alignment);
    };
    table.get_extension = [](void* ctx, const char* name) {
      const swy_host* h = static_cast<CheckedHost*>(ctx)->real;
      return h->get_extension(h->ctx, name);
    };
    if (host->executor == nullptr) return;
    executor = *host->executor;
    executor.ctx = this;
    executor.width = [](void* ctx) {
      const swy_executor* e = static_cast<CheckedHost*>(ctx)->real->executor;
      return e->width(e->ctx);
    };
    executor.run = [](void* ctx, swy_team_fn fn, void* arg) { static_cast<CheckedHost*>(ctx)->run(fn, arg); };
    table.executor = &executor;
  }
  // The members of a team are inside the entry that started it.
  void run(swy_team_fn fn, void* arg) const {
    TeamCall call{fn, arg, no_alloc};
    const swy_executor* e = real->executor;
    e->run(
        e->ctx,
        [](void* p, const swy_team* member) {
          const TeamCall& c = *static_cast<const TeamCall*>(p);
          NoAlloc* const outer = std::exchange(no_alloc, c.scope);
          c.fn(c.arg, member);
          no_alloc = outer;
        },
        &call);
  }

  const swy_host* real;
  swy_host table;
  swy_executor executor{};
};

}  // namespace

Result<std::unique_ptr<Validator>> Validator::create(const std::string& id, const swy_host* host) {
  static std::mutex creating;
  const std::lock_guard lock(creating);
  for (size_t slot = 0; slot < kSlots; ++slot) {
    if (slots[slot].load() != nullptr) continue;
    std::unique_ptr<Validator> v(new Validator(id, slot, host));
    slots[slot].store(v.get(), std::memory_order_release);
    return v;
  }
  return error(Code::unsupported, "validation: at most {} plugins can be validated at once", kSlots);
}

Validator::Validator(std::string id, size_t slot, const swy_host* host)
    : id_(std::move(id)), slot_(slot), host_(&CheckedHost::of(host).table) {}

Validator::~Validator() { slots[slot_].store(nullptr); }

swy_plugin Validator::wrap(const swy_plugin& plugin) {
  real_ = plugin;
  ahead_ = {sizeof(swy_ahead), 0, nullptr};
  check_ahead_entries(slot_, ahead_, std::make_index_sequence<kSlots>());
  return checked_entries(slot_, plugin, std::make_index_sequence<kSlots>());
}

std::string Validator::violation() {
  const std::lock_guard lock(first_mutex_);
  return first_;
}

// Copies the device's kernels into `state`; returns a violated rule, or "".
std::string Validator::check_kernels(swy_device* device, DeviceState& state) {
  std::set<std::string> names;
  const uint32_t count = real_.kernel_count(device);
  if (count > kMaxKernels) return fmt::format("kernel_count is {}, and at most {} are taken", count, kMaxKernels);
  for (uint32_t i = 0; i < count; ++i) {
    const swy_kernel* k = real_.kernel_at(device, i);
    if (k == nullptr) return fmt::format("kernel_at({}) is NULL, and kernel_count is {}", i, count);
    if (k->struct_size < offsetof(swy_kernel, record) + sizeof k->record) {
      return fmt::format("kernel {} has a struct_size of {}, which does not reach `record`", i, k->struct_size);
    }
    if (k->name == nullptr || *k->name == '\0') return fmt::format("kernel {} has no name", i);
    if (::strnlen(k->name, kMaxKernelName) == kMaxKernelName) {
      return fmt::format("the name of kernel {} does not end within {} bytes", i, kMaxKernelName);
    }
    if (!names.insert(k->name).second) return fmt::format("two kernels are named {}", k->name);
    if (k->record == nullptr) return fmt::format("kernel {} has no record", k->name);
    auto kernel = std::make_unique<Kernel>();
    std::memcpy(&kernel->copy, k, std::min<size_t>(k->struct_size, sizeof kernel->copy));
    if (k->op == SWY_OP_NAMED && !swy_is_name(kernel->copy.op_name)) {
      return fmt::format("kernel {} is for SWY_OP_NAMED, and its op_name is not vendor.name/revision", k->name);
    }
    kernel->original = k;
    kernel->device = device;
    check_kernel_entries(slot_, kernel->copy, std::make_index_sequence<kSlots>());
    state.kernels.push_back(std::move(kernel));
  }
  return "";
}

const Validator::Kernel* Validator::find_kernel(const swy_kernel* copy) {
  const std::lock_guard lock(mutex_);
  for (const auto& [handle, device] : devices_) {
    for (const auto& kernel : device.kernels) {
      if (&kernel->copy == copy) return kernel.get();
    }
  }
  return nullptr;
}

}  // namespace switchyard
