// SAMPLE: the chain of sampling_math.h. Many workgroups look at parts of a row (sample_scan.comp), one decides it
// (sample.comp).
#include "switchyard/sampling_math.h"

#include <map>
#include <memory>
#include <mutex>

#include "sample.h"

namespace gpu {
namespace {

#include "sample.comp.h"
#include "sample_check.comp.h"
#include "sample_scan.comp.h"
constexpr Shader kScan = SWY_SHADER(sample_scan_comp), kSample = SWY_SHADER(sample_comp);
constexpr Shader kCheck = SWY_SHADER(sample_check_comp);
constexpr uint32_t kParts = 64, kPartBytes = 24;
constexpr uint64_t kMostVocab = 1u << 22;  // sums of 10 bits of weights stay below 2^32

uint64_t vocab_of(const swy_op& op) { return op.inputs[0]->dims[1]; }
uint64_t rows_of(const swy_op& op) { return op.outputs[0]->dims[0]; }

swy_status record_sample(const Recording& r) {
  Arena arena(r.operands.workspace());
  return record_draws(r, r.operands.input(0), vocab_of(r.op), arena);
}

uint64_t workspace(const swy_device&, const swy_op& op, const swy_bucket&) { return draws_bytes(op, vocab_of(op)); }

swy_status supports(const swy_device& device, const swy_op& op, const swy_bucket&, swy_error* error) {
  return supports_draws(device, op, vocab_of(op), error);
}

double cost(const swy_op& op, const swy_bucket&) { return cost_of(row_bytes(op), 0, 2) + 20; }

constexpr Kernel kKernels[] = {
    {"sample.radix", SWY_OP_SAMPLE, kInvariant, SWY_F32, supports, cost, workspace, record_sample}};

// What the checks of this process said.
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

// Runs the check's shader into `buffer`, which the host sees.
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
  struct {
    uint64_t logits, counts, tokens, results, top_ids, top_logprobs, parts, keys, kept, step;
    uint32_t vocab, top;
  } push{};
  const uint64_t rows = rows_of(r.op);
  const Span parts = arena.take(rows * kParts * kPartBytes), keys = arena.take(rows * vocab * 4);
  const Span kept = arena.take(rows * vocab * 8);
  const Span counts = r.op.state_count == 0 ? Span{} : r.operands.state(0);
  const Span results = r.operands.output(0);
  const bool has_top = r.op.output_count == 3;
  const Span ids = has_top ? r.operands.output(1) : Span{}, logprobs = has_top ? r.operands.output(2) : Span{};
  push = {logits.address,
          counts.address,
          r.list.tokens.address,
          results.address,
          ids.address,
          logprobs.address,
          parts.address,
          keys.address,
          kept.address,
          r.step(),
          static_cast<uint32_t>(vocab),
          has_top ? static_cast<uint32_t>(r.op.outputs[1]->dims[1]) : 0};
  SWY_VK_TRY(launch(r, kScan, {}, {kParts, static_cast<uint32_t>(rows)}, push, {logits, counts}, {parts, keys}));
  return launch(r, kSample, {}, {static_cast<uint32_t>(rows)}, push, {logits, parts, keys},
                {kept, counts, results, ids, logprobs, r.list.tokens});
}

uint64_t draws_bytes(const swy_op& op, uint64_t vocab) {
  Arena arena;
  arena.take(rows_of(op) * kParts * kPartBytes);
  arena.take(rows_of(op) * vocab * 4);
  arena.take(rows_of(op) * vocab * 8);
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
