// SPDX-License-Identifier: Apache-2.0
// The pages of sessions: taken when they are needed, given back when a step is not taken, and copied when shared.
#include <gmock/gmock.h>

#include <numeric>

#include "core/program/writer.h"
#include "tests/engine/fixture.h"
#include "tests/support/files.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

std::vector<int32_t> ids(size_t n, int32_t first = 10) {
  std::vector<int32_t> out(n);
  std::iota(out.begin(), out.end(), first);
  return out;
}

// A model of so many sessions with so many pages in all.
TestModel with_pages(uint32_t sessions, uint32_t pages) {
  ModelOptions options = with_context(512);
  options.sessions = sessions;
  {
    const TestModel whole = make_model(kDemo, "reference", options);
    EXPECT_NE(whole.model, nullptr);
    for (const StatePool::Unit& u : whole.model->states().units()) {
      options.state_bytes += u.unit_bytes * (u.paged ? pages : whole.model->states().slots().count());
    }
  }
  TestModel t = make_model(kDemo, "reference", options);
  EXPECT_EQ(t.model->states().pages().count(), pages);
  return t;
}

TEST(SessionPages, AnAbandonedStepGivesThemAllBack) {
  const TestModel t = with_pages(1, 5);
  auto session = t.model->session();
  ASSERT_TRUE((*session)->feed(ids(60)).ok());
  const uint32_t free = t.model->states().pages().free();
  for (const uint32_t tokens : {4u, 5u, 68u, 69u, 200u}) {
    ASSERT_TRUE((*session)->prepare(tokens).ok());
    (*session)->abandon();
    EXPECT_EQ(t.model->states().pages().free(), free) << "60 tokens and " << tokens;
  }
}

TEST(SessionPages, AStepThatDoesNotFitKeepsNone) {
  const TestModel t = with_pages(2, 4);
  auto one = t.model->session(), two = t.model->session();
  ASSERT_TRUE((*one)->feed(ids(60)).ok());
  ASSERT_TRUE((*two)->feed(ids(60)).ok());
  ASSERT_EQ(t.model->states().pages().free(), 2u);
  EXPECT_EQ((*one)->prepare(300).code(), Code::out_of_device_memory);
  EXPECT_EQ(t.model->states().pages().free(), 2u);
  EXPECT_TRUE((*two)->feed(ids(100)).ok()) << "it needs what the other did not get";
}

// A fork copies the page that it goes on in, once; the pages before stay shared.
TEST(SessionPages, AForkCopiesOnlyThePageItWrites) {
  const TestModel t = with_pages(2, 3);
  auto parent = t.model->session();
  ASSERT_TRUE((*parent)->feed(ids(100)).ok());
  auto child = (*parent)->fork();
  ASSERT_TRUE(child.ok());
  ASSERT_EQ(t.model->states().pages().free(), 1u);
  for (int i = 0; i < 3; ++i) {
    const auto fed = (*child)->feed(ids(1));
    EXPECT_TRUE(fed.ok()) << fed.status().message();
    EXPECT_EQ(t.model->states().pages().free(), 0u);
  }
  child->reset();
  EXPECT_EQ(t.model->states().pages().free(), 1u);
  parent->reset();
  EXPECT_EQ(t.model->states().pages().free(), 3u);
}

TEST(SessionPages, AStepUnderWayIsNotForked) {
  const TestModel t = with_pages(2, 3);
  auto session = t.model->session();
  ASSERT_TRUE((*session)->feed(ids(3)).ok());
  ASSERT_TRUE((*session)->prepare(1).ok());
  const auto fork = (*session)->fork();
  EXPECT_EQ(fork.status().code(), Code::usage);
  EXPECT_THAT(fork.status().message(), HasSubstr("cannot be forked while a step of it runs"));
  (*session)->abandon();
  EXPECT_TRUE((*session)->fork().ok());
}

TEST(SessionPages, ABudgetHasAtLeastOne) {
  const TestModel whole = with_pages(1, 2);
  uint64_t slots = 0, page = 0;
  for (const StatePool::Unit& u : whole.model->states().units()) {
    (u.paged ? page : slots) += u.unit_bytes * (u.paged ? 1 : whole.model->states().slots().count());
  }
  const Registry& registry = *whole.registry;
  for (const uint64_t bytes : {slots + page - 1, slots + page}) {
    ModelOptions options = with_context(512);
    options.state_bytes = bytes;
    auto selection = registry.select("reference");
    auto program = Program::load(Os::real(), kDemo);
    ASSERT_TRUE(selection.ok() && program.ok());
    const auto model = Model::create(std::make_shared<const Program>(std::move(*program)),
                                     std::move(selection->devices), selection->policy, options);
    EXPECT_EQ(model.ok(), bytes == slots + page) << model.status().message();
  }
}

// What a session saw decides its snapshot, not what other sessions left in its pages.
TEST(SessionPages, ASnapshotHoldsNothingOfOthers) {
  const TestModel t = with_pages(1, 2);
  auto session = t.model->session();
  ASSERT_TRUE((*session)->feed(ids(20)).ok());
  const std::string fresh = *(*session)->snapshot();
  (*session)->reset();
  ASSERT_TRUE((*session)->feed(ids(100, 500)).ok());
  (*session)->reset();
  ASSERT_TRUE((*session)->feed(ids(20)).ok());
  EXPECT_TRUE(*(*session)->snapshot() == fresh);
}

// The demo model with one byte of one weight changed is another model.
TEST(SessionPages, ASnapshotIsOfTheseWeights) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("other.swy");
  {
    auto program = Program::load(Os::real(), kDemo);
    ASSERT_TRUE(program.ok());
    ProgramSpec spec = spec_of(*program);
    auto writer = ProgramWriter::create(Os::real(), path, spec);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    for (size_t i = 0; i < spec.tensors.size(); ++i) {
      const auto bytes = program->segment_bytes(program->tensors[i]);
      std::vector<std::byte> copy(bytes.begin(), bytes.end());
      if (i == 0) copy[0] ^= std::byte{1};
      ASSERT_TRUE(writer->write_segment(i, copy).ok());
    }
    ASSERT_TRUE(writer->finish().ok());
  }
  const TestModel demo = make_model(kDemo, "reference", with_context(64)),
                  other = make_model(path, "reference", with_context(64));
  ASSERT_TRUE(demo.model != nullptr && other.model != nullptr);
  auto session = demo.model->session(), elsewhere = other.model->session();
  ASSERT_TRUE((*session)->feed(ids(3)).ok());
  EXPECT_THAT((*elsewhere)->restore(*(*session)->snapshot()).message(), HasSubstr("of another model"));
}

}  // namespace
}  // namespace switchyard
