// SPDX-License-Identifier: Apache-2.0
// Faults of behaviour: right results, and something else that a plugin may not do.
#include <cfenv>
#include <cstdlib>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "tests/plugin/wrong/wrong.h"

namespace wrong {
namespace {

volatile float unused;
void* volatile forgotten;

#if defined(__x86_64__)
constexpr unsigned kFlushResults = 0x8000, kFlushOperands = 0x0040;
void set_control(unsigned bits) { _mm_setcsr(_mm_getcsr() | bits); }
#endif

bool last_member(const swy::Call& call) { return call.rank() + 1 == call.members(); }

constexpr Fault kFaults[] = {
    {"reads_past_an_input", "guards/add.plain/", "past the end of input 0", SWY_OP_ADD,
     [](const swy::Call& c, Run right) {
       right(c);
       unused = c.input(0)[c.op->inputs[0]->dims[0] * c.op->inputs[0]->dims[1]];
     }},
    {"reads_past_a_weight", "guards/rms_norm.plain/", "past the end of weight 0", SWY_OP_RMS_NORM,
     [](const swy::Call& c, Run right) {
       right(c);
       const auto* end = static_cast<const char*>(c.weights[0]) +
                         c.op->weights[0]->dims[0] * (c.op->weights[0]->dtype == SWY_F32 ? 4 : 2);
       unused = static_cast<float>(*static_cast<const volatile char*>(end));
     }},
    {"leaks_at_submission", "memory/heap", "list_submit leaks", SWY_OP_ADD,
     [](const swy::Call& c, Run right) {
       right(c);
       if (c.rank() == 0) forgotten = std::malloc(40);
     }},
    {"leaks_a_list", "memory/heap", "recording and freeing a list leaks", 0, nullptr, nullptr,
     [](swy_plugin& t) { t.list_free = [](swy_list*) {}; }},
    {"leaks_a_device", "memory/heap", "opening and closing a device leaks", 0, nullptr, nullptr,
     [](swy_plugin& t) { t.device_close = [](swy_device*) {}; }},
    {"leaves_a_rounding_mode", "ops/add.plain/add.rows65.width36", "left the rounding mode", SWY_OP_ADD,
     [](const swy::Call& c, Run right) {
       right(c);
       if (c.rank() == 0) std::fesetround(FE_TOWARDZERO);
     }},
    {"leaves_a_rounding_mode_in_the_team", "ops/add.plain/add.rows65.width36", "left the rounding mode", SWY_OP_ADD,
     [](const swy::Call& c, Run right) {
       right(c);
       if (last_member(c)) std::fesetround(FE_UPWARD);
     }},
    {"packing_leaves_a_rounding_mode", "device/kernels", "left the rounding mode", 0, nullptr, nullptr,
     [](swy_plugin& t) {
       t.kernel_count = [](swy_device* d) {
         std::fesetround(FE_DOWNWARD);
         return swy::detail::kernel_count(d);
       };
     }},
#if defined(__x86_64__)
    {"leaves_results_flushed", "ops/add.plain/add.rows65.width36", "left subnormal numbers flushed to zero", SWY_OP_ADD,
     [](const swy::Call& c, Run right) {
       right(c);
       if (last_member(c)) set_control(kFlushResults);
     }},
    {"leaves_operands_flushed", "ops/add.plain/add.rows65.width36", "left subnormal numbers flushed to zero",
     SWY_OP_ADD,
     [](const swy::Call& c, Run right) {
       right(c);
       if (c.rank() == 0) set_control(kFlushOperands);
     }},
#endif
    {"changes_an_input", "ops/add.plain/add.rows65.width36", "changed its input 1", SWY_OP_ADD,
     [](const swy::Call& c, Run right) {
       right(c);
       c.barrier();
       if (c.rank() == 0) const_cast<float*>(c.input(1))[0] = 7;
     }},
    {"writes_past_an_output", "ops/add.plain/add.rows65.width36", "wrote outside output 0", SWY_OP_ADD,
     [](const swy::Call& c, Run right) {
       right(c);
       if (c.rank() == 0) c.output(0)[c.op->outputs[0]->dims[0] * c.op->outputs[0]->dims[1]] = 7;
     }},
    {"keeps_a_counter", "ops/add.plain/add.rows65.width36", "a second submission has other bits", SWY_OP_ADD,
     [](const swy::Call& c, Run right) {
       static float runs = 0;
       right(c);
       c.barrier();
       if (c.rank() == 0) c.output(0)[0] *= 1 + 1.2e-7f * runs, runs = 1 - runs;
     }},
};

}  // namespace

std::span<const Fault> faults_of_behaviour() { return kFaults; }

}  // namespace wrong
