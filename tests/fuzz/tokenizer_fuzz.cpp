// SPDX-License-Identifier: Apache-2.0
// Tokenizers are untrusted, and so is what they encode: the input is a tokenizer.json, a zero byte, and a text.
// Whatever the bytes are, reading the one and encoding the other end, and every id is one of the vocabulary.
#include <cstdint>
#include <string>
#include <string_view>

#include "core/text/detokenizer.h"
#include "core/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const auto tokenizer = switchyard::Tokenizer::parse(input.substr(0, end));
  if (!tokenizer.ok()) {
    if (tokenizer.status().message().size() > 1000) __builtin_trap();  // a line, not a dump of the file
    return 0;
  }
  const std::string_view text = end == std::string_view::npos ? "a <b> naïve\n" : input.substr(end + 1);
  for (const auto specials : {switchyard::Specials::tokens, switchyard::Specials::letters}) {
    const auto ids = tokenizer->encode(text, specials);
    if (!ids.ok()) continue;
    switchyard::Detokenizer stream(*tokenizer, false);
    std::string shown;
    for (const int32_t id : *ids) {
      if (id < 0 || id >= tokenizer->vocab_size()) __builtin_trap();
      shown += stream.push(id);
    }
    shown += stream.flush();
    if (shown != tokenizer->decode(*ids)) __builtin_trap();
  }
  return 0;
}
