#include "core/engine/model.h"

#include <algorithm>

namespace switchyard {
namespace {

constexpr uint32_t kPageSize = 64;
constexpr uint32_t kDefaultContext = 4096;

}  // namespace

Graph graph_of(const Program& program) {
  const Function& f = program.main();
  Graph g;
  for (const Value& v : f.values) g.values.push_back({std::string(v.name), v.dtype, v.rows, v.width});
  for (const Tensor& t : program.tensors) g.weights.push_back({std::string(t.name), describe(t)});
  for (const State& s : program.states) g.states.push_back({std::string(s.name), describe(s)});
  for (const Op& op : f.ops) {
    GraphOp& o = g.ops.emplace_back();
    o.id = op.id;
    o.revision = op.revision;
    o.attrs.assign(op.attrs.begin(), op.attrs.end());
    o.inputs.assign(op.inputs.begin(), op.inputs.end());
    o.weights.assign(op.weights.begin(), op.weights.end());
    o.states.assign(op.states.begin(), op.states.end());
    o.outputs.assign(op.outputs.begin(), op.outputs.end());
    o.name = op.outputs.empty() ? fmt::format("op{}", g.ops.size() - 1) : g.values[op.outputs[0]].name;
  }
  g.results.assign(f.outputs.begin(), f.outputs.end());
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

  const auto limit = static_cast<uint32_t>(std::min<uint64_t>(m->program_->context_length, UINT32_MAX));
  m->context_ = options.context != 0 ? options.context
                : limit != 0         ? std::min(limit, kDefaultContext)
                                     : kDefaultContext;
  if (limit != 0 && m->context_ > limit) {
    return error(Code::usage, "--ctx {} is more than the {} tokens that this model was made for", m->context_, limit);
  }
  m->chunk_ = std::clamp(options.chunk, 1u, m->context_);
  const uint32_t pages_per_session = (m->context_ + kPageSize - 1) / kPageSize;
  swy_bucket& pool = m->pool_;
  pool.struct_size = sizeof pool;
  pool.context = m->context_;
  pool.seqs = options.sessions;
  pool.slots = options.sessions;
  pool.pages = pages_per_session * options.sessions;
  pool.page_size = kPageSize;
  pool.flags = options.deterministic ? SWY_BUCKET_DETERMINISTIC : 0;

  Graph graph = graph_of(*m->program_);
  m->logits_value_ = graph.results[0];
  if (options.routers) m->routers_ = add_routers(graph);
  m->vocab_ = static_cast<uint32_t>(graph.values[m->logits_value_].width);
  SWY_LET(Planner planner,
          Planner::create(std::move(graph), m->devices_, std::move(policy), options.variants, pool, m->chunk_));
  m->planner_ = std::make_unique<Planner>(std::move(planner));
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
  const swy_bucket& pool = m->pool_;
  const uint32_t pages_per_session = pool.pages / pool.slots;
  m->weights_ = std::make_unique<WeightStore>(*m->program_, m->devices_);
  m->builder_ = std::make_unique<StepBuilder>(m->chunk_, options.sessions, pages_per_session, kPageSize);
  m->arenas_.resize(m->devices_.size());
  SWY_LET(std::vector<WeightUse> uses, m->weight_uses());
  SWY_TRY(m->weights_->load(std::move(uses), options.load_threads, options.progress));
  SWY_TRY(m->allocate_states(pool));
  SWY_TRY(m->allocate_steps());
  for (uint32_t i = options.sessions; i-- > 0;) m->free_slots_.push_back(i);
  for (uint32_t i = pool.pages; i-- > 0;) m->free_pages_.push_back(i);
  return m;
}

// What single steps and the largest chunks read. Buckets in between seldom add to it.
Result<std::vector<WeightUse>> Model::weight_uses() {
  std::vector<WeightUse> uses;
  for (const uint32_t rows : {1u, chunk_}) {
    SWY_LET(const Plan plan, planner_->plan(bucket(rows, 1, 1, context_)));
    for (const PlanNode& node : plan.nodes) {
      used_.insert(node.device);
      for (size_t i = 0; i < node.op.weights.size(); ++i) {
        const uint32_t layout = node.kernel != nullptr ? node.prepared.weight_layouts[i] : node.range_layouts[i];
        uses.push_back({node.op.weights[i], node.device, layout});
      }
    }
  }
  return uses;
}

Status Model::allocate_states(const swy_bucket& pool) {
  const Graph& graph = planner_->graph();
  states_.resize(graph.states.size());
  for (const GraphOp& op : graph.ops) {
    for (uint32_t i = 0; i < op.states.size(); ++i) {
      const uint32_t s = op.states[i];
      const PlanDevice& device = devices_[planner_->state_device()[s]];
      const OpView view(graph, op, pool);
      swy_state_layout layout{};
      layout.struct_size = sizeof layout;
      PluginError e;
      SWY_TRY(e.status(device.api->state_layout(device.handle, view.get(), i, &pool, &layout, e.get()),
                       device.name + ": state " + graph.states[s].name));
      const bool paged = graph.states[s].desc.state == SWY_STATE_PAGED;
      SWY_LET(states_[s],
              DeviceBuffer::allocate(device, SWY_MEMORY_DEVICE, layout.unit_bytes * (paged ? pool.pages : pool.slots),
                                     "state " + graph.states[s].name));
    }
  }
  return {};
}

Status Model::allocate_steps() {
  const uint32_t pages = (context_ + kPageSize - 1) / kPageSize;
  for (const PlanDevice& device : devices_) {
    SWY_LET(DeviceBuffer step, DeviceBuffer::allocate(device, SWY_MEMORY_UPLOAD,
                                                      StepBuilder::block_bytes(chunk_, pool_.seqs, pages), "steps"));
    steps_.push_back(std::move(step));
    SWY_LET(DeviceBuffer tokens, DeviceBuffer::allocate(device, SWY_MEMORY_DEVICE, uint64_t{pool_.seqs} * 4, "tokens"));
    tokens_.push_back(std::move(tokens));
  }
  return {};
}

Result<std::unique_ptr<Session>> Model::session() {
  const uint32_t pages = (context_ + kPageSize - 1) / kPageSize;
  if (free_slots_.empty() || free_pages_.size() < pages) {
    return error(Code::out_of_device_memory, "all {} sessions of this model are in use; end one first", pool_.seqs);
  }
  std::unique_ptr<Session> s(new Session(*this));
  s->slot_ = free_slots_.back();
  free_slots_.pop_back();
  s->pages_.assign(free_pages_.end() - pages, free_pages_.end());
  free_pages_.resize(free_pages_.size() - pages);
  return s;
}

std::vector<std::string> Model::device_names() const {
  std::vector<std::string> names;
  for (uint32_t d = 0; d < devices_.size(); ++d) {
    if (used_.contains(d)) names.push_back(devices_[d].name);
  }
  return names;
}

swy_bucket Model::bucket(uint32_t rows, uint32_t seqs, uint32_t logit_rows, uint32_t context) const {
  swy_bucket b = pool_;
  b.rows = bucket_size(rows, chunk_);
  b.seqs = bucket_size(seqs, pool_.seqs);
  b.logit_rows = bucket_size(logit_rows, chunk_);
  b.context = bucket_size(std::max(context, kSmallestContextBucket), context_);
  if (rows == seqs) b.flags |= SWY_BUCKET_DECODE;
  return b;
}

Result<Plan> Model::plan(uint32_t rows, uint32_t logit_rows, uint32_t context) const {
  return planner_->plan(bucket(rows, 1, logit_rows, context));
}

Result<Executable*> Model::executable(const swy_bucket& b) {
  const std::array<uint32_t, 5> key = {b.rows, b.seqs, b.logit_rows, b.context, b.flags};
  auto it = executables_.find(key);
  if (it != executables_.end()) return it->second.get();
  SWY_LET(Plan plan, planner_->plan(b));
  for (size_t d = 0; d < devices_.size(); ++d) {  // a larger step gets a larger arena; older plans keep theirs
    if (arenas_[d] != nullptr && arenas_[d]->bytes() >= plan.arena_bytes[d]) continue;
    SWY_LET(DeviceBuffer arena,
            DeviceBuffer::allocate(devices_[d], SWY_MEMORY_DEVICE, plan.arena_bytes[d], "activations"));
    arenas_[d] = std::make_shared<DeviceBuffer>(std::move(arena));
  }
  ExecutableInputs inputs;
  inputs.weight = [this](uint32_t w, uint32_t d, uint32_t layout) { return weights_->get({w, d, layout}); };
  for (const DeviceBuffer& s : states_) inputs.states.push_back(s.all());
  for (const DeviceBuffer& s : steps_) inputs.steps.push_back(s.all());
  for (const DeviceBuffer& t : tokens_) inputs.tokens.push_back(t.all());
  inputs.arenas = arenas_;
  SWY_LET(auto recorded, Executable::record(std::move(plan), devices_, std::move(inputs)));
  return executables_.emplace(key, std::move(recorded)).first->second.get();
}

Status Model::check_tokens(std::span<const StepSequence> sequences) const {
  for (const StepSequence& s : sequences) {
    for (const int32_t id : s.tokens) {
      if (id < 0 || static_cast<uint32_t>(id) >= vocab_) {
        return error(Code::usage, "token id {} is outside the vocabulary; ids go from 0 to {}", id, vocab_ - 1);
      }
    }
  }
  return {};
}

Result<std::span<const float>> Model::step(std::span<const StepSequence> sequences) {
  SWY_TRY(check_tokens(sequences));
  uint32_t rows = 0, logit_rows = 0, context = 0;
  for (const StepSequence& s : sequences) {
    rows += static_cast<uint32_t>(s.tokens.size());
    logit_rows += s.logit_rows;
    context = std::max(context, s.position + static_cast<uint32_t>(s.tokens.size()));
  }
  SWY_LET(Executable * run, executable(bucket(rows, static_cast<uint32_t>(sequences.size()), logit_rows, context)));
  SWY_LET(const auto block, builder_->build(sequences));
  for (const DeviceBuffer& s : steps_) SWY_TRY(s.write(0, block));
  last_ = run;
  SWY_TRY(run->submit(false, watched_));
  if (logit_rows == 0) return std::span<const float>{};
  SWY_TRY(run->submit(true, watched_));
  const size_t count = size_t{logit_rows} * vocab_;
  if (const std::byte* seen = run->view(logits_value_)) {
    return std::span<const float>(reinterpret_cast<const float*>(seen), count);
  }
  logits_.resize(std::max(logits_.size(), count));
  SWY_TRY(run->read(logits_value_, std::as_writable_bytes(std::span(logits_.data(), count))));
  return std::span<const float>(logits_.data(), count);
}

Status Model::read_result(uint32_t value, std::span<std::byte> to) const {
  if (last_ == nullptr) return error(Code::internal, "value {} was read before any step", value);
  return last_->read(value, to);
}

Session::~Session() {
  model_.free_slots_.push_back(slot_);
  model_.free_pages_.insert(model_.free_pages_.end(), pages_.begin(), pages_.end());
}

Result<std::span<const float>> Session::feed(std::span<const int32_t> tokens, uint32_t logit_rows, uint32_t chunk) {
  const uint32_t limit = chunk == 0 ? model_.chunk_ : std::min(chunk, model_.chunk_);
  if (tokens.size() > model_.context_ - position_) {
    return error(Code::usage,
                 "{} tokens do not fit: {} of the context's {} are used; raise --ctx or shorten the prompt",
                 tokens.size(), position_, model_.context_);
  }
  std::span<const float> logits;
  while (!tokens.empty()) {
    const auto n = static_cast<uint32_t>(std::min<size_t>(tokens.size(), limit));
    const bool last = n == tokens.size();
    const StepSequence part{tokens.first(n), position_, slot_, slot_, pages_, last ? std::min(logit_rows, n) : 0};
    SWY_LET(logits, model_.step({&part, 1}));
    position_ += n;
    tokens = tokens.subspan(n);
  }
  return logits;
}

}  // namespace switchyard
