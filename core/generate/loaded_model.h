// SPDX-License-Identifier: Apache-2.0
// LoadedModel: a program with everything that it needs to run and to be spoken to.
#pragma once

#include <memory>
#include <string>

#include "core/engine/session.h"
#include "core/plugin/registry.h"
#include "core/text/tokenizer.h"

namespace switchyard {

// The parts live as long as the whole, in this order.
struct LoadedModel {
  std::shared_ptr<Host> host;
  std::unique_ptr<Registry> registry;
  std::shared_ptr<const Program> program;
  std::unique_ptr<Model> model;
  std::unique_ptr<Tokenizer> tokenizer;  // NULL when the program has none

  // Errors: unsupported, when the program has no tokenizer.
  Result<const Tokenizer*> text() const;
};

// Makes `program` runnable on the backends that `backend` names (`--backend`).
Result<LoadedModel> load_model(std::shared_ptr<Host> host, Registry registry, const std::string& backend,
                               std::shared_ptr<const Program> program, const ModelOptions& options);

}  // namespace switchyard
