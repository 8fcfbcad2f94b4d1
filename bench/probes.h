// SPDX-License-Identifier: Apache-2.0
// Fixed probes of the machine's peak rates, measured by the harness itself, so that every share in a report refers to a
// rate that was measured in the same run.
#pragma once

#include <cstdint>

#include "switchyard/plugin.h"

namespace switchyard::bench {

// Rates are best of several passes; 0: the processor or the operating system lacks it.
struct Probes {
  uint32_t threads = 0;
  uint64_t read_bytes = 0;   // that each pass over memory reads
  double read_gbs_one = 0;   // DRAM read by one thread, GB/s (1e9 bytes)
  double read_gbs = 0;       // by all threads
  double fp32_tflops = 0;    // fused multiply-adds of vectors, all threads
  double vnni_tops = 0;      // 8-bit products of vectors
  double amx_int8_tops = 0;  // 8-bit products of tiles
  double amx_bf16_tflops = 0;
  double seconds = 0;  // that probing took

  // The fastest kind of product: the matrix share of a report refers to it.
  struct Ceiling {
    const char* name;
    double tops;  // 1e12 operations per second, a multiply-add being two
  };
  Ceiling matrix() const;
};

// Measured once per process, by the team that backends compute on; takes about two seconds. Memory is read in a buffer
// of four times the last-level cache, at least 1 GiB, but at most a quarter of the free memory. Must not be called
// while a list runs.
const Probes& probe_machine(const swy_executor& team);

// A fixed stretch of work of one kind, in registers.
struct Burst {
  void (*run)() = nullptr;  // NULL: the processor lacks the instructions
  double operations = 0;    // of one call: some tens of microseconds
};
namespace bursts {
Burst fp32();
Burst vnni();
Burst amx_int8();
Burst amx_bf16();
// Reads `bytes` (a multiple of 4096) from `data`, in order.
void read(const void* data, uint64_t bytes);
}  // namespace bursts

}  // namespace switchyard::bench
