// SPDX-License-Identifier: Apache-2.0
#include "core/engine/step_runner.h"

#include <algorithm>
#include <utility>

#include "core/plugin/call.h"

namespace switchyard {

Result<std::unique_ptr<StepRunner>> StepRunner::create(const Setup& setup) {
  std::unique_ptr<StepRunner> r(new StepRunner(setup));
  SWY_TRY(r->allocate());
  return r;
}

StepRunner::~StepRunner() {
  drain();
  series_.clear();
  executables_.clear();
  settling_.reset();
  const PlanDevice& device = s_.planner->devices()[head_device_];
  if (timeline_ != nullptr) device.api->timeline_free(device.handle, timeline_);
}

Status StepRunner::allocate() {
  const std::vector<PlanDevice>& devices = s_.planner->devices();
  for (const PlanDevice& device : devices) asynchronous_ |= (device.info.flags & SWY_DEVICE_SYNCHRONOUS) == 0;
  needs_all_rows_ = state_after_mixture(s_.planner->graph());
  vocab_ = static_cast<uint32_t>(s_.planner->graph().values[s_.head.logits].width);
  const bool samples = s_.head.tokens != kNoValue || s_.head.candidate_ids != kNoValue;
  const StepBuilder::Limits limits{s_.max_rows,       s_.pool.seqs,         s_.pages_per_seq,
                                   s_.pool.page_size, samples ? vocab_ : 0, s_.draws};
  steps_.resize(s_.blocks);
  std::vector<DeviceBuffer> all_tokens;
  for (const PlanDevice& device : devices) {
    for (std::vector<DeviceBuffer>& block : steps_) {
      SWY_LET(DeviceBuffer step, DeviceBuffer::allocate(device, SWY_MEMORY_UPLOAD, limits.block_bytes(), "steps"));
      block.push_back(std::move(step));
    }
    if (s_.tokens_of != nullptr) continue;
    const uint64_t entries = uint64_t{s_.pool.seqs} + 2 * s_.draws;
    SWY_LET(DeviceBuffer tokens, DeviceBuffer::allocate(device, SWY_MEMORY_DEVICE, entries * 4, "tokens"));
    all_tokens.push_back(std::move(tokens));
  }
  tokens_ =
      s_.tokens_of != nullptr ? s_.tokens_of : std::make_shared<const std::vector<DeviceBuffer>>(std::move(all_tokens));
  arenas_.resize(devices.size());
  const size_t rows = samples ? s_.pool.seqs + s_.draws : 0;
  for (size_t i = 0; i < s_.in_flight; ++i) {
    Flight& f = *flights_.emplace_back(std::make_unique<Flight>(limits));
    f.tokens.resize(rows);
    f.top_ids.resize(rows * s_.head.top_count);
    f.top_logprobs.resize(rows * s_.head.top_count);
    f.candidate_ids.resize(rows * s_.head.candidate_count);
    f.candidate_logits.resize(rows * s_.head.candidate_count);
    f.candidate_results.resize(s_.head.candidate_count == 0 ? 0 : rows);
  }
  if (s_.head.tokens == kNoValue) return {};
  const std::vector<uint32_t> results = s_.head.results(kWantTokens);
  SWY_LET(const Plan plan,
          s_.planner->plan(bucket_of({.sample_rows = 1, .context = 1}, s_.pool, s_.max_rows), results));
  head_device_ = plan.nodes.back().device;
  joins_steps_ = Series::possible(devices[head_device_]);
  return can_run_ahead(devices, s_.head) ? make_timeline() : Status();
}

Status StepRunner::make_timeline() {
  const PlanDevice& device = s_.planner->devices()[head_device_];
  runs_ahead_ = false;
  if (timeline_ != nullptr) {
    drain();  // nothing is still going to write to it
    device.api->timeline_free(device.handle, std::exchange(timeline_, nullptr));
  }
  timeline_value_ = ids_.at = with_.at = 0;
  for (const auto& f : flights_) f->reached = 0;
  PluginError e;
  SWY_TRY(
      e.status(device.api->timeline_create(device.handle, &timeline_, e.get()), device.name + ": creating a timeline"));
  runs_ahead_ = true;
  return {};
}

bool StepRunner::can_run_ahead(std::span<const PlanDevice> devices, const Head& head) {
  return head.tokens != kNoValue && can_run_ahead(devices);
}

bool StepRunner::can_run_ahead(std::span<const PlanDevice> devices) {
  return devices.size() == 1 && (devices[0].info.flags & SWY_DEVICE_SYNCHRONOUS) == 0 &&
         devices[0].api->timeline_create != nullptr;
}

Status StepRunner::reserve(const StepCounts& largest, bool spare) {
  SWY_LET(const Plan plan, s_.planner->plan(bucket_of(largest, s_.pool, s_.max_rows)));
  const std::vector<PlanDevice>& devices = s_.planner->devices();
  for (size_t d = 0; d < devices.size(); ++d) {
    if ((devices[d].info.flags & SWY_DEVICE_HOST_MEMORY) != 0) continue;
    SWY_TRY(grow_arena(d, plan.arena_bytes[d]));
    // Lists, code and weights in other layouts come later.
    const uint64_t room = spare ? plan.arena_bytes[d] / 8 : 0;
    if (room == 0) continue;
    SWY_TRY(DeviceBuffer::allocate(devices[d], SWY_MEMORY_DEVICE, room, "what comes beside activations").status());
  }
  return make_settling();
}

// Where steps run ahead the write waits its turn in the device's queue, and the block stays as it is until then.
Status StepRunner::write_step(uint64_t at, std::span<const std::byte> bytes, size_t block) {
  const PluginTime inside(watch_.counts, waits());
  const Stretch stretch(watch_.observer, "write");
  const std::vector<DeviceBuffer>& steps = steps_[block];
  for (size_t d = 0; d < steps.size(); ++d) {
    if (!runs_ahead_) {
      SWY_TRY(steps[d].write(at, bytes));
    } else if (d == head_device_) {
      SWY_TRY(steps[d].write_later(at, bytes));
    }
  }
  return {};
}

swy_bucket StepRunner::bucket_for(const StepSequence& s) const {
  const auto rows = static_cast<uint32_t>(s.tokens.size());
  return bucket_of({.rows = rows, .sample_rows = 1, .context = s.position + rows}, s_.pool, s_.max_rows);
}

// With drafts a device may leave out rows of what follows the states.
Status StepRunner::check_drafts(std::span<const StepSequence> sequences) const {
  const auto drafted = [](const StepSequence& s) { return !s.drafts.empty(); };
  if (!needs_all_rows_ || std::none_of(sequences.begin(), sequences.end(), drafted)) return {};
  const std::vector<GraphOp>& ops = s_.planner->graph().ops;
  return error(Code::unsupported, "{} changes a state by what {} has made of all rows; a step cannot leave any out",
               ops[needs_all_rows_->state].name, ops[needs_all_rows_->mixture].name);
}

// A step in each block, at most. `head_first`: of the first one the head.
Status StepRunner::submit_parts(std::span<const StepSequence> each, std::span<Executable* const> runs,
                                bool head_first) {
  if (in_flight() + each.size() > s_.in_flight) {
    return error(Code::internal, "{} steps are under way and {} are submitted; {} fit", in_flight(), each.size(),
                 s_.in_flight);
  }
  const auto submit = [&]() -> Status {
    Series* const series = series_of(runs.first(each.size()), head_first);
    for (size_t i = 0; i < each.size(); ++i) {
      Flight& f = *flights_[(submitted_ + i) % s_.in_flight];
      f.run = runs[i];
      SWY_LET(const auto block, f.builder.build(each.subspan(i, 1), submitted_ + i + 1));
      SWY_TRY(write_step(0, block, i));
    }
    if (series != nullptr) return series->submit(watch_.counts);
    for (size_t i = 0; i < each.size(); ++i) SWY_TRY(runs[i]->submit(head_first && i == 0, watch_));
    return {};
  };
  Status submitted = submit();
  if (submitted.ok()) {
    submitted_ += each.size(), collected_ += each.size();
  } else {
    drain();  // as in `submit`
    body_ = nullptr;
  }
  return submitted;
}

Status StepRunner::submit_body(StepSequence sequence) {
  if (!joins_steps_ || needs_all_rows_) sequence.drafts = {};
  SWY_LET(body_, executable(bucket_for(sequence), kWantTokens, true));
  return submit_parts({&sequence, 1}, {&body_, 1}, false);
}

Status StepRunner::submit_unread(std::span<const StepSequence> each, bool begun) {
  Executable* const body = std::exchange(body_, nullptr);
  SWY_TRY(check_drafts(each));
  if (begun && body == nullptr) return error(Code::internal, "a head is submitted without the operations before it");
  for (size_t first = 0; first < each.size(); first += s_.blocks) {
    const std::span<const StepSequence> some = each.subspan(first, std::min<size_t>(each.size() - first, s_.blocks));
    const bool head = begun && first == 0;
    std::array<Executable*, kMostBlocks> runs = {body};
    for (uint32_t block = head ? 1 : 0; block < some.size(); ++block) {
      auto made = executable(bucket_for(some[block]), kWantTokens, false, block);
      if (!made.ok()) return drain(), made.status();
      runs[block] = *made;
    }
    SWY_TRY(submit_parts(some, runs, head));
  }
  return {};
}

Status StepRunner::submit(std::span<const StepSequence> sequences, uint32_t wants,
                          const std::function<Status()>& before_head) {
  if (in_flight() == s_.in_flight) return error(Code::internal, "{} steps are under way already", s_.in_flight);
  SWY_TRY(check_drafts(sequences));
  StepCounts counts{.rows = 0, .seqs = static_cast<uint32_t>(sequences.size()), .logit_rows = 0};
  for (const StepSequence& s : sequences) {
    const auto tokens = static_cast<uint32_t>(s.tokens.size());
    counts.rows += tokens;
    counts.logit_rows += s.logit_rows;
    counts.sample_rows += static_cast<uint32_t>(s.samples.size());
    counts.context = std::max(counts.context, s.position + tokens);
  }
  Flight& f = *flights_[submitted_ % s_.in_flight];
  f.wants = counts.logit_rows == 0 ? 0 : wants;
  f.sample_rows = counts.sample_rows;
  Status submitted = submit_step(f, sequences, bucket_of(counts, s_.pool, s_.max_rows), before_head);
  if (submitted.ok()) submitted = fetch(f);
  with_.wanted = false;
  if (submitted.ok()) {
    ++submitted_;
  } else {
    drain();  // a part of it may be in flight, and will not be collected otherwise
  }
  return submitted;
}

Status StepRunner::submit_step(Flight& f, std::span<const StepSequence> sequences, const swy_bucket& b,
                               const std::function<Status()>& before_head) {
  const bool masked = std::any_of(sequences.begin(), sequences.end(), [](const StepSequence& s) {
    return std::any_of(s.samples.begin(), s.samples.end(), [](const SampleRow& r) { return r.mask != nullptr; });
  });
  SWY_LET(f.run, executable(b, f.wants, masked));
  const auto build = [&] {
    const Stretch stretch(watch_.observer, "build");
    return f.builder.build(sequences, submitted_ + 1);
  };
  SWY_LET(const auto block, build());
  SWY_TRY(write_step(0, block));
  if (!input_.empty()) {
    for (const uint32_t value : s_.planner->graph().inputs) SWY_TRY(f.run->write(value, std::as_bytes(input_)));
  }
  SWY_TRY(f.run->submit(false, watch_));
  if (f.wants != 0) {
    if (before_head) {
      const Stretch stretch(watch_.observer, "masks");
      SWY_TRY(before_head());
    }
    if (masked) {
      SWY_TRY(write_step(f.builder.masks_at(), f.builder.fill_masks(sequences)));
      SWY_TRY(f.run->submit(true, watch_));
    }
  }
  return {};
}

void StepRunner::drain() const {
  for (size_t d = 0; tokens_ != nullptr && d < tokens_->size(); ++d) {
    if ((s_.planner->devices()[d].info.flags & SWY_DEVICE_SYNCHRONOUS) != 0) continue;
    uint32_t nothing = 0;
    (void)(*tokens_)[d].read(0, std::as_writable_bytes(std::span(&nothing, 1))).ok();
  }
}

// Copies a result to the host: at once, or when the timeline says so.
Status StepRunner::fetch_value(Flight& f, uint32_t value, std::span<std::byte> to) {
  const PluginTime inside(watch_.counts, waits());
  if (!runs_ahead_) {
    const Stretch stretch(watch_.observer, "wait");
    return f.run->read(value, 0, to);
  }
  f.reached = ++timeline_value_;
  return f.run->read_later(value, to, {timeline_, f.reached});
}

// The end of a step without results is detected by reading a word that is otherwise unused.
Status StepRunner::fetch_nothing(Flight& f) {
  const PluginTime inside(watch_.counts, false);
  const PlanDevice& device = s_.planner->devices()[head_device_];
  f.reached = ++timeline_value_;
  const swy_timeline_point done{timeline_, f.reached};
  const swy_submit submit{sizeof(swy_submit), 0, nullptr, 1, 0, &done};
  const swy_binding from = (*tokens_)[head_device_].all();
  PluginError e;
  const auto read = [&](swy_error* x) {
    return device.api->read(device.handle, &f.nothing, from.buffer, 0, sizeof f.nothing, &submit, x);
  };
  return e.status(call_plugin(device, "read", e.get(), read), device.name, "waiting for a step");
}

Status StepRunner::fetch(Flight& f) {
  SWY_TRY(fetch_head(f));
  if (!with_.wanted) return {};
  const uint64_t head = f.reached;
  SWY_TRY(fetch_value(f, with_.value, std::span(with_.to).first(with_.bytes)));
  with_.at = std::exchange(f.reached, head);
  return {};
}

Status StepRunner::fetch_head(Flight& f) {
  f.reached = timeline_value_;
  const auto bytes = [&](auto& values, size_t per_row) {
    return std::as_writable_bytes(std::span(values).first(f.sample_rows * per_row));
  };
  if (f.sample_rows == 0 && runs_ahead_) return fetch_nothing(f);
  if (f.sample_rows == 0) return {};
  if ((f.wants & kWantTop) != 0) {
    SWY_TRY(fetch_value(f, s_.head.tokens_with_top, bytes(f.tokens, 1)));
    SWY_TRY(fetch_value(f, s_.head.top_ids, bytes(f.top_ids, s_.head.top_count)));
    SWY_TRY(fetch_value(f, s_.head.top_logprobs, bytes(f.top_logprobs, s_.head.top_count)));
  } else if ((f.wants & kWantTokens) != 0) {
    SWY_TRY(fetch_value(f, s_.head.tokens, bytes(f.tokens, 1)));
  }
  if ((f.wants & kWantCandidates) != 0) {
    SWY_TRY(fetch_value(f, s_.head.candidate_ids, bytes(f.candidate_ids, s_.head.candidate_count)));
    SWY_TRY(fetch_value(f, s_.head.candidate_logits, bytes(f.candidate_logits, s_.head.candidate_count)));
    SWY_TRY(fetch_value(f, s_.head.candidate_result, bytes(f.candidate_results, 1)));
  }
  return {};
}

Status StepRunner::check_idle() const {
  if (in_flight() == 0) return {};
  return error(Code::usage, "a batch of this model is running a step; finish its requests first");
}

Result<std::span<const float>> StepRunner::run(std::span<const StepSequence> sequences, std::span<const float> input) {
  uint32_t logit_rows = 0;
  for (const StepSequence& s : sequences) {
    SWY_TRY(check_token_ids(s.tokens, s_.tokens == 0 ? vocab_ : s_.tokens));
    logit_rows += s.logit_rows;
  }
  SWY_TRY(check_idle());
  input_ = input;
  SWY_TRY(submit(sequences, kWantLogits));
  SWY_TRY(collect().status());
  if (logit_rows == 0) return std::span<const float>{};
  return logits(0, logit_rows);
}

Status StepRunner::wait_for(uint64_t value, const char* entry) {
  const PlanDevice& device = s_.planner->devices()[head_device_];
  PluginError e;
  const PluginTime inside(watch_.counts, true);
  const Stretch stretch(watch_.observer, "wait");
  const auto wait = [&](swy_error* x) { return device.api->timeline_wait(timeline_, value, UINT64_MAX, x); };
  const swy_status result = call_plugin(device, entry, e.get(), wait);
  Status waited = e.status(result, device.name, "waiting for a step");
  if (result == SWY_CANCELLED) SWY_TRY(make_timeline());  // the old one has failed for good; later steps need one
  return waited;
}

Status StepRunner::read_ids(uint32_t first, uint32_t count) {
  if (count > s_.draws) return error(Code::internal, "{} guesses are read, and there is room for {}", count, s_.draws);
  ids_.to.resize(s_.draws);
  ids_.count = count;
  const std::span<int32_t> to(ids_.to.data(), count);
  const DeviceBuffer& from = (*tokens_)[head_device_];
  if (!runs_ahead_) return from.read(uint64_t{first} * 4, std::as_writable_bytes(to));
  const PlanDevice& device = s_.planner->devices()[head_device_];
  const PluginTime inside(watch_.counts, false);
  ids_.at = ++timeline_value_;
  const swy_timeline_point done{timeline_, ids_.at};
  const swy_submit submit{sizeof(swy_submit), 0, nullptr, 1, 0, &done};
  PluginError e;
  const auto read = [&](swy_error* x) {
    return device.api->read(device.handle, to.data(), from.all().buffer, uint64_t{first} * 4, to.size_bytes(), &submit,
                            x);
  };
  return e.status(call_plugin(device, "read", e.get(), read), device.name, "reading guesses");
}

Result<std::span<const int32_t>> StepRunner::ids() {
  if (runs_ahead_) SWY_TRY(wait_for(ids_.at, "timeline_wait, guesses"));
  return std::span<const int32_t>(ids_.to).first(ids_.count);
}

Result<bool> StepRunner::read_with_next(uint32_t value, uint64_t bytes) {
  if (!runs_ahead_) return false;
  if (bytes > with_.to.size()) {
    if (with_.at > 0) SWY_TRY(wait_for(with_.at, "timeline_wait"));
    with_.to.resize(bytes);
  }
  with_.value = value, with_.bytes = bytes, with_.wanted = true;
  return true;
}

Result<std::span<const std::byte>> StepRunner::read_with() {
  SWY_TRY(wait_for(with_.at, "timeline_wait"));
  return std::span<const std::byte>(with_.to).first(with_.bytes);
}

Result<StepOutput> StepRunner::collect() {
  if (in_flight() == 0) return error(Code::internal, "no step is under way");
  Flight& f = *flights_[collected_++ % s_.in_flight];
  if (timeline_ != nullptr && f.reached > 0) {
    SWY_TRY(wait_for(f.reached, f.run == nullptr ? "timeline_wait" : f.run->waits_for()));
  }
  StepOutput out;
  const size_t rows = f.sample_rows;
  const auto part = [&]<class T>(const std::vector<T>& values, size_t per_row) {
    out.bytes += rows * per_row * sizeof(T);
    return std::span<const T>(values).first(rows * per_row);
  };
  if ((f.wants & (kWantTokens | kWantTop)) != 0) out.tokens = part(f.tokens, 1);
  if ((f.wants & kWantTop) != 0) {
    out.top_count = s_.head.top_count;
    out.top_ids = part(f.top_ids, out.top_count);
    out.top_logprobs = part(f.top_logprobs, out.top_count);
  }
  if ((f.wants & kWantCandidates) != 0) {
    out.candidate_count = s_.head.candidate_count;
    out.candidate_ids = part(f.candidate_ids, out.candidate_count);
    out.candidate_logits = part(f.candidate_logits, out.candidate_count);
    out.candidate_results = part(f.candidate_results, 1);
  }
  if (watch_.observer != nullptr) watch_.observer->stepped();
  return out;
}

Result<Executable*> StepRunner::newest() const {
  Executable* run = submitted_ == 0 ? nullptr : flights_[(submitted_ - 1) % s_.in_flight]->run;
  if (run == nullptr) return error(Code::internal, "a result was read before any step");
  return run;
}

Status StepRunner::read_result(uint32_t value, std::span<std::byte> to, uint64_t offset) const {
  SWY_LET(const Executable* run, newest());
  const PluginTime inside(watch_.counts, asynchronous_);
  const Stretch stretch(watch_.observer, "wait");
  return run->read(value, offset, to);
}

Result<std::span<const float>> StepRunner::logits(uint32_t first, uint32_t count) {
  SWY_LET(const Executable* run, newest());
  const size_t at = size_t{first} * vocab_, n = size_t{count} * vocab_;
  if (const std::byte* seen = run->view(s_.head.logits)) {
    return std::span<const float>(reinterpret_cast<const float*>(seen) + at, n);
  }
  logits_.resize(std::max(logits_.size(), at + n));
  const std::span<float> to(logits_.data() + at, n);
  const PluginTime inside(watch_.counts, asynchronous_);
  const Stretch stretch(watch_.observer, "wait");
  SWY_TRY(run->read(s_.head.logits, at * sizeof(float), std::as_writable_bytes(to)));
  return std::span<const float>(to);
}

}  // namespace switchyard
