// SPDX-License-Identifier: Apache-2.0
// StepRunner: runs ragged steps on the devices: writes a step's block, submits its lists, and fetches what its head
// made. On an asynchronous device a second step can be submitted before the first one's results are read. Not
// thread-safe.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/engine/head.h"
#include "core/engine/step_builder.h"
#include "core/engine/weights.h"
#include "core/plan/executable.h"
#include "core/plan/plan.h"
#include "core/plan/series.h"

namespace switchyard {

// The results of a step's head for its sampled rows, in the order of the sequences.
struct StepOutput {
  std::span<const swy_sample_result> tokens;  // empty where none were wanted; so are all others
  uint32_t top_count = 0, candidate_count = 0;
  std::span<const int32_t> top_ids;  // [rows, top_count]
  std::span<const float> top_logprobs;
  std::span<const int32_t> candidate_ids;  // [rows, candidate_count]
  std::span<const float> candidate_logits;
  std::span<const swy_candidates_result> candidate_results;  // [rows]
  uint64_t bytes = 0;                                        // that came to the host
};

class StepRunner {
 public:
  static constexpr size_t kInFlight = 2;
  static constexpr uint32_t kMostBlocks = Series::kMost;
  // Sizes of steps with lists that `prepare` did not make. One more takes the place of the one that ran longest ago.
  static constexpr size_t kUnprepared = 64;

  struct Setup {
    const Planner* planner = nullptr;
    WeightStore* weights = nullptr;
    const std::vector<DeviceBuffer>* states = nullptr;  // per state of the graph
    Head head;
    swy_bucket pool{};
    uint32_t max_rows = 0;
    uint32_t pages_per_seq = 0;
    CancelCheck cancelled = {};  // stops the recording of a step
    uint32_t tokens = 0;         // token ids below this are valid; 0: below the logits' width
    uint32_t draws = 0;          // rows of a step that a device samples, besides one a sequence
    size_t in_flight = kInFlight;
    uint32_t blocks = 1;  // of steps (submit_unread): at most kMostBlocks
    std::vector<BoundValue> bound = {};
    uint32_t last_row = kNoValue, row = kNoValue;  // lists of one row make the latter in the former's place
    std::shared_ptr<const std::vector<DeviceBuffer>> tokens_of = {};  // another runner's; NULL: it has its own
  };
  static Result<std::unique_ptr<StepRunner>> create(const Setup& setup);

  // Allocates the memory of the largest step, on devices with their own memory, so that no later step
  // fails for lack of it; with `spare`, an eighth more must be free. Errors: those of planning; out_of_device_memory.
  Status reserve(const StepCounts& largest, bool spare);

  // Called as lists are made; false stops.
  using Progress = std::function<bool(uint64_t done, uint64_t total)>;
  // Makes the lists of future steps whose heads produce `wants`, as far as memory allows. From then on a step without
  // lists of its own size runs on the smallest of these that it fits, if there is one. Errors: those of planning and of
  // the devices; cancelled, when `progress` says so, which keeps the lists made so far.
  Status prepare(std::span<const StepCounts> steps, uint32_t wants, const Progress& progress = {},
                 HeadLists head = HeadLists::joined, uint32_t block = 0);
  // Joins prepared lists that `submit_unread` submits: of each of `first`, or of its head alone, and of a row in each
  // further block, or in fewer. Does nothing where the device cannot join them.
  Status prepare_series(std::span<const StepCounts> first, bool head_first);
  // Whether such a step needs no plan. It wants something: those that want nothing have no joined head.
  bool has_lists(const StepCounts& counts, uint32_t wants) const;
  // Sizes of steps that have lists, and how often such lists were made.
  size_t sizes() const { return executables_.size(); }
  uint64_t recorded() const { return recorded_; }

  // The devices' token buffers: an entry for each sequence, then one for each further draw of a step, and then as many
  // for guesses.
  std::shared_ptr<const std::vector<DeviceBuffer>> tokens() const { return tokens_; }
  uint32_t draw_entries() const { return s_.pool.seqs; }
  uint32_t guess_entries() const { return s_.pool.seqs + s_.draws; }
  // Reads ids in the token buffer of the device that samples, as what was submitted before leaves them: `ids` waits for
  // them. At most as many as a step has guesses.
  Status read_ids(uint32_t first, uint32_t count);
  Result<std::span<const int32_t>> ids();
  // The next step's submission also reads so many bytes of this result of it: `read_with` waits for them. Where steps
  // cannot run ahead it does nothing, and returns false.
  Result<bool> read_with_next(uint32_t value, uint64_t bytes);
  Result<std::span<const std::byte>> read_with();

