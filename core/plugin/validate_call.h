// SPDX-License-Identifier: Apache-2.0
// Call: one checked call of a plugin's entry. Private to validate*.cpp.
#pragma once

#include <spdlog/spdlog.h>

#include <atomic>
#include <cstring>
#include <string>

#include "core/plugin/validate.h"

namespace switchyard {

// The [no-alloc] entry that this thread is running, and its violation.
struct NoAlloc {
  const char* entry = nullptr;
  std::atomic<bool> allocated = false;  // set by any member of the team
};
extern thread_local NoAlloc* no_alloc;

// Check the rules first. The first one that is broken is the call's violation; later ones are skipped. Then `run` makes
// the real call unless a rule was broken, `rule` checks its answer, and `report` ends the call.
class Call {
 public:
  // `error` is the caller's; NULL in an entry that returns no status.
  Call(Validator& v, const char* entry, swy_error* error) : v_(v), entry_(entry), caller_(error) {}
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  template <class... Args>
  void rule(bool holds, fmt::format_string<Args...> text, Args&&... args) {
    if (!holds && violation_.empty()) broken(fmt::format(text, std::forward<Args>(args)...));
  }
  bool ok() const { return violation_.empty(); }

  void known(swy_device* device);
  void known(swy_device* device, swy_buffer* buffer);
  void known(swy_timeline* timeline);
  void serial(swy_device* device);                 // [device-serial], until the call ends
  void serial(swy_list* list);                     // likewise, on the list's device
  void recording(swy_list* list, bool finalized);  // [recording] of this list, or after it
  void bound_alive(swy_list* list);
  void inside(swy_device* device, const swy_binding& binding, const char* what, uint64_t index);
  void aligned(swy_device* device, const swy_binding& binding, const char* what, uint64_t index);
  void filled(uint32_t given, uint32_t now);  // struct_size of a struct that the plugin filled
  void allocates_nothing() { no_alloc_.entry = entry_; }

  // real(swy_error*): a call that returns a status. Checks the status and the text that comes with a failure.
  template <class F>
  swy_status run(F real) {
    if (!ok()) return SWY_INTERNAL;
    std::memset(text_, kUnwritten, sizeof text_);
    text_[0] = '\0';
    const swy_status status = guarded([&] { return real(&error_); });
    answered(status);
    return status;
  }
  // real() for calls that return something else than a status, or nothing.
  template <class F>
  auto guarded(F real) {
    NoAlloc* const outer = no_alloc;
    no_alloc = no_alloc_.entry != nullptr ? &no_alloc_ : outer;
    struct Restore {
      NoAlloc* outer;
      ~Restore() { no_alloc = outer; }
    } const restore{outer};
    return real();
  }
  // Ends the call: `status` and the plugin's text, or the violation.
  swy_status report(swy_status status);
  const char* text() const { return text_; }
  swy_reason reason() const { return error_.reason; }

 private:
  static constexpr char kUnwritten = 0x7f;
  static constexpr uint32_t kCapacity = 480;

  void broken(const std::string& rule);
  void answered(swy_status status);

  Validator& v_;
  const char* entry_;
  swy_error* caller_;
  std::string violation_;
  bool reported_ = false;
  swy_device* device_ = nullptr;  // marked busy
  swy_list* list_ = nullptr;
  NoAlloc no_alloc_;
  char text_[kCapacity + 32] = {};  // the end shows writes beyond the capacity
  swy_error error_{sizeof(swy_error), kCapacity, text_, SWY_REASON_NONE, 0};
};

// Ends a call that makes a handle.
template <class Handle, class State>
swy_status Validator::adopted(Call& call, swy_status s, std::map<Handle*, State>& alive, Handle* made,
                              std::type_identity_t<State> state, Handle** out) {
  if (s != SWY_OK) return call.report(s);
  call.rule(made != nullptr, "succeeded and did not set the output pointer");
  {
    const std::lock_guard lock(mutex_);
    call.rule(!alive.contains(made), "gave a handle that is already alive");
    if (call.ok()) {
      alive[made] = std::move(state);
      *out = made;
    }
  }
  return call.report(s);
}

}  // namespace switchyard
