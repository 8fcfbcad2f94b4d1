// SPDX-License-Identifier: Apache-2.0
// The cost limits of a render, and the account of what it has used.
//
// A template is untrusted data. Every evaluated node, every byte that a builtin touches and every allocated byte is
// charged here. Memory is charged when allocated and never credited, so one number bounds both the peak and the time
// spent filling it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/status.h"

namespace switchyard::jinja {

// Limits of one render. The defaults are a hundred times what a real chat template needs.
struct Limits {
  uint64_t max_steps = 20'000'000;           // nodes evaluated, plus one for every 64 bytes that a builtin touches
  uint64_t max_output_bytes = 64ull << 20;   // the rendered text
  uint64_t max_memory_bytes = 512ull << 20;  // taken over the whole render, whether freed or not
  int max_depth = 400;                       // nested blocks, expressions and macro calls (stack frames)
  int64_t max_range = 100'000;               // items of one range(), as in jinja2's sandbox
};

// Bounds on a template's text, and on the nesting of its parts and of the values that it handles.
inline constexpr size_t kMaxSourceBytes = 1u << 20;
inline constexpr int kMaxParseDepth = 100;
inline constexpr int kMaxValueDepth = 100;

// Thrown only inside this folder; parse() and render() turn it into a Status with the template's name and line.
struct Failure {
  Code code;
  std::string message;
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure{Code::invalid_data, fmt::format(format, std::forward<Args>(args)...)};
}

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}
  const Limits& limits() const { return limits_; }

  void step(uint64_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.max_steps) {
      fail("the template needs more than {} steps; shorten the conversation or raise max_steps", limits_.max_steps);
    }
  }
  // A builtin is about to read or compare this many bytes.
  void touch(uint64_t bytes) { step(1 + bytes / 64); }
  // This many bytes are about to be allocated. Call before allocating.
  void take(uint64_t bytes) {
    if (bytes > limits_.max_memory_bytes - memory_) {
      fail("the template needs more than {} bytes of memory; shorten the conversation or raise max_memory_bytes",
           limits_.max_memory_bytes);
    }
    memory_ += bytes;
    touch(bytes);
  }
  // `size` is the length of the rendered text so far.
  void output(uint64_t size) const {
    if (size > limits_.max_output_bytes) {
      fail("the rendered text is longer than {} bytes; shorten the conversation or raise max_output_bytes",
           limits_.max_output_bytes);
    }
  }

  // One more stack frame, for as long as it lives.
  class Frame {
   public:
    explicit Frame(Budget& budget) : budget_(budget) {
      if (++budget_.depth_ > budget_.limits_.max_depth) {
        --budget_.depth_;
        fail("nesting is deeper than {} levels; a macro may be calling itself without end", budget_.limits_.max_depth);
      }
    }
    ~Frame() { --budget_.depth_; }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    Budget& budget_;
  };

 private:
  Limits limits_;
  uint64_t steps_ = 0;
  uint64_t memory_ = 0;
  int depth_ = 0;
};

}  // namespace switchyard::jinja
