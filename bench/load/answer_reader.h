// SPDX-License-Identifier: Apache-2.0
// AnswerReader: takes one streamed answer apart as its bytes come, without sockets.
#pragma once

#include <string>
#include <string_view>

#include "bench/load/load.h"

namespace switchyard::bench {

class AnswerReader {
 public:
  // `exchange` gets what is found. `keeps_text`: the answer is needed for a later turn.
  AnswerReader(Exchange& exchange, bool keeps_text) : exchange_(exchange), keeps_text_(keeps_text) {}

  // The head of the reply. False: what follows is no stream but a text that says why; push it, too.
  bool head(int status, std::string_view content_type);
  // Bytes of the body, which came at `now`. False: the rest is of no interest.
  bool push(std::string_view bytes, double now);
  // The body has ended; `whole`: as HTTP has it, rather than with the connection.
  void finish(bool whole);

 private:
  bool line(std::string_view line, double now);
  bool event(std::string_view data, double now);
  void fail(Fault fault, std::string message);

  Exchange& exchange_;
  bool keeps_text_;
  bool stream_ = false;
  bool done_ = false;      // [DONE] came
  bool finished_ = false;  // a finish_reason came
  std::string held_;       // an unfinished line, or the text of a refusal
};

}  // namespace switchyard::bench
