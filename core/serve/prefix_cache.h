// SPDX-License-Identifier: Apache-2.0
// PrefixCache: the states of the beginnings of texts that were read, so that a prompt that begins in the same way reads
// the rest alone. A recurrent state cannot be cut back, so a beginning can only be used where its states were kept.
//
// States are on the devices, as checkpoints that share the sessions' slots and pages, and move to host memory, least
// recently used first, where a budget or the pools have no room. Not thread-safe: the loop's own.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/session.h"
#include "core/serve/cache_file.h"
#include "core/serve/prefix_tree.h"
#include "core/serve/service.h"

namespace switchyard {

class PrefixCache {
 public:
  struct Limits {
    uint64_t bytes = 0;       // on the devices; pages that several checkpoints share count once
    uint64_t host_bytes = 0;  // in host memory
  };
  struct Totals {
    uint32_t checkpoints = 0;
    uint64_t tokens = 0, bytes = 0, host_bytes = 0;
    uint64_t evictions = 0;  // checkpoints that were given up
  };
  // `identity`: ServiceOptions::cache_identity.
  PrefixCache(Model& model, const Limits& limits, std::string identity = {});
  ~PrefixCache();

  struct Hit {
    uint32_t position = 0;  // tokens that need not be read; 0: none
    uint32_t common = 0;    // tokens in common with some text that was kept: states are worth keeping there
    uint32_t pages = 0;     // of the states, shared where they are on the devices
  };
  // What is known of a prompt. Its last token is never part of it, since its logits are not kept.
  Hit find(const std::string& scope, std::span<const int32_t> prompt);
  // Makes the empty session go on from there; returns how many tokens it has then seen. Errors: those of the devices;
  // out_of_device_memory, for states that have to come from host memory; invalid_data, which names the cache file, for
  // states of it that are damaged, or lack those of the multi-token prediction layer: they are dropped.
  Result<uint32_t> resume(const std::string& scope, std::span<const int32_t> prompt, Session& session);
  // Keeps the states of a session that has seen just `tokens`, if there is room, or less recent ones make some. A model
  // that runs its multi-token prediction layer keeps none without the layer's: all later texts would lack them, too.
  void keep(const std::string& scope, std::span<const int32_t> tokens, Session& session);
  // Writes the states to a cache file, the most recently used first, until it has `max_bytes`. Errors: io, and those of
  // the devices; what was at the path stays then.
  Result<SavedCache> save(Os& os, const std::string& path, uint64_t max_bytes) const;
  // Takes in what such a file of the same model has, to be read when it is used. Only one file can be taken in. Errors:
  // as CacheFile::open; usage, after another file.
  Result<SavedCache> load(Os& os, const std::string& path);
  // Moves the least recently used states on the devices away from there; false: there are none.
  bool make_room();

  const Totals& totals() const { return totals_; }

 private:
  using Uses = std::list<Kept>;  // the most recent first

  Kept* known(const std::string& scope, std::span<const int32_t> prompt, size_t* common) const;
  void touch(Kept& kept) { uses_.splice(uses_.begin(), uses_, kept.self); }
  void count(const StateCheckpoint& states, bool added);
  void release(Kept& kept);
  bool to_host(Kept& kept);
  void drop(Uses::iterator it);
  bool shrink_host(uint64_t room);
  Status resume_saved(Kept& kept, Session& session);
  std::string identity() const;

  Model& model_;
  const Limits limits_;
  const std::string identity_;
  uint64_t slot_bytes_ = 0, page_bytes_ = 0;  // of one
  uint32_t most_on_device_;                   // checkpoints
  std::map<std::string, PrefixTree> scopes_;
  Uses uses_;
  std::optional<CacheFile> file_;  // that was loaded
  std::string file_path_;
  std::vector<uint32_t> page_uses_;  // by page
  uint32_t on_device_ = 0;
  Totals totals_;
};

}  // namespace switchyard
