// SPDX-License-Identifier: Apache-2.0
// How fast a device is, for estimates.
#pragma once

#include <algorithm>

struct swy_device;

namespace gpu {

// What kernels reach was measured on an H200, whose memory copies `kCopy` bytes a microsecond. Other devices are taken
// to do as well, by the clocks and widths that the driver reports: the same in every run, so that a plan is, too. Where
// that is not enough, `switchyard tune` measures the kernels themselves.
struct Rates {
  static constexpr double kCopy = 4.33e6;
  double memory = 1, tensor = 1, plain = 1;  // this device's rates in those of an H200

  // Microseconds for n bytes, of which a kernel moves `rate` in a microsecond on an H200: as fast as multiprocessors
  // do, and memory allows; for multiply-adds of bf16 on tensor cores; and for those of floats.
  double bytes(double n, double rate) const { return n / std::min(rate * plain, kCopy * memory); }
  double products(double n, double rate) const { return n / (rate * tensor); }
  double floats(double n, double rate) const { return n / (rate * plain); }
};

Rates rates_of(const swy_device& device);

}  // namespace gpu
