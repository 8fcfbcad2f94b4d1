// SPDX-License-Identifier: Apache-2.0
// switchyard inspect: the contents of a program file.
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/runtime.h"
#include "core/base/printable.h"
#include "core/engine/verify_packed.h"
#include "core/import/export.h"
#include "core/program/op_names.h"

namespace switchyard::cli {
namespace {

constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;  // what is no UTF-8

struct InspectFlags {
  Settings settings;
  std::string dequantized;
  bool tensors = false, json = false;
};

nlohmann::ordered_json describe_program(const Program& p, bool tensors) {
  std::map<std::string, size_t> ops;
  std::map<std::string, uint64_t> packed;  // bytes by layout
  for (const Op& op : p.main().ops) ++ops[op_name(op.id)];
  uint64_t parameters = 0, bytes = 0;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Tensor& t : p.tensors) {
    uint64_t elements = 1;
    std::vector<uint64_t> dims(t.dims.begin(), t.dims.begin() + t.rank);
    for (const uint64_t d : dims) elements *= d;
    parameters += elements;
    nlohmann::ordered_json forms = nlohmann::ordered_json::array();
    bytes += t.segments[0].bytes;
    for (const Segment& s : t.segments.subspan(1)) {
      forms.push_back(fmt::format("{}/{}", s.layout, s.layout_revision));
      packed[forms.back()] += s.bytes;
    }
    list.push_back({{"name", t.name},
                    {"dtype", dtype_name(t.dtype)},
                    {"group", t.group},
                    {"dims", dims},
                    {"bytes", t.segments[0].bytes},
                    {"packed", forms}});
  }
  nlohmann::ordered_json out = {{"schema", p.schema_version},
                                {"architecture", p.architecture},
                                {"quantization", p.quantization},
                                {"parameters", parameters},
                                {"weight_bytes", bytes},
                                {"packed_bytes", packed},
                                {"file_bytes", p.file->bytes().size()},
                                {"context_length", p.context_length},
                                {"eos_ids", std::vector<uint32_t>(p.eos_ids.begin(), p.eos_ids.end())},
                                {"tokenizer", !p.tokenizer_json.empty()},
                                {"chat_template", !p.chat_template.empty()},
                                {"tensors", p.tensors.size()},
                                {"states", p.states.size()},
                                {"ops", ops}};
  if (tensors) out["tensor_list"] = std::move(list);
  return out;
}

// Compares packed weights, as far as a backend of this machine packs them. Returns the layouts that none does.
Result<std::set<std::string>> verify_packed_weights(const Program& program, const Settings& settings) {
  const Host host(1);
  SWY_LET(const Registry registry, find_backends(settings, host));
  const auto all = registry.select("auto");
  std::vector<PlanDevice> devices;
  if (all.ok()) {
    for (const auto& d : all->devices) devices.push_back(d->plan());
  }
  Progress bar("comparing packed weights");
  return verify_packed(program, devices, [&](uint64_t done, uint64_t total) {
    bar.update(done, total);
    return !interrupted.load();
  });
}

Status inspect(const InspectFlags& o) {
  SWY_LET(const auto program, load_program(o.settings));
  if (!o.dequantized.empty()) SWY_TRY(export_dequantized(Os::real(), *program, o.dequantized));
  nlohmann::ordered_json all = describe_program(*program, o.tensors);
  if (o.settings.verify) {
    all["weights"] = "verified";
    if (!all["packed_bytes"].empty()) {
      SWY_LET(const auto unknown, verify_packed_weights(*program, o.settings));
      all["packed_weights"] = unknown.empty() ? "verified" : "verified, but no backend here packs what follows";
      if (!unknown.empty()) all["packed_not_compared"] = unknown;
    }
  }
  if (o.json) {
    print_json(all);
    return {};
  }
  const nlohmann::ordered_json list = o.tensors ? all["tensor_list"] : nlohmann::ordered_json::array();
  all.erase("tensor_list");
  for (const auto& [key, value] : all.items()) {
    fmt::print("{:<16} {}\n", key,
               value.is_string() ? printable_line(value.get<std::string>())
                                 : printable_json(value.dump(-1, ' ', false, kReplace)));
  }
  for (const auto& t : list) {
    fmt::print("  {:<64} {:<5} {:<18} {} bytes{}\n", t["name"].get<std::string>(), t["dtype"].get<std::string>(),
               t["dims"].dump(), t["bytes"].get<uint64_t>(),
               t["packed"].empty()
                   ? ""
                   : ", also " + fmt::format("{}", fmt::join(t["packed"].get<std::vector<std::string>>(), ", ")));
  }
  return {};
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<InspectFlags>();
  CLI::App* c = app.add_subcommand("inspect", "Show what a model file contains");
  c->footer("Example: switchyard inspect qwen.swy --verify");
  add_model(*c, o->settings, "program");
  c->add_flag("--verify", o->settings.verify,
              "also read all weights, check their checksums, and compare packed weights with what they were made of");
  c->add_flag("--tensors", o->tensors, "list every weight");
  add_output(*c, "--dequantize", o->dequantized, "write all weights as fp32 to this safetensors file");
  c->add_flag("--json", o->json, "print JSON");
  set_action(*c, exit_code, [o] { return inspect(*o); });
}

}  // namespace switchyard::cli
