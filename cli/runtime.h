// SPDX-License-Identifier: Apache-2.0
// The first steps of most commands: find backends, load the program, prepare the model.
#pragma once

#include <memory>
#include <string>

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
void pin(Host& host);  // --pin; a warning where it cannot be

// The rules of --variant. Errors: usage.
Result<std::vector<VariantRule>> variant_rules(const Settings& settings);

// The file that --tuning names; "": none.
std::string tuning_path(const Settings& settings);
// The tuning file's measurements, unless --no-tuned or --deterministic excludes them; NULL: estimates decide. Errors:
// usage, if the file that --tuning names does not exist.
Result<std::shared_ptr<const Tuning>> tuning_of(const Settings& settings);

}  // namespace switchyard::cli
