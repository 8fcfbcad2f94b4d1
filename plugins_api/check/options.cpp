// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/options.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <random>

#include "plugins_api/check/suite.h"

namespace switchyard::check {
namespace {

constexpr const char* kUsage =
    R"(switchyard-plugin-check: judges a plugin of Switchyard by what plugin.h promises, through its C ABI alone.

  switchyard-plugin-check PLUGIN.so [options]

The plugin runs in processes of its own: a crash, an exit or a hang costs one check. Results are compared with the
`reference` backend (found beside an installation, or named by --oracle).

  --suite A,B       only these suites, which are listed below
  --filter TEXT     only checks whose name (suite/kernel/case) contains TEXT
  --seed N          repeats a run: the same seed makes the same cases
  --set NAME=VALUE  an option of the plugin; may be repeated
  --oracle FILE     the reference backend's .so; `naive`: plain loops in fp64 instead
  --slow            the larger cases too
  --one-in N        of the suite ops one case in N; the seed chooses which
  --limit-s S       seconds that one check may take (60)
  --threads N       members of the host's thread team (2)
  --json FILE|-     write all results as JSON; - is standard output
  --claims FILE|-   write what the plugin's kernels support, a line for each; with --suite ops --list
  --list            name the checks and run none
  --here            run them in this process, for a debugger, and print nothing
  --errors          print the largest relative errors of each kernel
  --support FILE…   write the page docs/support.md from files of --claims to standard output, and do nothing else

Begin with --suite negotiation,abi: they need no kernel. Then --suite ops --filter NAME for the kernel at hand; a line
of a failure ends with the seed that repeats it. A crash: gdb --args switchyard-plugin-check PLUGIN.so --here, with the
suite, filter and seed of its line.

Results: passed, failed, unsupported (the plugin says why), crashed, hung.
Exit code: 0 all passed, 1 something failed, crashed or hung, 2 usage, or the plugin does not open, 77 this machine
lacks what the plugin or the settings need.

Suites:
)";

std::string folder_of_this_program() {
  char path[PATH_MAX] = {};
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path - 1);
  const std::string all(path, n > 0 ? static_cast<size_t>(n) : 0);
  return all.substr(0, all.rfind('/'));
}

bool same_file(const std::string& a, const std::string& b) {
  char x[PATH_MAX], y[PATH_MAX];
  return ::realpath(a.c_str(), x) != nullptr && ::realpath(b.c_str(), y) != nullptr && std::string(x) == y;
}

// The reference backend of this installation; "" if there is none, or if it is the plugin under test.
std::string find_oracle(const std::string& asked, const std::string& plugin) {
  if (asked == "naive") return "";
  const std::string path =
      asked.empty() ? folder_of_this_program() + "/../lib/switchyard/backends/switchyard_reference.so" : asked;
  if (asked.empty() && ::access(path.c_str(), R_OK) != 0) return "";
  return same_file(path, plugin) ? "" : path;
}

std::vector<std::string> split(const std::string& s) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= s.size();) {
    const size_t comma = std::min(s.find(',', at), s.size());
    if (comma > at) out.push_back(s.substr(at, comma - at));
    at = comma + 1;
  }
  return out;
}

bool to_number(const std::string& s, uint64_t* out) {
  char* end = nullptr;
  if (s.empty() || s[0] < '0' || s[0] > '9') return false;
  *out = std::strtoull(s.c_str(), &end, 10);
  return *end == '\0';
}

std::string set_number(const std::string& name, const std::string& value, Options* o) {
  uint64_t n = 0;
  if (!to_number(value, &n)) return text(name, " takes a whole number, not '", value, "'");
  if (name == "--threads" && (n < 1 || n > 256)) return text("--threads takes 1 to 256, not ", n);
  if (name == "--limit-s" && n < 1) return "--limit-s takes 1 or more";
  if (name == "--one-in" && n < 1) return "--one-in takes 1 or more";
  if (name == "--seed") o->seed = n;
  if (name == "--one-in") o->one_in = n;
  if (name == "--threads") o->threads = static_cast<uint32_t>(n);
  if (name == "--limit-s") o->limit_s = static_cast<double>(n);
  if (name == "--first") o->first = n;
  if (name == "--count") o->count = n;
  if (name == "--worker") o->worker_fd = static_cast<int>(n);
  return "";
}

