// Model: a program made runnable on chosen devices, and the sessions that run it.
//
// A Model owns one copy of the weights per device, the pool of session states, and the recorded plans by bucket.
// Sessions borrow pages and slots of the pool. One thread at a time may use a Model and its sessions.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/engine/routing.h"
#include "core/engine/step_builder.h"
#include "core/engine/weights.h"
#include "core/plan/executable.h"
#include "core/plan/plan.h"
#include "core/plugin/plugin.h"
#include "core/program/program.h"

namespace switchyard {

struct ModelOptions {
  uint32_t context = 0;   // tokens per session; 0: the program's, at most 4,096
  uint32_t chunk = 2048;  // largest step, in rows
  uint32_t sessions = 1;  // room in the state pool
  bool deterministic = false;
  bool routers = false;  // every step also gives the logits of its routers
  std::vector<VariantRule> variants;
  uint32_t load_threads = 1;       // that bring the weights into the devices' layouts
  WeightStore::Progress progress;  // of loading the weights
};

// The scheduler's view of a program's main function.
Graph graph_of(const Program& program);

class Session;

class Model {
 public:
  // `program` and `devices` are shared. Errors: unsupported, naming the operation; out of memory, with what was needed.
  static Result<std::unique_ptr<Model>> create(std::shared_ptr<const Program> program,
                                               std::vector<std::shared_ptr<Device>> devices, PlanPolicy policy,
                                               const ModelOptions& options);

  // The weights that it would load, and in which layouts, without loading any: what `convert --pack` stores.
  static Result<std::vector<WeightUse>> weight_uses(std::shared_ptr<const Program> program,
                                                    std::vector<std::shared_ptr<Device>> devices, PlanPolicy policy,
                                                    const ModelOptions& options);

  // Errors: out_of_device_memory, when every slot of the pool is taken.
  Result<std::unique_ptr<Session>> session();

  const Program& program() const { return *program_; }
  uint32_t context() const { return context_; }
  uint32_t vocab() const { return vocab_; }
  uint32_t chunk() const { return chunk_; }
  std::vector<std::string> device_names() const;  // of those that run some operation
  const WeightStore& weights() const { return *weights_; }

  // The plan for steps of one session with this many rows and logits, over a context. For `switchyard plan`.
  Result<Plan> plan(uint32_t rows, uint32_t logit_rows, uint32_t context) const;

  // Runs one ragged step. The logits, f32 [sum of logit_rows, vocab] in the order of the sequences, are valid until the
  // next step. Errors: those of the devices; invalid_data for a token id outside the vocabulary.
  Result<std::span<const float>> step(std::span<const StepSequence> sequences);

  // Those of ModelOptions::routers, in the order of the layers.
  const std::vector<Router>& routers() const { return routers_; }
  // A result of the last step besides its logits, from its first row on. Errors: internal, when there is none.
  Status read_result(uint32_t value, std::span<std::byte> to) const;

  // Counts what steps submit, until it is set to NULL.
  void watch(SubmitCounts* counts) { watched_ = counts; }

 private:
  friend class Session;
  Model() = default;
  Status allocate_states(const swy_bucket& pool);
  static Result<std::unique_ptr<Model>> plan_ahead(std::shared_ptr<const Program> program,
                                                   std::vector<std::shared_ptr<Device>> devices, PlanPolicy policy,
                                                   const ModelOptions& options);
  Result<std::vector<WeightUse>> weight_uses();
  Status allocate_steps();
  swy_bucket bucket(uint32_t rows, uint32_t seqs, uint32_t logit_rows, uint32_t context) const;
  Result<Executable*> executable(const swy_bucket& bucket);
  Status check_tokens(std::span<const StepSequence> sequences) const;

  std::shared_ptr<const Program> program_;
  std::vector<std::shared_ptr<Device>> owners_;
  std::vector<PlanDevice> devices_;
  std::set<uint32_t> used_;  // devices that run some operation
  std::unique_ptr<Planner> planner_;
  std::unique_ptr<WeightStore> weights_;
  std::unique_ptr<StepBuilder> builder_;
  std::vector<DeviceBuffer> states_;                   // per state
  std::vector<DeviceBuffer> steps_, tokens_;           // per device
  std::vector<std::shared_ptr<DeviceBuffer>> arenas_;  // per device: the largest so far
  std::map<std::array<uint32_t, 5>, std::unique_ptr<Executable>> executables_;
  std::vector<uint32_t> free_slots_, free_pages_;
  std::vector<float> logits_;  // where the host cannot see the device's
  swy_bucket pool_{};
  SubmitCounts* watched_ = nullptr;
  std::vector<Router> routers_;
  const Executable* last_ = nullptr;  // that ran a step
  uint32_t context_ = 0, chunk_ = 0, vocab_ = 0, logits_value_ = 0;
};

// One sequence: its tokens so far are in the states that it borrows from the pool.
class Session {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  uint32_t position() const { return position_; }  // tokens that the states have seen

  // Feeds tokens, in chunks. Returns the logits of the last `logit_rows` of them, f32 [logit_rows, vocab], valid until
  // the model's next step; with more than one chunk only rows of the last chunk can be had. Errors: usage, when the
  // context is full, with its size.
  Result<std::span<const float>> feed(std::span<const int32_t> tokens, uint32_t logit_rows = 1, uint32_t chunk = 0);

  // Forgets everything.
  void reset() { position_ = 0; }

 private:
  friend class Model;
  explicit Session(Model& model) : model_(model) {}

  Model& model_;
  uint32_t slot_ = 0;
  std::vector<uint32_t> pages_;
  uint32_t position_ = 0;
};

}  // namespace switchyard
