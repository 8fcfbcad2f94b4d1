// SPDX-License-Identifier: Apache-2.0
// A session's states as bytes: a header, every slot and page in the canonical form of the plugin ABI in the order of
// the program's states, and a checksum. Little-endian. Where the model runs its multi-token prediction layer, the
// layer's pages come last, and what MtpTrail::bytes gives.
#include <algorithm>
#include <cstring>

#include "core/engine/session.h"
#include "core/plugin/call.h"
#include "core/program/checksum.h"

namespace switchyard {
namespace {

constexpr uint32_t kPage = StatePool::kPageSize;
constexpr char kMagic[8] = {'S', 'W', 'Y', 'S', 'N', 'A', 'P', '1'};

struct Header {
  char magic[8];
  uint64_t model;     // Model::fingerprint
  uint32_t position;  // tokens seen
  uint32_t page_size;
};

uint64_t checksum_of(std::string_view bytes) {
  Checksum sum;
  sum.add(std::as_bytes(std::span(bytes)));
  return sum.value();
}

bool travels(const StatePool::Unit& u) { return u.memory != nullptr && !u.counts && !u.pending; }

size_t pages_for(uint32_t position) { return (position + StatePool::kPageSize - 1) / StatePool::kPageSize; }

uint64_t state_bytes(const Model& model, uint32_t position) {
  uint64_t bytes = 0;
  for (const StatePool::Unit& u : model.states().units()) {
    if (travels(u) && !u.layer) bytes += u.canonical_bytes * (u.paged ? pages_for(position) : 1);
  }
  return position == 0 ? 0 : bytes;
}

// What follows where the multi-token prediction layer was run: its states, and the trail. 0: the program has none.
uint64_t layer_bytes(const Model& model, uint32_t position) {
  const Function* layer = MtpLayer::of(model.program());
  if (layer == nullptr || position == 0) return 0;
  uint64_t bytes = MtpTrail::bytes_of(static_cast<uint32_t>(layer->values[layer->inputs[0]].width));
  for (const Op& op : layer->ops) {
    for (const uint32_t s : op.states) {
      const swy_tensor desc = describe(model.program().states[s]);
      uint64_t page = dtype_bytes(desc.dtype) * kPage;
      for (uint32_t d = 0; d < desc.rank; ++d) page *= desc.dims[d];
      bytes += page * pages_for(position);
    }
  }
  return bytes;
}

Status export_unit(const StatePool::Unit& u, uint32_t unit, char* to) {
  const swy_binding at = u.at(unit);
  PluginError e;
  const auto copy = [&](swy_error* x) {
    return u.device->api->state_export(u.device->handle, &u.state->desc, StatePool::kPageSize, &at, to,
                                       u.canonical_bytes, x);
  };
  return e.status(call_plugin(*u.device, "state_export", e.get(), copy),
                  u.device->name + ": reading state " + u.state->name);
}

Status import_unit(const StatePool::Unit& u, uint32_t unit, const char* from) {
  const swy_binding at = u.at(unit);
  PluginError e;
  const auto copy = [&](swy_error* x) {
    return u.device->api->state_import(u.device->handle, &u.state->desc, StatePool::kPageSize, &at, from,
                                       u.canonical_bytes, x);
  };
  return e.status(call_plugin(*u.device, "state_import", e.get(), copy),
                  u.device->name + ": writing state " + u.state->name);
}

}  // namespace

uint64_t Model::fingerprint() const {
  Checksum sum;
  const auto add = [&](const auto& value) { sum.add(std::as_bytes(std::span(&value, 1))); };
  for (const Tensor& t : program_->tensors) {
    sum.add(std::as_bytes(std::span(t.name)));
    add(t.dtype);
    add(t.group);
    add(t.dims);
    add(t.segments[0].checksum);
  }
  // Weights that are made in memory have no checksums; the description of how they are made is used instead.
  for (const auto& [name, value] : program_->metadata) {
    if (name == "synthetic") sum.add(std::as_bytes(std::span(value)));
  }
  for (const State& s : program_->states) {
    sum.add(std::as_bytes(std::span(s.name)));
    add(s.kind);
    add(s.dims);
  }
  return sum.value();
}

namespace {

// The bytes of what was seen in a slot and pages.
Result<std::string> snapshot_of(Model& model, uint32_t slot, std::span<const uint32_t> pages, uint32_t position,
                                const MtpTrail& trail) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.model = model.fingerprint();
  header.position = position;
  header.page_size = StatePool::kPageSize;
  const uint64_t layer = model.mtp() == nullptr ? 0 : layer_bytes(model, position);
  const uint64_t trail_bytes = layer == 0 ? 0 : MtpTrail::bytes_of(model.mtp()->hidden());
  std::string bytes(sizeof header + state_bytes(model, position) + layer - trail_bytes, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  char* to = bytes.data() + sizeof header;
  for (const StatePool::Unit& u : model.states().units()) {
    if (!travels(u) || position == 0) continue;
    if (!u.paged) {
      SWY_TRY(export_unit(u, slot, to));
      to += u.canonical_bytes;
    }
    for (size_t p = 0; u.paged && p < pages_for(position); ++p, to += u.canonical_bytes) {
      SWY_TRY(export_unit(u, pages[p], to));
      // Beyond the last token a page holds what its former users left.
      const size_t seen = std::min<size_t>(position - p * kPage, kPage);
      std::memset(to + u.canonical_bytes / kPage * seen, 0, u.canonical_bytes / kPage * (kPage - seen));
    }
  }
  if (trail_bytes != 0) bytes += trail.bytes(model.mtp()->hidden());
  const uint64_t sum = checksum_of(bytes);
  bytes.append(reinterpret_cast<const char*>(&sum), sizeof sum);
  return bytes;
}

}  // namespace

Result<std::string> Session::snapshot() {
  if (prepared_ != 0) return error(Code::usage, "a session cannot be saved while a step of it runs");
  SWY_TRY(settle());
  SWY_TRY(settle_trail());
  return snapshot_of(model_, slot_, pages_, position_, trail_);
}

Result<std::string> StateCheckpoint::snapshot() const { return snapshot_of(model_, slot_, pages_, position_, trail_); }

Status Session::restore(std::string_view bytes) {
  if (prepared_ != 0) return error(Code::usage, "a session cannot be restored while a step of it runs");
  Header header{};
  uint64_t sum = 0;
  if (bytes.size() < sizeof header + sizeof sum)
    return error(Code::invalid_data, "this is not a snapshot of a session");
  std::memcpy(&header, bytes.data(), sizeof header);
  std::memcpy(&sum, bytes.data() + bytes.size() - sizeof sum, sizeof sum);
  bytes.remove_suffix(sizeof sum);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    return error(Code::invalid_data, "this is not a snapshot of a session");
  }
  if (checksum_of(bytes) != sum) return error(Code::invalid_data, "the snapshot is damaged: its checksum differs");
  if (header.model != model_.fingerprint()) {
    return error(Code::usage, "the snapshot is of another model ({:016x}, this is {:016x})", header.model,
                 model_.fingerprint());
  }
  if (header.position > model_.context()) {
    return error(Code::usage, "the snapshot has {} tokens, the context {}; raise --ctx", header.position,
                 model_.context());
  }
  const uint64_t states = state_bytes(model_, header.position), layer = layer_bytes(model_, header.position);
  bytes.remove_prefix(sizeof header);
  if (header.page_size != kPage || (bytes.size() != states && bytes.size() != states + layer)) {
    return error(Code::invalid_data, "the snapshot has {} bytes of states where its {} tokens take {}", bytes.size(),
                 header.position, states);
  }
  reset();
  const bool with_layer = layer != 0 && bytes.size() == states + layer;
  Status restored = import_states(header.position, bytes, with_layer);
  if (!restored.ok()) reset();
  return restored;
}

