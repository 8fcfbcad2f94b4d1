// SPDX-License-Identifier: Apache-2.0
// The lists of a step's size: planned and recorded ahead or when first needed, and dropped when others need their room.
#include <algorithm>

#include "core/engine/step_runner.h"

namespace switchyard {
namespace {

constexpr uint32_t kAnything = UINT32_MAX;  // of HeadWant

}  // namespace

// A larger step gets a larger arena; older plans keep theirs.
Status StepRunner::grow_arena(size_t device, uint64_t bytes) {
  std::shared_ptr<DeviceBuffer>& arena = arenas_[device];
  if (arena != nullptr && arena->bytes() >= bytes) return {};
  if (arena.use_count() == 1) arena.reset();  // no plan has it
  SWY_LET(DeviceBuffer larger,
          DeviceBuffer::allocate(s_.planner->devices()[device], SWY_MEMORY_DEVICE, bytes, "activations"));
  arena = std::make_shared<DeviceBuffer>(std::move(larger));
  return {};
}

StepRunner::Key StepRunner::key_of(const swy_bucket& b, HeadLists head, uint32_t wants, uint32_t block) {
  return {b.rows, b.context, b.seqs, b.logit_rows, b.sample_rows, b.flags, block, static_cast<uint32_t>(head), wants};
}

Result<Executable*> StepRunner::executable(const swy_bucket& bucket, uint32_t wants, bool apart, uint32_t block) {
  const HeadLists head = apart || wants == 0 ? HeadLists::apart : HeadLists::joined;
  const Key key = key_of(bucket, head, wants, block);
  const auto it = executables_.find(key);
  if (it != executables_.end()) {
    it->second.used = submitted_;
    return it->second.run.get();
  }
  Executable* prepared = prepared_for(bucket, wants, head, block);
  if (prepared == nullptr && wants == 0) prepared = prepared_for(bucket, kAnything, head, block);
  if (prepared != nullptr) return prepared;
  const Stretch stretch(watch_.observer, "plan and record");
  make_room_for_lists();
  SWY_LET(auto made, make_executable(bucket, head, wants, block));
  return executables_.emplace(key, Made{std::move(made), false, submitted_}).first->second.run.get();
}

// What the requests of a long-lived server want can be combined in thousands of ways.
void StepRunner::make_room_for_lists() {
  const auto flies = [this](const Made& made) {
    return std::any_of(flights_.begin(), flights_.end(), [&](const auto& f) { return f->run == made.run.get(); });
  };
  size_t unprepared = 0;
  auto oldest = executables_.end();
  for (auto it = executables_.begin(); it != executables_.end(); ++it) {
    if (it->second.prepared) continue;
    ++unprepared;
    if (flies(it->second)) continue;  // its results may still be read
    if (oldest == executables_.end() || it->second.used < oldest->second.used) oldest = it;
  }
  if (unprepared < kUnprepared) return;
  drain();
  executables_.erase(oldest);
}

// Lists of decoding steps accept no other steps, and several draws of a sequence need lists made for them. A step that
// wants nothing has no row for a head, so any head is fine where no lists are without one.
Executable* StepRunner::prepared_for(const swy_bucket& b, uint32_t wants, HeadLists head, uint32_t block) const {
  for (const auto& [key, made] : executables_) {
    if (!made.prepared || key[key.size() - 3] != block) continue;
    const bool same = key.back() == wants && key[key.size() - 2] == static_cast<uint32_t>(head);
    if (wants != kAnything && !same) continue;
    const swy_bucket& room = made.run->plan().bucket;
    const bool decodes = (room.flags & SWY_BUCKET_DECODE) != 0;
    if (decodes && (b.flags & SWY_BUCKET_DECODE) == 0) continue;
    if ((b.flags & SWY_BUCKET_DRAFTS) != 0 && (room.flags & SWY_BUCKET_DRAFTS) == 0) continue;
    const bool fits = b.rows <= room.rows && b.seqs <= room.seqs && b.logit_rows <= room.logit_rows &&
                      b.sample_rows <= room.sample_rows && b.context <= room.context;
    if (fits) return made.run.get();
  }
  return nullptr;
}

bool StepRunner::has_lists(const StepCounts& counts, uint32_t wants) const {
  const swy_bucket b = bucket_of(counts, s_.pool, s_.max_rows);
  return executables_.contains(key_of(b, HeadLists::joined, wants, 0)) ||
         prepared_for(b, wants, HeadLists::joined, 0) != nullptr;
}

Status StepRunner::prepare(std::span<const StepCounts> steps, uint32_t wants, const Progress& progress, HeadLists head,
                           uint32_t block) {
  uint64_t done = 0;
  for (StepCounts counts : steps) {
    if (wants == kWantLogits || wants == 0) counts.sample_rows = 0;
    if (wants == 0) counts.logit_rows = 0;
    const swy_bucket bucket = bucket_of(counts, s_.pool, s_.max_rows);
    const Key key = key_of(bucket, head, wants, block);
    Made& entry = executables_[key];
    if (entry.run == nullptr) {
      auto made = make_executable(bucket, head, wants, block);
      if (!made.ok()) {
        executables_.erase(key);
        return made.status().code() == Code::out_of_device_memory ? Status() : made.status();
      }
      entry.run = std::move(*made);
    }
    entry.prepared = true;
    if (progress && !progress(++done, steps.size())) {
      return error(Code::cancelled, "stopped while the lists of steps were made");
    }
  }
  return {};
}

Result<std::unique_ptr<Executable>> StepRunner::make_executable(const swy_bucket& bucket, HeadLists head,
                                                                uint32_t wants, uint32_t block) {
  constexpr int kMaxRounds = 16;  // of planning, each without what refused to be recorded in those before
  ++recorded_;
  std::vector<uint32_t> results = s_.head.results(wants);
  if (bucket.rows == 1) std::replace(results.begin(), results.end(), s_.last_row, s_.row);
  for (int round = 1;; ++round) {
    const auto planned = [&] {
      const Stretch stretch(watch_.observer, "plan");
      return s_.planner->plan(bucket, results, head);
    };
    SWY_LET(Plan plan, planned());
    plan.decisions = {};  // half of its memory, needed only to explain a plan
    std::vector<Refusal> refused;
    auto made = record(std::move(plan), block, refused);
    if (refused.empty() || round == kMaxRounds) return made;
    s_.planner->drop(refused);
  }
}

Result<std::unique_ptr<Executable>> StepRunner::record(Plan plan, uint32_t block, std::vector<Refusal>& refused) {
  const Stretch stretch(watch_.observer, "record");
  const std::vector<PlanDevice>& devices = s_.planner->devices();
  for (size_t d = 0; d < devices.size(); ++d) SWY_TRY(grow_arena(d, plan.arena_bytes[d]));
  ExecutableInputs inputs = inputs_of(steps_[block], arenas_);
  for (BoundValue& b : inputs.bound) {  // the only row is the last one
    if (plan.bucket.rows == 1 && b.value == s_.last_row) b.value = s_.row;
  }
  return Executable::record(std::move(plan), devices, std::move(inputs), watch_.observer, &refused);
}

Series* StepRunner::series_of(std::span<Executable* const> runs, bool head_first) const {
  if (watch_.observer != nullptr) return nullptr;  // it wants to see each list
  Series::Parts parts{};
  for (size_t i = 0; i < runs.size(); ++i) parts[i] = {runs[i], head_first && i == 0};
  const auto found = series_.find(parts);
  return found == series_.end() ? nullptr : found->second.get();
}

Status StepRunner::prepare_series(std::span<const StepCounts> first, bool head_first) {
  const swy_bucket row = bucket_of({.sample_rows = 1}, s_.pool, s_.max_rows);
  for (const StepCounts& counts : first) {
    const swy_bucket bucket = bucket_of(counts, s_.pool, s_.max_rows);
    Series::Parts parts{};
    parts[0] = {prepared_for(bucket, kWantTokens, head_first ? HeadLists::apart : HeadLists::joined, 0), head_first};
    for (uint32_t block = 1; block < s_.blocks; ++block) {
      parts[block] = {prepared_for(row, kWantTokens, HeadLists::joined, block), false};
      if (parts[0].run == nullptr || parts[block].run == nullptr) break;  // there was no memory for it
      if (series_.contains(parts)) continue;
      auto made = Series::record(s_.planner->devices()[head_device_], parts);
      if (!made.ok()) {  // each list can be submitted by itself
        const Code code = made.status().code();
        return code == Code::out_of_device_memory || code == Code::unsupported ? Status() : made.status();
      }
      if (*made == nullptr) return {};
      series_.emplace(parts, std::move(*made));
    }
  }
  return {};
}

ExecutableInputs StepRunner::inputs_of(const std::vector<DeviceBuffer>& steps,
                                       std::vector<std::shared_ptr<DeviceBuffer>> arenas) const {
  ExecutableInputs inputs;
  inputs.weight = [this](uint32_t w, uint32_t d, uint32_t layout) {
    return s_.weights->get(weight_use(s_.planner->graph(), w, d, layout));
  };
  for (const DeviceBuffer& s : *s_.states) inputs.states.push_back(s.all());
  for (const DeviceBuffer& s : steps) inputs.steps.push_back(s.all());
  for (const DeviceBuffer& t : *tokens_) inputs.tokens.push_back(t.all());
  inputs.bound = s_.bound;
  inputs.arenas = std::move(arenas);
  inputs.cancelled = s_.cancelled;
  return inputs;
}

void StepRunner::forget_lists() {
  drain();
  for (const auto& flight : flights_) flight->run = nullptr;
  body_ = nullptr;
  series_.clear();
  executables_.clear();
  settling_.reset();
}

}  // namespace switchyard
