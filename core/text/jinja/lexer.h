// SPDX-License-Identifier: Apache-2.0
// The lexer: template text to tokens, with jinja2's rules for white space around tags.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace switchyard::jinja {

struct Token {
  enum class Type : uint8_t {
    data,
    print_begin,
    print_end,
    block_begin,
    block_end,
    name,
    text,
    integer,
    real,
    op,
    end
  };
  Type type;
  int line;
  std::string text;  // of data and text: the value; of others: as written
  int64_t integer = 0;
  double real = 0;
};

// Splits `source` like an environment with trim_blocks and lstrip_blocks: the newline after a block or comment is
// removed, and so is the white space before one that begins a line; `-` strips more, `+` keeps all. Comments are
// dropped, raw blocks become data. The last token is `end`. Throws Failure ("line N: ...") if it is not a template.
std::vector<Token> tokenize(std::string_view source);

}  // namespace switchyard::jinja
