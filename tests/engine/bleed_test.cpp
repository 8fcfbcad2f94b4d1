// SPDX-License-Identifier: Apache-2.0
// Sixty-four sessions that begin, fork, are cancelled and end at random in shared steps: each gets the tokens that it
// gets alone, and has the same states at the end, bit for bit.
#include <array>

#include "tests/engine/fixture.h"
#include "tests/support/batches.h"

namespace switchyard {
namespace {

constexpr uint32_t kFamilies = 32;  // of a session and its fork

// One request of a session, which is cancelled after so many tokens unless it ends before.
struct Part {
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  uint32_t tokens = 0, cancelled_after = 0;
  std::optional<SamplingPath> path;
};

// A session's first request; then one of its own and one of its fork.
struct Family {
  std::array<Part, 3> parts;
};

struct Told {
  Drawn drawn;
  std::string states;
};

Part random_part(std::mt19937& random, const Model& model) {
  Part p;
  p.prompt = random_ids(random, 1 + random() % (random() % 4 == 0 ? 120 : 20), model.vocab());
  p.sampling = random_params(random, model.vocab());
  p.tokens = 1 + random() % 15;
  p.cancelled_after = random() % 3 == 0 ? 1 + random() % p.tokens : p.tokens;
  if (model.device_sampling().token) p.path = static_cast<SamplingPath>(random() % 3);
  return p;
}

Request request_for(const Part& part, const std::vector<int32_t>& history, Drawn* drawn) {
  Request r = request_of(part.prompt, part.sampling, part.tokens, drawn);
  r.path = part.path;
  r.history = history;
  return r;
}

// The tokens that a session has seen after a part that generated `drawn`.
std::vector<int32_t> seen_after(const Part& part, const Drawn& drawn) {
  std::vector<int32_t> seen = part.prompt;
  seen.insert(seen.end(), drawn.ids.begin(), drawn.ids.end() - 1);
  return seen;
}

// The part on a session alone; a cancelled one generates only its tokens until then.
Told tell_alone(Model& model, Session& session, Part part, const std::vector<int32_t>& history) {
  Told told;
  part.tokens = part.cancelled_after;
  Batch batch(model);
  const auto id = batch.add(session, request_for(part, history, &told.drawn));
  EXPECT_TRUE(id.ok()) << id.status().message();
  EXPECT_TRUE(batch.run(*id).ok());
  told.states = *session.snapshot();
  return told;
}

// All families at once; `told` gets the three parts of each.
class Together {
 public:
  Together(Model& model, const std::vector<Family>& families, std::vector<std::array<Told, 3>>& told)
      : model_(model), families_(families), told_(told), batch_(model, {48}), members_(families.size()) {}

  void run(std::mt19937& random) {
    for (bool more = true; more || begun_ < families_.size();) {
      while (begun_ < families_.size() && random() % 2 == 0) {
        members_[begun_][0].session = *model_.session();
        begin(begun_, 0, 0, {});
        ++begun_;
      }
      const auto stepped = batch_.step();
      ASSERT_TRUE(stepped.ok()) << stepped.status().message();
      more = *stepped;
      for (size_t f = 0; f < begun_; ++f) look_after(f);
    }
  }

 private:
  struct Member {
    std::unique_ptr<Session> session;
    size_t part = 0;
    Batch::Id id = 0;
    bool running = false;
  };

  void begin(size_t family, size_t member, size_t part, const std::vector<int32_t>& history) {
    Member& m = members_[family][member];
    m.part = part;
    const auto id =
        batch_.add(*m.session, request_for(families_[family].parts[part], history, &told_[family][part].drawn));
    ASSERT_TRUE(id.ok()) << id.status().message();
    m.id = *id;
    m.running = true;
  }

  void look_after(size_t family) {
    for (Member& m : members_[family]) {
      if (!m.running) continue;
      Told& told = told_[family][m.part];
      const Part& part = families_[family].parts[m.part];
      if (told.drawn.ids.size() == part.cancelled_after) batch_.cancel(m.id);
      if (batch_.running(m.id)) continue;
      const Outcome outcome = *batch_.take(m.id);
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
      told.states = *m.session->snapshot();
      m.running = false;
      if (m.part != 0) {
        m.session.reset();
        continue;
      }
      auto fork = m.session->fork();
      ASSERT_TRUE(fork.ok()) << fork.status().message();
      members_[family][1].session = std::move(*fork);
      const std::vector<int32_t> seen = seen_after(part, told.drawn);
      begin(family, 0, 1, seen);
      begin(family, 1, 2, seen);
      return;  // they have taken no step yet
    }
  }

  Model& model_;
  const std::vector<Family>& families_;
  std::vector<std::array<Told, 3>>& told_;
  Batch batch_;
  std::vector<std::array<Member, 2>> members_;
  size_t begun_ = 0;
};

class Bleed : public ::testing::TestWithParam<const char*> {};

TEST_P(Bleed, NoneAmongSixtyFourSessions) {
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, GetParam(), options_for(2 * kFamilies), SWITCHYARD_FIXTURES);
  ASSERT_NE(t.model, nullptr);
  const uint32_t slots = t.model->states().slots().free(), pages = t.model->states().pages().free();
  std::mt19937 random(64);
  std::vector<Family> families(kFamilies);
  for (Family& f : families) {
    for (Part& p : f.parts) p = random_part(random, *t.model);
  }
  std::vector<std::array<Told, 3>> told(kFamilies);
  ASSERT_NO_FATAL_FAILURE(Together(*t.model, families, told).run(random));
  EXPECT_EQ(t.model->states().slots().free(), slots);
  EXPECT_EQ(t.model->states().pages().free(), pages);
  uint32_t equal = 0;
  for (uint32_t f = 0; f < kFamilies; ++f) {
    for (const size_t second : {1, 2}) {
      auto session = t.model->session();
      std::array<Told, 2> alone;
      alone[0] = tell_alone(*t.model, **session, families[f].parts[0], {});
      alone[1] =
          tell_alone(*t.model, **session, families[f].parts[second], seen_after(families[f].parts[0], alone[0].drawn));
      const std::array<const Told*, 2> among = {&told[f][0], &told[f][second]};
      for (int i = 0; i < 2; ++i) {
        EXPECT_TRUE(alone[i].drawn == among[i]->drawn) << "family " << f << ", part " << (i == 0 ? 0 : second);
        EXPECT_TRUE(alone[i].states == among[i]->states) << "family " << f << ", part " << (i == 0 ? 0 : second);
        equal += alone[i].drawn == among[i]->drawn && alone[i].states == among[i]->states;
      }
    }
  }
  std::printf("%s: %u of %u parts of 64 sessions are as alone, tokens and states\n", GetParam(), equal, 4 * kFamilies);
}

#ifdef SWITCHYARD_TEST_CPU
INSTANTIATE_TEST_SUITE_P(Backends, Bleed, ::testing::Values("reference", "cpu", "late"));
#else
INSTANTIATE_TEST_SUITE_P(Backends, Bleed, ::testing::Values("reference", "late"));
#endif

}  // namespace
}  // namespace switchyard
