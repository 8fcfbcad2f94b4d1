// SPDX-License-Identifier: Apache-2.0
// Reports, for people and for programs.
#pragma once

#include "plugins_api/check/judge.h"

namespace switchyard::check {

// A line for a result that is bad; "" for others.
std::string line_of(const Result& result, uint64_t seed);

// The result of a run: a line per suite and one for all.
std::string closing_text(const Report& report, const Options& options);

// {"program", "plugin", "path", "oracle", "settings", "seed", "closed",
// "suites": {name: {passed, failed, unsupported, crashed, hung, seconds}},
// "checks": [{suite, name, verdict, why, seconds, facts}]}
nlohmann::json to_json(const Report& report, const Options& options);

// The facts about a plugin that docs/support.md shows, as JSON with one line per kernel.
std::string claims(const Report& report);

// The page docs/support.md, made of several plugins' claims.
std::string support_page(const std::vector<nlohmann::json>& claims);

}  // namespace switchyard::check
