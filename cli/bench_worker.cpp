// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_worker.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <map>

#include "bench/correctness.h"
#include "bench/device_probe.h"
#include "bench/machine.h"
#include "bench/op_errors.h"
#include "bench/serving.h"
#include "bench/worker_process.h"
#include "bench/workload.h"
#include "cli/bench_report.h"
#include "cli/output.h"
#include "cli/runtime.h"
#include "cli/sample_text.h"
#include "core/engine/prepare.h"
#include "core/engine/sampling_path.h"

namespace switchyard {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SamplingParams, temperature, top_p, min_p, top_k, repetition_penalty,
                                   presence_penalty, frequency_penalty)

namespace cli {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Settings, model, backend, backend_libs, backend_path, backend_allow, sets, variants,
                                   threads, pin, context, chunk, deterministic, exact, verify, validate, tuning,
                                   no_tuned, probe_seconds, probe_anew, sessions, device_sampling, speculate, log)

namespace {

using nlohmann::json;
using Answer = Result<json>;

constexpr uint32_t kWatchedTokens = 16;
const bench::KeepGoing kAlways = [] { return true; };

// A part of a report is sent as a report that holds nothing else.
json as_report(bench::Configuration part) {
  bench::Report r;
  part.name = "worker";
  r.configurations.push_back(std::move(part));
  return json(bench::to_json(r));
}

class Worker {
 public:
  Answer serve(const json& request) {
    using Serve = Answer (Worker::*)(const json&);
    static const std::map<std::string, Serve> all = {
        {"open", &Worker::open},       {"load", &Worker::load},       {"cell", &Worker::cell},
        {"turn", &Worker::turn},       {"watch", &Worker::watch},     {"close", &Worker::close},
        {"say", &Worker::say},         {"compare", &Worker::compare}, {"op_errors", &Worker::op_errors},
        {"serving", &Worker::serving}, {"usage", &Worker::usage},     {"ceiling", &Worker::ceiling}};
    const std::string what = request.at("do");
    const auto found = all.find(what);
    if (found == all.end()) return error(Code::internal, "a benchmark's worker does not know '{}'", what);
    if (what != "open" && host_ == nullptr) return error(Code::internal, "'{}' before 'open'", what);
    return (this->*found->second)(request);
  }

 private:
  struct OpenCell {
    std::unique_ptr<bench::Stepper> stepper;
    std::vector<int32_t> prompt;
    double tokens = 0;
    uint32_t tokens_a_step = 1;  // of a request
    bool prefill = false;
  };

  Answer open(const json& request) {
    w_ = worker_settings(request.at("settings"));
    host_ = std::make_shared<Host>(thread_count(w_.settings));
    SWY_LET(const Registry registry, find_backends(w_.settings, *host_));
    json devices = json::array();
    SWY_TRY(registry.check_libraries());
    SWY_TRY(check_names(registry));
    SWY_LET(const auto selection, registry.select(w_.settings.backend));
    json answer = json::object();
    for (const auto& device : selection.devices) {
      const PlanDevice& d = device->plan();
      devices.push_back({{"name", d.name},
                         {"host", d.info.type == SWY_DEVICE_CPU},
                         {"native", (d.info.flags & SWY_DEVICE_NATIVE_REPLAY) != 0},
                         {"memory_bytes", d.info.memory_bytes},
                         {"memory_free_bytes", d.info.memory_free_bytes}});
      for (const Candidate& c : registry.candidates()) {
        if (c.plugin == nullptr || c.plugin->id() != d.backend || answer.contains("id")) continue;
        answer.update({{"id", c.id}, {"version", c.plugin->version()}, {"library", c.path}});
      }
    }
    answer["devices"] = std::move(devices);
    return answer;
  }

  // A backend that does not exist is a wrong request, not a backend that fails.
  Status check_names(const Registry& registry) const {
    const std::string& all = w_.settings.backend;
    std::string known;
    for (const Candidate& c : registry.candidates()) {
      if (!c.id.empty() && c.reason.empty()) known += (known.empty() ? "" : ", ") + c.id;
    }
    for (size_t at = 0; all != "auto" && at <= all.size();) {
      const size_t end = std::min(all.find(',', at), all.size());
      const std::string name = all.substr(at, end - at), id = name.substr(0, name.find(':'));
      const auto& candidates = registry.candidates();
      const bool there = std::any_of(candidates.begin(), candidates.end(), [&](const auto& c) { return c.id == id; });
      if (!there) return error(Code::usage, "there is no backend '{}'; found: {}", id, known);
      at = end + 1;
    }
    return {};
  }

