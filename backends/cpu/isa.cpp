// SPDX-License-Identifier: Apache-2.0
#include "isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

namespace cpu {
namespace {

// One CPUID feature bit.
struct Feature {
  const char* name;
  Isa level;
  uint32_t leaf, subleaf;
  int reg;  // 0 eax, 1 ebx, 2 ecx, 3 edx
  int bit;
};

constexpr Feature kFeatures[] = {
    {"avx2", Isa::avx2, 7, 0, 1, 5},        {"fma", Isa::avx2, 1, 0, 2, 12},
    {"f16c", Isa::avx2, 1, 0, 2, 29},       {"bmi2", Isa::avx2, 7, 0, 1, 8},
    {"avx512f", Isa::avx512, 7, 0, 1, 16},  {"avx512dq", Isa::avx512, 7, 0, 1, 17},
    {"avx512cd", Isa::avx512, 7, 0, 1, 28}, {"avx512bw", Isa::avx512, 7, 0, 1, 30},
    {"avx512vl", Isa::avx512, 7, 0, 1, 31}, {"avx512_vnni", Isa::avx512, 7, 0, 2, 11},
    {"amx_bf16", Isa::amx, 7, 0, 3, 22},    {"amx_tile", Isa::amx, 7, 0, 3, 24},
    {"amx_int8", Isa::amx, 7, 0, 3, 25},
};

bool has(const Feature& f) {
  std::array<uint32_t, 4> r{};
  return __get_cpuid_count(f.leaf, f.subleaf, &r[0], &r[1], &r[2], &r[3]) != 0 &&
         ((r[static_cast<size_t>(f.reg)] >> f.bit) & 1u) != 0;
}

// Which register files the operating system saves (XCR0).
uint64_t enabled_state() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || ((c >> 27) & 1u) == 0) return 0;
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

constexpr uint64_t state_of(Isa level) {
  switch (level) {
    case Isa::avx2:
      return 0x6;  // XMM, YMM
    case Isa::avx512:
      return 0xe6;  // and opmask, ZMM
    case Isa::amx:
      return 0x600e6;  // and the tiles' configuration and data
    default:
      return 0;
  }
}

// Linux gives tile registers only to a process that has requested them.
bool amx_permitted() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// The first feature of a level that this machine lacks.
std::string lacking(Isa level) {
  for (const Feature& f : kFeatures) {
    if (f.level <= level && !has(f)) return std::string("the processor lacks ") + f.name;
  }
  if ((enabled_state() & state_of(level)) != state_of(level)) {
    return std::string("the operating system does not enable the registers of ") + isa_name(level);
  }
  if (level == Isa::amx && !amx_permitted()) return "the operating system does not permit AMX";
  return {};
}

Isa chosen = Isa::baseline;
bool chosen_once = false;
bool exact_activations = false;

}  // namespace

const char* isa_name(Isa level) {
  constexpr const char* names[] = {"baseline", "avx2", "avx512", "amx"};
  return names[static_cast<uint32_t>(level)];
}

const std::string& isa_missing(Isa level) {
  // In a virtual machine CPUID takes tens of microseconds, and a plan asks for this once per kernel and operation.
  static const std::array<std::string, 4> missing = {lacking(Isa::baseline), lacking(Isa::avx2), lacking(Isa::avx512),
                                                     lacking(Isa::amx)};
  return missing[static_cast<size_t>(level)];
}

Isa best_isa() {
  static const Isa best = [] {
    Isa level = Isa::baseline;
    for (const Isa next : {Isa::avx2, Isa::avx512, Isa::amx}) {
      if (!isa_missing(next).empty()) break;
      level = next;
    }
    return level;
  }();
  return best;
}

Isa isa() { return chosen_once ? chosen : best_isa(); }
void set_isa(Isa level) {
  chosen = level;
  chosen_once = true;
}

bool exact() { return exact_activations; }
void set_exact(bool on) { exact_activations = on; }

}  // namespace cpu
