// What the kit offers a plugin: a log, an allocator that counts, a team of threads.
#pragma once

#include <cstdint>

#include "switchyard/plugin.h"

namespace switchyard::check {

// The process's host. The team has SWITCHYARD_CHECK_THREADS members (2 unless told).
const swy_host* the_host();

// Allocations that plugins have asked for so far, from any thread.
uint64_t host_allocations();

}  // namespace switchyard::check
