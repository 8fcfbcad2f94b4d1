// ops_test PLUGIN.so [--oracle REFERENCE.so] [--set NAME=VALUE]... [--slow] [gtest flags]
#include <cstdio>
#include <set>

#include "tests/ops/op_test.h"

namespace switchyard::check {
namespace {

Request request;
Kit* kit = nullptr;
std::vector<std::string> refusals;

bool parse(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--slow") {
      request.slow = true;
    } else if (arg == "--oracle" && i + 1 < argc) {
      request.reference = argv[++i];
    } else if (arg == "--set" && i + 1 < argc) {
      const std::string setting = argv[++i];
      const size_t at = setting.find('=');
      if (at == std::string::npos) return false;
      request.settings.push_back({setting.substr(0, at), setting.substr(at + 1)});
    } else if (arg[0] != '-' && request.plugin.empty()) {
      request.plugin = arg;
    } else {
      return false;
    }
  }
  return !request.plugin.empty();
}

}  // namespace

Kit& the_kit() { return *kit; }

const std::vector<Check>& all_checks() {
  static const std::vector<Check> checks = kit->checks(&refusals);
  return checks;
}

namespace {

// For every operation of the table that the backend has kernels of, some kernel takes some case.
TEST(Kernels, CoverTheirOperations) {
  std::set<swy_op_id> ran, there, table;
  for (const CaseSpec& s : all_cases()) table.insert(s.op);
  for (const Check& c : all_checks()) ran.insert(c.spec->op);
  for (const swy_kernel* k : the_kit().plugin().kernels()) {
    if (table.contains(k->op)) there.insert(k->op);
  }
  std::string reasons;
  for (const std::string& r : refusals) reasons += r + "\n";
  for (const swy_op_id op : there) EXPECT_TRUE(ran.contains(op)) << op_name(op) << " is not checked:\n" << reasons;
  EXPECT_FALSE(ran.empty());
}

}  // namespace
}  // namespace switchyard::check

int main(int argc, char** argv) {
  using namespace switchyard::check;
  std::vector<char*> gtest = {argv[0]}, ours = {argv[0]};
  for (int i = 1; i < argc; ++i) {
    (std::string(argv[i]).starts_with("--gtest_") ? gtest : ours).push_back(argv[i]);
  }
  if (!parse(static_cast<int>(ours.size()), ours.data())) {
    std::fputs("usage: ops_test PLUGIN.so [--oracle REFERENCE.so] [--set NAME=VALUE]... [--slow] [gtest flags]\n",
               stderr);
    return 2;
  }
  request.seed = seed_of_environment();
  Kit opened(request);
  kit = &opened;
  if (!opened.error().empty()) {
    std::fprintf(stderr, "%s\n", opened.error().c_str());
    return opened.wrong_machine() ? kExitWrongMachine : 2;
  }
  for (const std::string& r : (all_checks(), refusals)) std::printf("takes no case: %s\n", r.c_str());
  std::printf("%zu checks, SWITCHYARD_CHECK_SEED=%llu\n", all_checks().size(),
              static_cast<unsigned long long>(request.seed));
  int count = static_cast<int>(gtest.size());
  gtest.push_back(nullptr);
  ::testing::InitGoogleTest(&count, gtest.data());
  return RUN_ALL_TESTS();
}
