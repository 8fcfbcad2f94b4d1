// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/registry.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/plugin/known_good.h"
#include "core/plugin/probe/protocol.h"
#include "core/plugin/trust.h"

#ifndef SWITCHYARD_INSTALLED
#define SWITCHYARD_INSTALLED ""
#endif

namespace switchyard {
namespace {

constexpr uint64_t kMaxPluginBytes = uint64_t{4} << 30;
constexpr char kProbe[] = "switchyard-plugin-probe";

// A file to look at.
struct File {
  std::string path;
  bool named = false;  // by --backend-lib
  bool ours = false;   // in a folder of this installation
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool is_absolute(const std::string& path) { return !path.empty() && path[0] == '/'; }

// Candidate files in the order in which they are tried; what cannot be searched is noted in `elsewhere`.
std::vector<File> files(Os& os, const DiscoveryOptions& o, std::vector<Candidate>& elsewhere) {
  std::vector<File> out;
  const auto refused = [&](const std::string& path, const std::string& reason, bool named) {
    elsewhere.push_back({path, "", reason, nullptr, named});
  };
  for (const std::string& path : o.libraries) {
    if (is_absolute(path)) {
      out.push_back({path, true, false});
    } else {
      refused(path, "--backend-lib takes an absolute path", true);
    }
  }
  std::vector<std::string> folders;
  for (const std::string& folder : split(o.search_path, ':')) {
    if (is_absolute(folder)) {
      folders.push_back(folder);
    } else {
      refused(folder, "SWITCHYARD_BACKEND_PATH takes absolute folders", false);
    }
  }
  const size_t searched = folders.size();
  if (!o.program_folder.empty()) folders.push_back(o.program_folder + "/../lib/switchyard/backends");
  if (!o.installed_folder.empty()) folders.push_back(o.installed_folder);
  for (size_t i = 0; i < folders.size(); ++i) {
    const auto names = os.list(folders[i]);
    if (!names.ok()) {
      if (i < searched) refused(folders[i], names.status().message(), false);
      continue;
    }
    for (const std::string& name : *names) {
      if (name.size() > 3 && name.ends_with(".so")) out.push_back({folders[i] + "/" + name, false, i >= searched});
    }
  }
  return out;
}

// `id` is set as soon as it is read, so that a refusal can be reported for a backend that was asked for by name.
Result<PluginNote> check_note(Os& os, const std::string& path, const std::string& cpu_features, std::string& id) {
  SWY_LET(const std::unique_ptr<MappedFile> file, os.map(path));
  if (file->bytes().size() > kMaxPluginBytes) return error(Code::invalid_data, "larger than any plugin");
  SWY_LET(PluginNote note, read_plugin_note(file->bytes()));
  if (is_plugin_id(note.id)) id = note.id;
  SWY_TRY(check_plugin_note(note, cpu_features));
  return note;
}

std::string canonical(const std::string& path) {
  std::error_code ec;
  const auto real = std::filesystem::weakly_canonical(path, ec);
  return ec ? path : real.string();
}

// The folder of the shared library that contains this code, or otherwise of the program.
std::string own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&default_discovery), &info) != 0 && info.dli_fname != nullptr) {
    const std::filesystem::path file(info.dli_fname);
    if (file.filename().string().find(".so") != std::string::npos) return file.parent_path().string();
  }
  std::error_code ec;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ec);
  return ec ? std::string() : self.parent_path().string();
}

// What is wrong with the settings of a device that does not open with them, if it does without.
Status wrong_setting(const Plugin& plugin, uint32_t index, const std::vector<Setting>& settings) {
  SWY_TRY(plugin.check(settings));
  if (!Device::open(plugin, index, {}).ok()) return {};
  std::string all;
  for (const Setting& s : settings) {
    const std::string option = fmt::format("--set {}.{}={}", plugin.id(), s.name, s.value);
    const auto alone = Device::open(plugin, index, {s});
    if (!alone.ok()) return error(Code::usage, "{}: {}", option, alone.status().message());
    all += (all.empty() ? "" : " ") + option;
  }
  return error(Code::usage, "{}: the backend takes each of these, but not all together", all);
}

}  // namespace

