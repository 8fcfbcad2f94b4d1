// SPDX-License-Identifier: Apache-2.0
// switchyard inspect: the contents of a program file.
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/commands.h"
#include "cli/gguf_file.h"
#include "cli/model_source.h"
#include "cli/output.h"
#include "cli/runtime.h"
#include "core/base/printable.h"
#include "core/engine/mtp.h"
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

// Where it came from, and the sampling settings that its makers recommend.
nlohmann::ordered_json metadata_of(const Program& p) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const auto& [key, value] : p.metadata) out[printable(key)] = printable(value);
  return out;
}

// Of the weights that only the multi-token prediction layer reads.
uint64_t parameters_of_layer(const Program& p, const Function& layer) {
  std::vector<bool> counted(p.tensors.size());
  for (const Op& op : p.main().ops) {
    for (const uint32_t w : op.weights) counted[w] = true;
  }
  uint64_t parameters = 0;
  for (const Op& op : layer.ops) {
    for (const uint32_t w : op.weights) {
      if (counted[w]) continue;
      counted[w] = true;
      uint64_t elements = 1;
      for (uint32_t d = 0; d < p.tensors[w].rank; ++d) elements *= p.tensors[w].dims[d];
      parameters += elements;
    }
  }
  return parameters;
}

nlohmann::ordered_json describe_program(const Program& p, bool tensors) {
  std::map<std::string, size_t> ops;
  std::map<std::string, uint64_t> packed;  // bytes by layout
  for (const Op& op : p.main().ops) ++ops[op_kind(op)];
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
                    {"dtype", encoding_name(t)},
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
                                {"metadata", metadata_of(p)},
                                {"tokenizer", !p.tokenizer_json.empty()},
                                {"chat_template", !p.chat_template.empty()},
                                {"tensors", p.tensors.size()},
                                {"states", p.states.size()},
                                {"ops", ops}};
  if (const Function* layer = MtpLayer::of(p)) {
    const uint64_t own = parameters_of_layer(p, *layer);
    out["parameters"] = parameters - own;
    out["multi_token_prediction"] = {{"layers", 1}, {"parameters", own}};
  }
  for (const Encoding& e : p.encodings) {
    out["encodings"][std::string(e.name)] = {
        {"bits", e.desc.bits},
        {"group", e.desc.group},
        {"scales", dtype_name(e.desc.scale_dtype)},
        {"offsets", e.desc.has_offset != 0},
        {"tensors",
         std::count_if(p.tensors.begin(), p.tensors.end(), [&](const Tensor& t) { return t.encoding == &e; })},
        {"without_a_kernel", "decoded to bf16 or fp32 when the model is loaded"}};
  }
  std::map<std::string, std::set<std::string>> done_by;
  for (const Function& f : p.functions) {
    for (const Op& op : f.ops) {
      if (op.id == SWY_OP_NAMED) done_by[op_kind(op)].emplace(p.functions[op.function].name);
    }
  }
  for (const auto& [name, functions] : done_by) {  // that stand for operations with a name
    out["functions"][name] = fmt::format("{}", fmt::join(functions, " or "));
  }
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

// "add 16, attention 2" of an object.
std::string shown(const nlohmann::ordered_json& value) {
  if (value.is_string()) return printable_line(value.get<std::string>());
  if (!value.is_object()) return printable_json(value.dump(-1, ' ', false, kReplace));
  std::string out;
  for (const auto& [key, of_key] : value.items()) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", printable_line(key), shown(of_key));
  }
  return out.empty() ? "none" : out;
}

void print_description(nlohmann::ordered_json all, bool json) {
  if (json) return print_json(all);
  const nlohmann::ordered_json list = all.value("tensor_list", nlohmann::ordered_json::array());
  const nlohmann::ordered_json metadata = all.value("metadata", nlohmann::ordered_json::object());
  all.erase("tensor_list");
  all.erase("metadata");
  for (const auto& [key, value] : all.items()) fmt::print("{:<16} {}\n", key, shown(value));
  for (const auto& [key, value] : metadata.items()) fmt::print("  {:<48} {}\n", key, shown(value));
  for (const auto& t : list) {
    const auto packed = t.value("packed", std::vector<std::string>());
    fmt::print("  {:<64} {:<5} {:<18} {} bytes{}\n", t["name"].get<std::string>(), t["dtype"].get<std::string>(),
               t["dims"].dump(), t["bytes"].get<uint64_t>(),
               packed.empty() ? "" : ", also " + fmt::format("{}", fmt::join(packed, ", ")));
  }
}

Status inspect(const InspectFlags& o) {
  if (!o.settings.verify && o.dequantized.empty() && !is_synthetic(o.settings)) {
    SWY_LET(const ModelSource source, find_model(o.settings));
    if (source.kind == ModelSource::Kind::gguf) {  // as it is, without converting it
      SWY_LET(const nlohmann::ordered_json described, describe_gguf(source.path, o.tensors));
      print_description(described, o.json);
      return {};
    }
  }
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
  print_description(std::move(all), o.json);
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
