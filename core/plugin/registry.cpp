#include "core/plugin/registry.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#ifndef SWITCHYARD_INSTALLED_BACKENDS
#define SWITCHYARD_INSTALLED_BACKENDS ""
#endif

namespace switchyard {
namespace {

constexpr uint64_t kMaxPluginBytes = uint64_t{4} << 30;

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

// Candidate files in the order in which they are tried; what cannot be searched is noted in `candidates`.
std::vector<std::string> files(Os& os, const DiscoveryOptions& o, std::vector<Candidate>& candidates) {
  std::vector<std::string> out;
  for (const std::string& path : o.libraries) {
    if (is_absolute(path)) {
      out.push_back(path);
    } else {
      candidates.push_back({path, "", "--backend-lib takes an absolute path", nullptr, true});
    }
  }
  std::vector<std::string> folders;
  for (const std::string& folder : split(o.search_path, ':')) {
    if (is_absolute(folder)) {
      folders.push_back(folder);
    } else {
      candidates.push_back({folder, "", "SWITCHYARD_BACKEND_PATH takes absolute folders", nullptr, false});
    }
  }
  const size_t named = folders.size();
  if (!o.program_folder.empty()) folders.push_back(o.program_folder + "/../lib/switchyard/backends");
  if (!o.installed_folder.empty()) folders.push_back(o.installed_folder);
  for (size_t i = 0; i < folders.size(); ++i) {
    const auto names = os.list(folders[i]);
    if (!names.ok()) {
      if (i < named) candidates.push_back({folders[i], "", names.status().message(), nullptr, false});
      continue;
    }
    for (const std::string& name : *names) {
      if (name.size() > 3 && name.ends_with(".so")) out.push_back(folders[i] + "/" + name);
    }
  }
  return out;
}

// `id` is set as soon as the file says it, so that a refusal can be told to who asked for it by name.
Result<PluginNote> check_note(Os& os, const std::string& path, const std::string& cpu_features, std::string& id) {
  SWY_LET(const std::unique_ptr<MappedFile> file, os.map(path));
  if (file->bytes().size() > kMaxPluginBytes) return error(Code::invalid_data, "larger than any plugin");
  SWY_LET(PluginNote note, read_plugin_note(file->bytes()));
  id = note.id;
  if (note.abi_min > SWY_ABI_VERSION || note.abi_max < SWY_ABI_VERSION) {
    return error(Code::unsupported,
                 "speaks ABI {} to {}, this runtime speaks {}; install the plugin's matching version", note.abi_min,
                 note.abi_max, SWY_ABI_VERSION);
  }
  if (const std::string feature = missing_cpu_feature(note.cpu, cpu_features); !feature.empty()) {
    return error(Code::unsupported, "needs the processor feature '{}', which this machine lacks", feature);
  }
  return note;
}

std::string canonical(const std::string& path) {
  std::error_code ec;
  const auto real = std::filesystem::weakly_canonical(path, ec);
  return ec ? path : real.string();
}

}  // namespace

namespace {

// The folder of the shared library that this code lies in, or else of the program.
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

}  // namespace

DiscoveryOptions default_discovery() {
  DiscoveryOptions o;
  o.program_folder = own_folder();
  o.installed_folder = SWITCHYARD_INSTALLED_BACKENDS;
  std::ifstream cpuinfo("/proc/cpuinfo");  // no size is known beforehand, so it cannot be mapped
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("flags") || line.starts_with("Features")) {
      o.cpu_features = line.substr(line.find(':') + 1);
      break;
    }
  }
  return o;
}

Registry Registry::discover(Os& os, const DiscoveryOptions& options, const Host& host) {
  Registry r;
  r.settings_ = options.settings;
  std::vector<std::string> seen;
  for (const std::string& file : files(os, options, r.candidates_)) {
    const std::string path = canonical(file);
    if (std::find(seen.begin(), seen.end(), path) != seen.end()) continue;
    seen.push_back(path);
    const auto& libraries = options.libraries;
    const bool named = std::find(libraries.begin(), libraries.end(), file) != libraries.end();
    Candidate c{path, "", "", nullptr, named};
    const Result<PluginNote> note = check_note(os, path, options.cpu_features, c.id);
    const auto same =
        std::find_if(r.plugins_.begin(), r.plugins_.end(), [&](const auto& p) { return p->id() == c.id; });
    if (!note.ok()) {
      c.reason = note.status().message();
    } else if (same != r.plugins_.end()) {
      c.reason = fmt::format("hidden by {}, which has the same id and was found first", (*same)->path());
    } else if (auto plugin = Plugin::open(os, path, *note, host.table(), options.validate); plugin.ok()) {
      c.plugin = plugin->get();
      r.plugins_.push_back(std::move(*plugin));
    } else {
      c.reason = plugin.status().message();
    }
    r.candidates_.push_back(std::move(c));
  }
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
    return Device::open(*plugin, index, s == settings_.end() ? std::vector<Setting>{} : s->second);
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
