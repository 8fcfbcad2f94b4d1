// SPDX-License-Identifier: Apache-2.0
// abi_host PLUGIN: a host that is built against one version of the headers, to meet plugins of other versions. It leads
// a plugin in host memory through its life, with ADD and RMS_NORM, and the state of ATTENTION. Every struct that it
// gives ends where a page ends that must not be touched: reading it as a longer one crashes.
#include <dlfcn.h>
#include <sys/mman.h>

#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "switchyard/extensions.h"
#include "switchyard/plugin.h"
#include "switchyard/step.h"

namespace {

[[noreturn]] void give_up(const char* what, const char* why) {
  std::fprintf(stderr, "abi_host: %s: %s\n", what, why);
  std::exit(1);
}

// Zero-filled memory before a page that must not be touched. Never freed.
void* at_edge(size_t bytes) {
  constexpr size_t kPage = 4096;
  const size_t room = (bytes + kPage - 1) / kPage * kPage;
  void* p = ::mmap(nullptr, room + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED || ::mprotect(static_cast<char*>(p) + room, kPage, PROT_NONE) != 0) std::abort();
  return static_cast<char*>(p) + room - bytes;
}
template <class T>
T* edge() {
  auto* t = static_cast<T*>(at_edge(sizeof(T)));
  t->struct_size = sizeof(T);
  return t;
}

// ---- what the host offers

constexpr uint32_t kMembers = 2;
std::barrier<> meeting(kMembers);

void run_team(void*, swy_team_fn fn, void* arg) {
  const auto member = [&](uint32_t rank) {
    auto* team = edge<swy_team>();
    team->size = kMembers;
    team->rank = rank;
    team->barrier = [](const swy_team*) { meeting.arrive_and_wait(); };
    fn(arg, team);
  };
  std::thread other(member, 1);
  member(0);
  other.join();
}

const swy_host* host() {
  auto* executor = edge<swy_executor>();
  executor->width = [](void*) { return kMembers; };
  executor->run = run_team;
  auto* h = edge<swy_host>();
  h->abi = SWY_ABI_VERSION;
  h->version = "abi_host";
  h->log = [](void*, swy_log_level, const char* text) { std::fprintf(stderr, "plugin: %s\n", text); };
  h->alloc = [](void*, uint64_t bytes, uint64_t alignment) {
    void* p = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (p != nullptr) std::memset(p, 0, bytes);
    return p;
  };
  h->free = [](void*, void* p, uint64_t, uint64_t) { std::free(p); };
  h->executor = executor;
  h->get_extension = [](void*, const char*) -> const void* { return nullptr; };
  return h;
}

// ---- the plugin

char line[512];
swy_error* fresh_error() {
  static auto* e = edge<swy_error>();
  line[0] = '\0';
  e->message = line;
  e->capacity = sizeof line;
  return e;
}
void expect(swy_status status, const char* what) {
  if (status != SWY_OK) give_up(what, line);
}

const swy_plugin* open(const char* path) {
  void* library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) give_up(path, ::dlerror());
  const auto negotiate = reinterpret_cast<swy_negotiate_fn>(::dlsym(library, SWY_NEGOTIATE_SYMBOL));
  if (negotiate == nullptr) give_up(path, "no " SWY_NEGOTIATE_SYMBOL);
  auto* in = edge<swy_negotiate_in>();
  in->abi_min = in->abi_max = SWY_ABI_VERSION;
#if defined(SWY_ABI_MINOR)
  in->abi_minor = SWY_ABI_MINOR;
#endif
  in->magic = SWY_NEGOTIATE_MAGIC;
  in->host = host();
  auto* out = edge<swy_negotiate_out>();
  out->error = fresh_error();
  expect(negotiate(in, out), "negotiate");
  if (out->abi != SWY_ABI_VERSION) give_up(path, "chose another ABI");
#if defined(SWY_ABI_MINOR)
  std::printf("plugin %s of ABI %u.%u, ", out->id, out->abi, out->abi_minor);
#else
  std::printf("plugin %s of ABI %u, ", out->id, out->abi);
#endif
  return out->plugin;
}

struct Plugin {
  const swy_plugin* api;
  swy_device* device = nullptr;
};

swy_tensor* tensor(std::vector<uint64_t> dims) {
  auto* t = edge<swy_tensor>();
  t->dtype = SWY_F32;
  t->rank = static_cast<uint32_t>(dims.size());
  for (size_t i = 0; i < 4; ++i) t->dims[i] = i < dims.size() ? dims[i] : 1;
  return t;
}

constexpr uint32_t kRows = 5, kWidth = 8, kPageSize = 16;

swy_bucket* bucket() {
  auto* b = edge<swy_bucket>();
  b->rows = kRows;
  b->seqs = b->logit_rows = b->pages = b->slots = 1;
  b->context = kRows;
  b->page_size = kPageSize;
  return b;
}

