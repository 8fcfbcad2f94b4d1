// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/suite.h"

#include "plugins_api/check/host.h"
#include "plugins_api/check/kit.h"
#include "plugins_api/check/suites.h"

namespace switchyard::check {

Session::Session(const Options& options) : options_(options) {}
Session::~Session() = default;

Kit& Session::kit() {
  if (kit_ == nullptr) {
    kit_ = std::make_unique<Kit>(
        Request{options_.plugin, options_.settings, options_.oracle, options_.slow, options_.seed, options_.one_in});
  }
  if (!kit_->error().empty()) throw Failure(kit_->error());
  return *kit_;
}

const std::vector<Suite>& all_suites() {
  static const std::vector<Suite> all = {
      kNegotiationSuite, kAbiSuite,     kDeviceSuite,  kSizesSuite,  kErrorsSuite, kStatesSuite,  kCopiesSuite,
      kTimelinesSuite,   kThreadsSuite, kMemorySuite,  kGuardsSuite, kReplaySuite, kNumbersSuite, kRacesSuite,
      kSamplingSuite,    kRangeSuite,   kProfileSuite, kAheadSuite,  kOpsSuite};
  return all;
}

const Suite* suite_named(const std::string& name) {
  for (const Suite& s : all_suites()) {
    if (name == s.name) return &s;
  }
  return nullptr;
}

}  // namespace switchyard::check
