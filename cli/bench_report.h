// SPDX-License-Identifier: Apache-2.0
// Shared by the reports of `switchyard bench` and `switchyard bench ops`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/probes.h"
#include "bench/report.h"
#include "cli/settings.h"
#include "core/plugin/host.h"

namespace switchyard::cli {

// The share of a device's peak rate that a piece of work used; 0 if the peak was not measured.
struct Shares {
  double bandwidth = 0;  // bytes per second, of the measured read rate
  double matrix = 0;     // operations per second, of the fastest measured products
  double bound() const { return bandwidth > matrix ? bandwidth : matrix; }  // of the tighter of the two
  const char* tighter() const { return bandwidth > matrix ? "bandwidth" : "matrix"; }
};
Shares shares_of(double bytes, double operations, double seconds, const bench::DeviceCeiling& most);

// Of the host's memory and processors.
bench::DeviceCeiling host_ceiling(const bench::Probes& probes);

// Shows a line while it measures.
const bench::Probes& probe(const Host& host);

std::string model_name(const Settings& settings);

// Version, command, machine and its rates.
nlohmann::ordered_json report_head(const Settings& settings, const bench::Probes& probes);
void print_probes(const bench::Probes& probes);

}  // namespace switchyard::cli
