// SPDX-License-Identifier: Apache-2.0
#include "core/draft/speculation.h"

namespace switchyard {

const char* speculation_name(Speculation s) {
  return s == Speculation::off ? "off" : s == Speculation::automatic ? "auto" : "ngram";
}

Result<Speculation> parse_speculation(std::string_view text) {
  for (const Speculation s : {Speculation::off, Speculation::automatic, Speculation::ngram}) {
    if (text == speculation_name(s)) return s;
  }
  return error(Code::usage, "--speculate is '{}'; it must be auto, ngram or off", text);
}

}  // namespace switchyard
