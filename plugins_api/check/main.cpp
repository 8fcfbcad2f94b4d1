// switchyard-check: holds a plugin's kernels to the table of cases. Exit code 0: all passed; 1: some failed; 2: usage,
// or the plugin does not open; 77: this machine cannot do what the settings ask for.
#include <cstdio>
#include <cstring>
#include <map>

#include "plugins_api/check/check.h"

namespace {

using namespace switchyard::check;

constexpr const char* kUsage =
    "usage: switchyard-check PLUGIN.so [--oracle REFERENCE.so] [--set NAME=VALUE] [--filter TEXT] [--slow] [--errors]\n"
    "  --oracle  the reference backend; without it, results are compared with plain loops in fp64\n"
    "  --set     an option of the plugin; may be repeated\n"
    "  --filter  only checks whose name (kernel/case) contains this\n"
    "  --slow    the slow cases too\n"
    "  --errors  print each kernel's largest relative errors\n"
    "  SWITCHYARD_CHECK_SEED repeats a run, SWITCHYARD_CHECK_THREADS sets the width of the host's team (2)\n";

struct Options {
  Request request;
  std::string filter;
  bool errors = false;
};

bool parse(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (arg == "--oracle") {
      o.request.reference = value();
    } else if (arg == "--filter") {
      o.filter = value();
    } else if (arg == "--set") {
      const std::string s = value();
      const size_t at = s.find('=');
      if (at == std::string::npos) return false;
      o.request.settings.push_back({s.substr(0, at), s.substr(at + 1)});
    } else if (arg == "--slow") {
      o.request.slow = true;
    } else if (arg == "--errors") {
      o.errors = true;
    } else if (arg[0] != '-' && o.request.plugin.empty()) {
      o.request.plugin = arg;
    } else {
      return false;
    }
  }
  return !o.request.plugin.empty();
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  if (!parse(argc, argv, o)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  o.request.seed = seed_of_environment();
  Kit kit(o.request);
  if (!kit.error().empty()) {
    std::fprintf(stderr, "%s\n", kit.error().c_str());
    return kit.wrong_machine() ? kExitWrongMachine : 2;
  }
  std::vector<std::string> refusals;
  size_t failed = 0, ran = 0;
  std::map<std::string, Errors> errors;
  for (const Check& check : kit.checks(&refusals)) {
    if (check.name().find(o.filter) == std::string::npos) continue;
    const std::string problem = kit.run(check, &errors[check.kernel->name]);
    ++ran;
    if (problem.empty()) continue;
    ++failed;
    std::printf("FAILED %s\n", problem.c_str());
  }
  for (const std::string& r : refusals) std::printf("takes no case: %s\n", r.c_str());
  for (const auto& [kernel, e] : errors) {
    if (o.errors) std::printf("%-28s worst row %.2e, mean %.2e\n", kernel.c_str(), e.worst, e.mean);
  }
  std::printf("%s: %zu checks, %zu failed, seed %llu\n", kit.plugin().id().c_str(), ran, failed,
              static_cast<unsigned long long>(o.request.seed));
  return failed == 0 && ran > 0 ? 0 : 1;
}
