// SPDX-License-Identifier: Apache-2.0
#include "core/serve/prefix_cache.h"

#include <algorithm>
#include <iterator>

namespace switchyard {

PrefixCache::PrefixCache(Model& model, const Limits& limits, std::string identity)
    : model_(model),
      limits_(limits),
      identity_(std::move(identity)),
      most_on_device_(model.checkpoints()),
      page_uses_(model.states().pages().count()) {
  for (const StatePool::Unit& u : model.states().units()) {
    if (u.memory != nullptr) (u.paged ? page_bytes_ : slot_bytes_) += u.unit_bytes;
  }
}

PrefixCache::~PrefixCache() = default;

// The longest known beginning that leaves a token to be read.
Kept* PrefixCache::known(const std::string& scope, std::span<const int32_t> prompt, size_t* common) const {
  const auto found = scopes_.find(scope);
  if (found == scopes_.end() || prompt.empty()) return nullptr;
  const PrefixTree::Match match = found->second.find(prompt.first(prompt.size() - 1));
  *common = match.common;
  return match.kept;
}

PrefixCache::Hit PrefixCache::find(const std::string& scope, std::span<const int32_t> prompt) {
  size_t common = 0;
  Kept* const kept = known(scope, prompt, &common);
  Hit hit;
  hit.common = static_cast<uint32_t>(common);
  if (kept == nullptr) return hit;
  touch(*kept);
  hit.position = kept->position;
  if (kept->states != nullptr) hit.pages = static_cast<uint32_t>(kept->states->pages().size());
  return hit;
}

Result<uint32_t> PrefixCache::resume(const std::string& scope, std::span<const int32_t> prompt, Session& session) {
  size_t common = 0;
  Kept* const kept = known(scope, prompt, &common);
  if (kept == nullptr) return 0u;
  if (kept->states != nullptr) {
    SWY_TRY(session.resume(*kept->states));
  } else if (!kept->host.empty()) {
    SWY_TRY(session.restore(kept->host));
  } else {
    SWY_TRY(resume_saved(*kept, session));
  }
  return kept->position;
}

// The index of a file could say of states that they have seen other tokens than they have.
Status PrefixCache::resume_saved(Kept& kept, Session& session) {
  Status read = session.restore(kept.saved);
  if (read.ok() && session.position() != kept.position) {
    read =
        error(Code::invalid_data, "they have seen {} tokens, and the index says {}", session.position(), kept.position);
  }
  const bool complete = model_.mtp() == nullptr || session.may_draft();
  if ((read.ok() && complete) || read.code() == Code::out_of_device_memory) return read;
  drop(kept.self);
  if (read.ok()) {
    return error(Code::invalid_data,
                 "cached states in {} were kept without the model's multi-token prediction layer; they are dropped",
                 file_path_);
  }
  return error(Code::invalid_data, "cached states in {} are damaged ({}); they are dropped", file_path_,
               read.message());
}

// ---- what is kept ----

void PrefixCache::keep(const std::string& scope, std::span<const int32_t> tokens, Session& session) {
  if (tokens.empty() || session.position() != tokens.size()) return;
  PrefixNode* const node = scopes_[scope].at(tokens);
  if (node->kept != nullptr) return touch(*node->kept);
  auto states = session.keep();
  if (!states.ok() || !(*states)->complete()) {
    scopes_[scope].prune(node);
    if (scopes_[scope].empty()) scopes_.erase(scope);
    return;
  }
  Kept& kept = uses_.emplace_front();
  kept.self = uses_.begin();
  kept.node = node;
  kept.scope = scope;
  kept.position = static_cast<uint32_t>(tokens.size());
  kept.states = std::move(*states);
  node->kept = &kept;
  ++totals_.checkpoints;
  totals_.tokens += kept.position;
  count(*kept.states, true);
  while (on_device_ > most_on_device_ || totals_.bytes > limits_.bytes) {
    if (!make_room()) break;
  }
}

// Pages and slots of the devices that checkpoints hold.
void PrefixCache::count(const StateCheckpoint& states, bool added) {
  for (const uint32_t page : states.pages()) {
    uint32_t& uses = page_uses_[page];
    const bool counts = added ? uses++ == 0 : --uses == 0;
    if (counts) totals_.bytes += added ? page_bytes_ : 0 - page_bytes_;
  }
  totals_.bytes += added ? slot_bytes_ : 0 - slot_bytes_;
  on_device_ += added ? 1 : -1u;
}

void PrefixCache::release(Kept& kept) {
  count(*kept.states, false);
  kept.states.reset();
}

bool PrefixCache::make_room() {
  const auto last = std::find_if(uses_.rbegin(), uses_.rend(), [](const Kept& k) { return k.states != nullptr; });
  if (last == uses_.rend()) return false;
  if (!to_host(*last)) drop(std::prev(last.base()));
  return true;
}

// Whether the states are in host memory now, and no more on the devices.
bool PrefixCache::to_host(Kept& kept) {
  if (limits_.host_bytes == 0) return false;
  auto bytes = kept.states->snapshot();
  if (!bytes.ok() || !shrink_host(bytes->size())) return false;
  kept.host = std::move(*bytes);
  totals_.host_bytes += kept.host.size();
  release(kept);
  return true;
}

// Gives up the least recently used states in host memory until there is room for so many bytes.
bool PrefixCache::shrink_host(uint64_t room) {
  if (room > limits_.host_bytes) return false;
  while (totals_.host_bytes > limits_.host_bytes - room) {
    const auto last = std::find_if(uses_.rbegin(), uses_.rend(), [](const Kept& k) { return !k.host.empty(); });
    if (last == uses_.rend()) return false;
    drop(std::prev(last.base()));
  }
  return true;
}

void PrefixCache::drop(Uses::iterator it) {
  Kept& kept = *it;
  if (kept.states != nullptr) release(kept);
  totals_.host_bytes -= kept.host.size();
  totals_.tokens -= kept.position;
  --totals_.checkpoints;
  ++totals_.evictions;
  const auto scope = scopes_.find(kept.scope);
  kept.node->kept = nullptr;
  scope->second.prune(kept.node);
  if (scope->second.empty()) scopes_.erase(scope);
  uses_.erase(it);
}

}  // namespace switchyard
