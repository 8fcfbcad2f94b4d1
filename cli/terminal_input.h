// SPDX-License-Identifier: Apache-2.0
// Standard input, byte by byte, such that a signal ends the wait.
#pragma once

#include <cstddef>
#include <string>

namespace switchyard::cli {

class TerminalInput {
 public:
  enum Special : int { end = -1, interrupt = -2, too_long = -3 };

  // The next byte; `end`; or `interrupt`, once a signal has set `interrupted`. `on_idle` is called whenever a wait has
  // taken a tenth of a second, or a signal has ended it.
  template <class OnIdle>
  int next(OnIdle on_idle) {
    while (at_ == held_.size()) {
      const int got = fill();
      if (got < 0) return got;
      if (got == 0) on_idle();
    }
    return static_cast<unsigned char>(held_[at_++]);
  }

  // A line without its end. 0; `end` when there is none; `interrupt`, which loses what there was of it; or `too_long`,
  // when it has more than `max_bytes`.
  int line(std::string& to, size_t max_bytes);

 private:
  int fill();  // 1: there are bytes; 0: not yet; or Special

  std::string held_;
  size_t at_ = 0;
};

}  // namespace switchyard::cli
