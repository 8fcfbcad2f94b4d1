// SPDX-License-Identifier: Apache-2.0
// A device's sampler through the plugin ABI: the same results, bit for bit, as the host makes of the same logits; the
// counts of the penalties kept in their slots; candidates that finish into the same tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "core/plugin/buffer.h"
#include "core/plugin/registry.h"
#include "core/sampling/candidates.h"
#include "switchyard/step.h"
#include "tests/sampling/random_rows.h"

namespace switchyard {
namespace {

using testing::RandomRow;

constexpr uint32_t kVocab = 331;
constexpr const char* kBackends[] = {
    "reference",
#ifdef SWITCHYARD_TEST_CPU
    "cpu",
#endif
#ifdef SWITCHYARD_TEST_VULKAN
    "vulkan",
#endif
};

// Null: this machine has no such device.
const PlanDevice* device_of(const std::string& backend) {
  static const Host host(2);
  static const Registry registry = [] {
    DiscoveryOptions options;
    for (const char* name : kBackends)
      options.libraries.push_back(fmt::format("{}/switchyard_{}.so", SWITCHYARD_TEST_BACKENDS, name));
    options.validate = true;
    options.cpu_features = default_discovery().cpu_features;
    return Registry::discover(Os::real(), options, host);
  }();
  static std::map<std::string, Registry::Selection> selections;
  const auto known = selections.find(backend);
  if (known != selections.end()) return &known->second.devices.at(0)->plan();
  auto selection = registry.select(backend);
  if (!selection.ok() && backend == "vulkan") return nullptr;
  EXPECT_TRUE(selection.ok()) << selection.status().message();
  return &selections.emplace(backend, std::move(*selection)).first->second.devices.at(0)->plan();
}

// The device of the present test.
const PlanDevice* the_device = nullptr;

class Device : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    the_device = device_of(GetParam());
    if (the_device == nullptr) GTEST_SKIP() << "no device";
  }
};

// One operand: its description and its memory on the device.
struct Operand {
  swy_tensor desc{};
  DeviceBuffer buffer;

  Operand(swy_dtype dtype, std::vector<uint64_t> dims, swy_rows rows, uint64_t bytes) {
    desc.struct_size = sizeof desc;
    desc.dtype = dtype;
    desc.rows = rows;
    desc.rank = static_cast<uint32_t>(dims.size());
    std::fill(std::begin(desc.dims), std::end(desc.dims), 1);
    std::copy(dims.begin(), dims.end(), desc.dims);
    buffer = *DeviceBuffer::allocate(*the_device, SWY_MEMORY_DEVICE, bytes, "test");
  }
  template <class T>
  void put(const std::vector<T>& values) {
    ASSERT_TRUE(buffer.write(0, std::as_bytes(std::span(values))).ok());
  }
  template <class T>
  std::vector<T> get(size_t n) const {
    std::vector<T> values(n);
    EXPECT_TRUE(buffer.read(0, std::as_writable_bytes(std::span(values))).ok());
    return values;
  }
};

// One operation recorded on the device, with a step that is rewritten for every run.
struct OneOp {
  uint32_t id;
  std::vector<Operand*> inputs, weights, states, outputs;
  std::vector<std::byte> attrs;
  DeviceBuffer step, tokens;

  // Runs it once over `block`.
  void run(std::span<const std::byte> block, uint32_t rows) {
    const PlanDevice& d = *the_device;
    step = *DeviceBuffer::allocate(d, SWY_MEMORY_UPLOAD, block.size(), "step");
    tokens = *DeviceBuffer::allocate(d, SWY_MEMORY_DEVICE, rows * 4, "tokens");
    ASSERT_TRUE(step.write(0, block).ok());
    swy_bucket bucket{};
    bucket.struct_size = sizeof bucket;
    bucket.rows = bucket.seqs = bucket.logit_rows = bucket.sample_rows = rows;
    bucket.context = 4096;
    bucket.slots = 8;
    bucket.page_size = 16;
    Lists lists[4] = {inputs, weights, states, outputs};
    swy_op op{};
    op.struct_size = sizeof op;
    op.id = id;
    op.revision = 1;
    op.attrs_size = static_cast<uint32_t>(attrs.size());
    op.attrs = attrs.data();
    op.input_count = static_cast<uint32_t>(inputs.size());
    op.weight_count = static_cast<uint32_t>(weights.size());
    op.state_count = static_cast<uint32_t>(states.size());
    op.output_count = static_cast<uint32_t>(outputs.size());
    op.inputs = lists[0].descs.data();
    op.weights = lists[1].descs.data();
    op.states = lists[2].descs.data();
    op.outputs = lists[3].descs.data();
    swy_bindings b{};
    b.struct_size = sizeof b;
    b.inputs = lists[0].bindings.data();
    b.weights = lists[1].bindings.data();
    b.states = lists[2].bindings.data();
    b.outputs = lists[3].bindings.data();
    record_and_submit(op, bucket, b);
  }

