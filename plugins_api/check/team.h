// SPDX-License-Identifier: Apache-2.0
// The host's team of threads, and what can be done to make races of kernels show.
#pragma once

#include <cstdint>

#include "switchyard/plugin.h"

namespace switchyard::check {

// How the members of a team get on with each other.
enum class Pace {
  kFree,         // as the machine has it
  kTurns,        // between two barriers one member after the other, in an order of the seed
  kInterrupted,  // between two barriers one is halted at some instruction, and the others pass it
};

// Of the process's team: before the first call of the_team().
void set_team_width(uint32_t width);

// Threads that sleep between runs, and in barriers: tests share their machine. The calling thread is member 0.
const swy_executor* the_team();

// For the runs that follow. The orders and pauses follow from the seed.
void set_pace(Pace pace, uint64_t seed);

// Whether, since kInterrupted was set, all work between two barriers was interrupted in the middle often enough for a
// race to show. A timer that fires too early or too late interrupts nothing: with short work most do, on a busy machine
// nearly all. If the team did nothing, there is nothing to interrupt.
bool halted_everywhere();

// How often the team was set to work since the process began. Of a device with processors of its own: never.
uint64_t team_runs();

}  // namespace switchyard::check
