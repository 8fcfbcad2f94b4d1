// SPDX-License-Identifier: Apache-2.0
// device: its description, opening and options, the kernels' descriptors, the tables of extensions.
#include <cmath>
#include <cstddef>
#include <cstring>
#include <set>

#include "plugins_api/check/kit.h"
#include "plugins_api/check/suites.h"
#include "switchyard/extensions.h"
#include "switchyard/extensions_ahead.h"
#include "switchyard/op_table.h"

namespace switchyard::check {
namespace {

std::string device_info(const Library& library) {
  swy_device_info info{};
  info.struct_size = sizeof info;
  PluginError e;
  e.expect_ok(library.api().device_info(0, &info, e.get()), "device_info");
  const uint32_t a = info.buffer_alignment;
  if (info.name == nullptr || *info.name == '\0' || info.arch == nullptr || *info.arch == '\0') {
    return "a device has no name or no arch";
  }
  if (info.type < SWY_DEVICE_CPU || info.type > SWY_DEVICE_ACCELERATOR) return text("type ", info.type);
  if (a == 0 || (a & (a - 1)) != 0 || a > 4096) return text("buffer_alignment ", a, " is no power of two up to 4096");
  constexpr uint32_t kFlags = SWY_DEVICE_SYNCHRONOUS | SWY_DEVICE_HOST_MEMORY | SWY_DEVICE_NATIVE_REPLAY;
  constexpr uint32_t kSampling = SWY_SAMPLING_LOGITS | SWY_SAMPLING_TOPK_CANDIDATES | SWY_SAMPLING_TOKEN;
  constexpr uint32_t kSteps = (SWY_SAMPLES_STOP_IDS << 1) - 1;  // the last of them
  if (!library.is_newer()) {
    if ((info.flags & ~kFlags) != 0) return text("the device has flags that ABI 1 does not know: ", info.flags);
    if ((info.sampling & ~kSampling) != 0) return text("sampling has bits that ABI 1 does not know: ", info.sampling);
    if ((info.sampling_steps & ~kSteps) != 0) {
      return text("sampling_steps has bits that ABI 1 does not know: ", info.sampling_steps);
    }
  }
  if (info.memory_bytes != 0 && info.memory_free_bytes > info.memory_bytes) return "more memory is free than there is";
  if ((info.flags & SWY_DEVICE_SYNCHRONOUS) == 0 && library.api().timeline_create == nullptr) {
    return "the device is not SYNCHRONOUS, and has no timelines";
  }
  return "";
}

// An older host's smaller struct must not be written beyond its end.
std::string short_device_info(const Library& library) {
  swy_device_info info;
  std::memset(&info, 0x5a, sizeof info);
  info.struct_size = 40;
  PluginError e;
  e.expect_ok(library.api().device_info(0, &info, e.get()), "device_info");
  const auto* bytes = reinterpret_cast<const unsigned char*>(&info);
  for (size_t i = 40; i < sizeof info; ++i) {
    if (bytes[i] != 0x5a) return text("device_info wrote byte ", i, " of a struct of 40");
  }
  return "";
}

std::string opens_again(const Library& library, const std::vector<Setting>& settings) {
  for (int i = 0; i < 3; ++i) Plugin(library, settings);
  const Plugin a(library, settings), b(library, settings);
  if (a.device() == b.device()) return "two openings gave the same device";
  if (a.kernels().size() != b.kernels().size()) return "two openings have different kernels";
  return "";
}

std::string kernel(const swy_kernel* k, uint32_t index) {
  if (k == nullptr) return text("kernel ", index, " is NULL");
  if (!SWY_HAS(swy_kernel, k, record)) return text("kernel ", index, " has struct_size ", k->struct_size);
  if (!is_one_word(k->name)) return text("kernel ", index, " has no name of one word");
  if (k->record == nullptr) return text(k->name, " has no record");
  if (k->op == 0) return text(k->name, " names no operation");
  const swy_op_spec* newest = swy_find_op(k->op, 0);
  const uint32_t known = newest == nullptr ? 1 : newest->revision;
  if (k->op != SWY_OP_NAMED && (k->op_revision == 0 || k->op_revision > known)) {
    return text(k->name, " declares revision ", k->op_revision, " of ", op_name(k->op), "; there is revision ",
                known == 1 ? "1" : text("1 to ", known));
  }
  if (k->max_rows != 0 && k->min_rows > k->max_rows) return text(k->name, " takes no number of rows");
  if ((k->flags & SWY_KERNEL_CAPTURE_SAFE) == 0) return text(k->name, " is not CAPTURE_SAFE, which is mandatory");
  constexpr uint32_t kActivations = SWY_DTYPE_BIT(SWY_F32) | SWY_DTYPE_BIT(SWY_BF16);
  if ((k->input_dtypes & ~(kActivations | SWY_DTYPE_BIT(SWY_I32))) != 0) return text(k->name, ": input_dtypes");
  if ((k->output_dtypes & ~(kActivations | SWY_DTYPE_BIT(SWY_I32))) != 0) return text(k->name, ": output_dtypes");
  constexpr uint32_t kRounded = kActivations | SWY_DTYPE_BIT(SWY_F16) | SWY_DTYPE_BIT(SWY_I8);
  if (k->activations != 0 && (k->activations >= 32 || (kRounded & SWY_DTYPE_BIT(k->activations)) == 0)) {
    return text(k->name, " rounds activations to type ", k->activations);
  }
  return "";
}

// What no host of this minor version knows.
std::string unknown_bits(const swy_kernel& k) {
  constexpr uint32_t kFlags =
      SWY_KERNEL_CAPTURE_SAFE | SWY_KERNEL_DETERMINISTIC | SWY_KERNEL_BATCH_INVARIANT | SWY_KERNEL_IN_PLACE;
  constexpr uint32_t kEncodings = ((SWY_DTYPE_BIT(SWY_NVFP4) << 1) - 1) | SWY_DTYPE_BIT(SWY_ENCODED);
  if ((k.flags & ~kFlags) != 0) return text(k.name, " has flags that ABI 1 does not know: ", k.flags);
  if ((k.weight_dtypes & ~kEncodings) != 0) return text(k.name, ": weight_dtypes ", k.weight_dtypes);
  return "";
}

std::string kernels(const Plugin& plugin) {
  if (plugin.kernels().empty()) return "there are no kernels";
  std::set<std::string> names;
  const auto count = static_cast<uint32_t>(plugin.kernels().size());
  for (uint32_t i = 0; i < count; ++i) {
    const swy_kernel* k = plugin.kernels()[i];
    if (std::string problem = kernel(k, i); !problem.empty()) return problem;
    if (std::string problem = unknown_bits(*k); !plugin.is_newer() && !problem.empty()) return problem;
    if (!names.insert(k->name).second) return text("two kernels are named ", k->name);
    if (plugin.api().kernel_at(plugin.device(), i) != k) return text("kernel ", i, " is another one the second time");
  }
  return plugin.api().kernel_at(plugin.device(), count) == nullptr ? "" : "gives a kernel beyond the last one";
}

std::string costs(Kit& kit) {
  std::set<const swy_kernel*> seen;
  for (const Check& c : kit.claims().checks) {
    if (!seen.insert(c.kernel).second) continue;
    if (c.kernel->cost == nullptr) return text(c.kernel->name, " has no cost");
    const Case built = kit.build(c);
    const OpView op(built);
    double us = -1;
    PluginError e;
    e.expect_ok(c.kernel->cost(kit.plugin().device(), c.kernel, op.get(), &built.bucket, &us, e.get()), "cost");
    if (!std::isfinite(us) || us < 0) return text(c.kernel->name, " says that it costs ", us, " microseconds");
  }
  return "";
}

// Opens with one setting. A refusal must say why.
std::string open_with(const Library& library, const char* name, const char* value, bool must) {
  const swy_setting setting{name, value};
  swy_device* device = nullptr;
  PluginError e;
  const swy_status s = library.api().device_open(0, &setting, 1, &device, e.get());
  if (s == SWY_OK && device == nullptr) return text(name, "=", value, ": opened, and gave no device");
  if (s == SWY_OK) {
    library.api().device_close(device);
    return "";
  }
  if (device != nullptr) return text(name, "=", value, ": refused, and gave a device");
  if (must) return text("refuses the default of its own option, ", name, "=", value, ": ", e.line());
  return e.has_line() ? "" : text(name, "=", value, ": refused without a line");
}

std::string options(const Library& library) {
  std::string problem;
  for (uint32_t i = 0; i < library.api().option_count && problem.empty(); ++i) {
    const swy_option& o = *library.api().options[i];
    problem = open_with(library, o.name, o.default_value, true);
    for (const char* odd : {"", "no such value", "-1", "99999999999999999999", "1e999"}) {
      if (problem.empty()) problem = open_with(library, o.name, odd, false);
    }
    if (problem.empty()) problem = open_with(library, o.name, o.default_value, true);
  }
  return problem.empty() ? open_with(library, "no_such_option", "1", false) : problem;
}

std::string unknown_extensions(const Plugin& plugin) {
  for (const char* name : {"", "swy.", "swy.range/0", "swy.range/99", "swy.nothing/1", "SWY.RANGE/1", "swy.range/1 "}) {
    if (plugin.extension(name) != nullptr) return text("claims the unknown extension '", name, "'");
  }
  return "";
}

std::string extension_tables(const Plugin& plugin) {
  const auto begins = [](const void* table) { return *static_cast<const uint32_t*>(table); };
  const struct {
    const char* name;
    size_t size;
  } all[] = {{SWY_EXT_RANGE, offsetof(swy_range, accept)},
             {SWY_EXT_SAMPLING, sizeof(swy_sampling)},
             {SWY_EXT_PROFILE, offsetof(swy_profile, dropped)},
             {SWY_EXT_CANCEL, sizeof(swy_cancel)},
             {SWY_EXT_AHEAD, sizeof(swy_ahead)},
             {SWY_EXT_GROUP, sizeof(swy_groups)}};
  for (const auto& e : all) {
    const void* t = plugin.extension(e.name);
    if (t == nullptr) continue;
    if (begins(t) < e.size) return text(e.name, " has struct_size ", begins(t));
    if (plugin.extension(e.name) != t) return text(e.name, " is another table the second time");
    const auto* functions = reinterpret_cast<void* const*>(static_cast<const char*>(t) + 8);
    const bool numbers = std::strcmp(e.name, SWY_EXT_SAMPLING) == 0;
    for (size_t i = 0; !numbers && i < (e.size - 8) / sizeof(void*); ++i) {
      if (functions[i] == nullptr) return text(e.name, " lacks its entry ", i);
    }
  }
  return "";
}

std::vector<Task> list(Session& session, std::vector<Refusal>*) {
  const Options& o = session.options();
  std::vector<Task> tasks;
  const auto on_library = [&](const char* name, std::string (*f)(const Library&)) {
    tasks.push_back({name, [&o, f] { return f(Library(o.plugin)); }, {}});
  };
  const auto on_plugin = [&](const char* name, std::string (*f)(const Plugin&)) {
    tasks.push_back({name, [&session, f] { return f(session.kit().plugin()); }, {}});
  };
  on_library("info", device_info);
  on_library("short_info", short_device_info);
  on_library("options", options);
  tasks.push_back({"opens_again", [&o] { return opens_again(Library(o.plugin), o.settings); }, {}});
  on_plugin("kernels", kernels);
  tasks.push_back({"costs", [&session] { return costs(session.kit()); }, {}});
  on_plugin("unknown_extensions", unknown_extensions);
  on_plugin("extension_tables", extension_tables);
  return tasks;
}

}  // namespace

const Suite kDeviceSuite = {"device", "its description, options, kernels and extensions", true, false, {}, list};

}  // namespace switchyard::check