DiscoveryOptions default_discovery() {
  DiscoveryOptions o;
  o.program_folder = own_folder();
  const std::string installed = SWITCHYARD_INSTALLED;
  if (!installed.empty()) o.installed_folder = installed + "/backends";
  const std::string beside = fmt::format("{}/../lib/switchyard/{}", o.program_folder, kProbe);
  o.probe.program = Os::real().exists(beside) || installed.empty() ? canonical(beside) : installed + "/" + kProbe;
  o.probe.memory = known_good_folder();
  const char* allow_list = std::getenv("SWITCHYARD_BACKEND_ALLOW");
  o.allow_list = allow_list == nullptr ? "" : allow_list;
  std::ifstream cpuinfo("/proc/cpuinfo");  // no size is known beforehand, so it cannot be mapped
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("flags") || line.starts_with("Features")) {
      o.cpu_features = line.substr(line.find(':') + 1);
      break;
    }
  }
  return o;
}

// A candidate on its way.
struct Registry::Sighting {
  Candidate candidate;
  PluginNote note;
  bool vouched_for() const { return candidate.ours || candidate.named; }
};

std::vector<Registry::Sighting> Registry::look(Os& os, const DiscoveryOptions& options,
                                               std::vector<Candidate>& elsewhere) {
  std::vector<Sighting> found;
  const AllowList allowed(os, options.allow_list);
  for (const File& file : files(os, options, elsewhere)) {
    const std::string path = canonical(file.path);
    if (std::any_of(found.begin(), found.end(), [&](const Sighting& s) { return s.candidate.path == path; })) continue;
    Sighting s{{.path = path, .named = file.named, .ours = file.ours}, {}};
    Result<PluginNote> note = check_note(os, path, options.cpu_features, s.candidate.id);
    if (note.ok()) {
      s.note = std::move(*note);
      s.candidate.reason = allowed.refuses(os, path);
    } else {
      s.candidate.reason = one_line(note.status().message());
    }
    found.push_back(std::move(s));
  }
  return found;
}

void Registry::try_out(Os& os, const DiscoveryOptions& options, std::vector<Sighting>& found) {
  if (options.probe.program.empty()) return;
  std::vector<std::string> paths;
  std::vector<Sighting*> tried;
  for (Sighting& s : found) {
    if (!s.candidate.reason.empty()) continue;
    paths.push_back(s.candidate.path);
    tried.push_back(&s);
  }
  const std::vector<Verdict> verdicts = probe(os, options.probe, paths);
  for (size_t i = 0; i < tried.size(); ++i) {
    Candidate& c = tried[i]->candidate;
    const Verdict& v = verdicts[i];
    c.tried = v.tried;
    if (v.tried != Verdict::Tried::no) {
      c.reason = v.reason;
      if (v.reason.starts_with(kProbeHangs)) warnings_.push_back(fmt::format("{}: {}", c.path, v.reason));
    } else if (tried[i]->vouched_for()) {
      warnings_.push_back(fmt::format("{} was opened without a trial: {}", c.path, v.reason));
    } else {
      c.reason = fmt::format("cannot be tried, and --backend-lib does not name this file: {}", v.reason);
    }
  }
}

void Registry::admit(Os& os, const DiscoveryOptions& options, const Host& host, Sighting sighting) {
  Candidate& c = sighting.candidate;
  if (c.reason.empty()) {
    if (const Plugin* same = find(c.id)) {
      c.reason = fmt::format("hidden by {}, which has the same id and was found first", same->path());
      const auto first = std::find_if(candidates_.begin(), candidates_.end(),
                                      [&](const Candidate& other) { return other.plugin == same; });
      if (c.ours && !first->ours) {
        warnings_.push_back(
            fmt::format("backend {} is {}, which hides the one of this installation, {}", c.id, same->path(), c.path));
      }
    } else if (auto plugin = Plugin::open(os, c.path, sighting.note, host.table(), options.validate); plugin.ok()) {
      c.plugin = plugin->get();
      for (std::string& line : writable_by_others(c.path)) {
        if (std::find(warnings_.begin(), warnings_.end(), line) == warnings_.end())
          warnings_.push_back(std::move(line));
      }
      plugins_.push_back(std::move(*plugin));
    } else {
      c.reason = one_line(plugin.status().message());
    }
  }
  candidates_.push_back(std::move(c));
}

