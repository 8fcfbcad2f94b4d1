// SPDX-License-Identifier: Apache-2.0
// Model: a program made runnable on chosen devices, with one copy of the weights per device and the memory of the
// sessions' states.
//
// Sessions (session.h) take pages and slots from the model's pool; a Batch (batch.h) runs many of them together. One
// thread at a time may use a Model, its sessions and its batches.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/draft/draft_policy.h"
#include "core/engine/mtp.h"
#include "core/engine/routing.h"
#include "core/engine/sampling_path.h"
#include "core/engine/state_pool.h"
#include "core/engine/step_runner.h"
#include "core/engine/weights.h"
#include "core/plan/plan.h"
#include "core/plugin/plugin.h"
#include "core/program/program.h"

namespace switchyard {

struct ModelOptions {
  uint32_t context = 0;  // tokens per session; 0: the program's, at most 4,096
  // Largest step, in rows; 0: kChunk, or kDeviceChunk where another device than the CPU computes the program. It is
  // halved until the kernels take a step of so many rows and it fits the memory that weights and states leave.
  uint32_t chunk = 0;
  uint32_t sessions = 1;     // at a time
  uint32_t checkpoints = 0;  // slots besides those of the sessions, for states that are kept (checkpoint.h)
  uint32_t drafts = 0;       // drafted tokens of a step, of all sessions together; 0: none can be drafted
  // Whether rows of drafts stay pending where kernels can leave them so. Otherwise each session gets a second slot, and
  // rows that stand are computed again where others do not.
  bool pending_rows = true;
  bool mtp = false;  // the program's multi-token prediction layer can be run, if it has one
  // If true, the model is made without the layer where no backend has its kernels, where the memory does not suffice,
  // and where steps run ahead, which would have to wait for it. Otherwise the first two are errors, and steps wait.
  bool mtp_if_it_fits = false;
  uint64_t state_bytes = 0;     // for all sessions' states together; 0: enough for every session's whole context
  bool device_sampling = true;  // false: logits only, with nothing of a sampler in any plan
  bool deterministic = false;
  bool verify_packed = false;  // packed weights of the file are compared with what their canonical form makes
  bool routers = false;        // every step also gives the logits of its routers
  bool hidden = false;         // every step also gives its hidden rows: what the head computes the logits from
  bool load = true;            // false: a model that only plans, of any size: nothing is on a device, and nothing runs
  std::vector<VariantRule> variants;
  std::shared_ptr<const Tuning> tuning;  // PlanPolicy::tuning
  std::string code_folder;               // where compiled ranges are kept; "": nowhere
  uint32_t load_threads = 1;             // that bring the weights into the devices' layouts
  WeightStore::Progress progress;        // of loading the weights
  CancelCheck cancelled;                 // stops planning, also of later steps
  Os* os = nullptr;                      // that says how much memory the host has; NULL: the real one
  uint64_t host_bytes = 0;               // that it may take of the host's memory; 0: as much as is available
};

// The scheduler's view of a program's main function, and of another one.
Graph graph_of(const Program& program);
Graph graph_of(const Program& program, const Function& function);

class Session;
struct SamplerOffer;

class Model {
 public:
  // Steps of ModelOptions::chunk 0. Fast devices need many rows at a time: each step reads all weights.
  static constexpr uint32_t kChunk = 2048, kDeviceChunk = 8192;

  // `program` and `devices` are shared. Errors: unsupported, naming the operation; out of memory, with what was
  // needed; cancelled.
  static Result<std::unique_ptr<Model>> create(std::shared_ptr<const Program> program,
                                               std::vector<std::shared_ptr<Device>> devices, PlanPolicy policy,
                                               const ModelOptions& options);

  // The weights that it would load, and in which layouts, without loading any: what `convert --pack` stores.
  static Result<std::vector<WeightUse>> weight_uses(std::shared_ptr<const Program> program,
                                                    std::vector<std::shared_ptr<Device>> devices, PlanPolicy policy,
                                                    const ModelOptions& options);

  static constexpr uint32_t kMaxDrafts = 256;

  // An empty session. Errors: out_of_device_memory, when there are as many as the model was made for.
  Result<std::unique_ptr<Session>> session();

  const Program& program() const { return *program_; }
  uint32_t context() const { return context_; }
  uint32_t vocab() const { return vocab_; }
  uint32_t chunk() const { return chunk_; }
  uint32_t max_sessions() const { return pool_.seqs; }
  uint32_t checkpoints() const { return checkpoints_; }    // ModelOptions::checkpoints
  DraftPolicy& draft_policy() { return draft_policy_; }    // of all its batches
  uint32_t drafts() const { return drafts_; }              // ModelOptions::drafts
  uint32_t pending_rows() const { return pending_rows_; }  // of a session; 0: rows cannot be pending
  // Whether rows that stand are computed again where others of their step do not.
  bool feeds_again() const { return pending_rows_ == 0 && states_.has_slotted(); }
  bool deterministic() const { return (pool_.flags & SWY_BUCKET_DETERMINISTIC) != 0; }
  std::vector<std::string> device_names() const;  // of devices that run some operation
  const std::vector<PlanDevice>& devices() const { return devices_; }
  const std::set<uint32_t>& used_devices() const { return used_; }  // indexes of devices that run some operation
  // What the device that samples can; without one, what the device of the head lacks.
  const DeviceSampling& device_sampling() const { return sampling_; }
  // Identifies the weights and the shapes of the states, for snapshots.
  uint64_t fingerprint() const;