 private:
  struct Lists {
    std::vector<const swy_tensor*> descs;
    std::vector<swy_binding> bindings;
    Lists(const std::vector<Operand*>& operands) {  // NOLINT(google-explicit-constructor)
      for (const Operand* o : operands) {
        descs.push_back(&o->desc);
        bindings.push_back(o->buffer.all());
      }
    }
  };

  // The first weight in a layout of the device's own.
  DeviceBuffer packed_weight(uint32_t layout) {
    if (layout == 0) return {};
    const PlanDevice& d = *the_device;
    const swy_tensor& desc = weights.at(0)->desc;
    PluginError e;
    uint64_t bytes = 0;
    EXPECT_EQ(SWY_OK, d.api->packed_bytes(&desc, layout, &bytes, e.get()));
    std::vector<char> to(bytes);
    const auto canonical = weights[0]->get<float>(desc.dims[0] * desc.dims[1]);
    EXPECT_EQ(SWY_OK, d.api->pack(&desc, layout, canonical.data(), to.data(), e.get()));
    DeviceBuffer out = *DeviceBuffer::allocate(d, SWY_MEMORY_DEVICE, bytes, "packed");
    EXPECT_TRUE(out.write(0, std::as_bytes(std::span(to))).ok());
    return out;
  }

  void record_and_submit(const swy_op& op, const swy_bucket& bucket, swy_bindings& b) {
    const PlanDevice& d = *the_device;
    const swy_kernel* kernel = nullptr;
    PluginError e;
    for (uint32_t i = 0; i < d.api->kernel_count(d.handle) && kernel == nullptr; ++i) {
      const swy_kernel* k = d.api->kernel_at(d.handle, i);
      if (k->op == id && k->supports(d.handle, k, &op, &bucket, e.get()) == SWY_OK) kernel = k;
    }
    ASSERT_NE(nullptr, kernel);
    swy_prepared prepared{};
    prepared.struct_size = sizeof prepared;
    ASSERT_EQ(SWY_OK, kernel->prepare(d.handle, kernel, &op, &bucket, &prepared, e.get()));
    const DeviceBuffer packed = packed_weight(prepared.weight_layouts[0]);
    const swy_binding packed_binding = packed.all();
    if (prepared.weight_layouts[0] != 0) {
      b.weights = &packed_binding;
      weights[0]->desc.layout = prepared.weight_layouts[0];
    }
    const DeviceBuffer workspace = *DeviceBuffer::allocate(d, SWY_MEMORY_DEVICE, prepared.workspace_bytes, "workspace");
    b.workspace = workspace.all();
    const swy_list_info info{sizeof info, 0, &bucket, step.all(), tokens.all()};
    swy_list* list = nullptr;
    ASSERT_EQ(SWY_OK, d.api->list_begin(d.handle, &info, &list, e.get()));
    ASSERT_EQ(SWY_OK, kernel->record(list, kernel, &op, &b, e.get()));
    ASSERT_EQ(SWY_OK, d.api->list_finalize(list, e.get()));
    ASSERT_EQ(SWY_OK, d.api->list_submit(list, nullptr, e.get()));
    d.api->list_free(list);
    if (!weights.empty()) weights[0]->desc.layout = 0;
  }
};

