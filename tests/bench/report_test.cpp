// SPDX-License-Identifier: Apache-2.0
// A report is read back as it was written, and for any other file the message says which field is wrong.
#include "bench/report.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/bench/sample_report.h"

namespace switchyard::bench {
namespace {

using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string fault_of(const ordered_json& json) {
  const auto report = report_of(json);
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), Code::invalid_data);
  return report.status().message();
}

TEST(Report, IsReadBackAsWritten) {
  const ordered_json written = to_json(sample_report());
  const auto read = report_of(written);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(to_json(*read), written);
  EXPECT_EQ(read->ceilings.size(), 1u);
  EXPECT_EQ(written["configurations"][2]["state"], "out of memory");
  EXPECT_FALSE(written["configurations"][0]["cells"][0].contains("ttft")) << "only of serving";
}

TEST(Report, NumbersThatAreNoneAreNull) {
  Report report = sample_report();
  report.configurations[1].correctness->kl_mean = std::nan("");
  const ordered_json written = to_json(report);
  EXPECT_TRUE(written["configurations"][1]["correctness"]["kl_mean"].is_null());
  const auto read = report_of(written);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_TRUE(std::isnan(read->configurations[1].correctness->kl_mean));
}

TEST(Report, FaultsNameTheField) {
  const ordered_json good = to_json(sample_report());
  const auto with = [&](const char* pointer, const ordered_json& value) {
    ordered_json bad = good;
    bad[ordered_json::json_pointer(pointer)] = value;
    return fault_of(bad);
  };
  EXPECT_EQ(with("/configurations/1/cells/0/at", "512"),
            "configurations[1].cells[0].at should be a whole number from 0 to 4294967295");
  EXPECT_EQ(with("/configurations/1/cells/0/at", -1),
            "configurations[1].cells[0].at should be a whole number from 0 to 4294967295");
  EXPECT_EQ(with("/configurations/0/cells/0/samples/1", "x"),
            "configurations[0].cells[0].samples[1] should be a number");
  EXPECT_THAT(with("/configurations/0/cells/0/samples/1", -0.5),
              HasSubstr("configurations[0].cells[0]: samples[1] is -0.5"));
  EXPECT_THAT(with("/configurations/0/cells/0/tokens", 0), HasSubstr("configurations[0].cells[0]: tokens is 0"));
  EXPECT_EQ(with("/configurations/0/devices", "cpu"), "configurations[0].devices should be a list");
  EXPECT_EQ(with("/machine", 3), "machine should be an object");
  EXPECT_EQ(with("/probes/devices/0/device", 3), "probes.devices[0].device should be text");
  EXPECT_EQ(with("/configurations/0/cells/0/metric", "warp"),
            "configurations[0].cells[0].metric is wrong: there is no metric 'warp'; known: prefill, decode, serving");
  EXPECT_THAT(with("/configurations/0/state", "fine"), HasSubstr("known: measured, failed, crashed, time limit"));
  EXPECT_THAT(with("/configurations/1/name", "reference"), HasSubstr("as of another configuration"));
  ordered_json bad = good;
  bad["model"].erase("name");
  EXPECT_EQ(fault_of(bad), "model.name is missing");
}

TEST(Report, OtherFormatsAndVersionsAreRefused) {
  EXPECT_THAT(fault_of(ordered_json::array()), HasSubstr("not a report of `switchyard bench`"));
  EXPECT_THAT(fault_of({{"format", 1}}), HasSubstr("not a report"));
  EXPECT_THAT(fault_of({{"format", "something else"}}), HasSubstr("not a report"));
  EXPECT_THAT(fault_of({{"format", "switchyard.bench/2"}}),
              AllOf(HasSubstr("\"switchyard.bench/2\""), HasSubstr("reads \"switchyard.bench/1\"")));
  EXPECT_THAT(parse_report("{").status().message(), HasSubstr("not valid JSON at byte 1"));
  EXPECT_THAT(parse_report("{\"format\": 1e999}").status().message(), HasSubstr("number beyond all bounds"));
}

// Every place of the document in turn, replaced by values of every kind.
TEST(Report, MutatedDocumentsNeverCrash) {
  const ordered_json good = to_json(sample_report()), flat = good.flatten();
  const ordered_json values[] = {
      nullptr, true, -1, 1e300, 18446744073709551615u, "text", ordered_json::array({1}), ordered_json::object()};
  size_t refused = 0, next = 0;
  for (const auto& [pointer, unused] : flat.items()) {
    for (int i = 0; i < 3; ++i) {
      const ordered_json& value = values[next++ % std::size(values)];
      ordered_json bad = good;
      bad[ordered_json::json_pointer(pointer)] = value;
      const auto read = report_of(bad);
      if (!read.ok()) {
        ++refused;
      } else {
        EXPECT_TRUE(to_json(*read).is_object()) << pointer;
      }
    }
  }
  EXPECT_GT(refused, flat.size());
}

// Bytes of the text changed, cut out and doubled.
TEST(Report, MutatedTextNeverCrashes) {
  const std::string text = to_json(sample_report()).dump();
  std::mt19937 random(7);
  for (int i = 0; i < 400; ++i) {
    std::string bad = text;
    for (int k = 0; k < 3; ++k) {
      const size_t at = random() % bad.size();
      switch (random() % 3) {
        case 0:
          bad[at] = static_cast<char>(random());
          break;
        case 1:
          bad.erase(at, random() % 40);
          break;
        default:
          bad.insert(at, bad.substr(random() % bad.size(), random() % 40));
      }
    }
    const auto read = parse_report(bad);
    EXPECT_EQ(read.status().message().empty(), read.ok());
  }
}

}  // namespace
}  // namespace switchyard::bench
