// SPDX-License-Identifier: Apache-2.0
// range: swy.range/1 and swy.range/2. A claimed range gives the results of its operations one by one, including values
// that are read outside, and from its stored form. A plugin that offers the extension must accept some range.
#include "plugins_api/check/chains.h"
#include "plugins_api/check/kit.h"
#include "plugins_api/check/range_execution.h"
#include "plugins_api/check/suites.h"

namespace switchyard::check {
namespace {

// How many operations of the chain the plugin takes, and in *why, why not all.
uint32_t claimed(const Kit& kit, const Chain& chain, std::string* why) {
  Random shapes = Random::shapes_only();
  std::vector<Case> links = build_chain(chain, shapes);
  RangeTable table(kit.plugin());
  RangeExecution whole(kit.plugin(), table, chain, links);
  const uint32_t taken = whole.claim();
  *why = whole.why().empty() ? "no reason given" : whole.why();
  if (taken == 0) return 0;
  links.resize(taken);
  RangeExecution range(kit.plugin(), table, chain, links);
  if (range.accept()) return taken;
  *why = range.why().empty() ? "it does not ask which values are read outside" : range.why();
  return 0;
}

// How the range differs from its operations; "": in nothing.
std::string difference(const Kit& kit, RangeExecution& range, const std::vector<Case>& links,
                       const std::vector<Outcome>& wanted, bool stored = false) {
  range.record(stored);
  for (const char* when : {"", "submitted again: "}) {
    const std::string problem = compare_chains(kit.plugin(), links, wanted, range.submit());
    if (!problem.empty()) return when + problem;
  }
  return "";
}

// The links of the chain that the plugin accepts, and their results one by one.
struct Taken {
  std::vector<Case> links;
  std::vector<Outcome> wanted;
};

Taken take(const Kit& kit, const Chain& chain) {
  std::string why;
  const uint32_t count = claimed(kit, chain, &why);
  if (count == 0) throw Unsupported(why);
  Random random(derive(kit.request().seed, chain.name));
  Taken t{build_chain(chain, random), {}};
  t.links.resize(count);
  t.wanted = one_by_one(kit, chain, t.links, random);
  return t;
}

std::string same_as_one_by_one(const Kit& kit, const Chain& chain, bool stored) {
  const Taken t = take(kit, chain);
  RangeTable table(kit.plugin());
  RangeExecution range(kit.plugin(), table, chain, t.links);
  const std::string problem = difference(kit, range, t.links, t.wanted, stored);
  return problem.empty() ? "" : text("the range ", chain.name, " differs from its operations: ", problem);
}

// The same with each value inside the range read by others, too: it is written, or the range is refused.
std::string writes_what_is_kept(const Kit& kit, const Chain& chain) {
  const Taken t = take(kit, chain);
  std::string why = "it does not ask which values are read outside";
  bool some = false;
  RangeTable table(kit.plugin());  // so that ranges with equal keys share what was compiled
  for (size_t also = 0; also + 1 < t.links.size(); ++also) {
    RangeExecution range(kit.plugin(), table, chain, t.links, also);
    if (!range.accept()) {
      if (!range.why().empty()) why = range.why();
      continue;
    }
    some = true;
    const std::string problem = difference(kit, range, t.links, t.wanted);
    if (!problem.empty()) {
      return text("the range ", chain.name, ", the value of whose operation ", also,
                  " is read outside, differs from its operations: ", problem);
    }
  }
  if (!some) throw Unsupported(why);
  return "";
}

std::string takes_some(const Kit& kit) {
  std::string all;
  for (const Chain& chain : all_chains()) {
    std::string why;
    if (claimed(kit, chain, &why) != 0) return "";
    all += text(all.empty() ? "" : "; ", chain.name, ": ", why);
  }
  return text(RangeTable(kit.plugin()).name(), " is there and takes no range that the kit knows: ", all);
}

std::vector<Task> list(Session& session, std::vector<Refusal>* refusals) {
  Kit& kit = session.kit();
  const bool first = kit.plugin().extension(SWY_EXT_RANGE) != nullptr;
  const bool second = kit.plugin().extension(SWY_EXT_RANGE_2) != nullptr;
  if (!first && !second) {
    refusals->push_back({"chains", "the plugin has no " SWY_EXT_RANGE " and no " SWY_EXT_RANGE_2, {}});
    return {};
  }
  std::vector<Task> tasks = {{"takes_some", [&kit] { return takes_some(kit); }, {}}};
  for (const Chain& chain : all_chains()) {
    tasks.push_back({chain.name, [&kit, &chain] { return same_as_one_by_one(kit, chain, false); }, {}});
    tasks.push_back(
        {std::string(chain.name) + "_kept", [&kit, &chain] { return writes_what_is_kept(kit, chain); }, {}});
    if (!second) continue;
    tasks.push_back({std::string(chain.name) + "_stored",
                     [&kit, &chain] {
                       if (!RangeTable(kit.plugin()).stores()) throw Unsupported("the plugin stores nothing");
                       return same_as_one_by_one(kit, chain, true);
                     },
                     {}});
  }
  return tasks;
}

}  // namespace

const Suite kRangeSuite = {"range", "swy.range/1, swy.range/2: a range gives what its operations give", true, false, {},
                           list};

}  // namespace switchyard::check
