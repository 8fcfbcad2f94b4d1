// SPDX-License-Identifier: Apache-2.0
// Registry: every backend that was found, and which of them a run uses.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/plugin/host.h"
#include "core/plugin/plugin.h"
#include "core/plugin/probe.h"

namespace switchyard {

struct DiscoveryOptions {
  std::vector<std::string> libraries;  // --backend-lib, absolute paths, first
  std::string search_path;             // SWITCHYARD_BACKEND_PATH: absolute folders separated by ':'
  std::string program_folder;          // of the program, or libswitchyard.so: ../lib/switchyard/backends is searched
  std::string installed_folder;        // fixed when the runtime was built
  std::string allow_list;              // SWITCHYARD_BACKEND_ALLOW: a file (AllowList); "": all files may be opened
  std::string cpu_features;            // of this machine, by Linux's names
  std::map<std::string, std::vector<Setting>> settings;  // per backend id
  bool validate = false;                                 // check every call of every plugin (validate.h)
  ProbeOptions probe;  // tries each file in a separate process first; without a program, all are opened untried
};

// Fills program_folder, installed_folder, cpu_features and probe for this process.
DiscoveryOptions default_discovery();

// One file that was looked at.
struct Candidate {
  std::string path;
  std::string id = {};      // "" when the file did not say
  std::string reason = {};  // why not; "" when accepted
  const Plugin* plugin = nullptr;
  bool named = false;  // by --backend-lib
  Verdict::Tried tried = Verdict::Tried::no;
  bool ours = false;  // in a folder of this installation
};

class Registry {
 public:
  // Examines every candidate; unusable ones are kept with the reason. Never fails as a whole. If the probe cannot run,
  // files that the user named or that came with this installation are opened untried, with a warning; others are
  // refused.
  static Registry discover(Os& os, const DiscoveryOptions& options, const Host& host);

  const std::vector<Candidate>& candidates() const { return candidates_; }
  // Warnings for the user, one line each.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Errors: invalid_data, for a file of --backend-lib that was turned down, with the reason.
  Status check_libraries() const;
  // Errors: usage, for a setting of a backend that was not found, or that the backend does not have or take.
  Status check_settings() const;

  // Devices for `--backend`: "auto", "cuda", "cuda:1" or "mine,cuda,cpu". Errors: not_found, naming what there is;
  // unsupported, when a named backend has no device, with its reason; usage, for a setting that the backend refuses.
  struct Selection {
    std::vector<std::shared_ptr<Device>> devices;
    PlanPolicy policy;
  };
  Result<Selection> select(const std::string& backend) const;

 private:
  struct Sighting;
  static std::vector<Sighting> look(Os& os, const DiscoveryOptions& options, std::vector<Candidate>& elsewhere);
  void try_out(Os& os, const DiscoveryOptions& options, std::vector<Sighting>& found);
  void admit(Os& os, const DiscoveryOptions& options, const Host& host, Sighting sighting);

  Result<std::shared_ptr<Device>> open(const std::string& name) const;
  const Plugin* find(const std::string& id) const;  // NULL when there is none
  std::string found() const;                        // their ids, for messages

  std::vector<Candidate> candidates_;
  std::vector<std::string> warnings_;
  std::vector<std::unique_ptr<Plugin>> plugins_;
  std::map<std::string, std::vector<Setting>> settings_;
};

}  // namespace switchyard
