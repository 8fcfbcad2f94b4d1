// SPDX-License-Identifier: Apache-2.0
#include "cli/run_trace.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/model_source.h"
#include "cli/say.h"

namespace switchyard::cli {
namespace {

std::vector<std::string> device_names(const Model& model) {
  std::vector<std::string> names;
  for (const PlanDevice& d : model.devices()) names.push_back(d.name);
  return names;
}

}  // namespace

void add_trace(CLI::App& command, std::string& path) {
  add_output(command, "--trace", path,
             "write a timeline of host steps, lists and kernels to this file, for ui.perfetto.dev or "
             "chrome://tracing; it keeps a million events (about 40 MB of memory) and costs about a microsecond "
             "per kernel on the host; on a device, kernels may overlap less");
}

RunTrace::RunTrace(const LoadedModel& loaded, std::string path)
    : path_(std::move(path)), file_(device_names(*loaded.model)) {}

Result<std::unique_ptr<RunTrace>> RunTrace::start(const LoadedModel& loaded, const Settings& settings,
                                                  const std::string& path) {
  if (path.empty()) return std::unique_ptr<RunTrace>();
  if (settings.validate) {
    return error(
        Code::usage,
        "--trace and --validate cannot be combined: under --validate, backends report no kernels; drop one of them");
  }
  std::unique_ptr<RunTrace> t(new RunTrace(loaded, path));
  SWY_LET(t->output_, Os::real().create(path));
  t->file_.describe("model", model_path(settings));
  t->file_.describe("version", SWITCHYARD_VERSION);
  t->file_.describe("devices", fmt::format("{}", fmt::join(loaded.model->device_names(), ", ")));
  SWY_LET(t->profile_, Profile::start(*loaded.model, *loaded.host, t->file_));
  return t;
}

Status RunTrace::write() {
  if (const Status told = profile_->stop(); !told.ok()) {
    spdlog::warn("the trace lacks some kernels: {}", told.message());
  }
  for (const std::string& device : profile_->blind()) {
    spdlog::warn("{} cannot report when its kernels run; the trace shows only the host's work", device);
  }
  if (profile_->dropped() > 0) {
    spdlog::warn("the devices' buffers were too small for the times of {} kernels; the trace lacks these",
                 profile_->dropped());
  }
  if (file_.left_out() > 0) {
    spdlog::warn("the trace is full after {} events; {} later ones are missing", file_.events(), file_.left_out());
  }
  SWY_TRY(file_.write(*output_));
  say("trace: {} events in {}; open it in https://ui.perfetto.dev or chrome://tracing\n", file_.events(), path_);
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
