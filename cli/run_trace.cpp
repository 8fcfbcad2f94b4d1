#include "cli/run_trace.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>

namespace switchyard::cli {
namespace {

std::vector<std::string> device_names(const Model& model) {
  std::vector<std::string> names;
  for (const PlanDevice& d : model.devices()) names.push_back(d.name);
  return names;
}

}  // namespace

void add_trace(CLI::App& command, std::string& path) {
  command.add_option("--trace", path,
                     "write a timeline of host steps, lists and kernels to this file, for ui.perfetto.dev or "
                     "chrome://tracing; it keeps a million events (about 40 MB of memory), and takes a microsecond or "
                     "so per kernel on the host; devices that time their kernels may lose overlap between them");
}

RunTrace::RunTrace(const Runtime& runtime, std::string path)
    : path_(std::move(path)), file_(device_names(*runtime.model)) {}

Result<std::unique_ptr<RunTrace>> RunTrace::start(const Runtime& runtime, const Settings& settings,
                                                  const std::string& path) {
  if (path.empty()) return std::unique_ptr<RunTrace>();
  if (settings.validate) {
    return error(Code::usage, "--trace and --validate do not go together: checked backends tell of no kernels");
  }
  SWY_TRY(Os::real().create(path).status());  // and deletes what it created: the trace is written when all is known
  std::unique_ptr<RunTrace> t(new RunTrace(runtime, path));
  t->file_.describe("model", model_path(settings));
  t->file_.describe("version", SWITCHYARD_VERSION);
  t->file_.describe("devices", fmt::format("{}", fmt::join(runtime.model->device_names(), ", ")));
  SWY_LET(t->profile_, Profile::start(*runtime.model, *runtime.host, t->file_));
  return t;
}

Status RunTrace::write() {
  if (const Status told = profile_->stop(); !told.ok()) {
    spdlog::warn("kernels are missing in the trace: {}", told.message());
  }
  for (const std::string& device : profile_->blind()) {
    spdlog::warn("{} does not tell when its kernels run; the trace has what the host does", device);
  }
  if (profile_->dropped() > 0) {
    spdlog::warn("devices had no room for the times of {} kernels; the trace lacks them", profile_->dropped());
  }
  if (file_.left_out() > 0) {
    spdlog::warn("the trace keeps the first {} events; {} later ones are left out", file_.events(), file_.left_out());
  }
  SWY_TRY(file_.write(Os::real(), path_));
  fmt::print(stderr, "trace: {} events in {}; open it in https://ui.perfetto.dev or chrome://tracing\n", file_.events(),
             path_);
  return {};
}

Status RunTrace::finish(std::unique_ptr<RunTrace> trace, Status ran) {
  if (trace == nullptr) return ran;
  Status written = trace->write();
  if (ran.ok()) return written;
  if (!written.ok()) spdlog::warn("{}", written.message());
  return ran;
}

}  // namespace switchyard::cli
