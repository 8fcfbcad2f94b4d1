// SPDX-License-Identifier: Apache-2.0
// Fetching files of a repository into the cache: several at a time, each begun again where an earlier attempt, or an
// earlier command, was cut off. A file appears in the cache once its size and its hash are those of the list.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/hub/cache.h"
#include "core/hub/listing.h"

namespace switchyard::hub {

struct PullOptions {
  // Called with the bytes that arrived now and those that were missing at the start, by one thread at a time.
  std::function<void(uint64_t done, uint64_t total)> progress = {};
  std::function<void(const std::string& line)> note = {};  // a retry, a wait for another process
  CancelCheck cancelled = {};
};

// Bytes of these files that are not in the cache yet; parts of files that were begun are subtracted.
uint64_t missing_bytes(const Cache& cache, const std::string& repo, const std::vector<RemoteFile>& files);

// Errors: those of the first file that failed, by name: io, not_found, unsupported, invalid_data; cancelled. What has
// arrived of the others stays, and is not fetched again.
Status pull_files(const Http& http, const Cache& cache, const std::string& repo, const Listing& listing,
                  const std::vector<RemoteFile>& files, const PullOptions& options);

}  // namespace switchyard::hub
