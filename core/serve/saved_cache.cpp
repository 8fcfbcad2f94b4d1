// SPDX-License-Identifier: Apache-2.0
// The prefix cache's states from one process to the next.
#include <algorithm>
#include <iterator>

#include "core/engine/model.h"
#include "core/serve/prefix_cache.h"

namespace switchyard {

namespace {

constexpr uint32_t kWorthSaving = 32;  // tokens: fewer are read as soon as restored

std::vector<int32_t> tokens_of(const PrefixNode* node) {
  std::vector<int32_t> tokens;
  for (; node != nullptr; node = node->parent) tokens.insert(tokens.end(), node->edge.rbegin(), node->edge.rend());
  std::reverse(tokens.begin(), tokens.end());
  return tokens;
}

}  // namespace

// Other backends, and other versions of them, compute other last digits, which --deterministic promises not to show.
std::string PrefixCache::identity() const {
  std::string text = fmt::format("{:016x} {} {}", model_.fingerprint(), StatePool::kPageSize, model_.deterministic());
  for (const uint32_t index : model_.used_devices()) {
    const PlanDevice& device = model_.devices()[index];
    text += fmt::format(" {} {} {}", device.name, device.backend, device.version);
  }
  return text + "\n" + identity_;
}

Result<SavedCache> PrefixCache::save(Os& os, const std::string& path, uint64_t max_bytes) const {
  SWY_LET(CacheFileWriter file, CacheFileWriter::create(os, path, identity()));
  SavedCache saved;
  for (const Kept& kept : uses_) {
    if (kept.position < kWorthSaving) continue;
    std::string now;
    if (kept.states != nullptr) {
      SWY_LET(now, kept.states->snapshot());
    }
    const std::string_view states = kept.states != nullptr ? std::string_view(now)
                                    : kept.host.empty()    ? kept.saved
                                                           : std::string_view(kept.host);
    const std::vector<int32_t> tokens = tokens_of(kept.node);
    if (file.bytes() + states.size() + tokens.size() * sizeof(int32_t) > max_bytes) break;
    SWY_TRY(file.add(kept.scope, tokens, states));
    ++saved.states;
    saved.tokens += tokens.size();
  }
  saved.bytes = file.bytes();
  SWY_TRY(file.commit());
  return saved;
}

Result<SavedCache> PrefixCache::load(Os& os, const std::string& path) {
  if (file_.has_value()) {  // whose bytes entries may still refer to
    return error(Code::usage, "cached states were taken in from {} before; only one file can be", file_path_);
  }
  SWY_LET(CacheFile file, CacheFile::open(os, path, identity()));
  file_ = std::move(file);
  file_path_ = path;
  SavedCache loaded;
  for (const CacheFileEntry& entry : file_->entries()) {
    if (entry.tokens.size() > model_.context() || !model_.check_tokens(entry.tokens).ok()) continue;
    PrefixNode* const node = scopes_[entry.scope].at(entry.tokens);
    if (node->kept != nullptr) continue;
    Kept& kept = uses_.emplace_back();
    kept.self = std::prev(uses_.end());
    kept.node = node;
    kept.scope = entry.scope;
    kept.position = static_cast<uint32_t>(entry.tokens.size());
    kept.saved = entry.states;
    node->kept = &kept;
    ++totals_.checkpoints;
    totals_.tokens += kept.position;
    ++loaded.states;
    loaded.tokens += kept.position;
    loaded.bytes += entry.states.size();
  }
  return loaded;
}

}  // namespace switchyard
