// SPDX-License-Identifier: Apache-2.0
// Faults of the table, of descriptions and of what is claimed.
#include <cstring>

#include "tests/plugin/wrong/wrong.h"

namespace wrong {
namespace {

namespace right = swy::detail;

// The description of the device with a change.
template <auto change>
void device_info(swy_plugin& table) {
  table.device_info = [](uint32_t index, swy_device_info* out, swy_error* error) {
    const swy_status s = right::device_info(index, out, error);
    if (s == SWY_OK && out->struct_size == sizeof *out) change(*out);
    return s;
  };
}

// The first kernel's description with a change.
template <auto change>
void first_kernel(swy_plugin& table) {
  table.kernel_at = [](swy_device* device, uint32_t index) -> const swy_kernel* {
    const swy_kernel* k = right::kernel_at(device, index);
    if (k == nullptr || index != 0) return k;
    static const swy_kernel wrong = [k] {
      swy_kernel copy = *k;
      change(copy);
      return copy;
    }();
    return &wrong;
  };
}

constexpr Fault kFaults[] = {
    {"other_id_than_its_note", "negotiation/note", "calls itself 'wronger', and its note says 'wrong'", 0, nullptr,
     [](swy::HostBackend& b) { b.id = "wronger"; }},
    {"other_version_than_its_note", "negotiation/note", "is of version '2', and its note says '1'", 0, nullptr,
     [](swy::HostBackend& b) { b.version = "2"; }},
    // Right: it samples greedily, and knows ids that end a sequence, but nothing else.
    {"greedy_and_stop_ids_only", "sampling", "", 0, nullptr,
     [](swy::HostBackend& b) { b.sampling_steps = SWY_SAMPLES_GREEDY | SWY_SAMPLES_STOP_IDS; }},
    {"seeded_and_logprobs_only", "sampling", "", 0, nullptr,
     [](swy::HostBackend& b) { b.sampling_steps = SWY_SAMPLES_SEEDED | SWY_SAMPLES_LOGPROBS; }},

    {"unknown_flag_of_the_device", "device/info", "flags that ABI 1 does not know", 0, nullptr, nullptr,
     device_info<[](swy_device_info& i) { i.flags |= 1u << 20; }>},
    {"unknown_kind_of_sampling", "device/info", "sampling has bits that ABI 1 does not know", 0, nullptr, nullptr,
     device_info<[](swy_device_info& i) { i.sampling |= 1u << 9; }>},
    {"unknown_step_of_sampling", "device/info", "sampling_steps has bits that ABI 1 does not know", 0, nullptr, nullptr,
     device_info<[](swy_device_info& i) { i.sampling_steps |= 1u << 30; }>},
    {"unknown_flag_of_a_kernel", "device/kernels", "flags that ABI 1 does not know", 0, nullptr, nullptr,
     first_kernel<[](swy_kernel& k) { k.flags |= 1u << 9; }>},
    {"unknown_encoding", "device/kernels", "weight_dtypes", 0, nullptr, nullptr,
     first_kernel<[](swy_kernel& k) { k.weight_dtypes |= 1u << 20; }>},
    {"revision_0", "device/kernels", "declares revision 0 of", 0, nullptr, nullptr,
     first_kernel<[](swy_kernel& k) { k.op_revision = 0; }>},
    {"revision_9", "device/kernels", "declares revision 9 of", 0, nullptr, nullptr,
     first_kernel<[](swy_kernel& k) { k.op_revision = 9; }>},
    {"kernel_without_a_name", "device/kernels", "has no name of one word", 0, nullptr, nullptr,
     first_kernel<[](swy_kernel& k) { k.name = ""; }>},
    {"kernel_without_record", "device/kernels", "has no record", 0, nullptr, nullptr,
     first_kernel<[](swy_kernel& k) { k.record = nullptr; }>},
    {"no_kernel_has_a_cost", "device/costs", "has no cost", 0, nullptr, nullptr,
     first_kernel<[](swy_kernel& k) { k.cost = nullptr; }>},
    {"refuses_longer_structs", "sizes/embedding.plain", "refuses from a host with longer structs", 0, nullptr, nullptr,
     first_kernel<[](swy_kernel& k) {
       k.supports = [](swy_device*, const swy_kernel*, const swy_op* op, const swy_bucket*, swy_error* error) {
         if (op->struct_size <= sizeof *op) return swy_status{SWY_OK};
         return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_NONE, "an operation of %u bytes", op->struct_size);
       };
     }>},
    {"reads_past_shorter_structs", "sizes/embedding.plain", "refuses from a host with the structs of the first version",
     0, nullptr, nullptr, first_kernel<[](swy_kernel& k) {
       k.supports = [](swy_device*, const swy_kernel*, const swy_op* op, const swy_bucket*, swy_error* error) {
         if (op->name == nullptr) return swy_status{SWY_OK};
         return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_NONE, "an operation with a name");
       };
     }>},
    {"raises_the_size_of_an_answer", "sizes/device_info", "wrote beyond a struct of", 0, nullptr, nullptr,
     [](swy_plugin& t) {
       t.device_info = [](uint32_t index, swy_device_info* out, swy_error* error) {
         swy_device_info all{};
         all.struct_size = sizeof all;
         const swy_status s = right::device_info(index, &all, error);
         if (s == SWY_OK) *out = all;
         return s;
       };
     }},
    {"odd_alignment", "device/info", "buffer_alignment 48", 0, nullptr, nullptr,
     device_info<[](swy_device_info& i) { i.buffer_alignment = 48; }>},
    {"nameless_device", "device/info", "no name or no arch", 0, nullptr, nullptr,
     device_info<[](swy_device_info& i) { i.name = ""; }>},
    {"more_memory_free_than_there_is", "device/info", "more memory is free", 0, nullptr, nullptr,
     device_info<[](swy_device_info& i) { i.memory_free_bytes = 2 * i.memory_bytes; }>},

