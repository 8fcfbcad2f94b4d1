// Reports, for people and for programs.
#pragma once

#include "plugins_api/check/judge.h"

namespace switchyard::check {

// A line for a result that is bad; "" for others.
std::string line_of(const Result& result, uint64_t seed);

// What a run came to: a line per suite and one for all.
std::string closing_text(const Report& report, const Options& options);

// {"program", "plugin", "oracle", "settings", "seed", "suites": {name: {passed, failed, unsupported, crashed, hung,
// seconds}}, "kernels": {kernel: {"taken", "refused": {why: count}, "encodings": [...], "types": [...]}}, and in `full`
// "checks": [{suite, name, verdict, why, seconds, facts}]}.
nlohmann::json to_json(const Report& report, const Options& options, bool full);

// The page docs/support.md of several plugins' summaries.
std::string support_page(const std::vector<nlohmann::json>& summaries);

}  // namespace switchyard::check
