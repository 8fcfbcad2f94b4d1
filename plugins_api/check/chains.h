// SPDX-License-Identifier: Apache-2.0
// Chains: operations each of which reads the result of the one before it, or of another one, as in a model. For
// swy.range/1.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plugins_api/check/case.h"
#include "plugins_api/check/outcome.h"

namespace switchyard::check {

class Kit;
class Plugin;

inline constexpr size_t kBefore = SIZE_MAX, kOutside = SIZE_MAX - 1;

struct Link {
  swy_op_id op;
  std::function<void(Builder&)> operands;  // all but the step
  size_t adds = SIZE_MAX;  // of an ADD: the link whose value is input 1; SIZE_MAX: the chain's own input
  size_t reads = kBefore;  // the link whose value is input 0; kBefore: the one before; kOutside: none
};

struct Chain {
  const char* name;
  std::function<void(Builder&)> step;  // every link's; or several, one after the other on the same states
  std::vector<Link> links;
};

const std::vector<Chain>& all_chains();

// A case per link, each with its own contents.
std::vector<Case> build_chain(const Chain& chain, Random& random);

// Whether link i adds the chain's own input to the result of the link before it: any ADD of that width, unless it adds
// the value of another link.
bool adds_chain_input(const Chain& chain, const std::vector<Case>& links, size_t i);

// The link whose value is input 0 of link i, if one is.
std::optional<size_t> read_by(const Chain& chain, size_t i);

// The results of the links one by one, by the kit's oracle: of all of the chain's links, or of its first ones. Each
// link's input becomes the result of the links before it. The chain's own input is drawn again until no choice of
// experts depends on a rounding error. Throws Failure.
std::vector<Outcome> one_by_one(const Kit& kit, const Chain& chain, std::vector<Case>& links, Random& random);

// How a plugin's results of links differ from those wanted, where there are any: "" or one line.
std::string compare_chains(const Plugin& plugin, const std::vector<Case>& links, const std::vector<Outcome>& wanted,
                           const std::vector<Outcome>& got);

}  // namespace switchyard::check
