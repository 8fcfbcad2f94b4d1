// SPDX-License-Identifier: Apache-2.0
#include "core/draft/speculation.h"

namespace switchyard {
namespace {

constexpr std::string_view kModelPrefix = "model:";

}  // namespace

const char* speculation_name(Speculation s) {
  switch (s) {
    case Speculation::off:
      return "off";
    case Speculation::automatic:
      return "auto";
    case Speculation::ngram:
      return "ngram";
    case Speculation::mtp:
      return "mtp";
    default:
      return "model";
  }
}

Result<Speculation> parse_speculation(std::string_view text) {
  for (const Speculation s : {Speculation::off, Speculation::automatic, Speculation::ngram, Speculation::mtp}) {
    if (text == speculation_name(s)) return s;
  }
  if (!draft_model_file(text).empty()) return Speculation::model;
  return error(Code::usage, "--speculate is '{}'; it must be auto, mtp, ngram, model:FILE or off", text);
}

std::string_view draft_model_file(std::string_view text) {
  return text.starts_with(kModelPrefix) ? text.substr(kModelPrefix.size()) : std::string_view();
}

}  // namespace switchyard
