// SPDX-License-Identifier: Apache-2.0
#include "core/plan/tuning.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/base/printable.h"
#include "core/base/user_folder.h"
#include "core/plan/op_shape.h"

namespace switchyard {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr char kFormat[] = "switchyard.tuning/1";
constexpr uint64_t kMaxBytes = uint64_t{64} << 20;
constexpr double kNear = 2;  // a context within this factor of a measured one costs in proportion

bool before(const TunedPoint& a, const TunedPoint& b) {
  return a.context != b.context ? a.context < b.context : a.rows < b.rows;
}

// Between two points on a line of logarithms, since costs grow in proportion to rows or not at all.
double between(const TunedPoint& a, const TunedPoint& b, uint64_t rows) {
  if (a.rows == b.rows) return a.us;
  const double t = std::log(static_cast<double>(rows) / static_cast<double>(a.rows)) /
                   std::log(static_cast<double>(b.rows) / static_cast<double>(a.rows));
  return a.us * std::pow(b.us / a.us, t);
}

Result<TunedKernel> kernel_of(const json& j) {
  TunedKernel k;
  k.op = j.at("op").get<std::string>();
  k.shape = j.at("shape").get<std::string>();
  k.kernel = j.at("kernel").get<std::string>();
  const std::string key = j.at("key").get<std::string>();
  const auto end = key.data() + key.size();
  if (const auto r = std::from_chars(key.data(), end, k.key, 16); r.ec != std::errc() || r.ptr != end) {
    return error(Code::invalid_data, "'{}' is no key", printable(key));
  }
  for (const json& p : j.at("points")) {
    const TunedPoint point{p.at(0).get<uint64_t>(), p.at(1).get<uint64_t>(), p.at(2).get<double>()};
    if (point.rows == 0 || !(point.us > 0) || !std::isfinite(point.us)) {
      return error(Code::invalid_data, "{} takes {} us for {} rows", k.kernel, point.us, point.rows);
    }
    k.points.push_back(point);
  }
  std::sort(k.points.begin(), k.points.end(), before);
  return k;
}

Result<TunedDevice> device_of(const json& j) {
  TunedDevice d;
  d.backend = j.at("backend").get<std::string>();
  d.version = j.at("version").get<std::string>();
  d.name = j.at("device").get<std::string>();
  d.arch = j.at("arch").get<std::string>();
  d.threads = j.at("threads").get<uint32_t>();
  d.date = j.at("date").get<std::string>();
  for (const json& k : j.at("kernels")) {
    SWY_LET(TunedKernel kernel, kernel_of(k));
    d.kernels.push_back(std::move(kernel));
  }
  return d;
}

ordered_json json_of(const TunedDevice& d) {
  ordered_json kernels = ordered_json::array();
  for (const TunedKernel& k : d.kernels) {
    ordered_json points = ordered_json::array();
    for (const TunedPoint& p : k.points) points.push_back({p.rows, p.context, p.us});
    kernels.push_back({{"op", k.op},
                       {"shape", k.shape},
                       {"kernel", k.kernel},
                       {"key", fmt::format("{:016x}", k.key)},
                       {"points", std::move(points)}});
  }
  return {{"backend", d.backend},
          {"version", d.version},
          {"device", d.name},
          {"arch", d.arch},
          {"threads", d.threads},
          {"date", d.date},
          {"kernels", std::move(kernels)}};
}

void add_points(TunedKernel& k, const std::vector<TunedPoint>& points) {
  std::erase_if(k.points, [&](const TunedPoint& old) {
    return std::any_of(points.begin(), points.end(),
                       [&](const TunedPoint& p) { return p.rows == old.rows && p.context == old.context; });
  });
  k.points.insert(k.points.end(), points.begin(), points.end());
  std::sort(k.points.begin(), k.points.end(), before);
}

}  // namespace

bool TunedDevice::same_device(const TunedDevice& o) const {
  return backend == o.backend && version == o.version && name == o.name && arch == o.arch && threads == o.threads;
}

TunedDevice tuned_device(const PlanDevice& device, uint32_t threads) {
  TunedDevice d;
  d.backend = device.backend;
  d.version = device.version;
  d.name = device.info.name == nullptr ? "" : device.info.name;
  d.arch = device.info.arch == nullptr ? "" : device.info.arch;
  d.threads = device.info.type == SWY_DEVICE_CPU ? threads : 0;
  return d;
}

std::string default_tuning_path() {
  if (const char* named = std::getenv("SWITCHYARD_TUNING"); named != nullptr) {
    return std::string_view(named) == "off" ? "" : named;
  }
  const std::string folder = cache_folder();
  return folder.empty() ? "" : folder + "/tuning.json";
}

