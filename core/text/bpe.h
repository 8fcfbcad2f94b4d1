// SPDX-License-Identifier: Apache-2.0
// The merging half of byte-level BPE: bytes of one pre-token to token ids.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace switchyard {

class Bpe {
 public:
  void set_byte(uint8_t byte, int32_t id) { byte_ids_[byte] = id; }
  // A pair ranks after all pairs added before it; one that is added twice has its last rank, as in the tokenizers
  // package.
  void add_merge(int32_t left, int32_t right, int32_t merged);

  // Appends the ids of `bytes`. Time n log n. A byte that the vocabulary lacks gives nothing.
  void encode(std::string_view bytes, std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };
  static uint64_t key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }

  int32_t byte_ids_[256] = {};
  uint32_t next_rank_ = 0;
  std::unordered_map<uint64_t, Merge> merges_;
};

}  // namespace switchyard
