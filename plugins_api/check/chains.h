// Chains: operations of which each reads what the one before gives, as a model has them. For swy.range/1.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plugins_api/check/case.h"
#include "plugins_api/check/outcome.h"

namespace switchyard::check {

class Kit;

struct Link {
  swy_op_id op;
  std::function<void(Builder&)> operands;  // all but the step; input 0 is what the link before gives
  size_t adds = SIZE_MAX;  // of an ADD: the link whose value is input 1; SIZE_MAX: the chain's own input
};

struct Chain {
  const char* name;
  std::function<void(Builder&)> step;  // every link's
  std::vector<Link> links;
};

const std::vector<Chain>& all_chains();

// A case per link, with contents of their own.
std::vector<Case> build_chain(const Chain& chain, Random& random);

// Whether link i adds the chain's own input to what the link before gives: any ADD as wide as that, unless it adds the
// value of another link.
bool adds_chain_input(const Chain& chain, const std::vector<Case>& links, size_t i);

// What the links give one by one, by the kit's oracle: all of the chain's, or its first ones. Their inputs become what
// the links before them give, and the chain's own is drawn anew until no choice of experts hangs on a rounding error.
// Throws Failure.
std::vector<Outcome> one_by_one(const Kit& kit, const Chain& chain, std::vector<Case>& links, Random& random);

}  // namespace switchyard::check