std::string set_value(const std::string& name, const std::string& value, Options* o) {
  if (name == "--oracle") {
    o->oracle = value;
  } else if (name == "--suite") {
    o->suites = split(value);
  } else if (name == "--filter") {
    o->filter = value;
  } else if (name == "--json") {
    o->json = value;
  } else if (name == "--claims") {
    o->claims = value;
  } else if (name == "--set") {
    const size_t at = value.find('=');
    if (at == std::string::npos) return text("--set takes NAME=VALUE, not '", value, "'");
    o->settings.push_back({value.substr(0, at), value.substr(at + 1)});
  } else {
    return set_number(name, value, o);
  }
  return "";
}

bool takes_value(const std::string& name) {
  static const std::vector<std::string> all = {"--oracle", "--suite", "--filter",  "--json",    "--claims",
                                               "--set",    "--seed",  "--threads", "--limit-s", "--one-in",
                                               "--first",  "--count", "--worker"};
  return std::find(all.begin(), all.end(), name) != all.end();
}

std::string check_suites(Options* o) {
  std::string known;
  std::vector<std::string> chosen;
  for (const Suite& s : all_suites()) {
    known += std::string(known.empty() ? "" : ", ") + s.name;
    if (o->suites.empty() || std::find(o->suites.begin(), o->suites.end(), s.name) != o->suites.end()) {
      chosen.emplace_back(s.name);
    }
  }
  for (const std::string& name : o->suites) {
    if (suite_named(name) == nullptr) return text("there is no suite '", name, "'; there are: ", known);
  }
  o->suites = chosen;
  return "";
}

}  // namespace

std::string parse(int argc, char** argv, Options* o) {
  o->seed = std::random_device{}();
  bool here = false;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (takes_value(arg)) {
      if (i + 1 == argc) return arg + " needs a value";
      if (std::string problem = set_value(arg, argv[++i], o); !problem.empty()) return problem;
    } else if (arg == "--help" || arg == "-h") {
      o->help = true;
      return "";
    } else if (arg == "--support") {
      while (i + 1 < argc) o->support.emplace_back(argv[++i]);
      return o->support.empty() ? "--support needs files that --claims wrote" : "";
    } else if (arg == "--slow") {
      o->slow = true;
    } else if (arg == "--errors") {
      o->errors = true;
    } else if (arg == "--list") {
      o->list = true;
    } else if (arg == "--here") {
      here = true;
    } else if (!arg.empty() && arg[0] != '-' && o->plugin.empty()) {
      o->plugin = arg;
    } else {
      return text("what is '", arg, "'? --help lists the options");
    }
  }
  if (o->plugin.empty()) return "no plugin is named; --help says how";
  if (o->plugin.find('/') == std::string::npos) o->plugin.insert(0, "./");  // never from the library path
  if (o->worker_fd < 0) o->oracle = find_oracle(o->oracle, o->plugin);
  if (here && o->suites.size() != 1) return "--here runs one suite: name it with --suite";
  if (here) o->worker_fd = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  return check_suites(o);
}

std::string help() {
  std::string s = kUsage;
  for (const Suite& suite : all_suites()) {
    s += text("  ", suite.name, std::string(14 - std::string(suite.name).size(), ' '), suite.what, "\n");
  }
  return s;
}

std::vector<std::string> arguments(const Options& o) {
  std::vector<std::string> a = {o.plugin, "--worker", std::to_string(o.worker_fd), "--seed", std::to_string(o.seed)};
  const auto add = [&](const std::string& name, const std::string& value) {
    a.push_back(name);
    a.push_back(value);
  };
  add("--threads", std::to_string(o.threads));
  add("--one-in", std::to_string(o.one_in));
  add("--first", std::to_string(o.first));
  add("--count", std::to_string(o.count));
  if (!o.oracle.empty()) add("--oracle", o.oracle);
  if (!o.filter.empty()) add("--filter", o.filter);
  if (!o.suites.empty()) add("--suite", o.suites[0]);
  for (const Setting& s : o.settings) add("--set", s.name + "=" + s.value);
  if (o.slow) a.emplace_back("--slow");
  if (o.list) a.emplace_back("--list");
  return a;
}

}  // namespace switchyard::check
