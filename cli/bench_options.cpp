// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_options.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "bench/measure.h"
#include "cli/settings.h"
#include "core/base/status.h"
#include "core/engine/sampling_path.h"
#include "core/import/convert.h"
#include "core/plugin/elf_note.h"

namespace switchyard::cli {
namespace {

using bench::Metric;

constexpr uint32_t kWarmSteps = 2, kWatchedSteps = 16;  // watched: without speculation
constexpr uint32_t kServingContext = 640;               // of ServingLoad's longest prompt and answer
constexpr const char* kSynthetic = "synth:";

bool is_library(const std::string& backend) { return backend.find('/') != std::string::npos; }

// "FIRST+SECOND": the second backend runs what the first cannot. Returns where the first name ends; file names have no
// plus.
size_t end_of_first(const std::string& backend) {
  const size_t folder = backend.rfind('/');
  return std::min(backend.find('+', folder == std::string::npos ? 0 : folder), backend.size());
}

// The id that a file's note gives; its name, if it has none: loading it will give the reason.
std::string id_of(const std::string& library) {
  if (const auto file = Os::real().map(library); file.ok()) {
    if (const auto note = read_plugin_note((*file)->bytes()); note.ok()) return note->id;
  }
  return std::filesystem::path(library).filename().string();
}

// "synth:C,quant=Q" with another Q. A program file has the encoding that it was written with.
Status set_quant(ProcessPlan& p, const std::string& quant) {
  SWY_TRY(parse_encoding(quant, "row").status());
  std::string& model = p.worker.settings.model;
  p.quant = quant;
  if (!model.starts_with(kSynthetic)) {
    p.unsupported = "a model file has the encoding that it was written with; --quant applies to synth: models only";
    return {};
  }
  std::string kept;
  for (size_t at = 0; at <= model.size();) {
    const size_t end = std::min(model.find(',', at), model.size());
    const std::string part = model.substr(at, end - at);
    if (!part.starts_with("quant=")) kept += (kept.empty() ? "" : ",") + part;
    at = end + 1;
  }
  model = kept + ",quant=" + quant;
  return {};
}

std::vector<std::string> backends_of(const BenchOptions& o) {
  if (!o.ab.empty()) return o.ab;
  if (!o.backends.empty()) return o.backends;
  return {o.settings.backend};
}

// "cpu", "mine+cpu", or "cpu#1" and "cpu#2" where several files say that they are it.
std::vector<std::string> names_of(const std::vector<std::string>& backends) {
  std::vector<std::string> ids;
  std::map<std::string, uint32_t> count, seen;
  for (const std::string& b : backends) {
    const size_t end = end_of_first(b);
    ++count[ids.emplace_back(is_library(b) ? id_of(b.substr(0, end)) + b.substr(end) : b)];
  }
  for (std::string& id : ids) {
    const std::string plain = id;
    if (count[plain] > 1) id += fmt::format("#{}", ++seen[plain]);
  }
  return ids;
}

Result<std::vector<ProcessPlan>> processes_of(const BenchOptions& o) {
  std::vector<ProcessPlan> all;
  const auto backends = backends_of(o);
  const auto names = names_of(backends);
  const std::vector<uint32_t> threads = o.threads.empty() ? std::vector{o.settings.threads} : o.threads;
  const std::vector<std::string> quants = o.quant.empty() ? std::vector<std::string>{""} : o.quant;
  for (size_t b = 0; b < backends.size(); ++b) {
    for (const uint32_t t : threads) {
      for (const std::string& quant : quants) {
        ProcessPlan p;
        p.backend = backends[b];
        p.name = names[b];
        p.worker = {o.settings, o.params, o.random};
        Settings& s = p.worker.settings;
        s.backend = p.backend;
        if (is_library(p.backend)) {
          const size_t end = end_of_first(p.backend);
          p.library = p.backend.substr(0, end);
          s.backend_libs.insert(s.backend_libs.begin(), p.library);
          s.backend = id_of(p.library) + p.backend.substr(end);
        }
        std::replace(s.backend.begin(), s.backend.end(), '+', ',');
        s.threads = t;
        s.sessions = o.sessions();
        if (s.context == 0) s.context = o.context_tokens();
        if (!quant.empty()) SWY_TRY(set_quant(p, quant));
        if (threads.size() > 1) p.name += fmt::format(", threads={}", t);
        if (quants.size() > 1) p.name += ", quant=" + quant;
        all.push_back(std::move(p));
      }
    }
  }
  return all;
}

}  // namespace

bool BenchOptions::has(Metric metric) const {
  return metrics.empty() || std::find(metrics.begin(), metrics.end(), bench::metric_name(metric)) != metrics.end();
}

uint32_t BenchOptions::most_steps() const {
  return kWarmSteps + std::max({decode_steps(), kWatchedSteps / tokens_a_step(), 3u});
}

// Of several requests with drafts one may be ahead of the others.
uint32_t BenchOptions::most_tokens() const {
  return most_steps() * tokens_a_step() * (speculates() && !batch.empty() ? 2 : 1) + (speculates() ? 64 : 0);
}

uint32_t BenchOptions::context_tokens() const {
  uint32_t n = check_tokens[0] + check_tokens[1];
  if (has(Metric::prefill)) {
    for (const uint32_t p : prefill) n = std::max(n, p);
  }
  if (has(Metric::decode) && decode != 0) {
    for (const uint32_t d : depths) n = std::max(n, d + most_tokens() + 1);
  }
  if (has(Metric::serving) && !serving.empty()) n = std::max(n, kServingContext);
  return n;
}

uint32_t BenchOptions::text_tokens() const {
  uint32_t apart = 0;
  for (const uint32_t n : batch) apart = std::max(apart, (n - 1) * bench::Contexts::kPromptsApart);
  return context_tokens() + apart + 1;
}

uint32_t BenchOptions::sessions() const {
  uint32_t n = 1;
  for (const uint32_t b : batch) n = std::max(n, b);
  n *= 2;  // the contexts, and the forks of one turn
  for (const uint32_t s : serving) n = std::max(n, s);
  return n;
}

Status BenchOptions::check_values() const {
  if ((!backends.empty() ? 1 : 0) + (!ab.empty() ? 1 : 0) > 1) {
    return error(Code::usage, "give either --backends or --ab, not both");
  }
  for (const std::string& m : metrics) SWY_TRY(bench::parse_metric(m).status());
  for (const std::string& path : sampling) SWY_TRY(parse_path(path).status());
  for (const std::string& b : backends_of(*this)) {
    if (b.empty()) return error(Code::usage, "--backends has an empty name; separate names with single commas");
    if (is_library(b) && b[0] != '/')
      return error(Code::usage, "'{}' is not an absolute path; name a backend's file by its absolute path", b);
  }
  const uint32_t context = settings.context;
  if (context == 0) return {};
  for (const uint32_t n : prefill) {
    if (has(Metric::prefill) && n > context) {
      return error(Code::usage, "--prefill {} does not fit the context of {}; --ctx raises it", n, context);
    }
  }
  for (const uint32_t d : depths) {
    if (has(Metric::decode) && decode != 0 && d + most_tokens() + 1 > context) {
      return error(Code::usage, "--context {} and --decode {} do not fit the context of {}; --ctx raises it", d, decode,
                   context);
    }
  }
  return {};
}

Result<BenchPlan> plan_of(const BenchOptions& o) {
  BenchPlan plan;
  SWY_TRY(o.check_values());
  SWY_LET(plan.processes, processes_of(o));
  const std::vector<std::string> paths = o.sampling.empty() ? std::vector<std::string>{""} : o.sampling;
  const std::vector<uint32_t> batches = o.batch.empty() ? std::vector{1u} : o.batch;
  for (size_t p = 0; p < plan.processes.size(); ++p) {
    for (const std::string& path : paths) {
      for (const uint32_t n : batches) {
        std::string name = plan.processes[p].name;
        if (paths.size() > 1) name += ", sampling=" + path;
        if (batches.size() > 1) name += fmt::format(", batch={}", n);
        const bool twice = std::any_of(plan.configurations.begin(), plan.configurations.end(),
                                       [&](const auto& c) { return c.name == name; });
        if (twice) return error(Code::usage, "{} is asked for twice", name);
        plan.configurations.push_back({p, name, path, n});
      }
    }
  }
  for (const uint32_t n : o.prefill) {
    if (o.has(Metric::prefill)) plan.cells.push_back({Metric::prefill, n});
  }
  for (const uint32_t d : o.depths) {
    if (o.has(Metric::decode) && o.decode != 0) plan.cells.push_back({Metric::decode, d});
  }
  for (const uint32_t n : o.serving) {
    if (o.has(Metric::serving)) plan.cells.push_back({Metric::serving, n});
  }
  return plan;
}

}  // namespace switchyard::cli
