// SPDX-License-Identifier: Apache-2.0
// Mapped files that somebody makes shorter while they are read: the system answers with SIGBUS.
#pragma once

#include <cstddef>
#include <string>

namespace switchyard {

// A mapping of a file whose name a fault in it should tell. Outlived by the mapping.
class ListedMapping {
 public:
  ListedMapping(const void* begin, size_t size, const std::string& path);
  ListedMapping(const ListedMapping&) = delete;
  ListedMapping& operator=(const ListedMapping&) = delete;
  ~ListedMapping();

 private:
  struct Entry;
  friend struct Mappings;
  Entry* entry_;  // NULL: there was no room, and a fault ends the process as the system does
};

// From now on such a fault ends the process with one line on standard error, which names the file, and exit code 1;
// outputs that were not finished are deleted. Any other SIGBUS does what it always does. For programs: a library leaves
// signals to whoever uses it.
void report_lost_mappings();

}  // namespace switchyard
