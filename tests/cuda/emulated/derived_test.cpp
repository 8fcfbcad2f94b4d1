// SPDX-License-Identifier: Apache-2.0
// Weights that the CUDA backend derives from those of a model (host/derived.h), on the emulated device: layers of one
// and two rows whose projection computes the router's logits, with weights that are written when the list has been
// recorded, and with too little memory.
#include <gtest/gtest.h>

#include <cstdlib>

#include "plugins_api/check/kit.h"
#include "plugins_api/check/range_execution.h"
#include "switchyard/extensions.h"

namespace switchyard::check {
namespace {

// The memory of the emulated device, in MiB. The backend leaves 256 MiB of it to others.
void set_memory(const char* mib) { setenv("SWITCHYARD_EMULATED_MEMORY", mib, 1); }
constexpr const char *kPlenty = "4096", *kTooLittle = "255", *kNone = "0";

const Chain& chain_named(const std::string& name) {
  for (const Chain& chain : all_chains()) {
    if (chain.name == name) return chain;
  }
  throw Failure("there is no chain " + name);
}

// The links of a chain with contents of their own, and their results.
struct Content {
  const Plugin& plugin;
  std::vector<Case> links;
  std::vector<Outcome> wanted;

  Content(const Kit& kit, const Chain& chain, uint64_t seed) : plugin(kit.plugin()) {
    Random random(seed);
    links = build_chain(chain, random);
    wanted = one_by_one(kit, chain, links, random);
  }
  // How the results of the range with these inputs differ; "": in nothing.
  std::string difference(RangeExecution& range) const {
    return compare_chains(plugin, links, wanted, range.submit(links));
  }
};

class Derived : public testing::TestWithParam<const char*> {
 protected:
  Derived()
      : kit_({SWITCHYARD_EMULATED, {}, SWITCHYARD_REFERENCE, false, 1}),
        chain_(chain_named(GetParam())),
        first_(kit_, chain_, 1),
        other_(kit_, chain_, 2),
        table_(kit_.plugin()),
        profile_(static_cast<const swy_profile*>(kit_.plugin().extension(SWY_EXT_PROFILE))),
        range_(kit_.plugin(), table_, chain_, first_.links) {
    PluginError e;
    e.expect_ok(profile_->enable(kit_.plugin().device(), 1, e.get()), "enable");
  }
  ~Derived() override { unsetenv("SWITCHYARD_EMULATED_MEMORY"); }

  // The kernels that ran since the last call.
  uint32_t launches() const {
    std::vector<swy_profile_span> spans(64);
    auto count = static_cast<uint32_t>(spans.size());
    PluginError e;
    e.expect_ok(profile_->collect(kit_.plugin().device(), spans.data(), &count, e.get()), "collect");
    return count;
  }
  const Kit kit_;
  const Chain& chain_;
  const Content first_, other_;
  RangeTable table_;
  const swy_profile* profile_;
  RangeExecution range_;
};

// What that needs was taken when the list was recorded: no memory is free any more.
TEST_P(Derived, AreComputedAgainWhenTheirSourcesAreWritten) {
  set_memory(kPlenty);
  range_.record();
  EXPECT_EQ(first_.difference(range_), "");
  set_memory(kNone);
  for (const Content* content : {&other_, &first_}) {
    range_.write_weights(content->links);
    EXPECT_EQ(content->difference(range_), "");
  }
}

TEST_P(Derived, AreLeftOutWithoutMemoryForThem) {
  set_memory(kPlenty);
  range_.record();
  EXPECT_EQ(first_.difference(range_), "");
  const uint32_t with = launches();
  set_memory(kTooLittle);
  RangeExecution without(kit_.plugin(), table_, chain_, other_.links);
  without.record();
  EXPECT_EQ(other_.difference(without), "");
  EXPECT_EQ(launches(), with + 1) << "the router has no kernel of its own";
  without.write_weights(first_.links);
  EXPECT_EQ(first_.difference(without), "");
}

INSTANTIATE_TEST_SUITE_P(Layers, Derived, testing::Values("delta_layer", "linear2_layer"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace switchyard::check
