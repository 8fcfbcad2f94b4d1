// SPDX-License-Identifier: Apache-2.0
#include "bench/op_states.h"

#include <cstring>
#include <random>

#include "switchyard/weights.h"

namespace switchyard::bench {
namespace {

uint64_t units_of(const swy_tensor& state, const swy_bucket& bucket) {
  return state.state == SWY_STATE_PAGED ? bucket.pages : bucket.slots;
}

// Elements of a slot or a page.
uint64_t unit_elements(const swy_tensor& state, const swy_bucket& bucket) {
  uint64_t n = state.state == SWY_STATE_PAGED ? bucket.page_size : 1;
  for (uint32_t i = 0; i < state.rank; ++i) n *= state.dims[i];
  return n;
}

}  // namespace

std::vector<std::byte> bytes_of(const std::vector<float>& numbers, swy_dtype dtype) {
  const uint64_t size = dtype_bytes(dtype);
  std::vector<std::byte> bytes(numbers.size() * size);
  for (size_t i = 0; i < numbers.size(); ++i) {
    std::byte* to = bytes.data() + i * size;
    if (dtype == SWY_BF16) {
      const uint16_t x = swy_f32_to_bf16(numbers[i]);
      std::memcpy(to, &x, size);
    } else if (dtype == SWY_I32) {
      const auto x = static_cast<int32_t>(numbers[i]);
      std::memcpy(to, &x, size);
    } else {
      std::memcpy(to, &numbers[i], size);
    }
  }
  return bytes;
}

std::vector<float> numbers_of(const std::vector<std::byte>& bytes, swy_dtype dtype) {
  const uint64_t size = dtype_bytes(dtype);
  std::vector<float> numbers(bytes.size() / size);
  for (size_t i = 0; i < numbers.size(); ++i) {
    const std::byte* from = bytes.data() + i * size;
    if (dtype == SWY_BF16) {
      uint16_t x = 0;
      std::memcpy(&x, from, size);
      numbers[i] = swy_bf16_to_f32(x);
    } else if (dtype == SWY_I32) {
      int32_t x = 0;
      std::memcpy(&x, from, size);
      numbers[i] = static_cast<float>(x);
    } else {
      std::memcpy(&numbers[i], from, size);
    }
  }
  return numbers;
}

Result<swy_binding> OpStates::get(const PlanDevice& device, const Graph& graph, const GraphOp& op, uint32_t index,
                                  const swy_bucket& bucket) {
  const uint32_t state = op.states[index];
  if (const auto at = states_.find(state); at != states_.end()) return at->second.buffer.all();
  const swy_tensor& desc = graph.states[state].desc;
  const OpView view(graph, op, bucket);
  swy_state_layout layout{};
  layout.struct_size = sizeof layout;
  PluginError e;
  SWY_TRY(e.status(device.api->state_layout(device.handle, view.get(), index, &bucket, &layout, e.get()), op.name));
  State made;
  made.unit_bytes = layout.unit_bytes;
  const uint64_t units = units_of(desc, bucket);
  SWY_LET(made.buffer,
          DeviceBuffer::allocate(device, SWY_MEMORY_DEVICE, layout.unit_bytes * units, "state of " + op.name));
  std::minstd_rand random(23 + state);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(unit_elements(desc, bucket));
  for (uint64_t u = 0; u < units; ++u) {
    for (float& x : numbers) x = desc.dtype == SWY_I32 ? 0 : swy_bf16_to_f32(swy_f32_to_bf16(normal(random)));
    const std::vector<std::byte> unit = bytes_of(numbers, desc.dtype);
    const swy_binding at = made.buffer.slice(u * layout.unit_bytes, layout.unit_bytes);
    SWY_TRY(e.status(
        device.api->state_import(device.handle, &desc, bucket.page_size, &at, unit.data(), unit.size(), e.get()),
        op.name));
  }
  return states_.emplace(state, std::move(made)).first->second.buffer.all();
}

Result<std::vector<float>> OpStates::canonical(const PlanDevice& device, const Graph& graph, uint32_t state,
                                               const swy_bucket& bucket) const {
  const auto found = states_.find(state);
  if (found == states_.end()) return error(Code::internal, "state {} was never bound", state);
  const swy_tensor& desc = graph.states[state].desc;
  std::vector<std::byte> all;
  for (uint64_t u = 0; u < units_of(desc, bucket); ++u) {
    std::vector<std::byte> unit(unit_elements(desc, bucket) * dtype_bytes(desc.dtype));
    const swy_binding at = found->second.buffer.slice(u * found->second.unit_bytes, found->second.unit_bytes);
    PluginError e;
    SWY_TRY(e.status(
        device.api->state_export(device.handle, &desc, bucket.page_size, &at, unit.data(), unit.size(), e.get()),
        graph.states[state].name));
    all.insert(all.end(), unit.begin(), unit.end());
  }
  return numbers_of(all, desc.dtype);
}

}  // namespace switchyard::bench
