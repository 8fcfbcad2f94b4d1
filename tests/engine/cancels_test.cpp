// SPDX-License-Identifier: Apache-2.0
// Ten thousand cancels at random points: between steps, out of callbacks, before the first step, with sessions that end
// with their requests and batches that end with everything in them. Nothing leaks, and whoever survives is unchanged.
#include <malloc.h>

#include <cstdio>

#include "tests/engine/fixture.h"
#include "tests/support/batches.h"

namespace switchyard {
namespace {

constexpr uint32_t kSessions = 8, kSurvivors = 2, kKept = 6;

struct Cancelling {
  const char* backend;
  uint32_t cancels;
};

uint64_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

uint64_t resident_bytes() {
  unsigned long long size = 0, resident = 0;
  std::FILE* f = std::fopen("/proc/self/statm", "r");
  if (f != nullptr && std::fscanf(f, "%llu %llu", &size, &resident) != 2) resident = 0;
  if (f != nullptr) std::fclose(f);
  return resident * 4096;
}

class Cancels : public ::testing::TestWithParam<Cancelling> {
 protected:
  struct Other {
    std::unique_ptr<Session> session;
    Batch::Id id = 0;
    uint32_t tokens = 0;         // that it drew
    uint32_t cancels_after = 0;  // from its own callback; 0: cancelled from outside
  };
  struct Survivor {
    std::unique_ptr<Session> session;
    Batch::Id id = 0;
    size_t request = 0;
    Drawn drawn;
  };

  Model& model() { return *t_.model; }

  void add_other() {
    auto other = std::make_unique<Other>();
    other->session = *model().session();
    Request r = request_of(random_ids(random_, 1 + random_() % (random_() % 16 == 0 ? 100 : 6), model().vocab()),
                           random_params(random_, model().vocab()), 1000);
    if (random_() % 4 == 0) other->cancels_after = 1 + random_() % 5;
    r.on_token = [this, o = other.get()](const TokenEvent&) {
      if (++o->tokens == o->cancels_after) batch_->cancel(o->id);
      return true;
    };
    const auto id = batch_->add(*other->session, std::move(r));
    ASSERT_TRUE(id.ok()) << id.status().message();
    other->id = *id;
    others_.push_back(std::move(other));
  }

  void forget(size_t victim) {
    batch_->cancel(others_[victim]->id);
    const Outcome outcome = *batch_->take(others_[victim]->id);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_EQ(outcome.stopped, StopReason::cancelled);
    EXPECT_EQ(outcome.ids.size(), others_[victim]->tokens);
    others_.erase(others_.begin() + static_cast<ptrdiff_t>(victim));
    ++cancelled_;
  }

  // The batch goes with everything in it; its survivors begin anew.
  void drop_batch() {
    batch_.reset();
    cancelled_ += static_cast<uint32_t>(others_.size());
    others_.clear();
    survivors_.clear();
    EXPECT_EQ(model().states().sessions(), 0u);
    EXPECT_EQ(model().states().slots().free(), model().states().slots().count());
    EXPECT_EQ(model().states().pages().free(), model().states().pages().count());
    EXPECT_EQ(model().runner().in_flight(), 0u);
    batch_ = std::make_unique<Batch>(model(), BatchOptions{32});
  }

  void look_after_survivors() {
    while (survivors_.size() < kSurvivors) {
      auto& s = *survivors_.emplace_back(std::make_unique<Survivor>());
      s.session = *model().session();
      s.request = random_() % kKept;
      const Request& kept = kept_[s.request];
      const auto id = batch_->add(*s.session, request_of(kept.prompt, kept.sampling, kept.max_tokens, &s.drawn));
      ASSERT_TRUE(id.ok()) << id.status().message();
      s.id = *id;
    }
    for (size_t i = 0; i < survivors_.size(); ++i) {
      Survivor& s = *survivors_[i];
      if (batch_->running(s.id)) continue;
      EXPECT_EQ(batch_->take(s.id)->stopped, StopReason::length);
      EXPECT_TRUE(s.drawn == expected_[s.request]) << "a survivor after " << cancelled_ << " cancels";
      EXPECT_TRUE(*s.session->snapshot() == states_[s.request]) << "a survivor after " << cancelled_ << " cancels";
      ++survived_;
      survivors_.erase(survivors_.begin() + static_cast<ptrdiff_t>(i--));
    }
  }

