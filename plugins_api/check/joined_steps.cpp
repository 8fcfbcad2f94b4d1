// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/joined_steps.h"

#include <algorithm>
#include <cmath>

#include "plugins_api/check/cases.h"
#include "plugins_api/check/quantize.h"
#include "plugins_api/check/step_block.h"

namespace switchyard::check {
namespace {

constexpr uint32_t kHeads = 4, kHeadDim = 64, kWidth = kHeads * kHeadDim, kVocab = 77;
constexpr uint32_t kContext = 13;  // tokens before the first step, so that the steps reach a second page

// The head's likeliest token after another one: each has one of its own, and leads by far.
int32_t follower(int32_t token) { return (30 * token + 13) % static_cast<int32_t>(kVocab); }

// An operation, and which ones make its inputs.
struct Link {
  swy_op_id op;
  void (*operands)(Builder& b);
  std::vector<size_t> reads;
};

// The scores of attention are small: each token has about the same share of the result.
void attention(Builder& b) {
  swy_attention_attrs a{};
  a.heads = a.kv_heads = kHeads;
  a.head_dim = a.rotary_dim = kHeadDim;
  a.rope_theta = 1e4f;
  a.scale = 0.1f / std::sqrt(static_cast<float>(kHeadDim));
  a.norm_eps = 1e-6f;
  b.attrs(a).input(kWidth).input(kWidth).input(kWidth);
  b.plain({kHeadDim}, SWY_F32, 1, 0.1).plain({kHeadDim}, SWY_F32, 1, 0.1);
  b.paged({2, kHeads, kHeadDim}, 1).output(kWidth);
}

enum : size_t { kEmbedding, kAttention, kStream, kHead, kSample, kGather };

const std::vector<Link>& links() {
  static const std::vector<Link> all = {
      {SWY_OP_EMBEDDING,
       [](Builder& b) {
         b.matrix({kVocab, kWidth}, SWY_BF16, 0, std::sqrt(kWidth)).output(kWidth);
       },
       {}},
      {SWY_OP_ATTENTION, attention, {kEmbedding, kEmbedding, kEmbedding}},
      {SWY_OP_ADD, [](Builder& b) { b.input(kWidth).input(kWidth).output(kWidth); }, {kEmbedding, kAttention}},
      {SWY_OP_LM_HEAD,
       [](Builder& b) {
         b.input(kWidth).matrix({kVocab, kWidth}, SWY_BF16, 0).fixed_output(kVocab, SWY_F32, SWY_ROWS_LOGITS);
       },
       {kStream}},
      {SWY_OP_SAMPLE,
       [](Builder& b) { b.fixed_input(kVocab, 0, 1, SWY_ROWS_LOGITS).fixed_output(4, SWY_I32, SWY_ROWS_SAMPLE); },
       {kHead}},
      {SWY_OP_GATHER_ROWS, [](Builder& b) { b.input(kWidth).output(kWidth, SWY_ROWS_LOGITS); }, {kStream}}};
  return all;
}

// The last row has the token that the step before drew into the device's token buffer. The step draws one, too.
void add_step(Builder& b, uint32_t index, uint32_t first_rows) {
  const uint32_t rows = index == 0 ? first_rows : 1;
  const uint32_t position = kContext + (index == 0 ? 0 : first_rows + index - 1);
  b.step({{0, rows, position, true, 0, 0, {0, 1}}}).wanted({rows - 1});
  Step& s = b.peek().steps.back();
  for (uint32_t r = 0; r < rows; ++r) s.tokens[r] = static_cast<int32_t>(3 * r + 1);
  s.tokens.back() = -1 - static_cast<int32_t>(index);
  Draw d;
  d.token_entry = index + 1;
  d.position = position + rows;
  swy_sample_params_init(&d.params);
  d.params.temperature = 0;
  swy_sample_params_normalise(&d.params, nullptr);
  s.draws.push_back(d);
}

// The row of each token's follower is the token's own, as the embedding has it.
void lead_to_followers(const Weight& embedding, Weight& head) {
  std::vector<float> rows(uint64_t{kVocab} * kWidth);
  for (uint32_t token = 0; token < kVocab; ++token) {
    const auto to = static_cast<uint64_t>(follower(static_cast<int32_t>(token)));
    for (uint32_t i = 0; i < kWidth; ++i) rows[to * kWidth + i] = static_cast<float>(embedding.at(token, i) / kHeads);
  }
  encode_weight(head, rows);
}

bool reads_f32(const swy_kernel& k, const Case& c) {
  const auto free = [](const Operand& o) { return !o.fixed; };
  const auto fits = [&](uint32_t types, const std::vector<Operand>& list) {
    return types == 0 || (types & SWY_DTYPE_BIT(SWY_F32)) != 0 || std::none_of(list.begin(), list.end(), free);
  };
  return fits(k.input_dtypes, c.inputs) && fits(k.output_dtypes, c.outputs);
}

// The cheapest one, as a host would choose it.
const swy_kernel* cheapest_kernel(const Plugin& p, const Case& c) {
  const swy_kernel* best = nullptr;
  double least = INFINITY;
  std::string why = "there is none";
  for (const swy_kernel* k : p.kernels()) {
    if (k->op != c.op || !reads_f32(*k, c) || !takes(p, *k, c, &why)) continue;
    const OpView op(c);
    double us = 0;
    PluginError e;
    if (k->cost != nullptr) e.expect_ok(k->cost(p.device(), k, op.get(), &c.bucket, &us, e.get()), "cost");
    if (us < least) best = k, least = us;
  }
  if (best == nullptr)
    throw Unsupported(text("no kernel takes ", op_name(c.op), ", of which the steps have one: ", why));
  return best;
}

uint64_t bytes_of(const Operand& o) { return o.desc.dims[0] * o.desc.dims[1] * 4; }

std::vector<double> values_of(const Memory& m, uint64_t count) {
  std::vector<float> raw(count);
  m.read(raw.data(), count * 4);
  return {raw.begin(), raw.end()};
}

}  // namespace

// An operation of one step.
struct JoinedSteps::Node {
  Node(const Plugin& p, Case made) : c(std::move(made)), kernel(cheapest_kernel(p, c)), op(c) {
    swy_prepared prepared{};
    prepared.struct_size = sizeof prepared;
    PluginError e;
    if (kernel->prepare != nullptr) {
      e.expect_ok(kernel->prepare(p.device(), kernel, op.get(), &c.bucket, &prepared, e.get()), "prepare");
    }
    for (uint32_t i = 0; i < c.weights.size(); ++i) add_weight(p, i, prepared.weight_layouts[i]);
    if (prepared.workspace_bytes != 0) {
      workspace.emplace_back(p, SWY_MEMORY_DEVICE, prepared.workspace_bytes, "the workspace");
      workspace[0].poison();
    }
  }

