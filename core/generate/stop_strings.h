// SPDX-License-Identifier: Apache-2.0
// StopStrings: text as it may be shown, where a text ends before the first of some strings to
// be complete. Nothing of a stop string is
// ever given out, though it may come in pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace switchyard {

class StopStrings {
 public:
  StopStrings() = default;
  // Empty strings stop nothing.
  explicit StopStrings(std::vector<std::string> stops);

  // The text that can be shown after this part has arrived. Empty once `stopped`.
  std::string push(std::string_view part);
  // The text that was held back because a stop string could have begun there.
  std::string flush();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace switchyard
