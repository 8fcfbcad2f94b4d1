// SPDX-License-Identifier: Apache-2.0
// A plugin's description of itself, as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "plugins_api/check/plugin.h"

namespace switchyard::check {

// {"id", "version", "abi", "options": [{"name", "type", "default", "help"}]}
nlohmann::json describe(const Library& library);

// Adds "device": {"name", "arch", "flags": [...], "sampling": [...], "sampling_steps": [...]}, "kernels": [{"name",
// "op", "flags": [...], "inputs": [...], "outputs": [...], "weights": [...], "activations"}], "extensions": [...].
void describe_device(const Plugin& plugin, nlohmann::json& about);

}  // namespace switchyard::check
