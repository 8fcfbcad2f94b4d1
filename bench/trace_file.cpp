// SPDX-License-Identifier: Apache-2.0
#include "bench/trace_file.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "core/plan/op_shape.h"
#include "core/program/op_names.h"

namespace switchyard::bench {
namespace {

using nlohmann::ordered_json;

std::string text_of(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// The layer that "layers.3.attention" names; -1: none.
int layer_of(const std::string& op) {
  constexpr std::string_view prefix = "layers.";
  const size_t at = op.find(prefix);
  if (at == std::string::npos) return -1;
  int layer = -1;
  const char* begin = op.data() + at + prefix.size();
  std::from_chars(begin, op.data() + op.size(), layer);
  return layer;
}

}  // namespace

TraceFile::TraceFile(std::vector<std::string> devices, uint64_t begin_ns, size_t most_events)
    : devices_(std::move(devices)), begin_ns_(begin_ns), most_events_(most_events), args_(1) {}

bool TraceFile::room() {
  if (events_.size() < most_events_) return true;
  ++left_out_;
  return false;
}

uint32_t TraceFile::name(const std::string& text) {
  const auto [at, added] = name_index_.try_emplace(text, static_cast<uint32_t>(names_.size()));
  if (added) names_.push_back(text);
  return at->second;
}

uint32_t TraceFile::args(std::string json) {
  const auto [at, added] = args_index_.try_emplace(json, static_cast<uint32_t>(args_.size()));
  if (added) args_.push_back(std::move(json));
  return at->second;
}

void TraceFile::stretch(const char* what, uint64_t begin_ns, uint64_t end_ns) {
  if (room()) events_.push_back({begin_ns, end_ns, 0, kHost, name(what), 0});
}

void TraceFile::submitted(uint64_t list, const Plan& plan, const PlanSegment& segment, uint64_t begin_ns,
                          uint64_t end_ns) {
  if (!room()) return;
  const std::string& device = devices_[segment.device];
  const ordered_json about = {{"device", device},
                              {"operations", segment.end - segment.begin},
                              {"rows", plan.bucket.rows},
                              {"sequences", plan.bucket.seqs},
                              {"context", plan.bucket.context},
                              {"part", segment.head ? "head" : "forward"}};
  events_.push_back({begin_ns, end_ns, list, kHost, name("submit " + device), args(text_of(about))});
}

uint32_t TraceFile::args_of(const KernelSpan& span) {
  if (span.node == nullptr) return 0;
  const auto [at, added] = by_node_.try_emplace(span.node, 0);
  if (!added) return at->second;
  const PlanNode& node = *span.node;
  ordered_json about = {{"op", node.op.name}};
  if (const int layer = layer_of(node.op.name); layer >= 0) about["layer"] = layer;
  about["kernel"] = node.kernel_name();
  if (node.kernel != nullptr) {
    about["kind"] = op_kind(node.op);
    about["shape"] = shape_text(span.plan->graph, node.op);
    about["rows"] = op_rows(span.plan->graph, node.op, span.plan->bucket);
  } else {
    about["operations"] = node.range_ops.size();
  }
  return at->second = args(text_of(about));
}

void TraceFile::kernel(const KernelSpan& span) {
  if (!room()) return;
  const uint32_t about = args_of(span);
  events_.push_back({span.begin_ns, span.end_ns, span.list, span.device + 1, name(span.name), about});
}

// Writes events as JSON, a block at a time.
class TraceFile::Writer {
 public:
  Writer(const TraceFile& trace, OutputFile& file) : t_(trace), file_(file) {}

  Status write() {
    begin();
    for (const Event& e : t_.events_) {
      if (e.process == kHost && e.list != 0) submitted_.insert(e.list);
    }
    name_process(kHost, "host");
    name_lane(kHost, kSteps, "steps");
    for (const Event& e : t_.events_) {
      if (e.process == kHost) SWY_TRY(span(e, kSteps));
    }
    for (uint32_t d = 0; d < t_.devices_.size(); ++d) SWY_TRY(device(d));
    text_ += "\n]}\n";
    return flush();
  }

 private:
  static constexpr uint32_t kSteps = 1, kLists = 1, kKernels = 2;  // lanes

  void begin() {
    ordered_json about = t_.about_;
    about["events"] = t_.events_.size();
    about["events left out, the last ones, for want of room"] = t_.left_out_;
    text_ = fmt::format("{{\"displayTimeUnit\":\"ns\",\"otherData\":{},\"traceEvents\":[", text_of(about));
  }

