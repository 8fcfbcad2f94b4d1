// SPDX-License-Identifier: Apache-2.0
#include "core/generate/loaded_model.h"

namespace switchyard {

Result<LoadedModel> load_model(std::shared_ptr<Host> host, Registry registry, const std::string& backend,
                               std::shared_ptr<const Program> program, const ModelOptions& options) {
  LoadedModel m;
  m.host = std::move(host);
  m.registry = std::make_unique<Registry>(std::move(registry));
  m.program = std::move(program);
  SWY_TRY(m.registry->check_libraries());
  SWY_LET(auto selection, m.registry->select(backend));
  SWY_LET(m.model, Model::create(m.program, std::move(selection.devices), selection.policy, options));
  if (!m.program->tokenizer_json.empty()) {
    SWY_LET(Tokenizer tokenizer, Tokenizer::parse(m.program->tokenizer_json));
    m.tokenizer = std::make_unique<Tokenizer>(std::move(tokenizer));
  }
  return m;
}

Result<const Tokenizer*> LoadedModel::text() const {
  if (tokenizer == nullptr) {
    return error(Code::unsupported, "this model has no tokenizer; give token ids to switchyard logits instead");
  }
  return tokenizer.get();
}

}  // namespace switchyard
