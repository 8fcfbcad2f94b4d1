// SPDX-License-Identifier: Apache-2.0
// switchyard convert: a Hugging Face checkpoint or a GGUF file to a program file, and a program file to one with packed
// weights.
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/load_watch.h"
#include "cli/model_source.h"
#include "cli/output.h"
#include "cli/runtime.h"
#include "core/base/printable.h"
#include "core/engine/pack.h"
#include "core/import/convert.h"
#include "core/plan/code_store.h"

namespace switchyard::cli {
namespace {

struct ConvertFlags {
  std::string source, output, quant, group = "64", shortlist = "auto", pack;
  std::string origin;  // no flag: of a model of the hub
  Settings settings;   // threads, and where backends are
  bool json = false;
};

using nlohmann::ordered_json;

double mib(uint64_t bytes) { return static_cast<double>(bytes) / 1048576; }

Status convert_checkpoint(const ConvertFlags& o, ordered_json& out) {
  ConvertOptions c;
  c.source = o.source;
  c.origin = o.origin;
  c.output = o.output;
  if (!o.quant.empty() || !is_gguf(Os::real(), o.source)) {
    SWY_LET(c.encoding, parse_encoding(o.quant.empty() ? "i4" : o.quant, o.group));
  }
  c.mtp_shortlist = o.shortlist;
  c.threads = thread_count(o.settings);
  Progress bar("converting");
  c.begin = [&](uint64_t bytes) {
    if (!o.json) say("writing {} ({}, {:.1f} MiB)\n", o.output, encoding_name(c.encoding), mib(bytes));
  };
  c.progress = [&](uint64_t done, uint64_t total) {
    bar.update(done, total);
    return !interrupted.load();
  };
  const uint64_t begin = Os::real().now_ns();
  SWY_LET(const ConvertReport report, convert(Os::real(), c));
  out["encoding"] = encoding_name(c.encoding);
  out["bytes"] = report.file_bytes;
  out["parameters"] = report.parameters;
  out["seconds"] = seconds_since(begin);
  out["notes"] = report.notes;
  if (o.json) return {};
  for (const std::string& note : report.notes) say("note: {}\n", printable_line(note));
  say("{}: {:.1f}M parameters in {:.1f} MiB, {:.1f} s\n", o.output, static_cast<double>(report.parameters) / 1e6,
      mib(report.file_bytes), seconds_since(begin));
  return {};
}

// Writes `from` once more, with weights packed for the devices. Layouts are asked of the plans that running it makes.
Status pack(const ConvertFlags& o, const Registry::Selection& backend, const std::string& from, ordered_json& out) {
  SWY_LET(Program loaded, Program::load(Os::real(), from));
  const auto program = std::make_shared<const Program>(std::move(loaded));
  const LoadWatch watch;
  ModelOptions plans;
  plans.cancelled = watch.cancelled();
  plans.code_folder = default_code_folder();
  SWY_LET(const auto uses, Model::weight_uses(program, backend.devices, backend.policy, plans));
  std::vector<PlanDevice> devices;
  for (const auto& d : backend.devices) devices.push_back(d->plan());
  PackOptions options;
  options.threads = thread_count(o.settings);
  Progress bar("packing");
  options.progress = [&](uint64_t done, uint64_t total) {
    bar.update(done, total);
    return !interrupted.load();
  };
  const uint64_t begin = Os::real().now_ns();
  SWY_LET(const PackReport report, pack_program(Os::real(), *program, devices, uses, o.output, options));
  out["bytes"] = report.file_bytes;
  out["packed"] = {{"backend", o.pack},
                   {"tensors", report.packed_tensors},
                   {"bytes", report.packed_bytes},
                   {"seconds", seconds_since(begin)}};
  if (o.json) return {};
  say("{}: {} weights packed for {}, {:.1f} of {:.1f} MiB, {:.1f} s\n", o.output, report.packed_tensors, o.pack,
      mib(report.packed_bytes), mib(report.file_bytes), seconds_since(begin));
  return {};
}

// A model of the hub is fetched if it is not here; then its files are the source.
Status take_hub_model(ConvertFlags& o) {
  std::error_code ec;
  if (std::filesystem::exists(o.source, ec) || !hub::parse_name(o.source)) return {};
  Settings settings = o.settings;
  settings.model = o.source;
  SWY_LET(const ModelSource source, find_model(settings));
  o.source = source.path;
  o.origin = source.origin;
  return {};
}

Status convert_command(ConvertFlags o) {
  SWY_TRY(take_hub_model(o));
  std::error_code ec;  // what cannot be looked at fails below, with a reason
  const bool program = std::filesystem::is_regular_file(o.source, ec) && !is_gguf(Os::real(), o.source);
  if (program && o.pack.empty()) {
    SWY_TRY(check_model_path(o.source));
    return error(Code::usage,
                 "{} is a file; name the folder of a checkpoint or a GGUF file, or add --pack BACKEND to pack "
                 "a model file",
                 o.source);
  }
  ordered_json out = {{"output", o.output}};
  if (o.pack.empty()) {
    SWY_TRY(convert_checkpoint(o, out));
  } else {  // whether the backend is there is known before the long part
    const Host host(thread_count(o.settings));
    SWY_LET(const Registry registry, find_backends(o.settings, host));
    SWY_TRY(registry.check_libraries());
    SWY_LET(const auto backend, registry.select(o.pack));
    if (!program) SWY_TRY(convert_checkpoint(o, out));
    const Status packed = pack(o, backend, program ? o.source : o.output, out);
    if (!packed.ok() && !program) {
      return error(packed.code(), "{}; {} holds the model without packed weights", packed.message(), o.output);
    }
    SWY_TRY(packed);
  }
  if (o.json) print_json(out);
  return {};
}

}  // namespace

void add_convert(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<ConvertFlags>();
  CLI::App* c = app.add_subcommand("convert", "Make a model file from a Hugging Face checkpoint or a GGUF file");
  c->footer(
      "Example: switchyard convert Qwen3.5-35B-A3B -o qwen.swy --quant i4 --group 64\n"
      "         switchyard convert qwen.swy -o qwen-cpu.swy --pack cpu\n"
      "The source is a folder with config.json and safetensors, a GGUF file, or, with --pack, a model file. Nothing "
      "appears\n"
      "at the output unless all went well. A packed model file holds its weights twice: it runs on every backend, and "
      "loads\n"
      "faster on the one it is packed for.");
  c->add_option("source", o->source,
                "folder of the checkpoint, GGUF file (the first, if there are several), model file, or OWNER/NAME of a "
                "model of the hub")
      ->required();
  add_output(*c, "--output,-o", o->output, "file to write")->required();
  c->add_option("--quant", o->quant,
                "encoding of the weights, but for routers, gates and norms: bf16, i8, i4 or i4a (i4 with an offset);\n"
                "without it i4, and of a GGUF file the nearest to what each weight has");
  c->add_option("--group", o->group, "weights that share a scale: 16, 32, 64, 128, or row")->capture_default_str();
  c->add_option(
       "--mtp-shortlist", o->shortlist,
       "what a multi-token prediction layer guesses from: auto, the first 98304 tokens of a larger vocabulary;\n"
       "off, all; a number of tokens; or a file of token ids")
      ->capture_default_str();
  c->add_option("--pack", o->pack, "also store the weights in the layout of this backend (cpu)");
  c->add_option("--threads", o->settings.threads, "threads that quantize and pack; 0: one per core")
      ->check(thread_range());
  c->add_flag("--json", o->json, "print the result as JSON");
  add_backend_settings(*c, o->settings);
  set_action(*c, exit_code, [o] { return convert_command(*o); });
}

}  // namespace switchyard::cli