using Values = std::vector<float>;
swy_binding upload(const Plugin& p, const Values& values) {
  swy_binding b{nullptr, 0, values.size() * 4};
  expect(p.api->buffer_alloc(p.device, SWY_MEMORY_DEVICE, b.bytes, &b.buffer, fresh_error()), "buffer_alloc");
  expect(p.api->write(p.device, b.buffer, 0, values.data(), b.bytes, nullptr, fresh_error()), "write");
  return b;
}

// The kernel of the plugin that takes this operation; NULL: there is none.
const swy_kernel* kernel_for(const Plugin& p, const swy_op* op, const swy_bucket* b) {
  for (uint32_t i = 0; i < p.api->kernel_count(p.device); ++i) {
    const swy_kernel* k = p.api->kernel_at(p.device, i);
    if (k->op != op->id || (k->supports != nullptr && k->supports(p.device, k, op, b, fresh_error()) != SWY_OK))
      continue;
    double us = -1;
    expect(k->cost(p.device, k, op, b, &us, fresh_error()), "cost");
    if (us < 0) give_up(k->name, "costs nothing");
    return k;
  }
  return nullptr;
}

swy_op* operation(uint32_t id, const void* attrs, uint32_t attrs_size, std::vector<const swy_tensor*>* operands,
                  uint32_t inputs, uint32_t weights, uint32_t states) {
  auto* op = edge<swy_op>();
  op->id = id;
  op->revision = 1;
  op->attrs = attrs;
  op->attrs_size = attrs_size;
  op->input_count = inputs;
  op->weight_count = weights;
  op->state_count = states;
  op->output_count = 1;
  op->inputs = operands->data();
  op->weights = op->inputs + inputs;
  op->states = op->weights + weights;
  op->outputs = op->states + states;
  return op;
}

// Runs an operation of [rows, width] activations twice; `operands` are the values of its inputs and weights.
void run(const Plugin& p, const swy_op* op, const std::vector<Values>& operands, const Values& wanted) {
  const swy_bucket* b = bucket();
  const swy_kernel* k = kernel_for(p, op, b);
  if (k == nullptr) {
    std::printf("no kernel for operation %u, ", op->id);
    return;
  }
  auto* prepared = edge<swy_prepared>();
  if (k->prepare != nullptr) expect(k->prepare(p.device, k, op, b, prepared, fresh_error()), "prepare");
  for (const uint32_t layout : prepared->weight_layouts) {
    if (layout != 0) give_up(k->name, "wants packed weights of an operation that has none");
  }
  std::vector<swy_binding> bound;
  for (const Values& v : operands) bound.push_back(upload(p, v));
  const swy_binding out = upload(p, Values(wanted.size(), NAN));
  auto* bindings = edge<swy_bindings>();
  bindings->inputs = bound.data();
  bindings->weights = bound.data() + op->input_count;
  bindings->outputs = &out;
  if (prepared->workspace_bytes != 0) bindings->workspace = upload(p, Values(prepared->workspace_bytes / 4 + 16));

  std::vector<char> block(sizeof(swy_step) + 64);
  auto* step = reinterpret_cast<swy_step*>(block.data());
  step->struct_size = sizeof(swy_step);
  step->total_bytes = static_cast<uint32_t>(block.size());
  step->number = 1;
  step->rows = step->max_context = kRows;
  step->seqs = 1;
  step->page_size = kPageSize;
  swy_binding on_device{nullptr, 0, block.size()};
  expect(p.api->buffer_alloc(p.device, SWY_MEMORY_UPLOAD, block.size(), &on_device.buffer, fresh_error()), "a step");
  expect(p.api->write(p.device, on_device.buffer, 0, block.data(), block.size(), nullptr, fresh_error()), "a step");

  auto* info = edge<swy_list_info>();
  info->bucket = b;
  info->step = on_device;
  info->tokens = upload(p, Values(4));
  swy_list* list = nullptr;
  expect(p.api->list_begin(p.device, info, &list, fresh_error()), "list_begin");
  expect(k->record(list, k, op, bindings, fresh_error()), "record");
  expect(p.api->list_finalize(list, fresh_error()), "list_finalize");
  for (int i = 0; i < 2; ++i) expect(p.api->list_submit(list, nullptr, fresh_error()), "list_submit");
  Values got(wanted.size());
  expect(p.api->read(p.device, got.data(), out.buffer, 0, out.bytes, nullptr, fresh_error()), "read");
  for (size_t i = 0; i < got.size(); ++i) {
    if (!(std::fabs(got[i] - wanted[i]) < 1e-4f)) give_up(k->name, "gave a wrong result");
  }
  p.api->list_free(list);
  std::printf("%s, ", k->name);
}

