// SPDX-License-Identifier: Apache-2.0
// The probe: plugins are tried in separate processes before the host opens them. So a plugin that crashes, hangs, exits
// or prints costs one line of text.
//
// This protects from mistakes, not from malice: a file that passes runs in the host with the host's rights.
#pragma once

#include <string>
#include <vector>

#include "core/base/os.h"

namespace switchyard {

struct ProbeOptions {
  std::string program;  // switchyard-plugin-probe
  std::string memory;   // folder where files that proved fit are remembered (known_good.h); "": all are tried anew
  double seconds = 10;  // for one file, from start to end
};

struct Verdict {
  enum class Tried { no, earlier, now };
  Tried tried = Tried::no;
  std::string reason;  // one line: why the file is unfit or, where it was not tried, why not; "": fit
};

// One verdict per file, in their order. All are tried at the same time; this blocks for a little more than `seconds` at
// most. Starts processes, and leaves none; changes nothing else in this process.
std::vector<Verdict> probe(Os& os, const ProbeOptions& options, const std::vector<std::string>& files);

// `text` without anything that a terminal obeys, cut to a length that fits a message.
std::string one_line(std::string text);

}  // namespace switchyard