  Answer load(const json&) {
    SWY_LET(Runtime r, load_runtime(w_.settings, host_));
    r_ = std::make_unique<Runtime>(std::move(r));
    text_ = {};
    const Program& p = *r_->program;
    uint64_t weights = 0, parameters = 0;
    for (const Tensor& t : p.tensors) {
      uint64_t n = 1;
      for (uint32_t d = 0; d < t.rank; ++d) n *= t.dims[d];
      parameters += n;
      weights += t.segments[0].bytes;
    }
    return json{{"load_seconds", r_->load_seconds},
                {"devices", r_->model->device_names()},
                {"name", model_name(w_.settings)},
                {"quantization", std::string(p.quantization)},
                {"layers", layers()},
                {"parameters", parameters},
                {"weight_bytes", weights},
                {"context", r_->model->context()},
                {"prompt", w_.random || r_->tokenizer == nullptr ? "random ids" : "text"}};
  }

  uint32_t layers() const {
    const auto& ops = r_->program->main().ops;
    return static_cast<uint32_t>(std::count_if(ops.begin(), ops.end(), [](const Op& op) {
      return op.id == SWY_OP_ATTENTION || op.id == SWY_OP_GATED_DELTA;  // each layer has one mixer
    }));
  }

  // At least `n` tokens of text, or of random ids; the tokens so far keep their places.
  Status need_text(uint32_t n) {
    if (r_ == nullptr) return error(Code::internal, "nothing is loaded");
    if (text_.size() >= n) return {};
    auto ids = sample_text(w_.random ? nullptr : r_->tokenizer.get(), r_->model->vocab(), n);
    if (!ids.ok()) return error(ids.status().code(), "{}; --random measures without it", ids.status().message());
    if (!cells_.empty()) return error(Code::internal, "a cell is open");
    contexts_.reset();
    text_ = std::move(*ids);
    contexts_ = std::make_unique<bench::Contexts>(*r_->model, text_);
    return {};
  }

  Status open_prefill(const json& request, OpenCell& c, bench::StepShape& shape) {
    const uint32_t n = request.at("at");
    if (n > r_->model->context()) {
      return error(Code::usage, "--prefill {} does not fit the context of {}; --ctx raises it", n,
                   r_->model->context());
    }
    SWY_TRY(need_text(request.at("text")));
    c.prompt.assign(text_.begin(), text_.begin() + n);
    SWY_LET(c.stepper, bench::prompt_stepper(*r_->model, c.prompt, request.at("seconds")));
    c.tokens = n;
    c.prefill = true;
    shape = {n, 1, n};
    return {};
  }

  Status open_decode(const json& request, OpenCell& c, bench::StepShape& shape) {
    const uint32_t at = request.at("at"), decode = request.at("decode"), n = request.at("batch");
    const std::string sampling = request.at("sampling");
    const uint32_t depth = std::max(at, 1u) - 1, most = request.at("most"), tokens = request.at("tokens");
    if (depth + tokens + 1 > r_->model->context()) {
      return error(Code::usage, "--context {} and --decode {} do not fit the context of {}; --ctx raises it", at,
                   decode, r_->model->context());
    }
    SWY_TRY(need_text(request.at("text")));
    SWY_TRY(contexts_->read(depth, n, request.at("seconds"), kAlways));
    SWY_LET(const Speculation by, parse_speculation(w_.settings.speculate));
    const bench::Drafting drafting{by, r_->draft.get()};
    if (sampling.empty() && n == 1 && by == Speculation::off) {
      c.stepper = bench::text_stepper(*contexts_, most);
    } else {
      SWY_LET(const auto path, parse_path(sampling.empty() ? "auto" : sampling));
      SamplingParams params = w_.sampling;
      params.seed = 1;
      c.stepper = bench::draw_stepper(*contexts_, n, params, path, most, drafting);
    }
    c.tokens_a_step = drafting.tokens_a_step();
    c.tokens = n * c.tokens_a_step;
    shape = {n, n, at + decode / 2 + 1, n};
    return {};
  }

