// SPDX-License-Identifier: Apache-2.0
// Patterns of --allow-regex: the first byte chooses among the tokens that the mask allows, the rest is the pattern.
// Following it ends soon, and no mask names a token beyond the vocabulary.
#include <cstdint>
#include <string>
#include <vector>

#include "core/generate/regex_mask.h"
#include "core/text/tokenizer.h"

namespace {

using namespace switchyard;  // NOLINT(google-build-using-namespace)

constexpr uint32_t kVocab = 24;

// Single characters that patterns are likely to name, and some that begin alike.
const Tokenizer& tokenizer() {
  static const Tokenizer all = [] {
    std::string vocab;
    int id = 0;
    for (const char* token : {"a",  "b",   "c",  "0",  "1",    "9", "-", ".", "{", "}", "\\\"", ":",
                              "ab", "abc", "aa", "10", "true", "x", "A", "_", "Ġ", "Ċ", "Ã",    "<e>"}) {
      vocab += (id == 0 ? "\"" : ",\"") + std::string(token) + "\":" + std::to_string(id);
      ++id;
    }
    auto parsed = Tokenizer::parse(R"({"model":{"type":"BPE","merges":[],"vocab":{)" + vocab +
                                   R"(}},"added_tokens":[{"id":23,"content":"<e>","special":true}],)" +
                                   R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false}})");
    if (!parsed.ok()) __builtin_trap();
    return std::move(*parsed);
  }();
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string pattern(reinterpret_cast<const char*>(data) + 1, size - 1);
  const int32_t end[] = {23};
  auto made = RegexMask::create(pattern, tokenizer(), kVocab, end);
  if (!made.ok()) return 0;
  RegexMask& mask = **made;
  std::vector<int32_t> drawn;
  for (int step = 0; step < 6; ++step) {
    std::vector<uint32_t> bits(1);
    mask.allow(drawn, bits);
    if (bits[0] >> kVocab != 0) __builtin_trap();  // beyond the vocabulary
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < 23; ++id) {
      if (bits[0] >> id & 1) allowed.push_back(id);
    }
    if (allowed.empty()) break;
    drawn.push_back(allowed[(data[0] + static_cast<size_t>(step) * 7) % allowed.size()]);
    (void)mask.finished(drawn);
  }
  return 0;
}
