// SPDX-License-Identifier: Apache-2.0
#include "core/generate/loaded_model.h"

#include <algorithm>

#include "core/base/printable.h"
#include "core/engine/prepare.h"

namespace switchyard {
namespace {

constexpr uint32_t kDraftChunk = 512, kPreparedRows = 64;

// Guesses are token ids, so both must mean the same by each.
Status check_same_tokens(const LoadedModel& m, const DraftModelSource& draft) {
  const bool both = m.tokenizer != nullptr && !draft.program->tokenizer_json.empty();
  if (!both) return error(Code::usage, "{} cannot guess for this model: both need a tokenizer", draft.name);
  if (m.program->tokenizer_json == draft.program->tokenizer_json) return {};
  SWY_LET(const Tokenizer other, Tokenizer::parse(draft.program->tokenizer_json));
  const Tokenizer& own = *m.tokenizer;
  for (int32_t id = 0; id < std::max(own.vocab_size(), other.vocab_size()); ++id) {
    if (own.piece(id) == other.piece(id) && own.is_special(id) == other.is_special(id)) continue;
    return error(Code::usage,
                 "{} cannot guess for this model, since its tokens are others: token {} is '{}' there, and '{}' here",
                 draft.name, id, printable(other.piece(id)), printable(own.piece(id)));
  }
  return {};
}

uint64_t host_need(const Model& model) {
  uint64_t bytes = 0;
  for (const MemoryNeed& need : model.memory()) bytes += need.host ? need.total() : 0;
  return bytes;
}

}  // namespace

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

Status add_draft_model(LoadedModel& m, const std::string& backend, DraftModelSource source, ModelOptions options) {
  SWY_TRY(check_same_tokens(m, source));
  const auto limit = static_cast<uint32_t>(std::min<uint64_t>(source.program->context_length, UINT32_MAX));
  options.context = limit == 0 ? m.model->context() : std::min(limit, m.model->context());
  options.sessions = m.model->max_sessions();
  options.chunk = kDraftChunk;
  options.drafts = 1;
  options.pending_rows = false;  // guesses are taken back to a mark
  options.checkpoints = 0;
  options.state_bytes = 0;
  options.variants.clear();  // they name the other one's operations
  options.device_sampling = options.routers = options.hidden = options.mtp = options.verify_packed = false;
  const uint64_t taken = host_need(*m.model), free = source.free_bytes;
  options.host_bytes = free == 0 ? 0 : free > taken ? free - taken : 1;
  SWY_LET(auto selection, m.registry->select(backend));
  auto model = Model::create(source.program, std::move(selection.devices), selection.policy, options);
  if (!model.ok()) return error(model.status().code(), "{}: {}", source.name, model.status().message());
  // So that no step waits until one of these is planned.
  SWY_TRY((*model)->runner().prepare(batch_steps(options.sessions, kPreparedRows, options.context), kWantLogits));
  m.draft = std::make_unique<DraftModel>(std::move(*model), m.model->vocab());
  return {};
}

Result<const Tokenizer*> LoadedModel::text() const {
  if (tokenizer == nullptr) {
    return error(Code::unsupported, "this model has no tokenizer; give token ids to switchyard logits instead");
  }
  return tokenizer.get();
}

}  // namespace switchyard