  // Two turns to warm up; the second measures how long a step takes.
  Answer cell(const json& request) {
    if (r_ == nullptr) return error(Code::internal, "nothing is loaded");
    OpenCell c;
    bench::StepShape shape;
    SWY_TRY(request.at("metric") == "prefill" ? open_prefill(request, c, shape) : open_decode(request, c, shape));
    std::vector<double> seconds;
    SWY_TRY(bench::take_turn(*c.stepper, c.prefill ? 0 : 2, c.prefill ? 1 : 2, seconds));
    const bool slow = seconds[0] > 1;  // then once is enough
    if (!slow) {
      seconds.clear();
      SWY_TRY(bench::take_turn(*c.stepper, c.prefill ? 0 : 2, c.prefill ? 1 : 3, seconds));
    }
    std::sort(seconds.begin(), seconds.end());
    for (const StatePool::Unit& u : r_->model->states().units()) {
      const bool used = u.device != nullptr && u.canonical_bytes != 0;
      shape.state_shares.push_back(used ? static_cast<double>(u.unit_bytes) / static_cast<double>(u.canonical_bytes)
                                        : 1);
    }
    const bench::Workload work = bench::workload_of(*r_->program, shape);
    const json answer = {{"step_seconds", seconds[seconds.size() / 2]},
                         {"tokens", c.tokens},
                         {"bytes", work.bytes()},
                         {"operations", work.operations()}};
    cells_[request.at("id")] = std::move(c);
    return answer;
  }

  Result<OpenCell*> find(const json& request) {
    const auto found = cells_.find(request.at("id").get<uint32_t>());
    if (found == cells_.end()) return error(Code::internal, "that cell is not open");
    return &found->second;
  }

  Answer turn(const json& request) {
    SWY_LET(OpenCell * c, find(request));
    std::vector<double> seconds;
    SWY_TRY(bench::take_turn(*c->stepper, request.at("warm"), request.at("steps"), seconds));
    return json{{"seconds", seconds}};
  }

  Answer watch(const json& request) {
    SWY_LET(OpenCell * c, find(request));
    const uint32_t steps = c->prefill ? 1 : kWatchedTokens / c->tokens_a_step, warm = request.at("warm");
    const double tokens = (warm + steps) * c->tokens_a_step;
    bench::Overhead o;
    SWY_TRY(bench::watch_turn(*c->stepper, *r_->model, *host_, warm, steps, o));
    bench::Cell cell;
    cell.overhead = bench::StepOverhead{
        o.lists, o.barriers, o.barriers / std::max(layers(), 1u), o.core_seconds * 1e6, o.core_share(), o.wait_share()};
    if (const PathChoice path = c->stepper->path(); !path.reason.empty()) {
      cell.read_bytes = static_cast<double>(c->stepper->read_bytes()) / tokens;
      cell.drawn = fmt::format("{}: {}", path_name(path.path), path.reason);
    }
    if (w_.settings.speculate != "off" && !c->prefill) cell.drafts = drafts_of(c->stepper->drafts());
    if (request.at("kernels")) {
      std::map<std::string, bench::KernelTime> kernels;
      SWY_TRY(bench::trace_turn(*c->stepper, *r_->model, *host_, warm, steps, kernels));
      for (const auto& [name, k] : kernels) {
        cell.kernels.push_back(
            {name, name.substr(0, name.find('.')), static_cast<double>(k.calls) / steps, k.seconds * 1e3 / steps});
      }
      std::sort(cell.kernels.begin(), cell.kernels.end(), [](const auto& a, const auto& b) { return a.ms > b.ms; });
    }
    bench::Configuration part;
    part.cells.push_back(std::move(cell));
    return json{{"report", as_report(std::move(part))}};
  }

  bench::CellDrafts drafts_of(const DraftCounts& d) const {
    bench::CellDrafts out{.by = w_.settings.speculate,
                          .steps = static_cast<double>(d.steps),
                          .drafted = static_cast<double>(d.all_drafted()),
                          .accepted = static_cast<double>(d.all_accepted())};
    for (uint32_t i = 0; i < d.places(); ++i) out.share_by_place.push_back(d.share(i));
    return out;
  }

  Answer close(const json& request) {
    cells_.erase(request.at("id").get<uint32_t>());
    return json::object();
  }

  Result<std::span<const int32_t>> checked_text(const json& request) {
    const uint32_t n = request.at("tokens").get<uint32_t>() + request.at("decoded").get<uint32_t>();
    SWY_TRY(need_text(std::max(n, request.at("text").get<uint32_t>())));
    return std::span<const int32_t>(text_).first(n);
  }

  Answer say(const json& request) {
    SWY_LET(const auto text, checked_text(request));
    SWY_LET(const bench::Saying saying,
            bench::say(*r_->model, text, request.at("tokens"), request.at("decoded"), request.at("seconds")));
    SWY_TRY(bench::save(Os::real(), request.at("file"), saying));
    return json::object();
  }

  Answer compare(const json& request) {
    SWY_LET(const auto text, checked_text(request));
    SWY_LET(const bench::Saying saying, bench::load_saying(Os::real(), request.at("file")));
    bench::Configuration part;
    SWY_LET(part.correctness, bench::compare(*r_->model, text, request.at("tokens"), saying, request.at("seconds")));
    return json{{"report", as_report(std::move(part))}};
  }

