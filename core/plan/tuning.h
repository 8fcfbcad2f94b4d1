// SPDX-License-Identifier: Apache-2.0
// Tuning: measured costs of kernels on the devices of this machine. They decide between the kernels that one device has
// for an operation. What is fused and which device runs what is decided by the backends' estimates, and so is every
// choice with --deterministic, where measurements must not change a session's bits.
//
// `switchyard tune` writes the file. A device's part counts only for exactly that device: backend and version, name,
// architecture and number of threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/os.h"
#include "core/base/status.h"
#include "core/plan/graph.h"
#include "core/plugin/device.h"

namespace switchyard {

// One kernel on one shape of operation, in a step of one sequence.
struct TunedPoint {
  uint64_t rows = 0;     // of the operation
  uint64_t context = 0;  // of the bucket, for operations on paged states; else 0
  double us = 0;
};

// The measurements of one kernel on one shape.
struct TunedKernel {
  std::string op, shape, kernel;   // "moe_add", "2048 -> 2048, i4/32", "moe_add.sorted"
  uint64_t key = 0;                // shape_hash
  std::vector<TunedPoint> points;  // by context and rows
};

struct TunedDevice {
  std::string backend, version, name, arch;
  uint32_t threads = 0;  // of the team, for backends that compute on it; else 0
  std::string date;      // "2026-11-21"
  std::vector<TunedKernel> kernels;

  bool same_device(const TunedDevice& other) const;
};

// The device as a file names it. `threads`: of the host's team.
TunedDevice tuned_device(const PlanDevice& device, uint32_t threads);

class Tuning {
 public:
  Tuning() = default;

  // The contents of a file. Empty, with one line in `warning`, if it is no such file or damaged. Empty if there is no
  // file.
  static Tuning load(Os& os, const std::string& path, std::string& warning);
  // Errors: invalid_data, with what is wrong.
  static Result<Tuning> parse(const std::string& text);
  std::string text() const;
  // As a whole or not at all; makes no folders. Errors: io.
  Status save(Os& os, const std::string& path) const;

  // Adds measurements: they replace those of the same kernel, shape, rows and context, and are kept beside all others.
  void merge(const TunedDevice& device);
  const std::vector<TunedDevice>& devices() const { return devices_; }

  // The team's width, which lookups hold devices of the host against.
  void set_threads(uint32_t threads) { threads_ = threads; }

  // The measurements of a device; NULL: none. Valid until the tuning changes.
  const TunedDevice* find(const PlanDevice& device) const;
  // A kernel's time for an operation in steps of this bucket, interpolated between measurements. None outside of them,
  // and for operations on states in steps of several sequences.
  static std::optional<double> cost(const TunedDevice& device, const Graph& graph, const GraphOp& op,
                                    const std::string& kernel, const swy_bucket& bucket);

 private:
  std::vector<TunedDevice> devices_;
  uint32_t threads_ = 0;
};

// The path of the tuning file: $SWITCHYARD_TUNING, or switchyard/tuning.json in the user's cache folder. "": none, also
// if the variable is "off".
std::string default_tuning_path();
// The tuning in that file, for a team of so many threads; NULL if there is none. Logs a warning if it is damaged.
std::shared_ptr<const Tuning> load_tuning(Os& os, const std::string& path, uint32_t threads);

// The context that matters for an operation's cost: the bucket's, if it reads a paged state; otherwise 0.
uint64_t tuned_context(const Graph& graph, const GraphOp& op, const swy_bucket& bucket);

}  // namespace switchyard
