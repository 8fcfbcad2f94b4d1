// SPDX-License-Identifier: Apache-2.0
// A service over the demo model on backends of the build tree, and the tokens that it must draw.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/batch.h"
#include "core/serve/service.h"
#include "tests/support/batches.h"

namespace switchyard {

#ifdef SWITCHYARD_TEST_CPU
inline constexpr char kBackend[] = "cpu";  // many times as fast as the other
#else
inline constexpr char kBackend[] = "reference";
#endif

inline LoadedModel load_demo(const ModelOptions& options, const std::string& backend = kBackend) {
  DiscoveryOptions discovery;
  discovery.cpu_features = default_discovery().cpu_features;
  discovery.search_path = SWITCHYARD_TEST_BACKENDS;
  static const auto host = std::make_shared<Host>(1);
  auto program = Program::load(Os::real(), SWITCHYARD_DEMO_MODEL);
  EXPECT_TRUE(program.ok()) << program.status().message();
  auto loaded = load_model(host, Registry::discover(Os::real(), discovery, *host), backend,
                           std::make_shared<const Program>(std::move(*program)), options);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  return loaded.ok() ? std::move(*loaded) : LoadedModel{};
}

// Options of a model with so many pages for all its sessions together.
inline ModelOptions with_pages(ModelOptions options, uint32_t pages, const std::string& backend = kBackend) {
  options.state_bytes = 0;
  const LoadedModel whole = load_demo(options, backend);
  for (const StatePool::Unit& u : whole.model->states().units()) {
    options.state_bytes += u.unit_bytes * (u.paged ? pages : whole.model->states().slots().count());
  }
  return options;
}

inline std::unique_ptr<Service> serve(const ModelOptions& model, const ServiceOptions& options = {},
                                      const std::string& backend = kBackend) {
  auto service = Service::create(load_demo(model, backend), options);
  EXPECT_TRUE(service.ok()) << service.status().message();
  return std::move(*service);
}

inline SamplingParams seeded(uint64_t seed) {
  SamplingParams p;
  p.seed = seed;
  return p;
}

inline std::vector<int32_t> prompt_of(size_t n, uint32_t seed = 1) {
  std::mt19937 random(seed);
  return random_ids(random, n, 4000);
}

inline GenerationRequest ask(std::vector<int32_t> prompt, uint32_t tokens, const SamplingParams& sampling = {}) {
  GenerationRequest r;
  r.prompt = std::move(prompt);
  r.text.max_tokens = tokens;
  r.text.sampling = sampling;
  r.text.ignore_eos = true;
  return r;
}

// What a reader gets of a ticket.
struct Read {
  std::vector<int32_t> ids;
  std::string text;
  Finish finish;
};

// Reads to the end; gives up after a minute without an event.
inline Read read_all(Ticket& ticket) {
  Read all;
  for (;;) {
    const std::optional<Event> event = ticket.wait(60'000'000'000);
    if (!event) {
      ADD_FAILURE() << "no event for a minute, or no last one";
      return all;
    }
    all.text += event->text;
    if (event->id >= 0) all.ids.push_back(event->id);
    if (event->finish == nullptr) continue;
    all.finish = *event->finish;
    EXPECT_EQ(all.ids, all.finish.ids);
    EXPECT_EQ(all.text, all.finish.text);
    return all;
  }
}

// Draws each request alone on a model of its own.
class Alone {
 public:
  explicit Alone(ModelOptions options, const std::string& backend = kBackend) {
    options.sessions = 1;
    options.state_bytes = 0;
    loaded_ = load_demo(options, backend);
  }
  std::vector<int32_t> ids(const GenerationRequest& r) {
    Request plain = request_of(r.prompt, r.text.sampling, r.text.max_tokens);
    auto session = loaded_.model->session();
    Batch batch(*loaded_.model);
    const auto id = batch.add(**session, std::move(plain));
    EXPECT_TRUE(id.ok()) << id.status().message();
    EXPECT_TRUE(batch.run(*id).ok());
    return batch.take(*id)->ids;
  }
  uint32_t vocab() const { return loaded_.model->vocab(); }

 private:
  LoadedModel loaded_;
};

}  // namespace switchyard
