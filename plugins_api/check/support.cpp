// The page docs/support.md.
#include <algorithm>
#include <set>

#include "plugins_api/check/cases.h"
#include "plugins_api/check/failure.h"
#include "plugins_api/check/report.h"

namespace switchyard::check {
namespace {

using nlohmann::json;

std::string id_of(const json& s) { return s["plugin"]["id"]; }

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

// A table with a column per plugin; `cell` gives what stands in a line.
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
  const json& p = s["plugin"];
  if (line == "version") return p["version"];
  if (line == "kernels") return std::to_string(p["kernels"].size());
  if (line == "extensions") return listed(p["extensions"]);
  if (line == "device") return listed(p["device"]["flags"]);
  json names = json::array();
  for (const json& o : p["options"]) names.push_back(o["name"]);
  return listed(names);
}

// What the plugin's kernels of one operation take: encodings where there are weights, types of activations.
std::string operation(const json& s, const std::string& op) {
  std::set<std::string> encodings, types;
  for (const json& k : s["plugin"]["kernels"]) {
    if (k["op"] != op) continue;
    const json& taken = s["kernels"][k["name"].get<std::string>()];
    for (const json& e : taken["encodings"]) encodings.insert(e);
    for (const json& t : taken["types"]) types.insert(t);
  }
  std::string out;
  if (!encodings.empty()) out = listed(json(encodings));
  types.erase("f32→f32");
  if (!types.empty()) out += (out.empty() ? "" : "; ") + listed(json(types));
  bool there = false;
  for (const json& k : s["plugin"]["kernels"]) there = there || k["op"] == op;
  return !there ? "" : out.empty() ? "f32" : out;
}

std::string sampling(const json& s, const std::string& line) {
  const json& d = s["plugin"]["device"];
  for (const char* list : {"sampling", "sampling_steps"}) {
    for (const json& x : d[list]) {
      if (x == line) return "yes";
    }
  }
  return "";
}

std::string letters(const json& flags) {
  std::string out;
  for (const json& f : flags) out += f.get<std::string>()[0];
  return out;
}

// The most frequent reasons of a kernel's refusals, at most three.
std::string reasons(const json& refused) {
  std::vector<std::pair<uint64_t, std::string>> all;
  for (const auto& [why, n] : refused.items()) all.emplace_back(n, why);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string out;
  for (size_t i = 0; i < all.size() && i < 3; ++i) out += (out.empty() ? "" : "; ") + all[i].second;
  return out + (all.size() > 3 ? "; …" : "");
}

std::string kernels(const json& s) {
  std::string out = text("### ", id_of(s), "\n\n") +
                    row({"kernel", "operation", "flags", "weights", "types", "products in", "cases", "refuses"}) +
                    row({"---", "---", "---", "---", "---", "---", "---", "---"});
  for (const json& k : s["plugin"]["kernels"]) {
    const json& t = s["kernels"][k["name"].get<std::string>()];
    out += row({k["name"], k["op"], letters(k["flags"]), listed(t["encodings"]), listed(t["types"]), k["activations"],
                std::to_string(t["taken"].get<uint64_t>()), reasons(t["refused"])});
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

std::string support_page(const std::vector<json>& all) {
  std::string out =
      "# What each backend supports\n\n"
      "Written by `./dev support` from what `switchyard-plugin-check` saw (`docs/support/*.json`); do not edit. A "
      "claim counts\n"
      "here if a kernel took a case of the table; `./dev test all`, `./dev test-cuda` and `./dev test-vulkan` hold "
      "every "
      "one\n"
      "of them to its results. [Check a plugin](check-a-plugin.md) tells how.\n\n## Backends\n\n";
  out += per_plugin(all, {"version", "device", "options", "extensions", "kernels"}, about);
  out +=
      "## Operations\n\nEncodings of weights, then types of activations beside fp32. Empty: the scheduler finds "
      "another "
      "backend,\nor the parts of a composite.\n\n";
  out += per_plugin(all, all_operations(), operation);
  out += "## Sampling on the device\n\n";
  out += per_plugin(all,
                    {"LOGITS", "TOPK_CANDIDATES", "TOKEN", "greedy", "seeded", "temperature", "top-k", "top-p", "min-p",
                     "mask", "penalties", "bias", "log-probabilities", "stop ids"},
                    sampling);
  out +=
      "## Kernels\n\nFlags: C `CAPTURE_SAFE`, D `DETERMINISTIC`, B `BATCH_INVARIANT`, I `IN_PLACE`. Cases: how many of "
      "the "
      "table it\ntakes; of what it refuses, the most frequent reasons.\n\n";
  for (const json& s : all) out += kernels(s);
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

}  // namespace switchyard::check