  Answer op_errors(const json& request) {
    SWY_LET(const Registry registry, find_backends(w_.settings, *host_));
    SWY_LET(auto selection, registry.select(w_.settings.backend));
    SWY_LET(auto reference, registry.select("reference"));
    SWY_LET(selection.policy.tuning, tuning_of(w_.settings));
    bench::OpErrorRequest r;
    r.deterministic = w_.settings.deterministic;
    r.load_threads = thread_count(w_.settings);
    SWY_LET(r.variants, variant_rules(w_.settings));
    const uint64_t begin = Os::real().now_ns();
    const double limit = request.at("seconds");
    bench::Configuration part;
    part.correctness = bench::Correctness{};
    SWY_LET(part.correctness->ops,
            bench::op_errors(r_->program, selection.devices, selection.policy, reference.devices[0], r,
                             [&](size_t, size_t) { return seconds_since(begin) < limit; }));
    return json{{"report", as_report(std::move(part))}};
  }

  Answer serving(const json& request) {
    if (r_ == nullptr) return error(Code::internal, "nothing is loaded");
    bench::ServingLoad load;
    load.concurrency = request.at("at");
    load.seconds = request.at("seconds");
    load.sampling = w_.sampling;
    SWY_TRY(need_text(std::max(load.prompt_max, request.at("text").get<uint32_t>())));
    contexts_ = std::make_unique<bench::Contexts>(*r_->model, text_);  // frees the sessions' memory
    SWY_TRY(prepare_steps(*r_->model, load.sampling));
    SWY_LET(const bench::Serving s, bench::measure_serving(*r_->model, load, text_, kAlways));
    if (s.requests == 0) return error(Code::cancelled, "no request ended within {:.0f} s", load.seconds);
    const auto percentiles = [](const bench::Samples& x) {
      return bench::Percentiles{x.at(0.5), x.at(0.95), x.at(0.99)};
    };
    bench::Cell cell;
    cell.metric = bench::Metric::serving;
    cell.at = load.concurrency;
    cell.samples = s.parts.seconds;
    cell.tokens = s.tokens;
    cell.requests = s.requests;
    cell.requests_asked = load.asked();
    cell.ttft = percentiles(s.ttft);
    cell.itl = percentiles(s.itl);
    bench::Configuration part;
    part.cells.push_back(std::move(cell));
    return json{{"report", as_report(std::move(part))}};
  }

  Answer usage(const json&) {
    return json{{"peak_host_bytes", bench::peak_memory_bytes()},
                {"peak_device_bytes", device_memory().most},
                {"cpu_seconds", bench::processor_seconds()}};
  }

  Answer ceiling(const json&) {
    SWY_LET(const Registry registry, find_backends(w_.settings, *host_));
    SWY_LET(const auto selection, registry.select(w_.settings.backend));
    json all = json::array();
    for (const auto& device : selection.devices) {
      if (device->plan().info.type == SWY_DEVICE_CPU) continue;
      SWY_LET(const double gbs, bench::probe_device(device->plan()));
      all.push_back({{"device", device->plan().name}, {"gbs", gbs}});
    }
    return json{{"ceilings", std::move(all)}};
  }

  WorkerSettings w_;
  std::shared_ptr<Host> host_;
  std::unique_ptr<Runtime> r_;
  std::vector<int32_t> text_;
  std::unique_ptr<bench::Contexts> contexts_;
  std::map<uint32_t, OpenCell> cells_;  // ends before the contexts
};

}  // namespace

json to_json(const WorkerSettings& w) {
  return {{"settings", w.settings}, {"sampling", w.sampling}, {"random", w.random}};
}

WorkerSettings worker_settings(const json& j) {
  return {j.at("settings").get<Settings>(), j.at("sampling").get<SamplingParams>(), j.at("random").get<bool>()};
}

void add_bench_worker(CLI::App& app, int& exit_code) {
  CLI::App* c = app.add_subcommand(kBenchWorker, "Measure for `switchyard bench`, which starts this")->group("");
  c->callback([&exit_code] {
    std::signal(SIGINT, SIG_IGN);  // the parent process decides when to stop
    std::signal(SIGHUP, SIG_IGN);
    std::signal(SIGTERM, SIG_DFL);
    Worker worker;
    exit_code = bench::serve_requests(bench::Channel(bench::WorkerProcess::kChannel),
                                      [&](const json& request) { return worker.serve(request); });
  });
}

}  // namespace cli
}  // namespace switchyard