Registry Registry::discover(Os& os, const DiscoveryOptions& options, const Host& host) {
  Registry r;
  r.settings_ = options.settings;
  std::vector<Sighting> found = look(os, options, r.candidates_);
  for (const Candidate& c : r.candidates_) {  // so far, what cannot be searched
    if (!c.named) r.warnings_.push_back(fmt::format("backend path '{}' is not searched: {}", c.path, c.reason));
  }
  r.try_out(os, options, found);
  for (Sighting& s : found) r.admit(os, options, host, std::move(s));
  return r;
}

const Plugin* Registry::find(const std::string& id) const {
  const auto it = std::find_if(plugins_.begin(), plugins_.end(), [&](const auto& p) { return p->id() == id; });
  return it == plugins_.end() ? nullptr : it->get();
}

std::string Registry::found() const {
  std::string ids;
  for (const auto& plugin : plugins_) ids += fmt::format("{}{}", ids.empty() ? "" : ", ", plugin->id());
  return ids.empty() ? "none" : ids;
}

Status Registry::check_libraries() const {
  for (const Candidate& c : candidates_) {
    if (c.named && !c.reason.empty()) return error(Code::invalid_data, "--backend-lib {}: {}", c.path, c.reason);
  }
  return {};
}

Status Registry::check_settings() const {
  for (const auto& [id, settings] : settings_) {
    const Plugin* plugin = find(id);
    if (plugin == nullptr) {
      return error(Code::usage, "--set {}.{}: there is no backend '{}'; found: {}", id, settings[0].name, id, found());
    }
    SWY_TRY(plugin->check(settings));
  }
  return {};
}

Result<std::shared_ptr<Device>> Registry::open(const std::string& name) const {
  const size_t colon = name.find(':');
  const std::string id = name.substr(0, colon);
  uint32_t index = 0;
  if (colon != std::string::npos) {
    const std::string digits = name.substr(colon + 1);
    if (digits.empty() || digits.size() > 4 || digits.find_first_not_of("0123456789") != std::string::npos) {
      return error(Code::usage, "'{}' names no device; write {}:0, {}:1, …", name, id, id);
    }
    index = static_cast<uint32_t>(std::stoul(digits));
  }
  if (const Plugin* plugin = find(id)) {
    const auto s = settings_.find(id);
    if (s == settings_.end()) return Device::open(*plugin, index, {});
    auto device = Device::open(*plugin, index, s->second);
    if (!device.ok()) SWY_TRY(wrong_setting(*plugin, index, s->second));
    return device;
  }
  for (const Candidate& c : candidates_) {
    if (c.id == id) return error(Code::not_found, "backend '{}' cannot be used: {}: {}", id, c.path, c.reason);
  }
  return error(Code::not_found, "there is no backend '{}'; found: {}; see switchyard backends --explain", id, found());
}

Result<Registry::Selection> Registry::select(const std::string& backend) const {
  Selection s;
  if (backend != "auto") {
    const std::vector<std::string> names = split(backend, ',');
    if (names.empty()) return error(Code::usage, "--backend is empty; name a backend, or auto");
    for (const std::string& name : names) {
      SWY_LET(auto device, open(name));
      const bool twice = std::any_of(s.devices.begin(), s.devices.end(),
                                     [&](const auto& d) { return d->plan().name == device->plan().name; });
      if (twice) return error(Code::usage, "--backend names {} twice", device->plan().name);
      s.devices.push_back(std::move(device));
    }
    return s;
  }
  s.policy.ordered = false;
  std::string reasons;
  for (const auto& plugin : plugins_) {
    auto device = open(plugin->id());
    if (device.ok()) {
      s.devices.push_back(std::move(*device));
    } else if (device.status().code() == Code::usage) {
      return device.status();  // what the user set, which another backend would not mend
    } else {
      reasons += "; " + device.status().message();
    }
  }
  if (s.devices.empty()) {
    return error(Code::not_found, "no backend can be used{}; see switchyard backends --explain", reasons);
  }
  return s;
}

}  // namespace switchyard
