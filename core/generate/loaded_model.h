// SPDX-License-Identifier: Apache-2.0
// LoadedModel: a program with everything that it needs to run and to be spoken to.
#pragma once

#include <memory>
#include <string>

#include "core/engine/model_drafter.h"
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
  std::unique_ptr<DraftModel> draft;     // NULL: none guesses for it

  // Errors: unsupported, when the program has no tokenizer.
  Result<const Tokenizer*> text() const;
};

// Makes `program` runnable on the backends that `backend` names (`--backend`).
Result<LoadedModel> load_model(std::shared_ptr<Host> host, Registry registry, const std::string& backend,
                               std::shared_ptr<const Program> program, const ModelOptions& options);

// A model that is to guess for another one.
struct DraftModelSource {
  std::string name;  // for errors
  std::shared_ptr<const Program> program;
  uint64_t free_bytes = 0;  // of the host, before the other one was loaded; 0: what is available now
};
// Gives `m`, which was loaded with `options`, a model that guesses for it, on the same backends. Errors: usage, for one
// whose tokens are others; those of load_model.
Status add_draft_model(LoadedModel& m, const std::string& backend, DraftModelSource source, ModelOptions options);

}  // namespace switchyard