  void expect_kept() {
    for (uint32_t i = 0; i < kKept; ++i) {
      kept_.push_back(request_of(random_ids(random_, 1 + random_() % 40, model().vocab()),
                                 random_params(random_, model().vocab()), 10 + random_() % 20));
      auto session = model().session();
      Batch alone(model());
      Drawn drawn;
      const auto id = alone.add(**session, request_of(kept_[i].prompt, kept_[i].sampling, kept_[i].max_tokens, &drawn));
      ASSERT_TRUE(id.ok() && alone.run(*id).ok());
      expected_.push_back(drawn);
      states_.push_back(*(*session)->snapshot());
    }
  }

  void run_until(uint32_t cancels) {
    uint32_t next_drop = cancelled_ + 200;
    while (cancelled_ < cancels) {
      look_after_survivors();
      while (others_.size() < kSessions - kSurvivors) ASSERT_NO_FATAL_FAILURE(add_other());
      const uint32_t steps = random_() % 4;
      for (uint32_t i = 0; i < steps; ++i) ASSERT_TRUE(batch_->step().ok());
      for (size_t i = others_.size(); i-- > 0;) {
        if (!batch_->running(others_[i]->id) || random_() % 2 == 0) forget(i);
      }
      if (cancelled_ > next_drop) {
        drop_batch();
        next_drop += 200;
      }
    }
    drop_batch();
  }

  TestModel t_;
  std::mt19937 random_{10000};
  std::vector<Request> kept_;
  std::vector<Drawn> expected_;
  std::vector<std::string> states_;
  std::unique_ptr<Batch> batch_;
  std::vector<std::unique_ptr<Other>> others_;
  std::vector<std::unique_ptr<Survivor>> survivors_;
  uint32_t cancelled_ = 0, survived_ = 0;
};

// The same cancels twice: the second half needs nothing that the first has not recorded or reserved.
TEST_P(Cancels, LeakNothing) {
  t_ = make_model(SWITCHYARD_DEMO_MODEL, GetParam().backend, options_for(kSessions), SWITCHYARD_FIXTURES);
  ASSERT_NE(t_.model, nullptr);
  ASSERT_NO_FATAL_FAILURE(expect_kept());
  uint64_t heap = 0, resident = 0;
  for (int half = 0; half < 2; ++half) {
    random_.seed(10000);
    batch_ = std::make_unique<Batch>(model(), BatchOptions{32});
    heap = heap_bytes();
    resident = resident_bytes();
    ASSERT_NO_FATAL_FAILURE(run_until(cancelled_ + GetParam().cancels / 2));
    batch_.reset();
  }
  const auto grown = static_cast<int64_t>(heap_bytes() - heap);
  const auto resident_grown = static_cast<int64_t>(resident_bytes() - resident);
  std::printf("%s: %u cancels, %u survivors; in the second half the heap grew by %lld bytes, the process by %lld\n",
              GetParam().backend, cancelled_, survived_, static_cast<long long>(grown),
              static_cast<long long>(resident_grown));
  EXPECT_GT(survived_, GetParam().cancels / 500);
  EXPECT_LT(grown, 4096) << "the smallest leak of every cancel is several times that";
  EXPECT_LT(resident_grown, 4 << 20);
}

#ifdef SWITCHYARD_TEST_CPU
INSTANTIATE_TEST_SUITE_P(Backends, Cancels, ::testing::Values(Cancelling{"cpu", 10000}, Cancelling{"late", 1000}));
#else
INSTANTIATE_TEST_SUITE_P(Backends, Cancels, ::testing::Values(Cancelling{"late", 1000}));
#endif

}  // namespace
}  // namespace switchyard
