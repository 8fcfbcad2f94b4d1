// SPDX-License-Identifier: Apache-2.0
// A benchmark while it runs: its processes, their measurements, and the report. Only for cli/bench_run.cpp and the
// files beside it.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/statistics.h"
#include "bench/worker_process.h"
#include "cli/bench_options.h"
#include "cli/bench_sittings.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "core/base/status.h"

namespace switchyard::cli {

constexpr double kOpenSeconds = 60;  // to find the backends and open the devices
inline bool nobody_interrupts() { return !interrupted.load(); }

// A process of the plan, with its state.
struct BenchProcess {
  const ProcessPlan* plan = nullptr;
  std::unique_ptr<bench::WorkerProcess> worker;
  bench::State state = bench::State::measured;  // of the whole; unless it is `measured`, no more requests are sent
  std::string reason;
  bool loaded = false;
  nlohmann::json opened = nlohmann::json::object(), described;  // what `open` and `load` answered
  uint64_t peak_host = 0, peak_device = 0;
  std::optional<bench::Correctness> correctness;
  bool alive() const { return state == bench::State::measured && worker != nullptr && worker->alive(); }
};

// A cell of a configuration while it is measured.
struct BenchCell {
  bench::Cell cell;
  std::vector<bench::Turn> turns;
  nlohmann::json opened;  // what `cell` answered
};

// A folder for temporary files; made when it is needed.
class ScratchFolder {
 public:
  ScratchFolder() = default;
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Result<std::string> file(const std::string& name) {
    if (path_.empty()) {
      std::error_code none;
      const auto parent = std::filesystem::temp_directory_path(none);
      if (none) return error(Code::io, "there is no folder for temporary files: {}; set TMPDIR", none.message());
      std::string path = (parent / "switchyard-bench-XXXXXX").string();
      if (::mkdtemp(path.data()) == nullptr) {
        return error(Code::io, "no folder for temporary files in {}: {}", parent.string(), std::strerror(errno));
      }
      path_ = path;
    }
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

class BenchRun {
 public:
  BenchRun(const BenchOptions& o, const BenchPlan& plan);
  Result<bench::Report> run();

 private:
  // processes: bench_workers.cpp
  void set_state(BenchProcess& p, bench::State state, const std::string& reason);
  bench::Reply call(BenchProcess& p, const nlohmann::json& request, double seconds, const std::string& what);
  // Starts a process and opens its devices. Errors: usage, for wrong options.
  Status open(BenchProcess& p);
  // Makes sure that it runs with the model loaded; a failure becomes its state.
  void ready(BenchProcess& p);
  // Starts one again that was ended because a cell took too long: the next may be shorter.
  void revive(BenchProcess& p);
  void leave(BenchProcess& p);

  // what is known before: bench_workers.cpp
  // Sizes, from the program itself. Errors: those of the model.
  Status look_at_model();
  std::vector<DeviceRoom> room() const;
  void probe_machine();
  // A process keeps the luck of its memory for life, so small differences need many of them.
  uint32_t starts() const;
  double seconds_per_cell() const;
  void tell_estimate(const std::vector<Sitting>& sittings) const;
  bool together(const std::vector<Sitting>& sittings) const;

  // correctness: bench_check.cpp
  struct SayingFile {
    std::string path;
    bench::State state = bench::State::measured;
    std::string reason;
  };
  nlohmann::json check_request(const char* what, const std::string& file) const;
  static bool is_reference(const ProcessPlan& p) { return p.library.empty() && p.backend == "reference"; }
  // The reference's logits for the text of each program, by the measured reference process if there is one.
  Status ask_reference(const std::vector<Sitting>& sittings);
  void check(BenchProcess& p);
  // Hands over the part of a report that a worker sent. Failed, with the reason, when it is none.
  template <class Take>
  static bench::State take_part(const bench::Reply& r, std::string& reason, const Take& take) {
    const auto part = bench::report_of(r.value.at("report"));
    if (part.ok() && !part->configurations.empty()) {
      take(part->configurations[0]);
      return bench::State::measured;
    }
    reason = part.ok() ? "the worker sent nothing" : "the worker's answer: " + part.status().message();
    return bench::State::failed;
  }

  // measuring: bench_run.cpp
  // Configurations of a sitting whose processes live. The first of a process stands for all where they do not differ.
  std::vector<size_t> live(const Sitting& sitting, bench::Metric metric) const;
  void sit(const std::vector<Sitting>& sittings, size_t s);
  // Ends a cell of one configuration. One that has turns keeps them, with the reason noted.
  void cell_failed(size_t c, size_t k, const bench::Reply& r);
  bool open_cell(size_t c, size_t k);
  // How a configuration spends its turns of one sitting.
  struct Pace {
    uint32_t steps = 1, warm = 0, rounds = 1;
    uint32_t left = UINT32_MAX;  // steps that are wanted at all
  };
  Pace pace_of(size_t c, size_t k, uint32_t sittings) const;
  // One cell of all configurations of a sitting, in turns: A B B A, A B B A, ...
  void measure(const Sitting& sitting, size_t k, bool watch);
  // Configurations of about the same speed do the same steps in every turn, at the same positions.
  void match(const std::vector<size_t>& at, size_t k, std::map<size_t, Pace>& pace) const;
  void take_turn(size_t c, size_t k, uint32_t sitting, uint32_t round, Pace& pace);
  void watch_cell(size_t c, size_t k, const Pace& pace);
  void serve(const Sitting& sitting, size_t k);

  // the report: bench_summary.cpp
  bench::Report report();
  bench::Configuration configuration(size_t c);
  size_t first_of(size_t process) const;
  bench::Cell finished(const BenchCell& m, const bench::Configuration& of) const;
  // Of the last of its devices that was measured; of the host, where it computes there.
  bench::DeviceCeiling ceiling_of(const bench::Configuration& of) const;
  bool on_host(const bench::Configuration& of) const;
  // Every configuration against the first.
  void compare(size_t c);

  const BenchOptions& o_;
  const BenchPlan& plan_;
  std::vector<BenchProcess> processes_;
  std::vector<ProcessNeed> needs_;
  std::vector<std::vector<BenchCell>> measured_;  // [configuration][cell]
  std::map<std::string, SayingFile> sayings_;     // per program
  ScratchFolder folder_;                          // of their files
  std::unique_ptr<Progress> bar_;
  bench::Report report_;
};

}  // namespace switchyard::cli
