// SPDX-License-Identifier: Apache-2.0
// Routing: how a text spreads over the experts of each layer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/plan/graph.h"

namespace switchyard {

class Model;

// A router whose choice is a result of every step, and the operation that uses it.
struct Router {
  std::string name;    // of that operation
  uint32_t value = 0;  // i32 [rows, top_k]
  uint32_t experts = 0, top_k = 0;
};

// Computes each router once more, where the host can read it. An operation with a name whose function has a router is
// replaced by that function.
std::vector<Router> add_routers(Graph& graph);

// How often the experts of one layer were chosen.
struct ExpertCounts {
  std::string layer;
  std::vector<uint64_t> counts;  // by expert
  uint64_t total = 0;            // rows x top_k

  // Shares of `total`.
  double least() const;
  double median() const;
  double most() const;
  // Of the busiest tenth of the experts (at least one) together; a tenth, if all were alike.
  double busiest_tenth() const;
};

// Feeds `ids` to a new session of a model that was made with ModelOptions::routers. Errors: those of the session;
// unsupported, for a model without experts.
Result<std::vector<ExpertCounts>> count_experts(Model& model, std::span<const int32_t> ids);

}  // namespace switchyard
