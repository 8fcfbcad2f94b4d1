// SPDX-License-Identifier: Apache-2.0
// StateCheckpoint: what a session has seen at one moment. It shares the session's slot and pages, which nobody changes:
// the session goes on in others. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/engine/mtp.h"
#include "core/engine/state_pool.h"

namespace switchyard {

class Model;

class StateCheckpoint {
 public:
  ~StateCheckpoint();
  StateCheckpoint(const StateCheckpoint&) = delete;
  StateCheckpoint& operator=(const StateCheckpoint&) = delete;

  uint32_t position() const { return position_; }  // tokens
  std::span<const uint32_t> pages() const { return pages_; }
  // Whether the model's multi-token prediction layer can guess after it, if the model runs one.
  bool complete() const;
  // As Session::snapshot.
  Result<std::string> snapshot() const;

 private:
  friend class Session;
  StateCheckpoint(Model& model, uint32_t slot, std::span<const uint32_t> pages, uint32_t position,
                  const MtpTrail& trail);

  Model& model_;
  uint32_t slot_, position_;
  std::vector<uint32_t> pages_;
  MtpTrail trail_;
};

}  // namespace switchyard
