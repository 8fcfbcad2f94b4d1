// SPDX-License-Identifier: Apache-2.0
#include "rates.h"

#include "device.h"

namespace gpu {
namespace {

// Multiply-adds in a cycle of a multiprocessor: of bf16 on tensor cores, and of floats.
struct PerCycle {
  double tensor, plain;
};
PerCycle per_cycle(int capability) {
  switch (capability) {
    case 80:
      return {1024, 64};
    case 90:
      return {2048, 128};
    case 100:
    case 103:
      return {4096, 128};
    default:  // 8.6, 8.9, 12.0
      return {512, 128};
  }
}

// What the driver reports of an H200.
constexpr double kMemoryClock = 3201000, kBusBits = 6144, kClock = 1980000, kProcessors = 132;  // clocks in kHz

// An attribute; 0 if the driver does not say.
double attribute(const swy_device& device, cudaDeviceAttr which) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, which, device.ordinal) == cudaSuccess && value > 0) return value;
  cudaGetLastError();
  return 0;
}

}  // namespace

Rates rates_of(const swy_device& device) {
  const PerCycle here = per_cycle(device.features.capability), there = per_cycle(90);
  const double memory =
      attribute(device, cudaDevAttrMemoryClockRate) * attribute(device, cudaDevAttrGlobalMemoryBusWidth);
  const double cycles = attribute(device, cudaDevAttrClockRate) * device.processors;
  Rates rates;
  if (memory > 0) rates.memory = memory / (kMemoryClock * kBusBits);
  if (cycles > 0) {
    rates.tensor = cycles * here.tensor / (kClock * kProcessors * there.tensor);
    rates.plain = cycles * here.plain / (kClock * kProcessors * there.plain);
  }
  return rates;
}

}  // namespace gpu
