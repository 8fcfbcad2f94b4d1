// SPDX-License-Identifier: Apache-2.0
#include "core/base/call_site.h"

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <memory>
#include <new>

namespace switchyard {
namespace {

struct Listed {
  std::atomic<bool> used = false;
  CallSite site;
};
std::array<Listed, 256> sites;  // never freed: other threads, and signal handlers, read them

std::atomic<const char*> float_fault = nullptr;

// Known without a call, and never allocated late: read by signal handlers.
constinit thread_local CallSite* mine [[gnu::tls_model("initial-exec")]] = nullptr;

// A stack for signal handlers of this thread, unless it has one.
class HandlerStack {
 public:
  HandlerStack() {
    stack_t old{};
    if (::sigaltstack(nullptr, &old) != 0 || (old.ss_flags & SS_DISABLE) == 0) return;
    memory_.reset(new (std::nothrow) char[kBytes]);
    stack_t own{};
    own.ss_sp = memory_.get();
    own.ss_size = kBytes;
    if (memory_ != nullptr && ::sigaltstack(&own, nullptr) != 0) memory_.reset();
  }
  HandlerStack(const HandlerStack&) = delete;
  HandlerStack& operator=(const HandlerStack&) = delete;
  ~HandlerStack() {
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    if (memory_ != nullptr) ::sigaltstack(&none, nullptr);
  }

 private:
  static constexpr size_t kBytes = 65536;
  std::unique_ptr<char[]> memory_;
};

// What a thread gets with its first call, and gives back when it ends.
struct Place {
  HandlerStack stack;
  Listed* listed = nullptr;
  CallSite unlisted;  // where there are more threads than places
  Place() {
    for (Listed& l : sites) {
      if (l.used.exchange(true)) continue;
      listed = &l;
      break;
    }
    mine = listed != nullptr ? &listed->site : &unlisted;
    mine->team = false;
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() {
    // Within a plugin only where it calls exit, which ends this thread's objects first: that is still to be told of.
    if (mine->backend.load() != nullptr) return;
    mine = nullptr;
    if (listed != nullptr) listed->used.store(false);
  }
};

// Text in a fixed room: nothing else is allowed in a signal handler.
class Text {
 public:
  Text(char* out, size_t capacity) : out_(out), capacity_(capacity) {}
  // Names are a plugin's: bounded, and nothing that a terminal obeys.
  Text& operator<<(const char* text) {
    for (size_t i = 0; text != nullptr && text[i] != '\0' && i < 200 && size_ < capacity_; ++i) {
      const auto c = static_cast<unsigned char>(text[i]);
      out_[size_++] = c < 0x20 || c == 0x7f ? '?' : text[i];
    }
    return *this;
  }
  size_t end_line() {
    if (size_ == capacity_) --size_;
    out_[size_++] = '\n';
    return size_;
  }

 private:
  char* out_;
  size_t capacity_, size_ = 0;
};

}  // namespace

CallSite& this_call_site() {
  if (mine == nullptr) {
    static thread_local Place place;
    if (mine == nullptr) mine = &place.unlisted;  // while the thread ends
  }
  return *mine;
}

void for_each_call_site(const std::function<void(const CallSite& site)>& look) {
  for (const Listed& l : sites) {
    if (l.used.load()) look(l.site);
  }
}

size_t describe_call(const CallSite& site, const char* did, const char* advice, char* out, size_t capacity) {
  Text text(out, capacity);
  text << "backend " << site.backend.load(std::memory_order_relaxed) << " " << did;
  text << " (" << site.entry.load(std::memory_order_relaxed);
  const char* kernel = __atomic_load_n(&site.kernel, __ATOMIC_RELAXED);
  if (kernel != nullptr) text << ", kernel " << kernel;
  text << ")" << advice;
  return text.end_line();
}

bool say_of_this_call(const char* did, const char* advice) {
  if (mine == nullptr || mine->backend.load(std::memory_order_relaxed) == nullptr) return false;
  constexpr char kName[] = "switchyard: ";
  char line[1024];
  std::memcpy(line, kName, sizeof kName - 1);
  const size_t size = describe_call(*mine, did, advice, line + sizeof kName - 1, sizeof line - sizeof kName);
  (void)!::write(STDERR_FILENO, line, sizeof kName - 1 + size);
  return true;
}

void forget_this_call() {
  if (mine != nullptr) mine->backend.store(nullptr, std::memory_order_relaxed);
}

void note_float_fault() {
  const char* none = nullptr;
  float_fault.compare_exchange_strong(none, this_call_site().backend.load(std::memory_order_relaxed));
}

const char* take_float_fault() {
  return float_fault.load(std::memory_order_relaxed) == nullptr ? nullptr : float_fault.exchange(nullptr);
}

}  // namespace switchyard