// The step's block for sampling rows. Row i samples from logit row n - 1 - i into token entry (i + 1) % n.
class Block {
 public:
  explicit Block(std::span<const std::unique_ptr<RandomRow>> rows) : n_(static_cast<uint32_t>(rows.size())) {
    const uint32_t header = take(sizeof(swy_step)), slots = take(n_ * sizeof(swy_sample_slot));
    const uint32_t params = take(n_ * sizeof(swy_sample_params)), wanted = take(n_ * 4);
    swy_step step{};
    step.struct_size = sizeof step;
    step.rows = step.logit_rows = step.sample_rows = n_;
    step.sample_params_size = sizeof(swy_sample_params);
    step.sample_at = slots;
    step.sample_params_at = params;
    step.logit_row_at = wanted;
    for (uint32_t i = 0; i < n_; ++i) {
      const RandomRow& row = *rows[i];
      swy_sample_slot slot{};
      slot.logit_row = n_ - 1 - i;
      slot.token_entry = (i + 1) % n_;
      slot.position = row.in.position;
      slot.mask_at = add(row.mask);
      slot.bias_at = add(row.biases);
      slot.bias_count = row.in.bias_count;
      slot.stop_at = add(std::vector<int32_t>{1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233});
      slot.stop_count = 12;
      slot.counts_read_slot = row.counts.empty() ? SWY_NO_SLOT : 2 * i;
      slot.counts_write_slot = i % 3 == 2 ? SWY_NO_SLOT : i % 3 == 1 && !row.counts.empty() ? 2 * i : 2 * i + 1;
      put(slots + i * static_cast<uint32_t>(sizeof slot), &slot, sizeof slot);
      put(params + i * static_cast<uint32_t>(sizeof row.params), &row.params, sizeof row.params);
      put(wanted + i * 4, &i, 4);
      slots_.push_back(slot);
    }
    step.total_bytes = static_cast<uint32_t>(bytes_.size());
    put(header, &step, sizeof step);
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  const swy_sample_slot& slot(uint32_t i) const { return slots_[i]; }

 private:
  uint32_t take(size_t n) {
    const size_t at = bytes_.size();
    bytes_.resize((at + n + 15) / 16 * 16);
    return static_cast<uint32_t>(at);
  }
  void put(uint32_t at, const void* from, size_t n) { std::memcpy(bytes_.data() + at, from, n); }
  template <class T>
  uint32_t add(const std::vector<T>& values) {
    if (values.empty()) return 0;
    const uint32_t at = take(values.size() * sizeof(T));
    put(at, values.data(), values.size() * sizeof(T));
    return at;
  }

  uint32_t n_;
  std::vector<std::byte> bytes_;
  std::vector<swy_sample_slot> slots_;
};

// Rows of one step on the device: their logits, and slots of counts (two per row, the odd ones with rubbish in them).
struct Batch {
  std::vector<std::unique_ptr<RandomRow>> rows;
  Operand logits, counts;

