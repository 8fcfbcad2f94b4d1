#include "cli/bench_run.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <set>

#include "bench/statistics.h"
#include "bench/worker_process.h"
#include "cli/bench_report.h"
#include "cli/bench_sittings.h"
#include "cli/runtime.h"
#include "switchyard_commit.h"

namespace switchyard::cli {
namespace {

using bench::Cell;
using bench::Metric;
using bench::Reply;
using bench::State;
using bench::Turn;
using nlohmann::json;

constexpr double kTurnSeconds = 0.05;                        // of timed steps, about
constexpr double kComparedSeconds = 4;                       // per configuration and cell
constexpr uint32_t kStartsOfSmall = 12, kStartsOfLarge = 3;  // of --ab
constexpr uint64_t kSmallModel = 256'000'000;                // bytes, that load in no time
constexpr double kAbSeconds = 12;                            // the same of --ab, which is after small differences
constexpr uint32_t kLeastRounds = 3;                         // of configurations that are compared
constexpr double kOpenSeconds = 60;                          // to find the backends and open the devices
constexpr double kOpenShare = 0.4;  // of the time limit, that a context or a prompt may take: it is read twice
constexpr double kSlowStep = 0.02;  // steps from which on one is enough to warm up
const auto kGoOn = [] { return !interrupted.load(); };

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  char text[32] = "";
  if (::gmtime_r(&now, &utc) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

// A process of the plan, and what is known of it.
struct Process {
  const ProcessPlan* plan = nullptr;
  std::unique_ptr<bench::WorkerProcess> worker;
  State state = State::measured;  // of the whole; once it is another, nothing is asked any more
  std::string reason;
  bool loaded = false;
  uint32_t starts = 0;
  json opened = json::object(), described;  // what `open` and `load` answered
  uint64_t peak_host = 0, peak_device = 0;
  std::optional<bench::Correctness> correctness;
  bool alive() const { return state == State::measured && worker != nullptr && worker->alive(); }
};

// A cell of a configuration while it is measured.
struct Measured {
  Cell cell;
  std::vector<Turn> turns;
  json opened;  // what `cell` answered
  std::string why;
};

// A folder for files that nobody wants afterwards; made when it is needed.
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

class Run {
 public:
  Run(const BenchOptions& o, const BenchPlan& plan) : o_(o), plan_(plan), processes_(plan.processes.size()) {
    for (size_t i = 0; i < processes_.size(); ++i) {
      processes_[i].plan = &plan.processes[i];
      if (!plan.processes[i].unsupported.empty()) {
        set_state(processes_[i], State::unsupported, plan.processes[i].unsupported);
      }
    }
    measured_.assign(plan.configurations.size(), std::vector<Measured>(plan.cells.size()));
    for (auto& cells : measured_) {
      for (size_t k = 0; k < cells.size(); ++k) {
        cells[k].cell.metric = plan.cells[k].metric;
        cells[k].cell.at = plan.cells[k].at;
        cells[k].cell.state = State::interrupted;
        cells[k].cell.reason = "not reached";
      }
    }
  }

  Result<bench::Report> run() {
    SWY_TRY(look_at_model());
    for (Process& p : processes_) SWY_TRY(open(p));
    probe_machine();
    const std::vector<Sitting> sittings = sittings_of(needs_, room(), starts());
    tell_estimate(sittings);
    if (o_.checks()) SWY_TRY(ask_reference(sittings));
    for (size_t s = 0; s < sittings.size() && kGoOn(); ++s) sit(sittings, s);
    return report();
  }

 private:
  // ---- processes

  void set_state(Process& p, State state, const std::string& reason) {
    p.state = state;
    p.reason = reason;
    p.worker.reset();
  }

  Reply call(Process& p, const json& request, double seconds, const std::string& what) {
    if (p.state != State::measured) return {p.state, p.reason, {}};
    Reply r = p.worker->call(request, seconds, what, kGoOn);
    if (!r.ok() && !p.worker->alive()) set_state(p, r.state, r.reason);
    return r;
  }

  // Starts a process and opens its devices. Errors: usage, when what was asked for is wrong.
  Status open(Process& p) {
    if (p.state != State::measured) return {};
    auto worker = bench::WorkerProcess::start("/proc/self/exe", {"switchyard", kBenchWorker});
    if (!worker.ok()) return worker.status();
    p.worker = std::move(*worker);
    p.loaded = false;
    ++p.starts;
    const Reply r = call(p, {{"do", "open"}, {"settings", to_json(p.plan->worker)}}, kOpenSeconds, "opening");
    if (r.ok()) {
      p.opened = r.value;
      return {};
    }
    if (r.value.is_object() && r.value.value("code", 0) == static_cast<int>(Code::usage)) {
      return error(Code::usage, "{}", r.reason);
    }
    set_state(p, r.state, r.reason);
    return {};
  }

  // Has it running with the model loaded; what goes wrong becomes its state.
  void ready(Process& p) {
    if (p.state != State::measured || p.loaded) return;
    if (!p.alive()) {
      if (const Status s = open(p); !s.ok()) set_state(p, State::failed, s.message());
    }
    if (p.state != State::measured) return;
    const Reply r = call(p, {{"do", "load"}}, std::max(o_.time_limit, kOpenSeconds), "loading");
    if (!r.ok()) return set_state(p, r.state, r.reason);
    if (p.described.is_null()) p.described = r.value;
    p.loaded = true;
  }

  void leave(Process& p) {
    if (p.alive() && p.loaded) {
      // Also after an interrupt: what it took belongs to what was measured.
      const Reply r = p.worker->call({{"do", "usage"}}, 2, "its end", [] { return true; });
      if (r.ok()) {
        p.peak_host = std::max(p.peak_host, r.value.at("peak_host_bytes").get<uint64_t>());
        p.peak_device = std::max(p.peak_device, r.value.at("peak_device_bytes").get<uint64_t>());
      }
    }
  }

  // ---- before the measurements

  // Sizes, from the program itself. Errors: those of the model.
  Status look_at_model() {
    for (Process& p : processes_) {
      ProcessNeed& need = needs_.emplace_back();
      if (p.state != State::measured) continue;
      SWY_LET(const auto program, load_program(p.plan->worker.settings));
      need.weight_bytes = 0;
      for (const Tensor& t : program->tensors) need.weight_bytes += t.segments[0].bytes;
      const Settings& s = p.plan->worker.settings;
      for (const auto& state : program->states) {
        uint64_t bytes = sizeof(float);
        for (uint32_t d = 0; d < state.rank; ++d) bytes *= state.dims[d];
        if (state.kind == SWY_STATE_PAGED) bytes *= s.context;
        need.state_bytes += bytes * s.sessions;
      }
    }
    return {};
  }

  std::vector<DeviceRoom> room() const {
    std::vector<DeviceRoom> all = {{"", bench::describe_machine().memory_free_bytes}};
    for (const Process& p : processes_) {
      if (!p.opened.contains("devices")) continue;
      for (const json& d : p.opened["devices"]) {
        const std::string name = d.at("name");
        const bool known = std::any_of(all.begin(), all.end(), [&](const auto& r) { return r.device == name; });
        if (!known && !d.at("host")) all.push_back({name, d.at("memory_free_bytes")});
      }
    }
    return all;
  }

  void probe_machine() {
    if (!kGoOn()) return;
    uint32_t threads = 1;
    for (const Process& p : processes_) threads = std::max(threads, thread_count(p.plan->worker.settings));
    if (!o_.no_probes) report_.probes = probe(Host(threads));
    std::set<std::string> seen;
    for (size_t i = 0; i < processes_.size(); ++i) {
      Process& p = processes_[i];
      if (p.state != State::measured) continue;
      needs_[i].host = true;
      bool wanted = false;
      for (const json& d : p.opened["devices"]) {
        if (d.at("host")) continue;
        needs_[i].host = false;
        needs_[i].device = d.at("name");
        wanted |= seen.insert(d.at("name")).second;
      }
      if (!wanted || o_.no_probes) continue;
      const Reply r = call(p, {{"do", "ceiling"}}, kOpenSeconds, "measuring its device");
      if (!r.ok()) continue;
      for (const json& c : r.value.at("ceilings")) {
        report_.ceilings.push_back({c.at("device"), c.at("gbs"), 0, ""});
      }
    }
  }

  // A process keeps the luck of its memory for life, so small differences need many of them.
  uint32_t starts() const {
    if (o_.starts != 0) return o_.starts;
    if (o_.ab.empty()) return 1;
    const bool small =
        std::all_of(needs_.begin(), needs_.end(), [](const ProcessNeed& n) { return n.weight_bytes < kSmallModel; });
    return small ? kStartsOfSmall : kStartsOfLarge;
  }

  double seconds_per_cell() const {
    if (o_.seconds > 0) return o_.seconds;
    if (plan_.configurations.size() == 1) return 0;
    return o_.ab.empty() ? kComparedSeconds : kAbSeconds;
  }

  void tell_estimate(const std::vector<Sitting>& sittings) const {
    if (!o_.compares()) return;
    uint64_t bytes = 0;
    for (const ProcessNeed& n : needs_) bytes += n.host_bytes() + n.device_bytes();
    const double seconds = std::max(seconds_per_cell(), 1.0) * static_cast<double>(plan_.configurations.size()) *
                           static_cast<double>(plan_.cells.size());
    fmt::print(stderr,
               "switchyard: {} configurations, {} cells each: about {:.1f} minutes for backends whose steps are fast, "
               "at most {:.0f} s per cell of each; about {:.1f} GiB of memory in all{}\n",
               plan_.configurations.size(), plan_.cells.size(), seconds / 60, o_.time_limit,
               static_cast<double>(bytes) / 1073741824,
               together(sittings) ? "" : ", which is not there: they are loaded in turns");
  }

  bool together(const std::vector<Sitting>& sittings) const {
    return sittings[0].processes.size() == processes_.size();
  }

  // ---- correctness

  struct SayingFile {
    std::string path;
    State state = State::measured;
    std::string reason;
  };

  json check_request(const char* what, const std::string& file) const {
    return {{"do", what},
            {"tokens", o_.check_tokens[0]},
            {"decoded", o_.check_tokens[1]},
            {"seconds", o_.time_limit},
            {"text", o_.text_tokens()},
            {"file", file}};
  }

  static bool is_reference(const ProcessPlan& p) { return p.library.empty() && p.backend == "reference"; }

  // What the reference says to the text of each program, by the process that is measured if there is one.
  Status ask_reference(const std::vector<Sitting>& sittings) {
    for (const ProcessPlan& asked : plan_.processes) {
      const std::string& model = asked.worker.settings.model;
      if (!asked.unsupported.empty() || sayings_.contains(model) || !kGoOn()) continue;
      SayingFile& file = sayings_[model];
      SWY_LET(file.path, folder_.file(std::to_string(sayings_.size())));
      const auto own = std::find_if(processes_.begin(), processes_.end(), [&](const Process& p) {
        return is_reference(*p.plan) && p.plan->worker.settings.model == model && p.state == State::measured;
      });
      ProcessPlan plan = asked;
      plan.worker.settings.backend = "reference";
      plan.worker.settings.sets.clear();
      plan.worker.settings.exact = false;
      plan.worker.settings.variants.clear();
      plan.worker.settings.backend_libs.clear();
      plan.worker.settings.sessions = 2;
      plan.worker.settings.context = o_.check_tokens[0] + o_.check_tokens[1];
      Process extra;
      extra.plan = &plan;
      Process& p = own != processes_.end() ? *own : extra;
      ready(p);
      json request = check_request("say", file.path);
      if (own == processes_.end()) request["text"] = 0;
      const Reply r = call(p, request, 1.5 * o_.time_limit + 1, "the reference's logits");
      if (!r.ok()) {
        file.state = r.state;
        file.reason = "reference: " + r.reason;
      }
      if (own != processes_.end() && !together(sittings)) {
        leave(p);
        p.worker.reset();
        p.loaded = false;
      }
    }
    return {};
  }

  void check(Process& p) {
    if (!o_.checks() || is_reference(*p.plan) || p.correctness || !kGoOn()) return;
    bench::Correctness c;
    c.against = "reference";
    const SayingFile& file = sayings_[p.plan->worker.settings.model];
    c.state = file.state;
    c.reason = file.reason;
    if (c.state == State::measured) {
      const Reply r = call(p, check_request("compare", file.path), 1.5 * o_.time_limit + 1, "checking its logits");
      c.state = r.state;
      c.reason = r.reason;
      if (r.ok()) c.state = take_part(r, c.reason, [&](const auto& part) { c = *part.correctness; });
    }
    if (o_.check_ops && p.alive()) {
      const Reply r = call(p, {{"do", "op_errors"}, {"seconds", o_.time_limit}}, 1.5 * o_.time_limit + 1,
                           "checking its operations");
      std::string reason = r.reason;
      const State state =
          r.ok() ? take_part(r, reason, [&](const auto& part) { c.ops = part.correctness->ops; }) : r.state;
      if (c.state == State::measured && state != State::measured) {
        c.state = state;
        c.reason = "its operations: " + reason;
      }
    }
    p.correctness = std::move(c);
  }

  // Hands over the part of a report that a worker sent. Failed, with the reason, when it is none.
  template <class Take>
  static State take_part(const Reply& r, std::string& reason, const Take& take) {
    const auto part = bench::report_of(nlohmann::ordered_json(r.value.at("report")));
    if (part.ok() && !part->configurations.empty()) {
      take(part->configurations[0]);
      return State::measured;
    }
    reason = part.ok() ? "the worker sent nothing" : "the worker's answer: " + part.status().message();
    return State::failed;
  }

  // ---- measuring

  // Configurations of a sitting whose processes live. The first of a process stands for all where they do not differ.
  std::vector<size_t> live(const Sitting& sitting, Metric metric) const {
    std::vector<size_t> all;
    std::set<size_t> seen;
    for (size_t c = 0; c < plan_.configurations.size(); ++c) {
      const size_t p = plan_.configurations[c].process;
      if (std::find(sitting.processes.begin(), sitting.processes.end(), p) == sitting.processes.end()) continue;
      if (metric != Metric::decode && !seen.insert(p).second) continue;
      all.push_back(c);
    }
    return all;
  }

  void sit(const std::vector<Sitting>& sittings, size_t s) {
    const Sitting& sitting = sittings[s];
    for (const size_t i : sitting.processes) {
      if (kGoOn()) ready(processes_[i]);
    }
    for (size_t k = 0; k < plan_.cells.size() && kGoOn(); ++k) {
      if (bar_ == nullptr) bar_ = std::make_unique<Progress>("measuring");
      bar_->update(s * plan_.cells.size() + k, sittings.size() * plan_.cells.size());
      if (plan_.cells[k].metric == Metric::serving) {
        if (sitting.first) serve(sitting, k);
      } else {
        measure(sitting, k, sitting.first);
      }
    }
    for (const size_t i : sitting.processes) {
      leave(processes_[i]);
      if (sitting.last && processes_[i].alive() && processes_[i].loaded) check(processes_[i]);
      if (sitting.stays) continue;
      processes_[i].worker.reset();
      processes_[i].loaded = false;
    }
  }

  // Ends a cell of one configuration.
  void cell_failed(size_t c, size_t k, const Reply& r) {
    Cell& cell = measured_[c][k].cell;
    if (cell.state == State::measured && !measured_[c][k].turns.empty() && r.state == State::interrupted) return;
    cell.state = r.state;
    cell.reason = r.reason;
  }

  bool open_cell(size_t c, size_t k) {
    const ConfigurationPlan& plan = plan_.configurations[c];
    Process& p = processes_[plan.process];
    Measured& m = measured_[c][k];
    const json request = {{"do", "cell"},
                          {"id", c},
                          {"metric", bench::metric_name(plan_.cells[k].metric)},
                          {"at", plan_.cells[k].at},
                          {"batch", plan.batch},
                          {"sampling", plan.sampling},
                          {"decode", o_.decode},
                          {"most", o_.most_steps()},
                          {"text", o_.text_tokens()},
                          {"seconds", kOpenShare * o_.time_limit}};
    const Reply r = call(p, request, o_.time_limit, plan_.cells[k].name());
    if (!r.ok()) {
      cell_failed(c, k, r);
      return false;
    }
    m.opened = r.value;
    m.cell.tokens = r.value.at("tokens");
    if (m.turns.empty()) m.cell.state = State::measured;
    if (m.turns.empty()) m.cell.reason.clear();
    return true;
  }

  // How a configuration spends its turns of one sitting.
  struct Pace {
    uint32_t steps = 1, warm = 0, rounds = 1;
    uint32_t left = UINT32_MAX;  // steps that are wanted at all
  };

  Pace pace_of(size_t c, size_t k, uint32_t sittings) const {
    const bool decode = plan_.cells[k].metric == Metric::decode;
    const double step = std::max(measured_[c][k].opened.at("step_seconds").get<double>(), 1e-7);
    const uint32_t wanted = decode ? o_.decode : o_.repeat;
    Pace p;
    p.warm = !decode ? 0 : step > kSlowStep ? 1 : 2;
    const double fit = std::clamp(kTurnSeconds / step, 1.0, decode ? o_.decode : 1000.0);
    p.steps = static_cast<uint32_t>(std::lround(fit));
    const double turn = step * (p.steps + p.warm);
    p.rounds = (wanted + p.steps - 1) / p.steps;
    const double seconds = seconds_per_cell();
    if (seconds > 0) {
      p.rounds = std::max({p.rounds, kLeastRounds * sittings, static_cast<uint32_t>(std::ceil(seconds / turn))});
    } else {
      p.left = wanted;
    }
    p.rounds = std::max(1u, std::min(p.rounds, static_cast<uint32_t>(0.8 * o_.time_limit / turn)));
    p.rounds = (p.rounds + sittings - 1) / sittings;
    return p;
  }

  // One cell of all configurations of a sitting, in turns: A B B A, A B B A, ...
  void measure(const Sitting& sitting, size_t k, bool watch) {
    std::vector<size_t> at;
    std::map<size_t, Pace> pace;
    uint32_t rounds = 0;
    for (const size_t c : live(sitting, plan_.cells[k].metric)) {
      if (!open_cell(c, k)) continue;
      at.push_back(c);
      pace[c] = pace_of(c, k, sitting.shares);
      rounds = std::max(rounds, pace[c].rounds);
    }
    match(at, k, pace);
    for (const size_t c : at) rounds = std::max(rounds, pace[c].rounds);
    // A machine that others use, too, takes longer for the same rounds: then there are fewer of them.
    const double budget = 1.3 * seconds_per_cell() * static_cast<double>(at.size()) / sitting.shares;
    const uint64_t begin = Os::real().now_ns();
    for (uint32_t round = 0; round < rounds && kGoOn(); ++round) {
      if (budget > 0 && round >= kLeastRounds && seconds_since(begin) > budget) break;
      for (size_t i = 0; i < at.size(); ++i) {
        const size_t c = at[round % 2 == 0 ? i : at.size() - 1 - i];
        if (round < pace[c].rounds) take_turn(c, k, sitting.index, round, pace[c]);
      }
    }
    for (const size_t c : at) {
      if (watch) watch_cell(c, k, pace[c]);
      call(processes_[plan_.configurations[c].process], {{"do", "close"}, {"id", c}}, kOpenSeconds, "closing a cell");
    }
  }

  // Configurations of about the same speed do the same steps in every turn, at the same positions.
  void match(const std::vector<size_t>& at, size_t k, std::map<size_t, Pace>& pace) const {
    for (size_t i = 1; i < at.size(); ++i) {
      const double own = measured_[at[i]][k].opened.at("step_seconds");
      const double first = measured_[at[0]][k].opened.at("step_seconds");
      if (own < 2 * first && first < 2 * own) pace[at[i]] = pace[at[0]];
    }
  }

  void take_turn(size_t c, size_t k, uint32_t sitting, uint32_t round, Pace& pace) {
    Measured& m = measured_[c][k];
    if (m.cell.state != State::measured || pace.left == 0) return;
    const uint32_t steps = std::min(pace.steps, pace.left);
    const Reply r =
        call(processes_[plan_.configurations[c].process],
             {{"do", "turn"}, {"id", c}, {"warm", pace.warm}, {"steps", steps}}, o_.time_limit, plan_.cells[k].name());
    if (!r.ok()) return cell_failed(c, k, r);
    if (pace.left != UINT32_MAX) pace.left -= steps;
    m.turns.push_back({sitting, round, r.value.at("seconds").get<std::vector<double>>()});
  }

  void watch_cell(size_t c, size_t k, const Pace& pace) {
    Measured& m = measured_[c][k];
    if (m.cell.state != State::measured || !kGoOn()) return;
    const Reply r = call(processes_[plan_.configurations[c].process],
                         {{"do", "watch"}, {"id", c}, {"warm", pace.warm}, {"kernels", o_.ops}}, o_.time_limit,
                         plan_.cells[k].name());
    if (!r.ok()) return cell_failed(c, k, r);
    m.cell.state = take_part(r, m.cell.reason, [&](const bench::Configuration& part) {
      m.cell.overhead = part.cells[0].overhead;
      m.cell.kernels = part.cells[0].kernels;
      m.cell.read_bytes = part.cells[0].read_bytes;
    });
  }

  void serve(const Sitting& sitting, size_t k) {
    for (const size_t c : live(sitting, Metric::serving)) {
      const json request = {{"do", "serving"},
                            {"at", plan_.cells[k].at},
                            {"seconds", std::min(o_.time_limit, 60.0)},
                            {"text", o_.text_tokens()}};
      const Reply r =
          call(processes_[plan_.configurations[c].process], request, 1.5 * o_.time_limit + 1, plan_.cells[k].name());
      Measured& m = measured_[c][k];
      if (!r.ok()) {
        cell_failed(c, k, r);
        continue;
      }
      std::string reason;
      const State state = take_part(r, reason, [&](const bench::Configuration& part) { m.cell = part.cells[0]; });
      if (state != State::measured) cell_failed(c, k, {state, reason, {}});
      uint32_t round = 0;
      for (const double s : m.cell.samples) m.turns.push_back({0, round++, {s}});
    }
  }

  // ---- the report

  bench::Report report() {
    bar_.reset();
    report_.version = SWITCHYARD_VERSION;
    report_.commit = SWITCHYARD_COMMIT;
    report_.command = bench::command_line();
    report_.date = now_text();
    report_.machine = bench::describe_machine();
    report_.prompt = o_.random ? "random ids" : "text";
    for (const Process& p : processes_) {
      if (p.described.is_null()) continue;
      const json& d = p.described;
      report_.model = {d.at("name"),       d.at("quantization"), d.at("layers"),
                       d.at("parameters"), d.at("weight_bytes"), d.at("context")};
      report_.prompt = d.at("prompt");
      break;
    }
    if (report_.model.name.empty()) report_.model.name = model_name(o_.settings);
    for (size_t c = 0; c < plan_.configurations.size(); ++c) report_.configurations.push_back(configuration(c));
    for (size_t c = 0; c < plan_.configurations.size(); ++c) compare(c);
    return std::move(report_);
  }

  bench::Configuration configuration(size_t c) {
    const ConfigurationPlan& plan = plan_.configurations[c];
    const Process& p = processes_[plan.process];
    bench::Configuration out;
    out.name = plan.name;
    out.backend = p.opened.value("id", p.plan->worker.settings.backend);
    out.library = p.opened.value("library", p.plan->library);
    out.plugin_version = p.opened.value("version", "");
    out.threads = thread_count(p.plan->worker.settings);
    out.sampling = plan.sampling;
    out.quantization = p.plan->quant;
    out.batch = plan.batch;
    out.peak_host_bytes = p.peak_host;
    out.peak_device_bytes = p.peak_device;
    out.correctness = p.correctness;
    if (p.opened.contains("devices") && !p.opened["devices"].empty()) {
      out.replay = p.opened["devices"][0].at("native") ? "native" : "emulated";
    }
    if (p.described.is_null()) {
      out.state = p.state == State::measured ? State::interrupted : p.state;
      out.reason = p.state == State::measured ? "not reached" : p.reason;
      return out;
    }
    out.devices = p.described.at("devices").get<std::vector<std::string>>();
    out.load_seconds = p.described.at("load_seconds");
    out.quantization = p.described.at("quantization");
    for (size_t k = 0; k < plan_.cells.size(); ++k) {
      const size_t from = plan_.cells[k].metric == Metric::decode ? c : first_of(plan.process);
      out.cells.push_back(finished(measured_[from][k], out));
    }
    return out;
  }

  size_t first_of(size_t process) const {
    size_t c = 0;
    while (plan_.configurations[c].process != process) ++c;
    return c;
  }

  Cell finished(const Measured& m, const bench::Configuration& of) const {
    Cell cell = m.cell;
    if (cell.state != State::measured || m.turns.empty()) {
      if (cell.state == State::measured) {
        cell.state = State::interrupted;
        cell.reason = "not reached";
      }
      cell.overhead.reset();
      cell.kernels.clear();
      return cell;
    }
    cell.samples.clear();
    for (const Turn& t : m.turns) cell.samples.insert(cell.samples.end(), t.seconds.begin(), t.seconds.end());
    cell.rate = bench::rate_of(bench::median_interval(m.turns), cell.tokens);
    if (m.opened.is_null()) return cell;
    const double bytes = m.opened.at("bytes"), operations = m.opened.at("operations");
    const double seconds = cell.tokens / cell.rate->median;
    cell.bytes_per_token = bytes / cell.tokens;
    set_shares(cell, of, bytes / seconds / 1e9, operations / seconds / 1e12);
    return cell;
  }

  // Shares of what the first device can do; of the host's memory and products, where it computes there.
  void set_shares(Cell& cell, const bench::Configuration& of, double gbs, double tops) const {
    const bool host = on_host(of);
    double most_gbs = host ? report_.probes.read_gbs : 0, most_tops = host ? report_.probes.matrix().tops : 0;
    for (const bench::DeviceCeiling& c : report_.ceilings) {
      const bool on = std::find(of.devices.begin(), of.devices.end(), c.device) != of.devices.end();
      if (!on) continue;
      most_gbs = c.read_gbs;
      most_tops = c.matrix_tops;
    }
    if (most_gbs > 0) cell.bandwidth_share = gbs / most_gbs;
    if (most_tops > 0) cell.matrix_share = tops / most_tops;
    if (!cell.bandwidth_share && !cell.matrix_share) return;
    const double b = cell.bandwidth_share.value_or(0), m = cell.matrix_share.value_or(0);
    cell.bound = b >= m ? "bandwidth" : "matrix";
    cell.bound_share = std::max(b, m);
  }

  bool on_host(const bench::Configuration& of) const {
    for (const Process& p : processes_) {
      if (!p.opened.contains("devices")) continue;
      for (const json& d : p.opened["devices"]) {
        const auto found = std::find(of.devices.begin(), of.devices.end(), d.at("name").get<std::string>());
        if (found != of.devices.end() && !d.at("host")) return false;
      }
    }
    return true;
  }

  // Every configuration against the first.
  void compare(size_t c) {
    if (c == 0) return;
    for (size_t k = 0; k < plan_.cells.size(); ++k) {
      const bool one_process = plan_.configurations[c].process == plan_.configurations[0].process;
      const Metric metric = plan_.cells[k].metric;
      if (metric == Metric::serving || (metric == Metric::prefill && one_process)) continue;
      const Measured& base = measured_[0][k];
      const Measured& other = measured_[metric == Metric::prefill ? first_of(plan_.configurations[c].process) : c][k];
      if (base.cell.state != State::measured || other.cell.state != State::measured) continue;
      const bench::Ratio r = bench::ratio_of(base.turns, other.turns, base.cell.tokens, other.cell.tokens);
      if (r.pairs < 2) continue;
      report_.comparisons.push_back({plan_.configurations[0].name, plan_.configurations[c].name, metric,
                                     plan_.cells[k].at, r.ratio, r.low, r.high, r.verdict(), r.pairs});
    }
  }

  const BenchOptions& o_;
  const BenchPlan& plan_;
  std::vector<Process> processes_;
  std::vector<ProcessNeed> needs_;
  std::vector<std::vector<Measured>> measured_;  // [configuration][cell]
  std::map<std::string, SayingFile> sayings_;    // per program
  ScratchFolder folder_;                         // of their files
  std::unique_ptr<Progress> bar_;
  bench::Report report_;
};

}  // namespace

Result<bench::Report> run_bench(const BenchOptions& options, const BenchPlan& plan) { return Run(options, plan).run(); }

}  // namespace switchyard::cli
