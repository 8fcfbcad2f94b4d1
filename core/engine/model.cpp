// SPDX-License-Identifier: Apache-2.0
#include "core/engine/model.h"

#include "core/engine/room.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/saturate.h"
#include "core/engine/session.h"
#include "core/engine/verify_packed.h"
#include "core/plan/plan_memory.h"
#include "core/plugin/call.h"
#include "core/program/decoded.h"

namespace switchyard {
namespace {

constexpr uint32_t kDefaultContext = 4096;
constexpr uint32_t kPart = 64;  // what prompts are split at with --deterministic

bool on_host(const PlanDevice& device) { return (device.info.flags & SWY_DEVICE_HOST_MEMORY) != 0; }

// Whether the buffers of a device count against its free memory. A device that imports memory may use the host's.
bool bounded(const PlanDevice& device) { return on_host(device) || device.api->buffer_import == nullptr; }

}  // namespace

namespace {

// The values and operations of a function, for a Graph or a GraphFunction.
template <class To>
void copy_function(const Function& f, To& g) {
  for (const Value& v : f.values) g.values.push_back({std::string(v.name), v.dtype, v.rows, v.width});
  g.ops.reserve(f.ops.size());
  for (const Op& op : f.ops) {
    GraphOp& o = g.ops.emplace_back();
    o.named = op.name;
    o.function = op.function;
    o.id = op.id;
    o.revision = op.revision;
    o.attrs.assign(op.attrs.begin(), op.attrs.end());
    o.inputs.assign(op.inputs.begin(), op.inputs.end());
    o.weights.assign(op.weights.begin(), op.weights.end());
    o.states.assign(op.states.begin(), op.states.end());
    o.outputs.assign(op.outputs.begin(), op.outputs.end());
    o.name = op.outputs.empty() ? fmt::format("op{}", g.ops.size() - 1) : g.values[op.outputs[0]].name;
  }
}

// By the program's indices; the main function's is empty.
std::vector<GraphFunction> functions_of(const Program& program) {
  std::vector<GraphFunction> all(program.functions.size());
  for (size_t i = 1; i < all.size(); ++i) {
    const Function& f = program.functions[i];
    GraphFunction& to = all[i];
    to.name = f.name;
    copy_function(f, to);
    to.inputs.assign(f.inputs.begin(), f.inputs.end());
    to.weights.assign(f.weights.begin(), f.weights.end());
    to.states.assign(f.states.begin(), f.states.end());
    to.outputs.assign(f.outputs.begin(), f.outputs.end());
  }
  return all;
}

// Each weight of a described encoding once more in either type that it can be decoded to, after all others.
void add_decoded(std::vector<GraphTensor>& weights) {
  const auto count = static_cast<uint32_t>(weights.size());
  for (uint32_t w = 0; w < count; ++w) {
    if (weights[w].desc.encoding == nullptr) continue;
    for (const auto& [form, dtype] : {std::pair{&GraphTensor::bf16, SWY_BF16}, std::pair{&GraphTensor::f32, SWY_F32}}) {
      weights[w].*form = static_cast<uint32_t>(weights.size());
      GraphTensor decoded{weights[w].name, decoded_form(weights[w].desc, dtype)};
      decoded.encoded = w;
      weights.push_back(std::move(decoded));
    }
  }
}

}  // namespace

Graph graph_of(const Program& program) { return graph_of(program, program.main()); }

Graph graph_of(const Program& program, const Function& f) {
  Graph g;
  for (const Tensor& t : program.tensors) g.weights.push_back({std::string(t.name), describe(t)});
  add_decoded(g.weights);
  for (const State& s : program.states) g.states.push_back({std::string(s.name), describe(s)});
  copy_function(f, g);
  g.results.assign(f.outputs.begin(), f.outputs.end());
  g.inputs.assign(f.inputs.begin(), f.inputs.end());
  const auto named = [](const Op& op) { return op.id == SWY_OP_NAMED; };
  if (std::any_of(f.ops.begin(), f.ops.end(), named)) {
    g.functions = std::make_shared<const std::vector<GraphFunction>>(functions_of(program));
  }
  return g;
}

// A model with its planner, and nothing on the devices yet.
Result<std::unique_ptr<Model>> Model::plan_ahead(std::shared_ptr<const Program> program,
                                                 std::vector<std::shared_ptr<Device>> devices, PlanPolicy policy,
                                                 const ModelOptions& options) {
  std::unique_ptr<Model> m(new Model);
  m->program_ = std::move(program);
  m->owners_ = std::move(devices);
  for (const auto& d : m->owners_) m->devices_.push_back(d->plan());
  m->cancelled_ = options.cancelled;
  if (options.tuning != nullptr) policy.tuning = options.tuning;
  Os& os = options.os == nullptr ? Os::real() : *options.os;
  policy.memory = std::make_shared<PlanMemory>(CodeStore(os, options.code_folder));
  SWY_TRY(m->set_context(options));
  SWY_TRY(m->make_planners(options, policy));
  m->weights_ = std::make_unique<WeightStore>(*m->program_, m->devices_);
  return m;
}

Result<std::vector<WeightUse>> Model::weight_uses(std::shared_ptr<const Program> program,
                                                  std::vector<std::shared_ptr<Device>> devices, PlanPolicy policy,
                                                  const ModelOptions& options) {
  SWY_LET(const auto m, plan_ahead(std::move(program), std::move(devices), std::move(policy), options));
  return m->weight_uses();
}

Result<std::unique_ptr<Model>> Model::create(std::shared_ptr<const Program> program,
                                             std::vector<std::shared_ptr<Device>> devices, PlanPolicy policy,
                                             const ModelOptions& options) {
  SWY_LET(auto m, plan_ahead(std::move(program), std::move(devices), std::move(policy), options));
  Os& os = options.os == nullptr ? Os::real() : *options.os;
  const uint64_t host_bytes = options.host_bytes == 0 ? os.available_memory() : options.host_bytes;
  const uint32_t chunk = m->chunk_;
  const std::set<uint32_t> used = m->used_;
  Status loaded = m->load(options, host_bytes);
  if (m->goes_without_layer(options, loaded)) {
    m->leave_layer_out(std::string(loaded.message()));
    m->chunk_ = chunk, m->used_ = used;
    loaded = m->load(options, host_bytes);
  }
  SWY_TRY(std::move(loaded));
  if (options.load && options.verify_packed) {
    SWY_TRY(verify_packed(*m->program_, m->devices_, options.progress).status());
  }
  return m;
}

Status Model::load(const ModelOptions& options, uint64_t host_bytes) {
  SWY_TRY(states_.describe(*planner_, devices_, pool_, head_.counts));
  if (mtp_ != nullptr) SWY_TRY(states_.describe_layer(mtp_->planner(), devices_, pool_));
  SWY_TRY(size_pool(options));
  SWY_LET(std::vector<WeightUse> uses, weight_uses());
  SWY_TRY(check_memory(uses, host_bytes, options.load));
  if (!options.load) return {};
  weights_->keep_only(uses);
  SWY_TRY(weights_->load(std::move(uses), options.load_threads, options.progress));
  SWY_TRY(states_.allocate());
  return make_runner();
}

std::string room_advice(const Model& model) {
  const uint64_t limit = model.program().context_length;
  if (limit == 0) return "raise --ctx or shorten the prompt";
  if (model.context() < limit) return fmt::format("raise --ctx, which may be up to {}, or shorten the prompt", limit);
  return fmt::format("shorten the prompt: this model was made for {} tokens at most", limit);
}

Status check_room(const Model& model, uint64_t seen, uint64_t prompt) {
  const uint64_t free = model.context() - std::min<uint64_t>(seen, model.context());
  if (prompt <= free) return {};
  return error(Code::usage, "the prompt has {} tokens, and {} of the context's {} are free; {}", prompt, free,
               model.context(), room_advice(model));
}

Status Model::set_context(const ModelOptions& options) {
  const auto limit = static_cast<uint32_t>(std::min<uint64_t>(program_->context_length, UINT32_MAX));
  context_ = options.context != 0 ? options.context : limit != 0 ? std::min(limit, kDefaultContext) : kDefaultContext;
  if (limit != 0 && context_ > limit) {
    return error(Code::usage, "--ctx {} is more than the {} tokens that this model was made for", context_, limit);
  }
  constexpr uint32_t kMaxSessions = 1u << 16;
  if (options.sessions == 0 || options.sessions > kMaxSessions ||
      uint64_t{pages_per_session()} * options.sessions > UINT32_MAX) {
    return error(Code::usage, "{} sessions of {} tokens are too many or none; there may be 1 to {}", options.sessions,
                 context_, kMaxSessions);
  }
  const bool cpus =
      std::all_of(devices_.begin(), devices_.end(), [](const PlanDevice& d) { return d.info.type == SWY_DEVICE_CPU; });
  chunk_ = std::clamp(options.chunk != 0 ? options.chunk : cpus ? kChunk : kDeviceChunk, 1u, context_);
  if (options.deterministic) chunk_ = std::max(chunk_, kPart);
  pool_.struct_size = sizeof pool_;
  pool_.context = context_;
  pool_.seqs = options.sessions;
  checkpoints_ = std::min(options.checkpoints, kMaxSessions);
  drafts_ = std::min(options.drafts, kMaxDrafts);
  pending_rows_ = options.pending_rows && drafts_ > 0 ? drafts_ + 1 : 0;
  set_slots();
  pool_.pages = pages_per_session() * options.sessions;
  pool_.page_size = StatePool::kPageSize;
  pool_.flags = options.deterministic ? SWY_BUCKET_DETERMINISTIC : 0;
  chunk_ = std::max(chunk_, options.sessions);  // each can have a row in a step
  return {};
}

// A step that may have to be rolled back writes to its own slot, so asynchronous devices get twice as many slots. On
// others only sessions that share a slot need one: two that share go on with three. Drafts are rolled back, too, unless
// their rows are pending.
void Model::set_slots() {
  const bool asynchronous = std::any_of(devices_.begin(), devices_.end(), [](const PlanDevice& d) {
    return (d.info.flags & SWY_DEVICE_SYNCHRONOUS) == 0;
  });
  const bool twice = asynchronous || (drafts_ > 0 && pending_rows_ == 0);
  pool_.slots = pool_.seqs + pool_.seqs / (twice ? 1 : 2) + checkpoints_;
}

uint32_t Model::pages_per_session() const { return (context_ + StatePool::kPageSize - 1) / StatePool::kPageSize; }

swy_bucket Model::bucket(const StepCounts& counts) const { return bucket_of(counts, pool_, chunk_); }

// The results that single steps and the largest chunks read. Buckets in between seldom add to them.
Result<std::vector<WeightUse>> Model::weight_uses() {
  std::vector<WeightUse> uses;
  SWY_LET(const Plan single, planner_->plan(bucket({.rows = 1, .context = context_})));
  Plan largest;
  SWY_TRY(fit_chunk([&]() -> Status {
    SWY_LET(largest, planner_->plan(bucket({.rows = chunk_, .context = context_})));
    return {};
  }));
  const auto add = [&](const Plan& plan) {
    for (const PlanNode& node : plan.nodes) {
      used_.insert(node.device);
      for (size_t i = 0; i < node.op.weights.size(); ++i) {
        const uint32_t layout = node.kernel != nullptr ? node.prepared.weight_layouts[i] : node.range_layouts[i];
        uses.push_back(weight_use(plan.graph, node.op.weights[i], node.device, layout));
      }
    }
  };
  add(single);
  add(largest);
  for (const uint32_t rows : {1u, chunk_}) {
    if (mtp_ == nullptr) break;
    SWY_LET(const Plan plan, mtp_->planner().plan(bucket({.rows = rows, .context = context_})));
    add(plan);
  }
  return uses;
}

uint32_t Model::least_chunk() const { return std::max(std::min(kPart, chunk_), pool_.seqs); }

Status Model::fit_chunk(const std::function<Status()>& tried) {
  for (;;) {
    Status s = tried();
    const bool too_large = s.code() == Code::out_of_device_memory || s.code() == Code::unsupported;
    if (!too_large || chunk_ <= least_chunk()) return s;
    chunk_ = std::max(chunk_ / 2, least_chunk());
  }
}

Status Model::make_runner() {
  return fit_chunk([this]() -> Status {
    StepRunner::Setup setup{planner_.get(), weights_.get(), &states_.buffers(),  head_,
                            pool_,          chunk_,         pages_per_session(), cancelled_};
    setup.draws = drafts_;
    if (mtp_ != nullptr) SWY_TRY(mtp_->make_rows(setup, hidden_));
    SWY_LET(runner_, StepRunner::create(setup));
    SWY_TRY(runner_->reserve(largest_step(), chunk_ > least_chunk()));
    setup.tokens_of = runner_->tokens();
    return mtp_ == nullptr ? Status() : mtp_->make_runner(setup, largest_layer_step());
  });
}

StepCounts Model::largest_step() const {
  return {.rows = chunk_,
          .seqs = pool_.seqs,
          .logit_rows = std::min(pool_.seqs + drafts_, chunk_),
          .sample_rows = std::min(pool_.seqs + drafts_, chunk_),
          .context = context_};
}

// It runs one sequence at a time.
StepCounts Model::largest_layer_step() const {
  return {.rows = chunk_, .seqs = 1, .logit_rows = 1, .sample_rows = mtp_->draws() ? 1u : 0u, .context = context_};
}

// As many pages as the budget allows, once every session has its slots.
Status Model::size_pool(const ModelOptions& options) {
  const uint64_t slot_bytes = states_.slot_bytes(), page_bytes = states_.page_bytes();
  pool_.pages = pages_per_session() * options.sessions;
  if (options.state_bytes != 0) {
    const uint64_t slots = saturating_mul(pool_.slots, slot_bytes), least = saturating_add(slots, page_bytes);
    if (options.state_bytes < least) {
      return error(Code::usage, "the states' budget is {} bytes; {} sessions need at least {}", options.state_bytes,
                   options.sessions, least);
    }
    const uint64_t pages = page_bytes == 0 ? pool_.pages : (options.state_bytes - slots) / page_bytes;
    pool_.pages = static_cast<uint32_t>(std::min<uint64_t>(pages, pool_.pages));
  }
  states_.resize(pool_.slots, pool_.pages);
  return {};
}

// What the model takes of each memory: the host's, which several devices may share, and that of each other device.
Result<std::vector<MemoryNeed>> Model::memory_needs(const std::vector<WeightUse>& uses, uint64_t host_bytes) const {
  std::vector<MemoryNeed> needs;
  for (const uint32_t d : used_) {
    const bool host = on_host(devices_[d]);
    auto need = std::find_if(needs.begin(), needs.end(), [&](const MemoryNeed& n) { return host && n.host; });
    if (need == needs.end()) {
      need = needs.insert(need, MemoryNeed{});
      need->host = host;
      need->free = host ? host_bytes : devices_[d].info.memory_free_bytes;
      need->page_tokens = StatePool::kPageSize, need->pages = pool_.pages;
      need->sessions = pool_.seqs, need->context = context_;
      need->budgeted = pool_.pages < uint64_t{pages_per_session()} * pool_.seqs;
    }
    need->device += (need->device.empty() ? "" : ", ") + devices_[d].name;
    SWY_TRY(weights_->add_need(uses, d, *need));
    for (const StatePool::Unit& u : states_.units()) {
      if (u.device != &devices_[d] || !bounded(devices_[d])) continue;
      uint64_t& bytes = u.paged ? need->page : need->slots;
      bytes = saturating_add(bytes, saturating_mul(u.unit_bytes, u.paged ? 1 : pool_.slots));
    }
  }
  return needs;
}

// Weights and states first: a smaller chunk does not help there. Then the largest step, with smaller chunks until one
// fits.
Status Model::check_memory(const std::vector<WeightUse>& uses, uint64_t host_bytes, bool loads) {
  SWY_LET(memory_, memory_needs(uses, host_bytes));
  const auto checked = [&]() -> Status {
    for (const MemoryNeed& need : memory_) {
      if (loads) SWY_TRY(switchyard::check_memory(need));
    }
    return {};
  };
  SWY_TRY(checked());
  return fit_chunk([&]() -> Status {
    SWY_LET(const Plan plan, planner_->plan(bucket(largest_step())));
    Plan mtp;
    if (mtp_ != nullptr) {
      SWY_LET(mtp, mtp_->planner().plan(bucket(largest_layer_step())));
    }
    for (MemoryNeed& need : memory_) need.steps = 0, need.step_rows = chunk_;
    for (const uint32_t d : used_) {
      const auto need = std::find_if(memory_.begin(), memory_.end(), [&](const MemoryNeed& n) {
        return on_host(devices_[d]) ? n.host : n.device == devices_[d].name;
      });
      if (!bounded(devices_[d])) continue;
      need->steps = saturating_add(need->steps, plan.arena_bytes[d]);
      if (mtp_ != nullptr) need->steps = saturating_add(need->steps, mtp.arena_bytes[d] + mtp_->rows_bytes(chunk_));
    }
    return checked();
  });
}

Result<std::unique_ptr<Session>> Model::session() {
  if (runner_ == nullptr)
    return error(Code::usage, "this model was made to be planned, and its weights are not loaded");
  if (states_.sessions() == pool_.seqs) {
    return error(Code::out_of_device_memory, "all {} sessions of this model are in use; end one first", pool_.seqs);
  }
  return std::unique_ptr<Session>(new Session(*this));
}

std::vector<std::string> Model::device_names() const {
  std::vector<std::string> names;
  for (uint32_t d = 0; d < devices_.size(); ++d) {
    if (used_.contains(d)) names.push_back(devices_[d].name);
  }
  return names;
}

Result<Plan> Model::plan(uint32_t rows, uint32_t logit_rows, uint32_t context) const {
  SWY_LET(Plan plan, planner_->plan(bucket({.rows = rows, .logit_rows = logit_rows, .context = context})));
  plan.decisions.push_back(sampler_);
  return plan;
}

Result<Plan> Model::plan_mtp(uint32_t rows, uint32_t context) const {
  if (mtp_ == nullptr) return error(Code::usage, "this model does not run a multi-token prediction layer");
  return mtp_->planner().plan(bucket({.rows = rows, .context = context}));
}

Status Model::check_tokens(std::span<const int32_t> ids) const { return check_token_ids(ids, vocab_); }

uint32_t Model::part(uint32_t position, uint64_t left, uint32_t room) const {
  if (left <= room) return static_cast<uint32_t>(left);
  if (!deterministic()) return room;
  const uint32_t end = (position + room) / kPart * kPart;
  return end > position ? end - position : 0;
}

}  // namespace switchyard
