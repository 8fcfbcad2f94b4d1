// What the kit offers a plugin: a log, an allocator that counts and can fail, a team of threads (team.h).
#pragma once

#include <cstdint>
#include <string>

#include "switchyard/plugin.h"

namespace switchyard::check {

// The process's host.
const swy_host* the_host();

// Allocations that plugins have asked for so far, from any thread.
uint64_t host_allocations();

// Blocks that plugins have not given back.
uint64_t host_blocks();

// What a plugin did wrong with the allocator since the last call, e.g. gave back what it did not get; "": nothing.
std::string host_misuse();

// How memory is gone.
enum class Shortage {
  kNone,
  kOnce,     // the n-th allocation from now fails
  kForGood,  // and every one after it
};

// Of the host's allocator, and of operator new where the plugin's own code calls it (not under a sanitizer, which has
// an operator new of its own). `n` begins with 1.
void set_shortage(Shortage shortage, uint64_t n);

// Whether an allocation has failed since the last shortage began.
bool shortage_met();

// The addresses of a plugin's code, as operator new above is to know them.
void set_plugin_code(const void* symbol_of_it);

}  // namespace switchyard::check
