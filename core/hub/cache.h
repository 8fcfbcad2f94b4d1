// SPDX-License-Identifier: Apache-2.0
// The folder in which programs that use the hub keep its files, so that each file is there once for all of them:
//
//   models--OWNER--NAME/blobs/DIGEST             the files by their content
//   models--OWNER--NAME/snapshots/COMMIT/PATH    links to them, by their names in one revision
//   models--OWNER--NAME/refs/main                the commit of the newest revision that was fetched
//   .locks/models--OWNER--NAME/DIGEST.lock       held while a file is fetched
#pragma once

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/hub/name.h"

namespace switchyard::hub {

// A model of which all files are there.
struct CachedModel {
  ModelName name;  // the selector is the choice's label
  std::string commit;
  std::string folder;  // of the snapshot
  Choice choice;
  std::string path() const;                // of the GGUF file to open; of a checkpoint, the folder
  std::vector<std::string> blobs() const;  // names of what its links lead to, in the order of its files
};

class Cache {
 public:
  explicit Cache(std::string folder) : folder_(std::move(folder)) {}
  const std::string& folder() const { return folder_; }

  std::string repo_folder(const std::string& repo) const;
  std::string blob(const std::string& repo, const std::string& digest) const;
  std::string lock(const std::string& repo, const std::string& digest) const;

  // The model that a name means among those that are there whole: of the newest revision if it has it, else of any.
  // Errors: not_found.
  Result<CachedModel> find(const ModelName& name) const;
  std::vector<CachedModel> list() const;

  // Lets a snapshot have the file, whose blob is there. Errors: io.
  Status link(const std::string& repo, const std::string& commit, const std::string& path,
              const std::string& digest) const;
  Status set_main(const std::string& repo, const std::string& commit) const;

  // Deletes a model's files from all snapshots, and blobs that no snapshot has any more. The bytes that became free.
  Result<uint64_t> remove(const CachedModel& model) const;

 private:
  std::vector<std::string> commits(const std::string& repo) const;  // the newest first
  std::vector<CachedModel> models_in(const std::string& repo, const std::string& commit) const;

  std::string folder_;
};

}  // namespace switchyard::hub