  // The plan for steps of one session with this many rows and logits, over a context. Its last decision is who samples.
  // For `switchyard plan`.
  Result<Plan> plan(uint32_t rows, uint32_t logit_rows, uint32_t context) const;
  // The same of the multi-token prediction layer, with one row's logits. Errors: usage, where there is none.
  Result<Plan> plan_mtp(uint32_t rows, uint32_t context) const;

  // What it takes of each memory, with its largest step.
  const std::vector<MemoryNeed>& memory() const { return memory_; }
  // Those of ModelOptions::routers, in the order of the layers.
  const std::vector<Router>& routers() const { return routers_; }
  // With ModelOptions::hidden: the width of a hidden row, else 0; and the newest step's rows from `first` on, f32
  // [rows, width].
  uint32_t hidden_width() const { return hidden_width_; }
  Status read_hidden(uint32_t first, std::span<float> rows) const;
  // Has the next step's first rows read as it is submitted, and waits for them: StepRunner::read_with_next, read_with.
  Result<bool> read_hidden_with_next(uint32_t rows);
  Result<std::span<const float>> hidden_of_last();
  // What it owns: the weights on its devices, the memory of the sessions' states, and what runs steps.
  const WeightStore& weights() const { return *weights_; }
  StatePool& states() { return states_; }
  const StatePool& states() const { return states_; }
  MtpLayer* mtp() { return mtp_.get(); }  // with ModelOptions::mtp, where the program has one; else NULL
  // Why ModelOptions::mtp_if_it_fits left it out; "": it did not.
  const std::string& mtp_left_out() const { return mtp_left_out_; }
  StepRunner& runner() { return *runner_; }
  const StepRunner& runner() const { return *runner_; }
  // StepRunner's, of the layer's steps, too.
  void observe(StepObserver* observer);
  void forget_lists();

  Status check_tokens(std::span<const int32_t> ids) const;
  // How many of `left` tokens that begin at `position` go into a step with room for `room` rows. With --deterministic a
  // prompt is split at multiples of 64 only, so that its parts do not depend on the other sessions of the step.
  uint32_t part(uint32_t position, uint64_t left, uint32_t room) const;

 private:
  Model() = default;
  Status set_context(const ModelOptions& options);
  Status make_planners(const ModelOptions& options, const PlanPolicy& policy);
  bool goes_without_layer(const ModelOptions& options, const Status& failed) const;
  void leave_layer_out(std::string why);
  void set_slots();
  Status size_pool(const ModelOptions& options);
  Status make_planner(const ModelOptions& options, const PlanPolicy& policy);
  Status learn_planner(const ModelOptions& options, const PlanPolicy& policy);
  Status make_mtp(const ModelOptions& options, const PlanPolicy& policy);
  Status try_planner(const ModelOptions& options, const PlanPolicy& policy);
  // Errors: unsupported, where planning with pending rows has moved states that `plain` has on another device.
  Status check_homes(const Planner& pending, const Graph& plain, const ModelOptions& options,
                     const PlanPolicy& policy) const;
  Status add_hidden(Graph& graph);
  Status add_sampler(const ModelOptions& options, const PlanPolicy& policy, const Graph& plain, uint32_t home);
  Status plan_sampler(const ModelOptions& options, PlanPolicy policy, const Graph& plain, const SamplerOffer& offer);
  static Result<std::unique_ptr<Model>> plan_ahead(std::shared_ptr<const Program> program,
                                                   std::vector<std::shared_ptr<Device>> devices, PlanPolicy policy,
                                                   const ModelOptions& options);
  Result<std::vector<WeightUse>> weight_uses();
  // Measures and loads what was planned. What an earlier call loaded is used again. `host_bytes`: of the host's memory
  // that it may take. Errors: as check_memory, and those of the devices.
  Status load(const ModelOptions& options, uint64_t host_bytes);
  Status make_runner();
  StepCounts largest_step() const;
  StepCounts largest_layer_step() const;
  uint32_t least_chunk() const;
  // Calls `tried` with smaller chunks while there is too little memory, or kernels take fewer rows. Errors: those of
  // `tried`.
  Status fit_chunk(const std::function<Status()>& tried);
  Result<std::vector<MemoryNeed>> memory_needs(const std::vector<WeightUse>& uses, uint64_t host_bytes) const;
  // Fills memory_. Makes the chunk smaller where there is too little memory for its steps. Errors:
  // out_of_device_memory, before anything is on a device; not of a model that only plans.
  Status check_memory(const std::vector<WeightUse>& uses, uint64_t host_bytes, bool loads);
  swy_bucket bucket(const StepCounts& counts) const;
  uint32_t pages_per_session() const;

  std::shared_ptr<const Program> program_;
  std::vector<std::shared_ptr<Device>> owners_;
  std::vector<PlanDevice> devices_;
  std::set<uint32_t> used_;  // devices that run some operation
  std::unique_ptr<Planner> planner_;
  DeviceSampling sampling_;
  PlanDecision sampler_;  // which device samples, and why
  Head head_;
  std::unique_ptr<WeightStore> weights_;
  StatePool states_;
  std::unique_ptr<MtpLayer> mtp_;
  std::string mtp_left_out_;
  std::unique_ptr<StepRunner> runner_;
  swy_bucket pool_{};
  std::vector<Router> routers_;
  std::vector<MemoryNeed> memory_;
  CancelCheck cancelled_;
  DraftPolicy draft_policy_;
  uint32_t checkpoints_ = 0, drafts_ = 0, pending_rows_ = 0;
  uint32_t context_ = 0, chunk_ = 0, vocab_ = 0;
  uint32_t hidden_ = kNoValue, hidden_width_ = 0;
};

}  // namespace switchyard