  void next() {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
  }
  void meta(const char* what, uint32_t process, uint32_t lane, const ordered_json& args) {
    next();
    text_ += fmt::format("{{\"ph\":\"M\",\"name\":\"{}\",\"pid\":{},\"tid\":{},\"args\":{}}}", what, process, lane,
                         text_of(args));
  }
  void name_process(uint32_t process, const std::string& name) {
    meta("process_name", process, 0, {{"name", name}});
    meta("process_sort_index", process, 0, {{"sort_index", process}});
  }
  void name_lane(uint32_t process, uint32_t lane, const std::string& name) {
    meta("thread_name", process, lane, {{"name", name}});
    meta("thread_sort_index", process, lane, {{"sort_index", lane}});
  }

  std::string when(uint64_t ns) const {
    const uint64_t from = ns > t_.begin_ns_ ? ns - t_.begin_ns_ : 0;
    return fmt::format("{}.{:03}", from / 1000, from % 1000);
  }

  Status span(const Event& e, uint32_t lane) {
    const uint64_t begin = std::max(e.begin_ns, t_.begin_ns_), end = std::max(e.end_ns, begin);
    next();
    text_ += fmt::format("{{\"ph\":\"X\",\"name\":{},\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{}.{:03}",
                         text_of(t_.names_[e.name]), e.process == kHost ? "host" : "device", e.process, lane,
                         when(begin), (end - begin) / 1000, (end - begin) % 1000);
    text_ += e.args != 0 ? fmt::format(",\"args\":{}}}", t_.args_[e.args]) : "}";
    if (e.process == kHost && e.list != 0) arrow('s', e.list, e.process, lane, begin);
    return text_.size() < kBlock ? Status() : flush();
  }
  // From a list's submission to its first kernel.
  void arrow(char end, uint64_t list, uint32_t process, uint32_t lane, uint64_t ns) {
    next();
    text_ +=
        fmt::format("{{\"ph\":\"{}\",{}\"name\":\"list\",\"cat\":\"list\",\"id\":{},\"pid\":{},\"tid\":{},\"ts\":{}}}",
                    end, end == 'f' ? "\"bp\":\"e\"," : "", list, process, lane, when(std::max(ns, t_.begin_ns_)));
  }

  // The kernels of a device, each on the first lane that is free, and the lists that they make up.
  Status device(uint32_t d) {
    std::vector<const Event*> kernels;
    for (const Event& e : t_.events_) {
      if (e.process == d + 1) kernels.push_back(&e);
    }
    if (kernels.empty()) return {};
    std::stable_sort(kernels.begin(), kernels.end(),
                     [](const Event* a, const Event* b) { return a->begin_ns < b->begin_ns; });
    name_process(d + 1, t_.devices_[d]);
    name_lane(d + 1, kLists, "lists");
    SWY_TRY(lists(d, kernels));
    std::vector<uint64_t> free_at;
    for (const Event* e : kernels) {
      size_t lane = 0;
      while (lane < free_at.size() && free_at[lane] > e->begin_ns) ++lane;
      if (lane == free_at.size()) {
        name_lane(d + 1, kKernels + static_cast<uint32_t>(lane),
                  lane == 0 ? "kernels" : fmt::format("kernels {}", lane + 1));
        free_at.push_back(0);
      }
      free_at[lane] = e->end_ns;
      SWY_TRY(span(*e, kKernels + static_cast<uint32_t>(lane)));
    }
    return {};
  }

  Status lists(uint32_t d, const std::vector<const Event*>& kernels) {
    std::map<uint64_t, Event> hulls;
    for (const Event* e : kernels) {
      if (e->list == 0) continue;
      Event& hull = hulls.try_emplace(e->list, *e).first->second;
      hull.begin_ns = std::min(hull.begin_ns, e->begin_ns);
      hull.end_ns = std::max(hull.end_ns, e->end_ns);
    }
    uint64_t free_at = 0;
    for (auto& [list, hull] : hulls) {
      next();
      const uint64_t begin = std::max({hull.begin_ns, t_.begin_ns_, free_at}), end = std::max(hull.end_ns, begin);
      free_at = end;
      text_ += fmt::format(
          "{{\"ph\":\"X\",\"name\":\"list {}\",\"cat\":\"list\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{}.{:03}}}",
          list, d + 1, kLists, when(begin), (end - begin) / 1000, (end - begin) % 1000);
      if (submitted_.contains(list)) arrow('f', list, d + 1, kLists, begin);
      if (text_.size() >= kBlock) SWY_TRY(flush());
    }
    return {};
  }

  Status flush() {
    Status s = file_.append(std::as_bytes(std::span(text_)));
    text_.clear();
    return s;
  }

  static constexpr size_t kBlock = 1 << 20;
  const TraceFile& t_;
  OutputFile& file_;
  std::set<uint64_t> submitted_;  // lists whose submission is kept
  std::string text_;
  bool first_ = true;
};

Status TraceFile::write(OutputFile& file) const {
  SWY_TRY(Writer(*this, file).write());
  return file.commit();
}

}  // namespace switchyard::bench
