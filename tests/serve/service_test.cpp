// SPDX-License-Identifier: Apache-2.0
// Requests through a service: they draw what they would alone, whatever runs beside them, and end when they should.
#include <thread>

#include "tests/serve/fixture.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

uint64_t now() { return Os::real().now_ns(); }

TEST(Service, DrawsWhatEachRequestDrawsAlone) {
  const ModelOptions options = options_for(3);
  Alone alone(options);
  const auto service = serve(options);
  std::mt19937 random(5);
  std::vector<GenerationRequest> requests;
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (uint32_t i = 0; i < 9; ++i) {
    requests.push_back(ask(random_ids(random, 1 + random() % 150, alone.vocab()), 1 + random() % 12,
                           random_params(random, alone.vocab())));
    Admission admission = service->submit(requests.back());
    ASSERT_TRUE(admission.ok()) << admission.rejection.status.message();
    tickets.push_back(std::move(admission.ticket));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const Read all = read_all(*tickets[i]);
    EXPECT_EQ(all.ids, alone.ids(requests[i])) << i;
    EXPECT_EQ(all.finish.reason, "length");
    EXPECT_EQ(all.finish.usage.prompt_tokens, requests[i].prompt.size());
    EXPECT_EQ(all.finish.usage.generated_tokens, requests[i].text.max_tokens);
    EXPECT_EQ(all.finish.seed, *requests[i].text.sampling.seed);
  }
  const ServiceStats s = service->stats();
  EXPECT_EQ(s.submitted, 9u);
  EXPECT_EQ(s.finished.at("length"), 9u);
  EXPECT_EQ(s.running + s.waiting, 0u);
  EXPECT_EQ(s.pages_used, 0u);
  EXPECT_EQ(s.first_token.count, 9u);
  EXPECT_GT(s.steps, 0u);
}

TEST(Service, CountsARequestAsEndedBeforeItSaysSo) {
  const auto service = serve(options_for(1));
  for (uint64_t i = 1; i <= 300; ++i) {
    const Admission admission = service->submit(ask(prompt_of(3), 3));
    while (!admission.ticket->wait()->finish) {
    }
    const ServiceStats s = service->stats();
    ASSERT_EQ(s.running, 0u) << i;
    ASSERT_EQ(s.pages_used, 0u) << i;
    ASSERT_EQ(s.finished.at("length"), i);
  }
}

// Room for one and a half of three requests: they take turns in the memory, and lose nothing.
TEST(Service, SetsRequestsAsideWhereMemoryRunsOut) {
  const ModelOptions options = with_pages(options_for(3), 4);
  Alone alone(options);
  const auto service = serve(options);
  std::mt19937 random(6);
  std::vector<GenerationRequest> requests;
  std::vector<std::shared_ptr<Ticket>> tickets;
  for (uint32_t i = 0; i < 3; ++i) {
    SamplingParams params = random_params(random, alone.vocab());
    params.frequency_penalty = 0.2f;
    requests.push_back(ask(random_ids(random, 60 + 5 * i, alone.vocab()), 70, params));
    tickets.push_back(service->submit(requests.back()).ticket);
  }
  uint32_t set_aside = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Read all = read_all(*tickets[i]);
    EXPECT_EQ(all.ids, alone.ids(requests[i])) << i;
    EXPECT_TRUE(all.finish.status.ok()) << all.finish.status.message();
    set_aside += all.finish.usage.set_aside;
  }
  EXPECT_GT(set_aside, 0u);
  EXPECT_EQ(service->stats().set_asides, set_aside);
  EXPECT_EQ(service->stats().pages_used, 0u);
}

// The longer request needs its third page about when the other one ends. In some of the rounds that is the same step.
TEST(Service, WhatEndsInAStepMakesRoomForWhatItStarved) {
  ServiceOptions limits;
  limits.cache_bytes = 0;
  const auto service = serve(with_pages(options_for(2), 4), limits);
  for (uint32_t tokens = 20; tokens < 40; ++tokens) {
    const Admission ends = service->submit(ask(prompt_of(60), tokens)),
                    starves = service->submit(ask(prompt_of(100), 40));
    ASSERT_TRUE(ends.ok() && starves.ok());
    EXPECT_EQ(read_all(*ends.ticket).ids.size(), tokens);
    const Read longer = read_all(*starves.ticket);
    EXPECT_EQ(longer.ids.size(), 40u) << longer.finish.status.message();
  }
}

TEST(Service, ARequestThatCanNeverFitFails) {
  const auto service = serve(with_pages(options_for(1), 2));
  Admission admission = service->submit(ask(prompt_of(100), 200, seeded(1)));
  ASSERT_TRUE(admission.ok());
  const Read all = read_all(*admission.ticket);
  EXPECT_EQ(all.finish.reason, "failed");
  EXPECT_EQ(all.finish.status.code(), Code::out_of_device_memory);
  EXPECT_THAT(all.finish.status.message(), HasSubstr("memory for states is full: its 2 pages"));
  EXPECT_EQ(all.ids.size(), 29u) << "what its two pages hold, and the token that comes after them";
  EXPECT_EQ(read_all(*service->submit(ask(prompt_of(10), 3)).ticket).finish.reason, "length");
}

