// SPDX-License-Identifier: Apache-2.0
// The kit's host for plugins: a log, an allocator that counts and can fail, a team of threads (team.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "switchyard/plugin.h"

namespace switchyard::check {

// The process's host.
const swy_host* the_host();

// Allocations of plugins so far, from any thread.
uint64_t host_allocations();

// Blocks that plugins have not given back.
uint64_t host_blocks();

// The plugin's misuse of the allocator since the last call, such as freeing a foreign block; "" if none.
std::string host_misuse();

// How memory is gone.
enum class Shortage {
  kNone,
  kOnce,     // the n-th allocation from now fails
  kForGood,  // and every one after it
};

// Makes allocation `n`, counted from 1, fail: of the host's allocator, and of operator new if the plugin's own code
// calls it (not under a sanitizer, which has its own operator new).
void set_shortage(Shortage shortage, uint64_t n);

// Whether an allocation has failed since the last shortage began.
bool shortage_met();

// While on, every block of the host's allocator ends where a page begins that nobody may touch; up to its alignment
// minus 1 bytes may lie between.
void set_guard_pages(bool on);
bool guard_pages();
// How many such blocks there are now.
uint64_t guarded_blocks();
// What the blocks that the calling thread allocates are for, for describe_guard.
void name_blocks(const std::string& what);
// Writes "4 bytes past the end of input 0" for an address in such a page; false if it is in none. For signal handlers.
bool describe_guard(const void* address, char* out, size_t capacity);

// The addresses of a plugin's code, as operator new above is to know them.
void set_plugin_code(const void* symbol_of_it);

}  // namespace switchyard::check
