// SPDX-License-Identifier: Apache-2.0
// A model on backends of the build tree, for tests.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/session.h"
#include "core/plugin/registry.h"

namespace switchyard {

inline constexpr char kDemo[] = SWITCHYARD_DEMO_MODEL;

// A plugin keeps the host that it negotiated with last, so all models of a process share one that outlives them.
// The first call says how many threads it has.
inline Host& test_host(uint32_t threads = 2) {
  static Host host(threads);
  return host;
}

struct TestModel {
  std::unique_ptr<Registry> registry;
  std::unique_ptr<Model> model;

  TestModel() = default;
  TestModel(TestModel&&) = default;
  TestModel& operator=(TestModel&& other) noexcept {  // the old model goes before the plugins that it runs on
    model = std::move(other.model);
    registry = std::move(other.registry);
    return *this;
  }
};

inline ModelOptions with_context(uint32_t tokens) {
  ModelOptions o;
  o.context = tokens;
  return o;
}

using BackendSettings = std::map<std::string, std::vector<Setting>>;

// Fails the calling test when the model cannot be made.
inline TestModel make_model(Program program, const std::string& backend, const ModelOptions& options,
                            const std::string& more_backends = "", const BackendSettings& settings = {}) {
  TestModel t;
  DiscoveryOptions discovery;
  discovery.cpu_features = default_discovery().cpu_features;
  discovery.search_path = std::string(SWITCHYARD_TEST_BACKENDS) + (more_backends.empty() ? "" : ":" + more_backends);
  discovery.settings = settings;
  t.registry = std::make_unique<Registry>(Registry::discover(Os::real(), discovery, test_host()));
  auto selection = t.registry->select(backend);
  EXPECT_TRUE(selection.ok()) << selection.status().message();
  if (!selection.ok()) return t;
  auto model = Model::create(std::make_shared<const Program>(std::move(program)), std::move(selection->devices),
                             selection->policy, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (model.ok()) t.model = std::move(*model);
  return t;
}

inline TestModel make_model(const std::string& path, const std::string& backend = "reference",
                            const ModelOptions& options = {}, const std::string& more_backends = "",
                            const BackendSettings& settings = {}) {
  auto program = Program::load(Os::real(), path);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return program.ok() ? make_model(std::move(*program), backend, options, more_backends, settings) : TestModel{};
}

}  // namespace switchyard
