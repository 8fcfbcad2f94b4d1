// SPDX-License-Identifier: Apache-2.0
// CallSite: which plugin a thread is in, and where, for the line that tells of a crash, an exit or a hang there. To
// enter and to leave takes a few plain stores.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace switchyard {

struct CallSite {
  std::atomic<const char*> backend = nullptr;  // "cuda:0"; lives for ever. NULL: the thread is in no plugin
  std::atomic<const char*> entry = nullptr;    // of plugin.h, such as "list_submit"; static
  const char* kernel = nullptr;                // its name, NULL: not known. Plugins write here, too (swy.doing/1)
  std::atomic<uint64_t> calls = 0;             // rises with each
  bool team = false;                           // a member of a thread pool, which works for another thread
};

// The calling thread's.
CallSite& this_call_site();

// Calls look(site) for every thread that has been in a plugin. The threads run on.
void for_each_call_site(const std::function<void(const CallSite& site)>& look);

// What is said of a call: "backend cuda:0 DID (list_submit, kernel add.tiles)ADVICE", with a line end. Returns its
// length. Async-signal-safe, as the next two.
size_t describe_call(const CallSite& site, const char* did, const char* advice, char* out, size_t capacity);
// Writes "switchyard: " and that to standard error, if this thread is in a plugin; false: it is in none.
bool say_of_this_call(const char* did, const char* advice);
// From now on this thread is in no plugin.
void forget_this_call();

// A plugin has left a thread with other float_controls (which are restored): this thread's, unless there is one that
// waits to be told of.
void note_float_fault();
// The backend of the oldest fault that was not told of; NULL: none.
const char* take_float_fault();

}  // namespace switchyard