    {"no_pack", "abi/table", "pack is NULL, and mandatory", 0, nullptr, nullptr,
     [](swy_plugin& t) { t.pack = nullptr; }},
    {"no_buffer_map", "abi/table", "buffer_map is NULL, and mandatory", 0, nullptr, nullptr,
     [](swy_plugin& t) { t.buffer_map = nullptr; }},
    {"one_entry_of_timelines", "abi/table", "some of the four entries of timelines", 0, nullptr, nullptr,
     [](swy_plugin& t) { t.timeline_value = [](swy_timeline*) { return uint64_t{0}; }; }},
    {"names_every_layout", "errors/unknown_layouts", "has a name", 0, nullptr, nullptr,
     [](swy_plugin& t) { t.layout_name = [](uint32_t) { return "wrong.any/1"; }; }},
    {"has_every_extension", "device/unknown_extensions", "claims the unknown extension", 0, nullptr, nullptr,
     [](swy_plugin& t) {
       t.get_extension = [](swy_device*, const char*) {
         static const uint32_t nothing[16] = {64};
         return static_cast<const void*>(nothing);
       };
     }},
    {"fills_nothing", "copies/pieces_of_device_memory", "fill_zero of ", 0, nullptr, nullptr,
     [](swy_plugin& t) {
       t.fill_zero = [](swy_device*, swy_buffer*, uint64_t, uint64_t, swy_error*) { return swy_status{SWY_OK}; };
     }},
    {"new_memory_is_not_zero", "copies/pieces_of_device_memory", "new memory is not zero", 0, nullptr, nullptr,
     [](swy_plugin& t) {
       t.buffer_alloc = [](swy_device* d, swy_memory_type type, uint64_t bytes, swy_buffer** out, swy_error* error) {
         const swy_status s = right::buffer_alloc(d, type, bytes, out, error);
         if (s == SWY_OK && bytes != 0) std::memset(right::buffer_map(d, *out), 1, bytes);
         return s;
       };
     }},
    {"takes_states_of_any_size", "errors/sizes_of_states", "importing ", 0, nullptr, nullptr,
     [](swy_plugin& t) {
       t.state_import = [](swy_device*, const swy_tensor*, uint32_t, const swy_binding*, const void*, uint64_t,
                           swy_error*) { return swy_status{SWY_OK}; };
     }},
};

}  // namespace

std::span<const Fault> faults_of_tables() { return kFaults; }

}  // namespace wrong