  // Submits steps of one sequence each, whose heads draw a token into the token buffer, and nothing else: they are not
  // collected. Their blocks are written before the first of them begins, so that no copy stands between two. `begun`:
  // the first is a head alone, after `submit_body`. The caller waits for something that was submitted later before as
  // many more steps as can be in flight.
  Status submit_unread(std::span<const StepSequence> each, bool begun);
  // All operations before a head, of all rows of one sequence. The head follows once it is known how many of the rows
  // stand, for the last one that does. No other step comes between.
  // Where a state is changed by what a mixture of experts has made, no row is left out: drafts are ignored.
  Status submit_body(StepSequence sequence);

  // Submits one step whose head produces `wants`. `before_head` runs when the forward pass has been submitted; it fills
  // the masks. If the device reads no masks, the head has been submitted with it. Errors: those of the devices;
  // internal, with Setup::in_flight steps under way; unsupported, for drafts where a state is changed by what a mixture
  // of experts has made.
  Status submit(std::span<const StepSequence> sequences, uint32_t wants,
                const std::function<Status()>& before_head = {});

  // Runs one ragged step whose head produces logits. They are f32 [sum of logit_rows, vocab] in the order of the
  // sequences, valid until the next step. Errors: those of the devices; usage, while another step is in flight, and for
  // a token id outside the vocabulary.
  // `input`: the rows of the graph's input, where it has one.
  Result<std::span<const float>> run(std::span<const StepSequence> sequences, std::span<const float> input = {});

  // Runs only the operations that have pending rows: what stands in the sequence's read slot is applied to what its
  // write slot gets. The sequence has one row, which stays pending. The newest step's results stay as they are. Errors:
  // those of planning and of the devices.
  Status settle(const StepSequence& sequence);

  // Waits for the oldest step under way. Its output is valid until Setup::in_flight more were submitted.
  Result<StepOutput> collect();
  size_t in_flight() const { return submitted_ - collected_; }
  Status check_idle() const;                         // usage, while a step is in flight
  uint64_t submitted() const { return submitted_; }  // steps so far
  // Whether a step can be submitted while another runs, reading the tokens that the running one samples: where one
  // asynchronous device does all of every step, and samples.
  static bool can_run_ahead(std::span<const PlanDevice> devices, const Head& head);
  // Whether these devices can, if they sample.
  static bool can_run_ahead(std::span<const PlanDevice> devices);
  bool runs_ahead() const { return runs_ahead_; }

  // Rows [first, first + count) of the newest step's logits, f32 [count, vocab], valid until the next step. Errors:
  // internal, if there are none.
  Result<std::span<const float>> logits(uint32_t first, uint32_t count);

  // A result of the newest step besides its head's, from byte `offset` on. Errors: internal, if there is none.
  Status read_result(uint32_t value, std::span<std::byte> to, uint64_t offset = 0) const;

  // Sets the observer that counts or records submissions; NULL: none.
  void watch(SubmitCounts* counts) { watch_.counts = counts; }
  void observe(StepObserver* observer) { watch_.observer = observer; }
  StepObserver* observer() const { return watch_.observer; }

  // Returns when the devices have done everything that was submitted; a device that is lost does nothing more.
  void drain() const;
  // Frees all recorded lists, once the devices are done with them: steps record them anew. The results of earlier steps
  // can no longer be read. No step is under way.
  void forget_lists();

 private:
  // One step under way: its block, which the device may still read, and the results on the host.
  struct Flight {
    explicit Flight(const StepBuilder::Limits& limits) : builder(limits) {}
    StepBuilder builder;
    Executable* run = nullptr;
    uint32_t wants = 0, sample_rows = 0;
    uint64_t reached = 0;  // on the timeline
    uint32_t nothing = 0;  // see fetch_nothing
    std::vector<swy_sample_result> tokens;
    std::vector<int32_t> top_ids, candidate_ids;
    std::vector<float> top_logprobs, candidate_logits;
    std::vector<swy_candidates_result> candidate_results;
  };