TEST(Service, RefusesWithReasons) {
  ServiceOptions limits;
  limits.queue = 2;
  const auto service = serve(options_for(1), limits);
  Admission a = service->submit(ask({}, 5));
  EXPECT_EQ(a.rejection.why, Rejection::Why::invalid);
  a = service->submit(ask({1 << 30}, 5));
  EXPECT_EQ(a.rejection.why, Rejection::Why::invalid);
  EXPECT_THAT(a.rejection.status.message(), HasSubstr("outside the vocabulary"));
  a = service->submit(ask(prompt_of(600), 5));
  EXPECT_EQ(a.rejection.why, Rejection::Why::too_long);
  EXPECT_EQ(a.rejection.prompt_tokens, 600u);
  EXPECT_EQ(a.rejection.context_tokens, 512u);
  SamplingParams wrong;
  wrong.top_p = 3;
  EXPECT_EQ(service->submit(ask({1}, 5, wrong)).rejection.why, Rejection::Why::invalid);

  std::vector<std::shared_ptr<Ticket>> taken;
  Rejection full;
  for (int i = 0; i < 20 && full.why == Rejection::Why::none; ++i) {
    Admission one = service->submit(ask(prompt_of(20), 400, seeded(1)));
    full = one.rejection;
    if (one.ok()) taken.push_back(std::move(one.ticket));
  }
  EXPECT_EQ(full.why, Rejection::Why::queue_full);
  EXPECT_GE(full.retry_after_ms, 1000u);
  EXPECT_LE(taken.size(), 4u);
  const ServiceStats s = service->stats();
  EXPECT_EQ(s.refused.at("invalid"), 3u);
  EXPECT_EQ(s.refused.at("too_long"), 1u);
  EXPECT_EQ(s.refused.at("queue_full"), 1u);
}

TEST(Service, ThePriorityDecidesWhoIsNext) {
  const auto service = serve(options_for(1));
  Admission first = service->submit(ask(prompt_of(5), 300, seeded(1)));
  ASSERT_TRUE(first.ticket->wait().has_value());  // it runs
  GenerationRequest request = ask(prompt_of(5), 2, seeded(2));
  Admission low = service->submit(request);
  request.priority = 1;
  Admission high = service->submit(request);
  first.ticket->cancel();
  const Finish high_end = read_all(*high.ticket).finish, low_end = read_all(*low.ticket).finish;
  EXPECT_LT(high_end.usage.queued_ns, low_end.usage.queued_ns);
}

