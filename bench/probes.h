// Fixed probes of the machine: what it can do, measured by the harness itself, so that every share in a report has a
// ceiling that was measured in the same run.
#pragma once

#include <cstdint>
#include <vector>

namespace switchyard::bench {

// 0: the processor lacks it.
struct Probes {
  uint32_t threads = 0;
  double read_gbs_one = 0;   // DRAM read by one thread, GB/s (1e9 bytes)
  double read_gbs = 0;       // by all threads
  double fp32_tflops = 0;    // fused multiply-adds, all threads
  double vnni_tops = 0;      // 8-bit products, vectors
  double amx_int8_tops = 0;  // 8-bit products, tiles
  double amx_bf16_tflops = 0;

  // The best rate for products of 8-bit or bf16 operands.
  double matrix_tops() const;
};

// Takes about two seconds, and 256 MiB of memory per thread.
Probes probe_machine(uint32_t threads);

// Loops of the kinds above. Each runs for about `seconds` and returns operations (or bytes) per second of one thread; 0
// where the processor lacks the instructions.
namespace loops {
double read(const void* data, uint64_t bytes, double seconds);
double fp32(double seconds);
double vnni(double seconds);
double amx_int8(double seconds);
double amx_bf16(double seconds);
}  // namespace loops

}  // namespace switchyard::bench
