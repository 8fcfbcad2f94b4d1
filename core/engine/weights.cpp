// SPDX-License-Identifier: Apache-2.0
#include "core/engine/weights.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "core/base/affinity.h"
#include "core/base/threads.h"
#include "core/plugin/call.h"
#include "core/program/decoded.h"
#include "switchyard/weights.h"

namespace switchyard {
namespace {

// The approximate size of a weight in groups of 64 of `bits` bits; its present size if it cannot be encoded.
uint64_t bytes_as(const Tensor& tensor, uint64_t bits, uint64_t now) {
  if (tensor.dtype == SWY_F32 || tensor.rank < 2) return now;
  constexpr uint64_t kGroup = 64, kScaleBits = 16;
  uint64_t elements = 1;
  for (uint32_t d = 0; d < tensor.rank; ++d) elements *= tensor.dims[d];
  return elements / kGroup * (kGroup * bits + kScaleBits) / 8;
}

}  // namespace

WeightUse weight_use(const Graph& graph, uint32_t weight, uint32_t device, uint32_t layout) {
  const GraphTensor& t = graph.weights[weight];
  if (t.encoded == GraphTensor::kNone) return {weight, device, layout};
  return {t.encoded, device, layout, t.desc.dtype};
}

// What is copied or packed for a use.
swy_tensor WeightStore::form(WeightUse use) const {
  const swy_tensor desc = describe(program_.tensors[use.tensor]);
  return use.decoded == 0 ? desc : decoded_form(desc, use.decoded);
}

// The file has no decoded form.
Result<StoredLayout> WeightStore::stored(WeightUse use) const {
  if (use.decoded != 0) return StoredLayout{};
  return find_layout(devices_[use.device], program_.tensors[use.tensor], use.layout);
}

Result<uint64_t> WeightStore::bytes_of(WeightUse use) const {
  SWY_LET(const StoredLayout found, stored(use));
  if (found.segment != nullptr) return found.segment->bytes;
  const swy_tensor desc = form(use);
  swy_weight_planes planes;
  if (use.layout == 0 && swy_weight_planes_of(&desc, &planes) == 0) return planes.total_bytes;
  return packed_bytes(devices_[use.device], program_.tensors[use.tensor].name, desc, use.layout);
}

Result<WeightStore::Loaded> WeightStore::make(WeightUse use) const {
  SWY_LET(const StoredLayout found, stored(use));
  if (found.segment == nullptr) {
    SWY_LET(Loaded packed, pack(use));
    packed.repacked = found.stale;
    return packed;
  }
  const PlanDevice& device = devices_[use.device];
  const std::span<const std::byte> bytes = program_.segment_bytes(*found.segment);
  Result<DeviceBuffer> imported = DeviceBuffer::import(device, bytes);  // weights in the file need not be copied
  if (imported.ok()) return Loaded{std::move(*imported), 0};
  if (imported.status().code() != Code::unsupported) return imported.status();
  SWY_LET(DeviceBuffer buffer, DeviceBuffer::allocate(device, SWY_MEMORY_DEVICE, bytes.size(),
                                                      fmt::format("weight {}", program_.tensors[use.tensor].name)));
  const std::lock_guard lock(copying_);
  SWY_TRY(buffer.write(0, bytes));
  return Loaded{std::move(buffer), bytes.size()};
}

// Decoded, packed, or both.
Result<WeightStore::Loaded> WeightStore::pack(WeightUse use) const {
  const Tensor& tensor = program_.tensors[use.tensor];
  const PlanDevice& device = devices_[use.device];
  const std::string what = fmt::format("weight {}", tensor.name);
  SWY_LET(const uint64_t size, bytes_of(use));
  SWY_LET(DeviceBuffer buffer, DeviceBuffer::allocate(device, SWY_MEMORY_DEVICE, size, what));
  std::vector<std::byte> staging(buffer.map() == nullptr ? size : 0);
  std::byte* to = buffer.map() == nullptr ? staging.data() : buffer.map();
  const std::byte* canonical = program_.segment_bytes(tensor).data();
  const swy_tensor desc = form(use);
  std::vector<std::byte> decoded;
  if (use.decoded != 0) {
    if (use.layout != 0) {
      SWY_LET(const uint64_t bytes, bytes_of({use.tensor, use.device, 0, use.decoded}));
      decoded.resize(bytes);
    }
    decode_weight(describe(tensor), canonical, use.decoded, use.layout != 0 ? decoded.data() : to);
    canonical = decoded.data();
  }
  if (use.layout != 0) {
    PluginError e;
    const auto pack = [&](swy_error* x) { return device.api->pack(&desc, use.layout, canonical, to, x); };
    SWY_TRY(e.status(call_plugin(device, "pack", e.get(), pack), device.name + ": packing " + what));
  }
  if (!staging.empty()) {
    const std::lock_guard lock(copying_);
    SWY_TRY(buffer.write(0, staging));
  }
  return Loaded{std::move(buffer), size};
}

Status WeightStore::add_need(const std::vector<WeightUse>& uses, uint32_t device, MemoryNeed& need) const {
  const bool host = (devices_[device].info.flags & SWY_DEVICE_HOST_MEMORY) != 0;
  for (const WeightUse& use : std::set<WeightUse>(uses.begin(), uses.end())) {
    if (use.device != device) continue;
    SWY_LET(const StoredLayout found, stored(use));
    if (host && found.segment != nullptr) continue;  // read where the file is mapped
    SWY_LET(const uint64_t bytes, bytes_of(use));
    need.weights += bytes;
    need.weights_i8 += bytes_as(program_.tensors[use.tensor], 8, bytes);
    need.weights_i4 += bytes_as(program_.tensors[use.tensor], 4, bytes);
  }
  return {};
}

// The canonical form of a weight that is packed or decoded now is not read any more, unless some device uses it as it
// is. `uses` are sorted.
void WeightStore::release_packed(WeightUse use, const std::vector<WeightUse>& uses) const {
  bool read = false;
  const WeightUse first{use.tensor, 0, 0};
  for (auto u = std::lower_bound(uses.begin(), uses.end(), first); u != uses.end() && u->tensor == use.tensor; ++u) {
    read = read || (u->layout == 0 && u->decoded == 0);
  }
  for (auto b = buffers_.lower_bound(first); b != buffers_.end() && b->first.tensor == use.tensor; ++b) {
    read = read || (b->first.layout == 0 && b->first.decoded == 0);
  }
  if ((use.layout != 0 || use.decoded != 0) && !read) program_.release(program_.tensors[use.tensor].segments[0]);
}

Status WeightStore::load(std::vector<WeightUse> uses, uint32_t threads, const Progress& progress) {
  std::sort(uses.begin(), uses.end());
  uses.erase(std::unique(uses.begin(), uses.end()), uses.end());
  std::erase_if(uses, [&](const WeightUse& use) { return buffers_.contains(use); });
  uint64_t total = 0, done = 0;
  for (const WeightUse& use : uses) total += program_.tensors[use.tensor].segments[0].bytes;

  std::mutex mutex;  // over everything below
  Status status;
  std::atomic<size_t> next{0};
  const auto take = [&](const WeightUse& use, Result<Loaded> loaded) -> Status {
    SWY_TRY(loaded.status());
    copied_ += loaded->copied;
    repacked_ += loaded->repacked;
    buffers_.emplace(use, std::move(loaded->buffer));
    release_packed(use, uses);
    done += program_.tensors[use.tensor].segments[0].bytes;
    return progress && !progress(done, total) ? error(Code::cancelled, "stopped while weights were loaded") : Status();
  };
  const std::thread::id caller = std::this_thread::get_id();
  on_threads(std::min<size_t>(threads, uses.size()), [&] {
    if (std::this_thread::get_id() != caller) unpin_this_thread();  // it would share its creator's processor
    for (size_t i; (i = next.fetch_add(1)) < uses.size();) {
      Result<Loaded> loaded = within_memory([&] { return make(uses[i]); });
      const std::lock_guard lock(mutex);
      if (status.ok()) status = within_memory([&] { return take(uses[i], std::move(loaded)); });
      if (!status.ok()) next.store(uses.size());
    }
  });
  return status;
}

void WeightStore::keep_only(const std::vector<WeightUse>& uses) {
  const std::set<WeightUse> kept(uses.begin(), uses.end());
  std::erase_if(buffers_, [&](const auto& loaded) { return !kept.contains(loaded.first); });
}

Result<swy_binding> WeightStore::get(WeightUse use) {
  auto it = buffers_.find(use);
  if (it == buffers_.end()) {
    SWY_TRY(load({use}, 1));
    it = buffers_.find(use);
  }
  return it->second.all();
}

}  // namespace switchyard
