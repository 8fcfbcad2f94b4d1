// SPDX-License-Identifier: Apache-2.0
// The claims of a plugin, and the page docs/support.md that is made from them.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "plugins_api/check/cases.h"
#include "plugins_api/check/failure.h"
#include "plugins_api/check/report.h"
#include "plugins_api/check/suites.h"

namespace switchyard::check {
namespace {

using nlohmann::json;

// Results of the table's cases for one kernel.
struct Seen {
  std::set<std::string> encodings, types;
  uint64_t cases = 0;
  std::map<std::string, uint64_t> refused;  // reason -> cases
  bool by_machine = false;                  // refused a case because of this machine
};

std::map<std::string, Seen> seen_kernels(const Report& report) {
  std::map<std::string, Seen> out;
  for (const Result& r : report.results) {
    const auto kernel = r.facts.find("kernel");
    if (r.suite != kOpsSuite.name || kernel == r.facts.end()) continue;
    Seen& k = out[kernel->second];
    if (r.verdict == "unsupported") {
      ++k.refused[r.why];
      k.by_machine = k.by_machine || r.facts.contains("by_machine");
      continue;
    }
    ++k.cases;
    const std::string& e = r.facts.at("encoding");
    if (!e.empty()) k.encodings.insert(e.substr(0, e.find('.')));
    k.types.insert(r.facts.at("input") + "→" + r.facts.at("output"));
  }
  return out;
}

std::string letters(const json& flags) {
  std::string out;
  for (const json& f : flags) out += f.get<std::string>()[0];
  return out;
}

std::string without_numbers(const std::string& reason) {
  std::string out;
  for (const char c : reason) {
    if (!std::isdigit(static_cast<unsigned char>(c))) out += c;
  }
  return out;
}

// The most frequent reasons of a kernel's refusals, at most three. Reasons that differ only in numbers count as one.
std::string reasons(const std::map<std::string, uint64_t>& refused) {
  struct Group {
    uint64_t cases = 0, of_example = 0;
    std::string example;  // the most frequent of its reasons
  };
  std::map<std::string, Group> groups;
  for (const auto& [why, n] : refused) {
    Group& g = groups[without_numbers(why)];
    g.cases += n;
    if (n > g.of_example) g.example = why, g.of_example = n;
  }
  std::vector<Group> all;
  for (const auto& [key, group] : groups) all.push_back(group);
  std::stable_sort(all.begin(), all.end(), [](const Group& a, const Group& b) { return a.cases > b.cases; });
  std::string out;
  for (size_t i = 0; i < all.size() && i < 3; ++i) out += (out.empty() ? "" : "; ") + all[i].example;
  return out + (all.size() > 3 ? "; …" : "");
}

std::string id_of(const json& s) { return s["id"]; }

// "a, b, c", or a dash.
std::string listed(const json& array) {
  std::string out;
  for (const json& x : array) out += (out.empty() ? "" : ", ") + x.get<std::string>();
  return out.empty() ? "–" : out;
}

std::string row(const std::vector<std::string>& cells) {
  std::string out = "|";
  for (const std::string& c : cells) out += " " + c + " |";
  return out + "\n";
}

// A table with a column per plugin; `cell` returns the text of a line.
template <class Cell>
std::string per_plugin(const std::vector<json>& all, const std::vector<std::string>& lines, const Cell& cell) {
  std::vector<std::string> head = {""}, rule = {"---"};
  for (const json& s : all) {
    head.push_back(id_of(s));
    rule.emplace_back("---");
  }
  std::string out = row(head) + row(rule);
  for (const std::string& line : lines) {
    std::vector<std::string> cells = {line};
    for (const json& s : all) cells.push_back(cell(s, line));
    out += row(cells);
  }
  return out + "\n";
}

std::string about(const json& s, const std::string& line) {
  if (line == "version") return s["version"];
  if (line == "kernels") return std::to_string(s["kernels"].size());
  return listed(s[line]);
}

// What the plugin's kernels of one operation accept: encodings if there are weights, types of activations.
std::string operation(const json& s, const std::string& op) {
  std::set<std::string> encodings, types;
  bool there = false;
  for (const json& k : s["kernels"]) {
    if (k["op"] != op) continue;
    there = true;
    for (const json& e : k["encodings"]) encodings.insert(e);
    for (const json& t : k["types"]) types.insert(t);
  }
  std::string out;
  if (!encodings.empty()) out = listed(json(encodings));
  types.erase("f32→f32");
  if (!types.empty()) out += (out.empty() ? "" : "; ") + listed(json(types));
  return !there ? "" : out.empty() ? "f32" : out;
}

std::string sampling(const json& s, const std::string& line) {
  const json& all = s["sampling"];
  return std::find(all.begin(), all.end(), json(line)) != all.end() ? "yes" : "";
}

std::string kernels(const json& s) {
  std::string out = text("### ", id_of(s), "\n\n") +
                    row({"kernel", "operation", "flags", "weights", "types", "products in", "cases", "refuses"}) +
                    row({"---", "---", "---", "---", "---", "---", "---", "---"});
  for (const json& k : s["kernels"]) {
    out += row({k["name"], k["op"], k["flags"], listed(k["encodings"]), listed(k["types"]), k["activations"],
                std::to_string(k["cases"].get<uint64_t>()), k["refuses"]});
  }
  return out + "\n";
}

std::vector<std::string> all_operations() {
  std::vector<std::string> out;
  for (const CaseSpec& s : all_cases()) {
    if (std::find(out.begin(), out.end(), op_name(s.op)) == out.end()) out.push_back(op_name(s.op));
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

std::string claims(const Report& report) {
  const json& p = report.plugin;
  const json& device = p["device"];
  json options = json::array(), sampled = json::array();
  for (const json& o : p["options"]) options.push_back(o["name"]);
  for (const char* list : {"sampling", "sampling_steps"}) {
    for (const json& x : device[list]) sampled.push_back(x);
  }
  std::string out = text("{\"id\": ", p["id"].dump(), ", \"version\": ", p["version"].dump(), ",\n");
  const std::pair<const char*, json> lines[] = {
      {"device", device["flags"]}, {"options", options}, {"extensions", p["extensions"]}, {"sampling", sampled}};
  for (const auto& [name, value] : lines) out += text("\"", name, "\": ", value.dump(), ",\n");
  out += "\"kernels\": [";
  const auto seen = seen_kernels(report);
  const char* separator = "\n";
  for (const json& k : p["kernels"]) {
    const auto found = seen.find(k["name"].get<std::string>());
    const Seen of_kernel = found == seen.end() ? Seen{} : found->second;
    const json line = {{"name", k["name"]},
                       {"op", k["op"]},
                       {"flags", letters(k["flags"])},
                       {"activations", k["activations"]},
                       {"encodings", of_kernel.encodings},
                       {"types", of_kernel.types},
                       {"cases", of_kernel.cases},
                       {"refuses", reasons(of_kernel.refused)},
                       {"by_machine", of_kernel.by_machine}};
    out += separator + line.dump();
    separator = ",\n";
  }
  return out + "\n]}\n";
}

std::string support_page(const std::vector<json>& all) {
  std::string out =
      "# What each backend supports\n\n"
      "`./dev support` writes this page from what `switchyard-plugin-check` finds (`docs/support/*.json`); do not edit "
      "it.\n"
      "An entry means that a kernel accepted a case of the kit's table. `./dev test all`, `./dev test-cuda` and\n"
      "`./dev test-vulkan` run every such case and check its result ([check a plugin](check-a-plugin.md)). What the "
      "table\n"
      "has no case of is not listed, even if a kernel could run it. A kernel with 0 cases needs another device than "
      "the\n"
      "one that was asked; its last column says what. Which models run: [use your own "
      "model](use-your-own-model.md).\n\n"
      "## Backends\n\n";
  out += per_plugin(all, {"version", "device", "options", "extensions", "kernels"}, about);
  out +=
      "## Operations\n\n"
      "Each cell has the encodings of the weights, or f32 if the operation has none. Activations are fp32 where\n"
      "no other type is named. An empty cell means that the operation runs on another backend, or inside a "
      "composite.\n\n";
  out += per_plugin(all, all_operations(), operation);
  out += "## Sampling on the device\n\n";
  out += per_plugin(all,
                    {"LOGITS", "TOPK_CANDIDATES", "TOKEN", "greedy", "seeded", "temperature", "top-k", "top-p", "min-p",
                     "mask", "penalties", "bias", "log-probabilities", "stop ids"},
                    sampling);
  out +=
      "## Kernels\n\n"
      "- flags: C `CAPTURE_SAFE`, D `DETERMINISTIC`, B `BATCH_INVARIANT`, I `IN_PLACE` (`plugin.h` explains them)\n"
      "- products in: the precision in which products are computed\n"
      "- cases: how many cases of the table the kernel accepts\n"
      "- refuses: its most frequent reasons for refusing a case; reasons that differ only in numbers are shown "
      "once\n\n";
  for (const json& s : all) out += kernels(s);
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

}  // namespace switchyard::check
