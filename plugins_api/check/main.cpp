// SPDX-License-Identifier: Apache-2.0
// switchyard-plugin-check: tests a plugin through its C ABI. --help describes its options and results.
#include <cstdio>
#include <fstream>
#include <iostream>

#include "plugins_api/check/judge.h"
#include "plugins_api/check/report.h"
#include "plugins_api/check/worker.h"

namespace switchyard::check {
namespace {

using nlohmann::json;

uint64_t the_seed = 0;

void show(const Result& result) {
  const std::string line = line_of(result, the_seed);
  if (!line.empty()) std::fprintf(stdout, "%s\n", line.c_str());
  std::fflush(stdout);
}

// "" or why it could not be written.
std::string write(const std::string& where, const std::string& all) {
  if (where.empty()) return "";
  if (where == "-") {
    std::fputs(all.c_str(), stdout);
    return "";
  }
  std::ofstream out(where);
  out << all;
  out.close();
  return out ? "" : "cannot write " + where;
}

int support(const std::vector<std::string>& files) {
  std::vector<json> claims;
  for (const std::string& file : files) {
    std::ifstream in(file);
    json j = json::parse(in, nullptr, false);
    if (!j.is_object() || !j.contains("id") || !j.contains("kernels")) {
      std::fprintf(stderr, "%s does not hold a plugin's claims; --claims FILE writes such a file\n", file.c_str());
      return 2;
    }
    claims.push_back(std::move(j));
  }
  std::fputs(support_page(claims).c_str(), stdout);
  return 0;
}

int run(const Options& options) {
  const bool quiet = options.json == "-" || options.claims == "-";
  the_seed = options.seed;
  const Report report = judge(options, quiet ? nullptr : show);
  if (!quiet && options.list) {
    for (const Result& r : report.results) std::printf("%s/%s\n", r.suite.c_str(), r.name.c_str());
  }
  const std::string text = closing_text(report, options);
  if (report.plugin.is_null()) {
    std::fputs(text.c_str(), stderr);
    return exit_code(report);  // there is nothing to report on
  }
  if (!quiet) std::fputs(text.c_str(), stdout);
  const std::string all = to_json(report, options).dump(1, ' ', false, json::error_handler_t::replace) + "\n";
  const bool has_claims = !options.claims.empty() && report.closed.empty();  // without a device there are none
  for (const std::string& problem :
       {write(options.json, all), has_claims ? write(options.claims, claims(report)) : std::string()}) {
    if (problem.empty()) continue;
    std::fprintf(stderr, "%s\n", problem.c_str());
    return 2;
  }
  return exit_code(report);
}

int check_main(int argc, char** argv) {
  Options options;
  try {
    if (const std::string problem = parse(argc, argv, &options); !problem.empty()) {
      std::fprintf(stderr, "%s\n", problem.c_str());
      return 2;
    }
    if (options.help) {
      std::fputs(help().c_str(), stdout);
      return 0;
    }
    if (options.worker_fd >= 0) return work(options);
    return options.support.empty() ? run(options) : support(options.support);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}

}  // namespace
}  // namespace switchyard::check

int main(int argc, char** argv) { return switchyard::check::check_main(argc, argv); }
