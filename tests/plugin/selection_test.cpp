// SPDX-License-Identifier: Apache-2.0
// --backend: names, lists, indices, and the messages if one cannot be used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plugin/support.h"

namespace switchyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

Status failure(const Registry& r, const std::string& backend) {
  const auto s = r.select(backend);
  EXPECT_FALSE(s.ok()) << backend;
  return s.status();
}

TEST(Selection, TakesNamesListsAndIndices) {
  const Registry r = discover({fixture("good"), fixture("misbehaving")});
  const auto one = r.select("good:0");
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_TRUE(one->policy.ordered);
  EXPECT_EQ(one->devices[0]->plan().name, "good:0");
  const auto two = r.select("misbehaving,good");
  ASSERT_TRUE(two.ok()) << two.status().message();
  ASSERT_THAT(two->devices, SizeIs(2));
  EXPECT_EQ(two->devices[0]->plan().name, "misbehaving:0");
  const auto all = r.select("auto");
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_THAT(all->devices, SizeIs(2));
  EXPECT_FALSE(all->policy.ordered);
}

TEST(Selection, SaysWhatThereIs) {
  const Registry r = discover({fixture("good"), fixture("other_abi"), fixture("misbehaving")});
  EXPECT_EQ(failure(r, "rocket").code(), Code::not_found);
  EXPECT_EQ(failure(r, "rocket").message(),
            "there is no backend 'rocket'; found: good, misbehaving; see switchyard backends --explain");
  EXPECT_EQ(failure(r, "good:1").message(), "backend good has 1 devices, there is no good:1");
  EXPECT_EQ(failure(r, "good:x").message(), "'good:x' names no device; write good:0, good:1, …");
  EXPECT_EQ(failure(r, "good:").message(), "'good:' names no device; write good:0, good:1, …");
  EXPECT_EQ(failure(r, "good:99999").code(), Code::usage);
  EXPECT_EQ(failure(r, "good,good:0").message(), "--backend names good:0 twice");
  EXPECT_EQ(failure(r, ",").message(), "--backend is empty; name a backend, or auto");
  EXPECT_EQ(failure(r, "").message(), "--backend is empty; name a backend, or auto");
}

TEST(Selection, SaysWhyABackendThatIsThereCannotBeUsed) {
  EXPECT_THAT(failure(discover({fixture("other_abi")}), "good").message(),
              AllOf(HasSubstr("backend 'good' cannot be used: "), HasSubstr("speaks ABI 2 to 2")));
  const Registry no_device = discover({fixture("no_device")});
  EXPECT_EQ(failure(no_device, "good").message(),
            "backend good has 0 devices, there is no good:0: no accelerator is plugged in");
  EXPECT_EQ(failure(no_device, "auto").message(),
            "no backend can be used; backend good has 0 devices, there is no good:0: no accelerator is plugged in; "
            "see switchyard backends --explain");
  EXPECT_EQ(failure(discover({}), "auto").message(), "no backend can be used; see switchyard backends --explain");
}

TEST(Selection, ChecksOptions) {
  DiscoveryOptions options;
  options.libraries = {fixture("misbehaving")};
  options.settings["misbehaving"] = {{"speed", "11"}};
  const Registry r = Registry::discover(Os::real(), options, test_host());
  EXPECT_EQ(failure(r, "misbehaving").code(), Code::usage);
  EXPECT_EQ(failure(r, "misbehaving").message(), "backend misbehaving has no option 'speed'; it has fault");
}

TEST(Selection, ChecksSettingsOfAllBackends) {
  const auto checked = [](const std::string& id, const Setting& setting) {
    DiscoveryOptions options;
    options.libraries = {fixture("misbehaving")};
    options.settings[id] = {setting};
    return Registry::discover(Os::real(), options, test_host()).check_settings();
  };
  EXPECT_TRUE(checked("misbehaving", {"fault", "0"}).ok());
  EXPECT_EQ(checked("misbehaving", {"speed", "11"}).code(), Code::usage);
  EXPECT_EQ(checked("good", {"speed", "11"}).message(),
            "--set good.speed: there is no backend 'good'; found: misbehaving");
}

TEST(Selection, ChecksFilesThatWereNamed) {
  EXPECT_TRUE(discover({fixture("good")}).check_libraries().ok());
  const Status status = discover({fixture("good"), fixture("other_abi")}).check_libraries();
  EXPECT_EQ(status.code(), Code::invalid_data);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("--backend-lib /"), HasSubstr("other_abi.so: speaks ABI 2 to 2")));
}

}  // namespace
}  // namespace switchyard::testing
