// SPDX-License-Identifier: Apache-2.0
// A session's states as bytes: a header, every slot and page in the canonical form of the plugin ABI in the order of
// the program's states, and a checksum. Little-endian.
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
    if (travels(u)) bytes += u.canonical_bytes * (u.paged ? pages_for(position) : 1);
  }
  return position == 0 ? 0 : bytes;
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
Result<std::string> snapshot_of(const Model& model, uint32_t slot, std::span<const uint32_t> pages, uint32_t position) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.model = model.fingerprint();
  header.position = position;
  header.page_size = StatePool::kPageSize;
  std::string bytes(sizeof header + state_bytes(model, position), '\0');
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
  const uint64_t sum = checksum_of(bytes);
  bytes.append(reinterpret_cast<const char*>(&sum), sizeof sum);
  return bytes;
}

}  // namespace

Result<std::string> Session::snapshot() {
  if (prepared_ != 0) return error(Code::usage, "a session cannot be saved while a step of it runs");
  SWY_TRY(settle());
  return snapshot_of(model_, slot_, pages_, position_);
}

Result<std::string> StateCheckpoint::snapshot() const { return snapshot_of(model_, slot_, pages_, position_); }

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
  if (header.page_size != kPage || bytes.size() != sizeof header + state_bytes(model_, header.position)) {
    return error(Code::invalid_data, "the snapshot has {} bytes of states where its {} tokens take {}",
                 bytes.size() - sizeof header, header.position, state_bytes(model_, header.position));
  }
  reset();
  Status restored = import_states(header.position, bytes.substr(sizeof header));
  if (!restored.ok()) reset();
  return restored;
}

Status Session::import_states(uint32_t position, std::string_view canonical) {
  if (position == 0) return {};
  SWY_TRY(prepare(position));
  const char* from = canonical.data();
  for (const StatePool::Unit& u : model_.states().units()) {
    if (!travels(u)) continue;
    const size_t units = u.paged ? pages_for(position) : 1;
    for (size_t i = 0; i < units; ++i, from += u.canonical_bytes) {
      SWY_TRY(import_unit(u, u.paged ? pages_[i] : write_slot_, from));
    }
  }
  commit();
  return {};
}

uint64_t Session::largest_snapshot() const {
  return sizeof(Header) + state_bytes(model_, model_.context()) + sizeof(uint64_t);
}

Result<uint32_t> Session::snapshot_position(std::string_view bytes) {
  Header header{};
  if (bytes.size() < sizeof header) return error(Code::invalid_data, "this is no snapshot of a session");
  std::memcpy(&header, bytes.data(), sizeof header);
  return header.position;
}

}  // namespace switchyard