  void add_weight(const Plugin& p, uint32_t index, uint32_t layout) {
    const Weight& w = c.weights[index];
    std::vector<std::byte> bytes(w.segment.data(), w.segment.data() + w.segment.size());
    if (layout != 0) {
      PluginError e;
      uint64_t size = 0;
      e.expect_ok(p.api().packed_bytes(&w.desc, layout, &size, e.get()), "packed_bytes");
      bytes.assign(size, std::byte{0});
      e.expect_ok(p.api().pack(&w.desc, layout, w.segment.data(), bytes.data(), e.get()), "pack");
      op.set_layout(index, layout);
    }
    weights.emplace_back(p, SWY_MEMORY_DEVICE, bytes.size(), text("weight ", index));
    weights.back().write(bytes.data(), bytes.size());
  }

  const Case c;
  const swy_kernel* const kernel;
  OpView op;
  std::vector<Memory> weights, workspace;
};

JoinedSteps::JoinedSteps(const Plugin& plugin, uint64_t seed, Shape shape, const swy_ahead* ahead) : p_(plugin) {
  std::vector<Case> first;
  for (uint32_t s = 0; s < kSteps; ++s) {
    Step& step = steps_.emplace_back();
    for (size_t i = 0; i <= (shape.gathers ? kGather : kSample); ++i) {
      Random random(derive(seed, op_name(links()[i].op)));
      Builder b(links()[i].op, random);
      add_step(b, s, shape.rows);
      links()[i].operands(b);
      Case c = b.done();
      if (s == 0 && i == kHead) lead_to_followers(first[kEmbedding].weights[0], c.weights[0]);
      if (s == 0) first.push_back(c);
      c.weights = first[i].weights;
      step.push_back(std::make_unique<Node>(p_, std::move(c)));
    }
  }
  place(steps_[0]);
  for (size_t s = 0; s < kSteps; ++s) {
    record(steps_[s], blocks_[s], s == 0 ? nullptr : ahead);
    if (ahead == nullptr || s + 1 == kSteps) finalize();
  }
}

JoinedSteps::~JoinedSteps() {
  for (swy_list* list : lists_) p_.api().list_free(list);
}

// The memory that all steps have in common: no other one has more rows than the first.
void JoinedSteps::place(const Step& step) {
  for (const auto& node : step) {
    values_.emplace_back(p_, SWY_MEMORY_DEVICE, bytes_of(node->c.outputs[0]), op_name(node->c.op) + "'s value");
  }
  state_.emplace_back(p_, step[kAttention]->op.get(), step[kAttention]->c, 0);
  tokens_.emplace_back(p_, SWY_MEMORY_DEVICE, (kSteps + 1) * 4, "the token buffer");
  for (const Step& each : steps_) {
    blocks_.emplace_back(p_, SWY_MEMORY_UPLOAD, step_block_bytes(each[0]->c), "a step's block");
  }
}

void JoinedSteps::record(const Step& step, const Memory& block, const swy_ahead* ahead) {
  const swy_list_info info{sizeof info, 0, &step[0]->c.bucket, block.binding(), tokens_[0].binding()};
  PluginError e;
  if (ahead == nullptr) {
    e.expect_ok(p_.api().list_begin(p_.device(), &info, &lists_.emplace_back(), e.get()), "list_begin");
  } else {
    const swy_status s = ahead->next_step(lists_.back(), &info, e.get());
    if (s == SWY_UNSUPPORTED && e.has_line()) throw Unsupported(e.line());
    e.expect_ok(s, "next_step");
  }
  for (size_t i = 0; i < step.size(); ++i) {
    const Node& node = *step[i];
    std::vector<swy_binding> inputs, weights;
    for (const size_t from : links()[i].reads) inputs.push_back(values_[from].binding());
    for (const Memory& w : node.weights) weights.push_back(w.binding());
    const swy_binding state = state_[0].binding(), output = values_[i].binding();
    swy_bindings b{sizeof b, 0, inputs.data(), weights.data(), &state, &output, {}};
    if (!node.workspace.empty()) b.workspace = node.workspace[0].binding();
    e.expect_ok(node.kernel->record(lists_.back(), node.kernel, node.op.get(), &b, e.get()), "record");
  }
}

void JoinedSteps::finalize() const {
  PluginError e;
  e.expect_ok(p_.api().list_finalize(lists_.back(), e.get()), "list_finalize");
}

JoinedSteps::Left JoinedSteps::run(int32_t token) const {
  const Case& attention = steps_[0][kAttention]->c;
  state_[0].bring(attention.states[0], attention.bucket.page_size);
  for (const Memory& m : values_) m.poison();
  std::vector<int32_t> tokens(kSteps + 1, -7);
  tokens[0] = token;
  tokens_[0].write(tokens.data(), tokens.size() * 4);
  for (size_t s = 0; s < kSteps; ++s) {
    const Case& c = steps_[s][0]->c;
    const std::vector<std::byte> block = step_block(c.steps[0], c.bucket, s + 1);
    blocks_[s].write(block.data(), block.size());
  }
  for (swy_list* list : lists_) {
    PluginError e;
    e.expect_ok(p_.api().list_submit(list, nullptr, e.get()), "list_submit");
  }
  tokens_[0].read(tokens.data(), tokens.size() * 4);
  for (const auto* list : {&values_, &blocks_, &tokens_}) {
    for (const Memory& m : *list) m.expect_guards();
  }
  state_[0].expect_guards();
  const bool gathers = values_.size() > kGather;
  return {{tokens.begin() + 1, tokens.end()},
          values_of(values_[kStream], kWidth),
          gathers ? values_of(values_[kGather], kWidth) : std::vector<double>{},
          state_[0].content(attention.states[0], attention.bucket.page_size)};
}

std::vector<int32_t> JoinedSteps::walk(int32_t token) {
  std::vector<int32_t> out;
  for (uint32_t s = 0; s < kSteps; ++s) out.push_back(token = follower(token));
  return out;
}

}  // namespace switchyard::check
