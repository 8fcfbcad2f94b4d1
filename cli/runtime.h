// SPDX-License-Identifier: Apache-2.0
// The first steps of most commands: find backends, load the program, prepare the model.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/say.h"
#include "cli/settings.h"
#include "cli/signals.h"
#include "core/base/status.h"
#include "core/generate/loaded_model.h"
#include "core/import/synthetic.h"
#include "core/sampling/sampler.h"

namespace switchyard::cli {

struct Runtime : LoadedModel {
  double load_seconds = 0;
};

// Models that live at the same time may share a host, and its threads.
Result<Runtime> load_runtime(const Settings& settings, std::shared_ptr<Host> host = nullptr);

// Plans and records the steps that requests can need, so that none waits for it. Returns the seconds that it took.
Result<double> prepare(Model& model, const SamplingParams& sampling);

// The parts alone, for commands that need no model.
Result<Registry> find_backends(const Settings& settings, const Host& host);
// Whether --model is "synth:" and a description.
bool is_synthetic(const Settings& settings);
// The text after "synth:", with the demo model's tokenizer.
Result<SyntheticRequest> synthetic_request(const std::string& text);
Result<std::shared_ptr<const Program>> load_program(const Settings& settings);
std::string model_path(const Settings& settings);
// Says what to do where the path is a folder. Errors: usage.
Status check_model_path(const std::string& path);
uint32_t thread_count(const Settings& settings);
void pin(Host& host);  // --pin; a warning where it cannot be

// The rules of --variant. Errors: usage.
Result<std::vector<VariantRule>> variant_rules(const Settings& settings);

// The file that --tuning names; "": none.
std::string tuning_path(const Settings& settings);
// The tuning file's measurements, unless --no-tuned or --deterministic excludes them; NULL: estimates decide. Errors:
// usage, if the file that --tuning names does not exist.
Result<std::shared_ptr<const Tuning>> tuning_of(const Settings& settings);

// A line on stderr that is rewritten in place, when stderr is a terminal; shown after a second of work.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  void update(uint64_t done, uint64_t total);
  bool on_terminal() const { return terminal_; }

 private:
  std::string what_;
  uint64_t begin_ns_, shown_ns_ = 0;
  bool terminal_, drawn_ = false;
};

double seconds_since(uint64_t begin_ns);

// One JSON value and a newline on stdout; bytes that are not UTF-8 (of a file's name, say) become U+FFFD.
void print_json(const nlohmann::ordered_json& value, int indent = -1);
// Prints a result on standard output as it is. If the command fails afterwards, its error is not added there as JSON,
// so that what is printed stays one document.
void print_document(std::string_view text);
bool printed_document();

// Prints "switchyard: message" to stderr and returns the exit code: 2 for a wrong request, 1 for everything else.
int report(const Status& status);

}  // namespace switchyard::cli