  // What `settle` needs, apart from all other steps'.
  struct Settling {
    StepBuilder builder;
    std::vector<DeviceBuffer> steps;  // per device
    std::unique_ptr<Executable> run;
  };

  explicit StepRunner(const Setup& setup) : s_(setup) {}
  Status make_settling();
  ExecutableInputs inputs_of(const std::vector<DeviceBuffer>& steps,
                             std::vector<std::shared_ptr<DeviceBuffer>> arenas) const;
  Status allocate();
  Status grow_arena(size_t device, uint64_t bytes);
  Result<Executable*> executable(const swy_bucket& bucket, uint32_t wants, bool apart, uint32_t block = 0);
  swy_bucket bucket_for(const StepSequence& sequence) const;
  Status check_drafts(std::span<const StepSequence> sequences) const;
  Status submit_parts(std::span<const StepSequence> each, std::span<Executable* const> runs, bool head_first);
  // NULL: their lists are submitted one by one. A series is found by the very executables it was made of: a step that
  // fits lists which were prepared later has none.
  Series* series_of(std::span<Executable* const> runs, bool head_first) const;
  Result<std::unique_ptr<Executable>> make_executable(const swy_bucket& bucket, HeadLists head, uint32_t wants,
                                                      uint32_t block);
  Result<std::unique_ptr<Executable>> record(Plan plan, uint32_t block, std::vector<Refusal>& refused);
  Executable* prepared_for(const swy_bucket& bucket, uint32_t wants, HeadLists head, uint32_t block) const;
  void make_room_for_lists();
  Status submit_step(Flight& flight, std::span<const StepSequence> sequences, const swy_bucket& bucket,
                     const std::function<Status()>& before_head);
  Status wait_for(uint64_t value, const char* entry);
  // A new timeline, in place of one that has failed. Ends what the old one would have announced.
  Status make_timeline();
  Status write_step(uint64_t at, std::span<const std::byte> bytes, size_t block = 0);
  Status fetch(Flight& flight);
  Status fetch_head(Flight& flight);
  Status fetch_nothing(Flight& flight);
  Status fetch_value(Flight& flight, uint32_t value, std::span<std::byte> to);
  Result<Executable*> newest() const;
  bool waits() const { return !runs_ahead_ && asynchronous_; }

  Setup s_;
  std::vector<std::unique_ptr<Flight>> flights_;
  size_t submitted_ = 0, collected_ = 0;
  bool runs_ahead_ = false;
  bool joins_steps_ = false;  // Series::possible
  std::optional<StateAfterMixture> needs_all_rows_;
  swy_timeline* timeline_ = nullptr;
  uint32_t head_device_ = 0;
  uint64_t timeline_value_ = 0;
  // What is read beside a step's results, and when it is there. Once made, this memory stays where it is: a device may
  // still write to it.
  struct {
    std::vector<int32_t> to;
    uint32_t count = 0;
    uint64_t at = 0;
  } ids_;
  struct {
    std::vector<std::byte> to;
    uint32_t value = 0;
    uint64_t bytes = 0, at = 0;
    bool wanted = false;  // with the next step
  } with_;
  std::vector<std::vector<DeviceBuffer>> steps_;             // per block and device
  std::shared_ptr<const std::vector<DeviceBuffer>> tokens_;  // likewise
  std::vector<std::shared_ptr<DeviceBuffer>> arenas_;        // per device: the largest so far
  using Key = std::array<uint32_t, 9>;  // a bucket's sizes and flags, the block, and what its head makes, and how
  static Key key_of(const swy_bucket& bucket, HeadLists head, uint32_t wants, uint32_t block);
  struct Made {
    std::unique_ptr<Executable> run;
    bool prepared = false;
    uint64_t used = 0;  // the number of its last step
  };
  std::map<Key, Made> executables_;                          // few rows first
  std::map<Series::Parts, std::unique_ptr<Series>> series_;  // of prepared lists, which are never dropped alone
  uint64_t recorded_ = 0;
  std::vector<float> logits_;   // where the host cannot see the device's
  Executable* body_ = nullptr;  // whose head comes next
  std::unique_ptr<Settling> settling_;
  std::span<const float> input_;  // of the step being submitted
  StepWatch watch_;
  bool asynchronous_ = false;  // some device is asynchronous
  uint32_t vocab_ = 0;

 public:
  ~StepRunner();
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;
};

}  // namespace switchyard
