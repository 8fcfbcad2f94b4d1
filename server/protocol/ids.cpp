// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/ids.h"

#include <random>
#include <string_view>

namespace switchyard::server {

std::string random_id(const char* prefix) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device(), device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  std::uniform_int_distribution<size_t> letter(0, kLetters.size() - 1);
  std::string id = prefix;
  for (int i = 0; i < 24; ++i) id += kLetters[letter(random)];
  return id;
}

}  // namespace switchyard::server