  Batch(std::mt19937_64& random, uint32_t n)
      : logits(SWY_F32, {n, kVocab}, SWY_ROWS_LOGITS, n * kVocab * 4),
        counts(SWY_I32, {kVocab}, 0, 2 * n * kVocab * 4) {
    counts.desc.state = SWY_STATE_SLOTTED;
    std::vector<float> all(n * kVocab);
    std::vector<uint32_t> slots(2 * n * kVocab, 12345);
    for (uint32_t i = 0; i < n; ++i) {
      rows.push_back(std::make_unique<RandomRow>(random, kVocab));
      const RandomRow& row = *rows.back();
      std::copy(row.logits.begin(), row.logits.end(), all.begin() + (n - 1 - i) * kVocab);
      std::copy(row.counts.begin(), row.counts.end(), slots.begin() + 2 * i * kVocab);
    }
    logits.put(all);
    counts.put(slots);
  }
};

void expect_counts(const Batch& batch, const Block& block, uint32_t i, const swy_sample_row_out& want,
                   const std::vector<uint32_t>& slots) {
  const RandomRow& row = *batch.rows[i];
  std::vector<uint32_t> expected(kVocab, 12345);
  const bool in_place = block.slot(i).counts_write_slot == block.slot(i).counts_read_slot;
  std::vector<uint32_t> counted = row.counts.empty() ? std::vector<uint32_t>(kVocab) : row.counts;
  if (want.token >= 0) {
    auto& word = counted[static_cast<size_t>(want.token)];
    word = swy_count_output(word);
  }
  const auto slot = [&](uint32_t s) {
    return std::vector<uint32_t>(slots.begin() + s * kVocab, slots.begin() + (s + 1) * kVocab);
  };
  const bool written = block.slot(i).counts_write_slot != SWY_NO_SLOT && want.token >= 0;
  if (!row.counts.empty()) {
    EXPECT_EQ(in_place && written ? counted : row.counts, slot(2 * i)) << i;
  }
  EXPECT_EQ(written && !in_place ? counted : expected, slot(2 * i + 1)) << i;
}

TEST_P(Device, SaysThatItSamplesTheWholeChain) {
  EXPECT_EQ((1u << 11) - 1, the_device->info.sampling_steps);
  EXPECT_EQ(SWY_SAMPLING_LOGITS | SWY_SAMPLING_TOKEN | SWY_SAMPLING_TOPK_CANDIDATES, the_device->info.sampling);
}

TEST_P(Device, SampleDrawsTheHostsTokens) {
  std::mt19937_64 random(11);
  constexpr uint32_t kRows = 7, kTop = 4;
  for (int round = 0; round < 60; ++round) {
    Batch batch(random, kRows);
    const Block block(batch.rows);
    Operand results(SWY_I32, {kRows, 4}, SWY_ROWS_SAMPLE, kRows * 16);
    Operand top_ids(SWY_I32, {kRows, kTop}, SWY_ROWS_SAMPLE, kRows * kTop * 4);
    Operand top(SWY_F32, {kRows, kTop}, SWY_ROWS_SAMPLE, kRows * kTop * 4);
    OneOp op{SWY_OP_SAMPLE, {&batch.logits}, {}, {&batch.counts}, {&results, &top_ids, &top}, {}, {}, {}};
    op.run(block.bytes(), kRows);
    const auto got = results.get<swy_sample_result>(kRows);
    const auto slots = batch.counts.get<uint32_t>(2 * kRows * kVocab);
    const auto ids = top_ids.get<int32_t>(kRows * kTop);
    const auto logprobs = top.get<float>(kRows * kTop);
    std::vector<int32_t> tokens(kRows);
    ASSERT_TRUE(op.tokens.read(0, std::as_writable_bytes(std::span(tokens))).ok());
    for (uint32_t i = 0; i < kRows; ++i) {
      const RandomRow& row = *batch.rows[i];
      swy_sample_row_out want{};
      const int32_t status = row.expected(want);
      ASSERT_EQ(status, got[i].status) << round;
      ASSERT_EQ(want.token, got[i].token) << round;
      ASSERT_EQ(swy_float_bits(want.logprob), swy_float_bits(got[i].logprob)) << round;
      ASSERT_EQ(std::max(want.token, 0), tokens[(i + 1) % kRows]) << "a row that failed leaves id 0";
      const bool fibonacci = std::set<int32_t>{1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233}.count(want.token) > 0;
      ASSERT_EQ(fibonacci ? 1u : 0u, got[i].stopped);
      expect_counts(batch, block, i, want, slots);
      std::vector<uint64_t> workspace(kVocab);
      std::vector<int32_t> want_ids(kTop, -1);
      std::vector<float> want_logprobs(kTop);
      if (status == SWY_SAMPLE_OK) {
        swy_row_top_logprobs(row.in.logits, kVocab, kTop, workspace.data(), want_ids.data(), want_logprobs.data());
      }
      EXPECT_TRUE(std::equal(want_ids.begin(), want_ids.end(), ids.begin() + i * kTop));
      EXPECT_TRUE(std::equal(want_logprobs.begin(), want_logprobs.end(), logprobs.begin() + i * kTop));
    }
  }
}

TEST_P(Device, WithoutTheCountsStateNothingIsPenalised) {
  std::mt19937_64 random(12);
  constexpr uint32_t kRows = 7;
  for (int round = 0; round < 10; ++round) {
    Batch batch(random, kRows);
    const Block block(batch.rows);
    Operand results(SWY_I32, {kRows, 4}, SWY_ROWS_SAMPLE, kRows * 16);
    OneOp op{SWY_OP_SAMPLE, {&batch.logits}, {}, {}, {&results}, {}, {}, {}};
    op.run(block.bytes(), kRows);
    const auto got = results.get<swy_sample_result>(kRows);
    for (uint32_t i = 0; i < kRows; ++i) {
      batch.rows[i]->in.counts = nullptr;
      swy_sample_row_out want{};
      ASSERT_EQ(batch.rows[i]->expected(want), got[i].status);
      ASSERT_EQ(want.token, got[i].token);
    }
  }
}

TEST_P(Device, CandidatesFinishIntoTheHostsTokens) {
  if ((the_device->info.sampling & SWY_SAMPLING_TOPK_CANDIDATES) == 0) GTEST_SKIP() << "it offers none";
  std::mt19937_64 random(13);
  constexpr uint32_t kRows = 7, kTop = 24;
  int decided = 0;
  for (int round = 0; round < 60; ++round) {
    Batch batch(random, kRows);
    const Block block(batch.rows);
    Operand ids(SWY_I32, {kRows, kTop}, SWY_ROWS_SAMPLE, kRows * kTop * 4);
    Operand logits(SWY_F32, {kRows, kTop}, SWY_ROWS_SAMPLE, kRows * kTop * 4);
    Operand results(SWY_I32, {kRows, 8}, SWY_ROWS_SAMPLE, kRows * 32);
    const swy_top_candidates_attrs attrs{sizeof attrs, kTop, {0, 0}};
    OneOp op{SWY_OP_TOP_CANDIDATES, {&batch.logits}, {}, {&batch.counts}, {&ids, &logits, &results}, {}, {}, {}};
    const auto attr_bytes = std::as_bytes(std::span(&attrs, 1));
    op.attrs.assign(attr_bytes.begin(), attr_bytes.end());
    op.run(block.bytes(), kRows);
    const auto all_ids = ids.get<int32_t>(kRows * kTop);
    const auto all_logits = logits.get<float>(kRows * kTop);
    const auto all_results = results.get<swy_candidates_result>(kRows);
    for (uint32_t i = 0; i < kRows; ++i) {
      RandomRow& row = *batch.rows[i];
      swy_sample_row_out want{}, got{};
      const int32_t status = row.expected(want);
      std::vector<uint64_t> workspace(kTop);
      const Candidates c{std::span(all_ids).subspan(i * kTop, kTop), std::span(all_logits).subspan(i * kTop, kTop),
                         all_results[i]};
      const auto finished = finish_draw(row.params, row.in, c, workspace, got);
      if (!finished) continue;
      ++decided;
      ASSERT_EQ(status, *finished);
      ASSERT_EQ(want.token, got.token);
      ASSERT_EQ(swy_float_bits(want.logprob), swy_float_bits(got.logprob));
    }
  }
  EXPECT_GT(decided, 150);
}

// The fused operation samples from the same bits that LM_HEAD writes.
TEST_P(Device, FusedAndUnfusedHeadsDrawTheSame) {
  std::mt19937_64 random(14);
  constexpr uint32_t kRows = 5, kHidden = 64;
  std::normal_distribution<float> normal;
  Batch batch(random, kRows);
  Operand x(SWY_F32, {kRows, kHidden}, SWY_ROWS_STEP, kRows * kHidden * 4);
  Operand w(SWY_F32, {kVocab, kHidden}, 0, kVocab * kHidden * 4);
  std::vector<float> values(kVocab * kHidden);
  for (float& v : values) v = normal(random) * 0.5f;
  w.put(values);
  values.resize(kRows * kHidden);
  x.put(values);
  const Block block(batch.rows);
  OneOp head{SWY_OP_LM_HEAD, {&x}, {&w}, {}, {&batch.logits}, {}, {}, {}};
  head.run(block.bytes(), kRows);
  Operand plain(SWY_I32, {kRows, 4}, SWY_ROWS_SAMPLE, kRows * 16),
      fused(SWY_I32, {kRows, 4}, SWY_ROWS_SAMPLE, kRows * 16);
  OneOp sample{SWY_OP_SAMPLE, {&batch.logits}, {}, {}, {&plain}, {}, {}, {}};
  sample.run(block.bytes(), kRows);
  OneOp both{SWY_OP_LM_HEAD_SAMPLE, {&x}, {&w}, {}, {&fused}, {}, {}, {}};
  both.run(block.bytes(), kRows);
  const auto a = plain.get<swy_sample_result>(kRows), b = fused.get<swy_sample_result>(kRows);
  for (uint32_t i = 0; i < kRows; ++i) {
    EXPECT_EQ(a[i].status, b[i].status);
    EXPECT_EQ(a[i].token, b[i].token);
    EXPECT_EQ(swy_float_bits(a[i].logprob), swy_float_bits(b[i].logprob));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Device, ::testing::ValuesIn(kBackends),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace switchyard