TEST(Service, CancelsAndDeadlines) {
  const auto service = serve(options_for(2));
  Admission running = service->submit(ask(prompt_of(5), 500, seeded(1)));
  GenerationRequest late = ask(prompt_of(5), 500, seeded(2));
  late.deadline_ns = now() + 30'000'000;
  Admission timed = service->submit(late);
  Admission waiting = service->submit(ask(prompt_of(5), 500, seeded(3)));
  ASSERT_TRUE(running.ticket->wait().has_value());
  waiting.ticket->cancel();
  EXPECT_EQ(read_all(*waiting.ticket).finish.reason, "cancelled");
  EXPECT_EQ(read_all(*timed.ticket).finish.reason, "deadline");
  running.ticket->cancel();
  while (!running.ticket->wait()->finish) {
  }
  EXPECT_FALSE(running.ticket->wait().has_value()) << "nothing follows the last event";
  {
    Admission left = service->submit(ask(prompt_of(5), 500, seeded(4)));  // its reader goes away
  }
  EXPECT_TRUE(service->drain(60'000'000'000));
  EXPECT_EQ(service->stats().finished.at("cancelled"), 3u);
  EXPECT_EQ(service->stats().pages_used, 0u);
}

TEST(Service, ASlowReaderWaitsAndThenEnds) {
  ServiceOptions limits;
  limits.events = 4;
  limits.slow_ns = 300'000'000;
  const auto service = serve(options_for(2), limits);
  Admission slow = service->submit(ask(prompt_of(5), 400, seeded(1)));
  Admission quick = service->submit(ask(prompt_of(5), 30, seeded(2)));
  EXPECT_EQ(read_all(*quick.ticket).finish.reason, "length") << "nobody waits for the other's reader";
  EXPECT_TRUE(service->drain(60'000'000'000));
  const Read all = read_all(*slow.ticket);
  EXPECT_EQ(all.finish.reason, "slow");
  EXPECT_THAT(all.finish.status.message(), HasSubstr("was not read"));
  EXPECT_GE(all.ids.size(), 4u);
  EXPECT_LE(all.ids.size(), 6u);
}

TEST(Service, AReaderThatComesBackGetsEverything) {
  ServiceOptions limits;
  limits.events = 3;
  const ModelOptions options = options_for(1);
  const auto service = serve(options, limits);
  const GenerationRequest request = ask(prompt_of(7), 40, seeded(1));
  Admission admission = service->submit(request);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(read_all(*admission.ticket).ids, Alone(options).ids(request));
}

TEST(Service, RequestsThatNobodyReadsMakeWay) {
  ServiceOptions limits;
  limits.events = 3;
  const ModelOptions options = options_for(2);
  const auto service = serve(options, limits);
  std::vector<GenerationRequest> requests;
  std::vector<std::shared_ptr<Ticket>> unread;
  for (uint32_t i = 0; i < 5; ++i) {
    requests.push_back(ask(prompt_of(5 + i), 30, seeded(i)));
    unread.push_back(service->submit(requests.back()).ticket);
  }
  const GenerationRequest other = ask(prompt_of(9), 30, seeded(9));
  EXPECT_EQ(read_all(*service->submit(other).ticket).ids, Alone(options).ids(other)) << "all sessions were taken";
  size_t ended = 0;
  for (size_t i = 0; i < unread.size(); ++i) {
    const Read all = read_all(*unread[i]);
    if (all.finish.reason == "slow") {
      EXPECT_THAT(all.finish.status.message(), HasSubstr("while other requests waited"));
      ++ended;
    } else {
      EXPECT_EQ(all.ids, Alone(options).ids(requests[i])) << i;
    }
  }
  EXPECT_GE(ended, 1u) << "two sessions, and room for two that were set aside";
  EXPECT_LE(ended, 3u);
  EXPECT_GE(service->stats().set_asides, 2u);
}

TEST(Service, WakesItsReader) {
  const auto service = serve(options_for(1));
  std::atomic<int> woken = 0;
  Admission admission = service->submit(ask(prompt_of(7), 20, seeded(1)));
  admission.ticket->on_event([&] { ++woken; });
  size_t tokens = 0;
  for (bool ended = false; !ended;) {
    const auto event = admission.ticket->poll();
    if (!event) {
      const int before = woken.load();
      (void)before;
      std::this_thread::yield();
      continue;
    }
    tokens += event->id >= 0 ? 1 : 0;
    ended = event->finish != nullptr;
  }
  EXPECT_EQ(tokens, 20u);
  EXPECT_GT(woken.load(), 0);
}

TEST(Service, DrainsAndStops) {
  auto service = serve(options_for(1));
  Admission first = service->submit(ask(prompt_of(5), 20, seeded(1)));
  Admission second = service->submit(ask(prompt_of(5), 20, seeded(2)));
  EXPECT_TRUE(service->drain(60'000'000'000));
  EXPECT_EQ(read_all(*first.ticket).finish.reason, "length");
  EXPECT_EQ(read_all(*second.ticket).finish.reason, "length");
  EXPECT_EQ(service->submit(ask({1}, 5)).rejection.why, Rejection::Why::draining);
  EXPECT_TRUE(service->stats().draining);

  service = serve(options_for(1));
  Admission cut = service->submit(ask(prompt_of(5), 500, seeded(1)));
  Admission never = service->submit(ask(prompt_of(5), 500, seeded(2)));
  ASSERT_TRUE(cut.ticket->wait().has_value());
  service->stop();
  EXPECT_EQ(read_all(*never.ticket).finish.reason, "stopped");
  EXPECT_EQ(service->on_loop([](Model&) { return Status(); }).code(), Code::cancelled);
  service.reset();
  std::optional<Event> last;
  while (auto event = cut.ticket->wait()) last = std::move(event);
  ASSERT_TRUE(last.has_value() && last->finish != nullptr);
  EXPECT_EQ(last->finish->reason, "stopped");
}

// What several threads touch at once; the thread sanitizer runs this one, too.
TEST(Service, ThreadsSubmitReadCancelAndLook) {
  ServiceOptions limits;
  limits.events = 2;
  const ModelOptions options = options_for(3);
  const auto service = serve(options, limits);
  const GenerationRequest request = ask(prompt_of(6), 6, seeded(9));
  const std::vector<int32_t> expected = Alone(options).ids(request);
  std::atomic<bool> done = false;
  std::thread looker([&] {
    while (!done.load()) {
      (void)service->stats();
      (void)service->on_loop([](Model&) { return Status(); }).ok();
    }
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 6; ++i) {
        Admission admission = service->submit(request);
        ASSERT_TRUE(admission.ok());
        if ((i + t) % 3 == 0) {
          (void)admission.ticket->wait();
          continue;  // and goes away
        }
        EXPECT_EQ(read_all(*admission.ticket).ids, expected);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  done.store(true);
  looker.join();
  EXPECT_TRUE(service->drain(60'000'000'000));
  EXPECT_EQ(service->stats().submitted, 24u);
}

}  // namespace
}  // namespace switchyard
