// SPDX-License-Identifier: Apache-2.0
// Fuzzes everything between a program file and its tokens: what the verifier accepts is planned, packed and run on
// `reference` and on `cpu`, a prompt and a few tokens, with a sampler. Programs whose weights, states or activations
// would make a step slow are left out.
#include <algorithm>
#include <memory>
#include <random>

#include "core/engine/batch.h"
#include "core/plan/expand.h"
#include "core/plugin/registry.h"
#include "tests/fuzz/program_input.h"

namespace {

using namespace switchyard;  // NOLINT(google-build-using-namespace)

constexpr uint32_t kContext = 96, kPrompt = 9, kDrawn = 3;

bool is_small(const Program& program) {
  const uint64_t kMostOps = 64, kMostWidth = 1 << 15, kMostWeights = 1 << 19, kMostStates = 1 << 21;
  uint64_t width = 0, weights = 0, states = 0;
  Graph graph = graph_of(program);
  expand_named(graph, [](const Graph&, const GraphOp&, std::vector<Considered>&) { return false; });
  for (const GraphValue& v : graph.values) width += v.width;
  const auto elements = [&](const auto& t) {
    uint64_t n = 1;
    for (const uint64_t d : t.dims) n = std::min(n * std::min<uint64_t>(d, kMostStates), kMostStates);
    return n;
  };
  for (const Tensor& t : program.tensors) weights += elements(t);
  for (const State& s : program.states)
    states += elements(s) * (s.kind == SWY_STATE_PAGED ? 2 * StatePool::kPageSize : 2);
  return graph.ops.size() <= kMostOps && width <= kMostWidth && weights <= kMostWeights && states <= kMostStates;
}

// Kernels of every instruction set, as far as the machine goes.
Registry discover(const Host& host, const char* isa) {
  DiscoveryOptions options = default_discovery();
  options.search_path = SWITCHYARD_TEST_BACKENDS;
  options.probe.program.clear();
  options.settings["cpu"] = {{"isa", isa}};
  return Registry::discover(Os::real(), options, host);
}

Request request_for(std::mt19937& random, uint32_t vocab, uint32_t context) {
  Request r;
  for (uint32_t i = 0; i < std::min(kPrompt, context - 1); ++i)
    r.prompt.push_back(static_cast<int32_t>(random() % vocab));
  r.max_tokens = kDrawn;
  r.sampling.seed = random();
  r.sampling.temperature = random() % 3 == 0 ? 0.0f : 0.8f;
  r.sampling.top_k = static_cast<int32_t>(random() % 3 == 0 ? 0 : 1 + random() % vocab);
  r.sampling.repetition_penalty = random() % 2 == 0 ? 1.0f : 1.2f;
  r.sampling.top_logprobs = static_cast<uint32_t>(random() % (std::min(vocab, 5u) + 1));
  return r;
}

void run(const std::shared_ptr<const Program>& program, const std::string& backends, std::mt19937 random) {
  static Host host(1);
  constexpr const char* kIsas[] = {"auto", "baseline", "avx2", "avx512"};
  Registry registry = discover(host, kIsas[random() % std::size(kIsas)]);
  auto selection = registry.select(backends);
  if (!selection.ok()) return;
  ModelOptions options;
  const uint64_t limit = program->context_length;
  options.context = static_cast<uint32_t>(limit == 0 ? kContext : std::min<uint64_t>(limit, kContext));
  options.chunk = random() % 2 == 0 ? 0 : 4;
  auto model = Model::create(program, std::move(selection->devices), selection->policy, options);
  if (!model.ok() || options.context < 2) return;
  auto session = (*model)->session();
  if (!session.ok()) return;
  Batch batch(**model);
  const auto added = batch.add(**session, request_for(random, (*model)->vocab(), options.context));
  if (added.ok()) (void)batch.run(*added).ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto program = testing::parse_sealed(std::as_bytes(std::span(data, size)));
  if (!program.ok() || !is_small(*program)) return 0;
  const auto shared = std::make_shared<const Program>(std::move(*program));
  std::seed_seq seed(data, data + size);
  const std::mt19937 random(seed);
  run(shared, "reference", random);
  run(shared, "cpu,reference", random);
  return 0;
}
