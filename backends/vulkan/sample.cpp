// SPDX-License-Identifier: Apache-2.0
// SAMPLE and TOP_CANDIDATES: the chain of sampling_math.h. Many workgroups scan parts of a row (sample_scan.comp); one
// chooses its token (sample.comp), or lists the best (sample_candidates.comp).
#include "switchyard/sampling_math.h"

#include <map>
#include <memory>
#include <mutex>

#include "sample.h"

namespace gpu {
namespace {

#include "sample.comp.h"
#include "sample_candidates.comp.h"
#include "sample_check.comp.h"
#include "sample_scan.comp.h"
constexpr Shader kScan = SWY_SHADER(sample_scan_comp), kSample = SWY_SHADER(sample_comp);
constexpr Shader kList = SWY_SHADER(sample_candidates_comp), kCheck = SWY_SHADER(sample_check_comp);
constexpr uint32_t kParts = 64, kPartBytes = 24;
constexpr uint64_t kMostVocab = 1u << 22;  // sums of 10 bits of weights stay below 2^32

uint64_t vocab_of(const swy_op& op) { return swy::tensor(op, "logits").dims[1]; }
uint64_t rows_of(const swy_op& op) { return swy::tensor(op, "result").dims[0]; }

// The push constants of all of them (sample.glsl).
struct Push {
  uint64_t logits, counts, tokens, results, top_ids, top_logprobs, parts, keys, kept, step;
  uint32_t vocab, top;
};

// Their workspace.
struct Work {
  Span parts, keys, kept;
  Work(const swy_op& op, uint64_t vocab, Arena& arena)
      : parts(arena.take(rows_of(op) * kParts * kPartBytes)),
        keys(arena.take(rows_of(op) * vocab * 4)),
        kept(arena.take(rows_of(op) * vocab * 8)) {}
};

Push push_of(const Recording& r, Span logits, uint64_t vocab, const Work& work) {
  Push p{};
  p.logits = logits.address;
  p.counts = r.operands.state("counts").address;
  p.tokens = r.list.tokens.address;
  p.parts = work.parts.address;
  p.keys = work.keys.address;
  p.kept = work.kept.address;
  p.step = r.step();
  p.vocab = static_cast<uint32_t>(vocab);
  return p;
}

swy_status record_scan(const Recording& r, const Push& push, Span logits, const Work& work, bool candidates) {
  const Span counts = r.operands.state("counts");
  return launch(r, kScan, {candidates ? 1u : 0u}, {kParts, static_cast<uint32_t>(rows_of(r.op))}, push,
                {logits, counts}, {work.parts, work.keys});
}

swy_status record_sample(const Recording& r) {
  Arena arena(r.operands.workspace());
  return record_draws(r, r.operands.input("logits"), vocab_of(r.op), arena);
}

swy_status record_candidates(const Recording& r) {
  Arena arena(r.operands.workspace());
  const Work work(r.op, vocab_of(r.op), arena);
  const Span logits = r.operands.input("logits"), ids = r.operands.output("ids"), best = r.operands.output("best");
  const Span result = r.operands.output("result");
  Push push = push_of(r, logits, vocab_of(r.op), work);
  push.results = result.address;
  push.top_ids = ids.address;
  push.top_logprobs = best.address;
  push.top = static_cast<uint32_t>(swy::tensor(r.op, "ids").dims[1]);
  SWY_VK_TRY(record_scan(r, push, logits, work, true));
  return launch(r, kList, {}, {static_cast<uint32_t>(rows_of(r.op))}, push, {logits, work.parts, work.keys},
                {work.kept, ids, best, result});
}

uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket&) { return draws_bytes(op, vocab_of(op)); }

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  return supports_draws(device, op, vocab_of(op), error);
}

swy_status supports_candidates(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  if (swy::tensor(op, "ids").dims[1] <= kMostCandidates) return supports_draws(device, op, vocab_of(op), error);
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "%llu candidates; at most %u are listed",
                   static_cast<unsigned long long>(swy::tensor(op, "ids").dims[1]), kMostCandidates);
}

double cost(const swy_op& op, const swy_bucket&) { return cost_of(row_bytes(op), 0, 2) + 20; }

constexpr Kernel kKernels[] = {
    {"sample.radix", SWY_OP_SAMPLE, kInvariant, SWY_F32, supports, cost, workspace, record_sample},
    {"top_candidates.radix", SWY_OP_TOP_CANDIDATES, kInvariant, SWY_F32, supports_candidates, cost, workspace,
     record_candidates}};

