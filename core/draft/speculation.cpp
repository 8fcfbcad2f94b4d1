// SPDX-License-Identifier: Apache-2.0
#include "core/draft/speculation.h"

namespace switchyard {

const char* speculation_name(Speculation s) {
  switch (s) {
    case Speculation::off:
      return "off";
    case Speculation::automatic:
      return "auto";
    case Speculation::ngram:
      return "ngram";
    default:
      return "mtp";
  }
}

Result<Speculation> parse_speculation(std::string_view text) {
  for (const Speculation s : {Speculation::off, Speculation::automatic, Speculation::ngram, Speculation::mtp}) {
    if (text == speculation_name(s)) return s;
  }
  return error(Code::usage, "--speculate is '{}'; it must be auto, mtp, ngram or off", text);
}

}  // namespace switchyard