std::shared_ptr<const Tuning> load_tuning(Os& os, const std::string& path, uint32_t threads) {
  if (path.empty()) return nullptr;
  std::string warning;
  auto tuning = std::make_shared<Tuning>(Tuning::load(os, path, warning));
  if (!warning.empty()) spdlog::warn("{}", warning);
  if (tuning->devices().empty()) return nullptr;
  tuning->set_threads(threads);
  return tuning;
}

uint64_t tuned_context(const Graph& graph, const GraphOp& op, const swy_bucket& bucket) {
  const bool paged = std::any_of(op.states.begin(), op.states.end(),
                                 [&](uint32_t s) { return graph.states[s].desc.state == SWY_STATE_PAGED; });
  return paged ? bucket.context : 0;
}

Result<Tuning> Tuning::parse(const std::string& text) {
  Tuning t;
  SWY_LET(const json file, read_json(text, "the file"));
  try {
    if (file.at("format") != kFormat) return error(Code::invalid_data, "its format is not {}", kFormat);
    for (const json& d : file.at("devices")) {
      SWY_LET(TunedDevice device, device_of(d));
      t.devices_.push_back(std::move(device));
    }
  } catch (const nlohmann::json::exception& e) {
    return error(Code::invalid_data, "{}", e.what());
  }
  return t;
}

Tuning Tuning::load(Os& os, const std::string& path, std::string& warning) {
  auto text = os.read(path, kMaxBytes);
  if (!text.ok() && text.status().code() == Code::not_found) return {};
  auto parsed = text.ok() ? parse(*text) : Result<Tuning>(text.status());
  if (parsed.ok()) return std::move(*parsed);
  warning = fmt::format("{} is ignored, so kernels are chosen by estimates: {}; run switchyard tune to write it again",
                        path, parsed.status().message());
  return {};
}

std::string Tuning::text() const {
  ordered_json devices = ordered_json::array();
  for (const TunedDevice& d : devices_) devices.push_back(json_of(d));
  return ordered_json({{"format", kFormat}, {"devices", std::move(devices)}})
             .dump(1, ' ', false, ordered_json::error_handler_t::replace) +
         "\n";
}

Status Tuning::save(Os& os, const std::string& path) const {
  SWY_LET(const auto file, os.create(path));
  const std::string all = text();
  SWY_TRY(file->append(std::as_bytes(std::span(all))));
  return file->commit();
}

void Tuning::merge(const TunedDevice& measured) {
  const auto at =
      std::find_if(devices_.begin(), devices_.end(), [&](const TunedDevice& d) { return d.same_device(measured); });
  if (at == devices_.end()) {
    devices_.push_back(measured);
    return;
  }
  at->date = measured.date;
  for (const TunedKernel& k : measured.kernels) {
    const auto same = std::find_if(at->kernels.begin(), at->kernels.end(), [&](const TunedKernel& have) {
      return have.key == k.key && have.kernel == k.kernel;
    });
    if (same == at->kernels.end()) {
      at->kernels.push_back(k);
    } else {
      add_points(*same, k.points);
    }
  }
}

const TunedDevice* Tuning::find(const PlanDevice& device) const {
  const TunedDevice wanted = tuned_device(device, threads_);
  const auto at =
      std::find_if(devices_.begin(), devices_.end(), [&](const TunedDevice& d) { return d.same_device(wanted); });
  return at == devices_.end() ? nullptr : &*at;
}

std::optional<double> Tuning::cost(const TunedDevice& device, const Graph& graph, const GraphOp& op,
                                   const std::string& kernel, const swy_bucket& bucket) {
  if (!op.states.empty() && bucket.seqs > 1) return {};
  const uint64_t key = shape_hash(graph, op), rows = op_rows(graph, op, bucket);
  const auto found = std::find_if(device.kernels.begin(), device.kernels.end(),
                                  [&](const TunedKernel& k) { return k.key == key && k.kernel == kernel; });
  if (found == device.kernels.end()) return {};
  const uint64_t context = tuned_context(graph, op, bucket);
  const TunedPoint *below = nullptr, *above = nullptr;  // in rows, of the contexts that are near
  for (const TunedPoint& p : found->points) {
    const double ratio = context == p.context ? 1 : static_cast<double>(context) / static_cast<double>(p.context);
    if (!(ratio <= kNear && ratio >= 1 / kNear)) continue;
    if (p.rows <= rows && (below == nullptr || p.rows >= below->rows)) below = &p;
    if (p.rows >= rows && (above == nullptr || p.rows < above->rows)) above = &p;
  }
  if (below == nullptr || above == nullptr) return {};
  return between(*below, *above, rows);
}

}  // namespace switchyard
