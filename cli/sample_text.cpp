// SPDX-License-Identifier: Apache-2.0
#include "cli/sample_text.h"

#include <filesystem>

#include "cli/model_source.h"
#include "cli/text_input.h"
#include "core/base/status.h"

namespace switchyard::cli {

std::vector<int32_t> random_tokens(uint32_t n, uint32_t vocab) {
  std::vector<int32_t> ids(n);
  uint64_t x = 88172645463325252ull;
  for (int32_t& id : ids) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;  // xorshift64
    id = static_cast<int32_t>(x % vocab);
  }
  return ids;
}

Result<std::vector<int32_t>> sample_text(const Tokenizer* tokenizer, uint32_t vocab, uint32_t n,
                                         const std::string& file) {
  if (tokenizer == nullptr) return random_tokens(n, vocab);
  const std::string path =
      file.empty() ? (std::filesystem::path(model_path({})).parent_path() / "prompt.txt").string() : file;
  SWY_LET(const std::string text, read_text(path));
  SWY_LET(std::vector<int32_t> ids, tokenizer->encode(text, Specials::letters));
  std::erase_if(ids, [&](int32_t id) { return static_cast<uint32_t>(id) >= vocab; });
  if (ids.empty()) return random_tokens(n, vocab);
  const size_t length = ids.size();
  ids.resize(n);
  for (size_t i = length; i < ids.size(); ++i) ids[i] = ids[i - length];
  return ids;
}

}  // namespace switchyard::cli