// A model that runs the layer drafts only from states of it.
Status Session::import_states(uint32_t position, std::string_view canonical, bool with_layer) {
  if (position == 0) return {};
  SWY_TRY(prepare(position));
  const char* from = canonical.data();
  for (const StatePool::Unit& u : model_.states().units()) {
    if (!travels(u) || (u.layer && !with_layer)) continue;
    const size_t units = u.paged ? pages_for(position) : 1;
    for (size_t i = 0; i < units; ++i, from += u.canonical_bytes) {
      SWY_TRY(import_unit(u, u.paged ? pages_[i] : write_slot_, from));
    }
  }
  commit();
  if (model_.mtp() == nullptr) return {};
  const uint32_t width = model_.mtp()->hidden();
  trail_.restore(position, with_layer ? canonical.substr(canonical.size() - MtpTrail::bytes_of(width)) : "", width);
  return {};
}

uint64_t Session::largest_snapshot() const {
  return sizeof(Header) + state_bytes(model_, model_.context()) + layer_bytes(model_, model_.context()) +
         sizeof(uint64_t);
}

Result<uint32_t> Session::snapshot_position(std::string_view bytes) {
  Header header{};
  if (bytes.size() < sizeof header) return error(Code::invalid_data, "this is no snapshot of a session");
  std::memcpy(&header, bytes.data(), sizeof header);
  return header.position;
}

}  // namespace switchyard
