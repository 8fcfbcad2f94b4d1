// SPDX-License-Identifier: Apache-2.0
// Every flag and environment variable that more than one command takes, declared once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Only files that declare options include CLI11, which takes seconds to compile.
namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace switchyard::cli {

struct Settings {
  std::string model;
  std::string backend = "auto";
  std::vector<std::string> backend_libs;
  std::string backend_path;
  std::string backend_allow;
  std::vector<std::string> sets;      // ID.NAME=VALUE
  std::vector<std::string> variants;  // OP=KERNEL or OP=!KERNEL
  uint32_t threads = 0;               // 0: all cores
  bool pin = false;
  uint32_t context = 0;
  uint32_t chunk = 0;  // ModelOptions::chunk
  bool deterministic = false;
  bool exact = false;
  bool verify = false;
  bool validate = false;
  std::string tuning;  // file; "": the user's; "off": none
  bool no_tuned = false;
  double probe_seconds = 10;      // 0: backends are opened untried
  bool probe_anew = false;        // no flag of its own: `backends --explain`
  uint32_t sessions = 1;          // no flag of its own, either
  uint32_t checkpoints = 0;       // nor this: ModelOptions::checkpoints
  std::string speculate = "off";  // no row in the table: for commands that generate text
  bool device_sampling = true;    // no flag of its own: commands that draw on the host do without
  std::string log = "warning";
  bool load = true;      // no flag: ModelOptions::load
  bool routers = false;  // no flag: ModelOptions::routers, for commands that read them
};

// One row of `switchyard config`.
struct SettingInfo {
  const char* flag;  // "--backend"
  const char* env;   // "SWITCHYARD_BACKEND"; "" without
  const char* help;
};
const std::vector<SettingInfo>& setting_table();

// Threads that this machine runs at a time.
uint32_t cores();
uint32_t thread_count(const Settings& settings);  // --threads, or a thread for each core
// Valid values of --threads: 0 (all cores) up to the number of cores.
CLI::Validator thread_range();

// Adds the flags of the table to a command; a flag wins over its environment variable, which wins over the default.
// Where `positional` is given, the model may also be named by it, without a flag.
void add_settings(CLI::App& command, Settings& settings, const char* positional = "");
// --backend-lib, --backend-path, --set and --log alone: where backends come from, for commands that name one
// themselves.
void add_backend_settings(CLI::App& command, Settings& settings);
// --speculate, for commands that generate text.
void add_speculate(CLI::App& command, Settings& settings);
// --model alone, with its positional.
void add_model(CLI::App& command, Settings& settings, const char* positional);

}  // namespace switchyard::cli