void run_add(const Plugin& p) {
  std::vector<const swy_tensor*> tensors;
  for (int i = 0; i < 3; ++i) tensors.push_back(tensor({kRows, kWidth}));
  Values x, y, sum;
  for (uint32_t i = 0; i < kRows * kWidth; ++i) {
    x.push_back(static_cast<float>(i));
    y.push_back(0.25f * static_cast<float>(i));
    sum.push_back(x[i] + y[i]);
  }
  run(p, operation(SWY_OP_ADD, nullptr, 0, &tensors, 2, 0, 0), {x, y}, sum);
}

void run_norm(const Plugin& p) {
  std::vector<const swy_tensor*> tensors = {tensor({kRows, kWidth}), tensor({kWidth}), tensor({kRows, kWidth})};
  auto* attrs = edge<swy_rms_norm_attrs>();
  attrs->eps = 1e-6f;
  attrs->weight_bias = 1;
  Values x, w(kWidth), norm;
  for (uint32_t i = 0; i < kWidth; ++i) w[i] = 0.125f * static_cast<float>(i);
  for (uint32_t i = 0; i < kRows * kWidth; ++i) x.push_back(static_cast<float>(i % 7) - 2.5f);
  for (uint32_t r = 0; r < kRows; ++r) {
    double squares = 0;
    for (uint32_t i = 0; i < kWidth; ++i) squares += static_cast<double>(x[r * kWidth + i]) * x[r * kWidth + i];
    const double scale = 1 / std::sqrt(squares / kWidth + 1e-6);
    for (uint32_t i = 0; i < kWidth; ++i) {
      norm.push_back(static_cast<float>(x[r * kWidth + i] * scale * (1 + static_cast<double>(w[i]))));
    }
  }
  run(p, operation(SWY_OP_RMS_NORM, attrs, sizeof *attrs, &tensors, 1, 1, 0), {x, w}, norm);
}

// The state of an ATTENTION, to the device and back.
void keep_state(const Plugin& p) {
  constexpr uint64_t kHeads = 2, kDim = 16;
  swy_tensor* kv = tensor({2, kHeads, kDim});
  kv->state = SWY_STATE_PAGED;
  std::vector<const swy_tensor*> tensors = {tensor({kRows, kHeads * kDim}),
                                            tensor({kRows, kHeads * kDim}),
                                            tensor({kRows, kHeads * kDim}),
                                            tensor({kDim}),
                                            tensor({kDim}),
                                            kv,
                                            tensor({kRows, kHeads * kDim})};
  auto* attrs = edge<swy_attention_attrs>();
  attrs->heads = attrs->kv_heads = kHeads;
  attrs->head_dim = attrs->rotary_dim = kDim;
  attrs->rope_theta = 1e4f;
  attrs->scale = 0.25f;
  attrs->norm_eps = 1e-6f;
  const swy_op* op = operation(SWY_OP_ATTENTION, attrs, sizeof *attrs, &tensors, 3, 2, 1);
  const swy_bucket* b = bucket();
  const swy_kernel* k = kernel_for(p, op, b);
  auto* prepared = edge<swy_prepared>();
  if (k != nullptr && k->prepare != nullptr) expect(k->prepare(p.device, k, op, b, prepared, fresh_error()), "prepare");
  auto* layout = edge<swy_state_layout>();
  expect(p.api->state_layout(p.device, op, 0, b, layout, fresh_error()), "state_layout");
  Values page(2 * kHeads * kDim * kPageSize), back(page.size());
  for (size_t i = 0; i < page.size(); ++i) page[i] = static_cast<float>(i);
  const swy_binding unit = upload(p, Values(layout->unit_bytes / 4));
  const uint64_t bytes = page.size() * 4;
  expect(p.api->state_import(p.device, kv, kPageSize, &unit, page.data(), bytes, fresh_error()), "state_import");
  expect(p.api->state_export(p.device, kv, kPageSize, &unit, back.data(), bytes, fresh_error()), "state_export");
  if (page != back) give_up("a state", "came back otherwise");
  std::printf("%s", k == nullptr ? "a state" : k->name);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) give_up("usage", "abi_host PLUGIN");
  Plugin p{open(argv[1])};
  uint32_t count = 0;
  expect(p.api->device_count(&count, fresh_error()), "device_count");
  auto* info = edge<swy_device_info>();
  expect(p.api->device_info(0, info, fresh_error()), "device_info");
  if (info->name == nullptr || info->buffer_alignment == 0) give_up(argv[1], "does not describe its device");
  expect(p.api->device_open(0, nullptr, 0, &p.device, fresh_error()), "device_open");
  if (p.api->get_extension(p.device, "acme.unknown/1") != nullptr) give_up(argv[1], "has an extension of any name");
  run_add(p);
  run_norm(p);
  keep_state(p);
  std::printf(": good\n");
  return 0;
}
