// SPDX-License-Identifier: Apache-2.0
// ahead: swy.ahead/1. Steps that one list has give what lists of their own give, one after the other: each reads its
// own block, the token that the step before drew, and the keys and values that all before it appended.
#include <cmath>

#include "plugins_api/check/joined_steps.h"
#include "plugins_api/check/kit.h"
#include "plugins_api/check/suites.h"

namespace switchyard::check {
namespace {

// "" if they are as near as two orders of the same sums; what one has never written, the other has not.
std::string difference(const char* what, const std::vector<double>& wanted, const std::vector<double>& got) {
  constexpr double kBudget = 2e-2;
  if (wanted.size() != got.size()) return text(what, " are ", got.size(), ", not ", wanted.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (std::isnan(wanted[i]) != std::isnan(got[i])) return text(what, ": element ", i, " is ", got[i]);
    if (std::isnan(wanted[i])) continue;
    difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  const double error = difference == 0 ? 0 : std::sqrt(difference / norm);
  return error <= kBudget ? "" : text(what, " have a relative error of ", error);
}

std::string tokens(const std::vector<int32_t>& wanted, const std::vector<int32_t>& got) {
  for (size_t s = 0; s < wanted.size(); ++s) {
    if (got[s] != wanted[s]) return text("step ", s, " drew token ", got[s], ", not ", wanted[s]);
  }
  return "";
}

std::string joined(const Kit& kit, JoinedSteps::Shape shape) {
  const uint64_t seed = kit.request().seed;
  const auto* ahead = static_cast<const swy_ahead*>(kit.plugin().extension(SWY_EXT_AHEAD));
  const JoinedSteps apart(kit.plugin(), seed, shape, nullptr), one(kit.plugin(), seed, shape, ahead);
  for (const int32_t token : {5, 60}) {
    const JoinedSteps::Left wanted = apart.run(token), got = one.run(token);
    std::string problem = tokens(JoinedSteps::walk(token), wanted.tokens);
    if (!problem.empty()) return "in lists of their own, " + problem;
    problem = tokens(wanted.tokens, got.tokens);
    if (problem.empty()) problem = difference("the keys and values", wanted.keys, got.keys);
    if (problem.empty()) problem = difference("the sums of the last step", wanted.sums, got.sums);
    if (problem.empty()) problem = difference("the rows that the last step gathered", wanted.gathered, got.gathered);
    if (!problem.empty()) return text("in a list of ", JoinedSteps::kSteps, " steps, ", problem);
  }
  return "";
}

std::vector<Task> list(Session& session, std::vector<Refusal>* refusals) {
  Kit& kit = session.kit();
  if (kit.plugin().extension(SWY_EXT_AHEAD) == nullptr) {
    refusals->push_back({"steps", "the plugin has no " SWY_EXT_AHEAD, {}});
    return {};
  }
  return {{"steps_of_a_row", [&kit] { return joined(kit, {}); }, {}},
          {"several_rows_first",
           [&kit] {
             return joined(kit, {3, true});
           },
           {}}};
}

}  // namespace

const Suite kAheadSuite = {"ahead", "swy.ahead/1: steps in one list give what lists of their own give", true, false, {},
                           list};

}  // namespace switchyard::check
