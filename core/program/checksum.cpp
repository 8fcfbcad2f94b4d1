// SPDX-License-Identifier: Apache-2.0
#include "core/program/checksum.h"

#include <new>

#include <xxhash.h>

namespace switchyard {

Checksum::Checksum() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  reset();
}

void Checksum::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

void Checksum::reset() { XXH3_64bits_reset(state_.get()); }

void Checksum::add(std::span<const std::byte> bytes) { XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()); }

uint64_t Checksum::value() const { return XXH3_64bits_digest(state_.get()); }

}  // namespace switchyard