// Results of this process's checks.
class Known {
 public:
  std::mutex checking;  // one at a time

  const bool* find(const PhysicalDevice& d) {
    const std::lock_guard lock(mutex_);
    const auto it = exact_.find(&d);
    return it == exact_.end() ? nullptr : &it->second;
  }
  void tell(const PhysicalDevice& d, bool exact) {
    const std::lock_guard lock(mutex_);
    exact_.emplace(&d, exact);
  }

 private:
  std::mutex mutex_;
  std::map<const PhysicalDevice*, bool> exact_;
};
Known& known_devices() {
  static Known known;
  return known;
}

// Runs the check's shader; its results go to `buffer`, which the host can read.
swy_status run_check(swy_device& device, swy_buffer* buffer, swy_error* error) {
  const swy_bucket bucket{};
  const swy_list_info info{sizeof(swy_list_info), 0, &bucket, {buffer, 0, buffer->bytes}, {}};
  swy_list* made = nullptr;
  SWY_VK_TRY(list_begin(&device, &info, &made, error));
  const std::unique_ptr<swy_list, void (*)(swy_list*)> list(made, list_free);
  const uint64_t push = buffer->address();
  SWY_VK_TRY(add_dispatch(*list, {kCheck, {}, 1, 1, 1, {}, {}}, &push, sizeof push, "check", error));
  SWY_VK_TRY(list_finalize(list.get(), error));
  SWY_VK_TRY(list_submit(list.get(), nullptr, error));
  return read(&device, nullptr, buffer, 0, 0, nullptr, error);
}

}  // namespace

swy_status check_sampling(swy_device& device, swy_error* error) {
  Known& known = known_devices();
  const std::lock_guard lock(known.checking);
  if (const bool* exact = known.find(*device.physical); exact != nullptr) {
    device.exact = *exact;
    return SWY_OK;
  }
  swy_buffer* buffer = nullptr;
  SWY_VK_TRY(buffer_alloc(&device, SWY_MEMORY_READBACK, 768 * sizeof(float), &buffer, error));
  const swy_status s = run_check(device, buffer, error);
  uint64_t hash = 14695981039346656037u;
  const auto* values = reinterpret_cast<const uint32_t*>(buffer->mapped());
  for (uint32_t i = 0; i < 768; ++i) hash = (hash ^ values[i]) * 1099511628211u;
  buffer_free(&device, buffer);
  SWY_VK_TRY(s);
  device.exact = hash == SWY_SELF_CHECK_HASH;
  known.tell(*device.physical, device.exact);
  return SWY_OK;
}

bool samples(const PhysicalDevice& physical) {
  const bool* exact = known_devices().find(physical);
  return exact != nullptr && *exact;
}

swy_status record_draws(const Recording& r, Span logits, uint64_t vocab, Arena& arena) {
  const Work work(r.op, vocab, arena);
  const bool has_top = swy::has(r.op, "likely_ids");
  const Span counts = r.operands.state("counts"), results = r.operands.output("result");
  const Span ids = r.operands.output("likely_ids"), logprobs = r.operands.output("likely_logprobs");
  Push push = push_of(r, logits, vocab, work);
  push.results = results.address;
  push.top_ids = ids.address;
  push.top_logprobs = logprobs.address;
  push.top = has_top ? static_cast<uint32_t>(swy::tensor(r.op, "likely_ids").dims[1]) : 0;
  SWY_VK_TRY(record_scan(r, push, logits, work, false));
  return launch(r, kSample, {}, {static_cast<uint32_t>(rows_of(r.op))}, push, {logits, work.parts, work.keys},
                {work.kept, counts, results, ids, logprobs, r.list.tokens});
}

uint64_t draws_bytes(const swy_op& op, uint64_t vocab) {
  Arena arena;
  const Work work(op, vocab, arena);
  return arena.used();
}

swy_status supports_draws(const swy_device& device, const swy_op& op, uint64_t vocab, swy_error* error) {
  if (!device.exact) {
    return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_ARCH, "the device's arithmetic has other bits than the host's");
  }
  if (vocab <= kMostVocab && rows_of(op) <= 65535) return SWY_OK;
  return swy::fail(error, SWY_UNSUPPORTED, SWY_REASON_SHAPE, "a vocabulary of %llu; at most %llu is possible",
                   static_cast<unsigned long long>(vocab), static_cast<unsigned long long>(kMostVocab));
}

std::span<const Kernel> sample_kernels() { return kKernels; }

}  // namespace gpu
