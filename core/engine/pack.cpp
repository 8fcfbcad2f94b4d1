// SPDX-License-Identifier: Apache-2.0
#include "core/engine/pack.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "core/base/threads.h"
#include "core/engine/layouts.h"
#include "core/plugin/call.h"
#include "core/program/output.h"
#include "core/program/writer.h"

namespace switchyard {
namespace {

constexpr uint64_t kChunk = uint64_t{8} << 20;

// One packed segment of the new file.
struct Job {
  uint32_t tensor = 0, device = 0, layout = 0;
  uint64_t bytes = 0;
  std::vector<std::byte> packed = {};
  bool done = false;
};

// Threads that pack tensors ahead of the writing thread, in order and within the limit on memory.
class Packer {
 public:
  Packer(const Program& program, const std::vector<PlanDevice>& devices, std::vector<Job>& jobs,
         const PackOptions& options)
      : program_(program), devices_(devices), jobs_(jobs), limit_(options.memory_bytes) {
    for (uint32_t i = 0; i < std::max(options.threads, 1u); ++i) {
      if (start_thread(threads_, [this] { work(); })) continue;
      const std::lock_guard lock(mutex_);
      if (i == 0) status_ = error(Code::out_of_host_memory, "the system refuses to start a thread that packs weights");
      break;
    }
  }
  ~Packer() {
    {
      const std::lock_guard lock(mutex_);
      next_ = jobs_.size();
    }
    changed_.notify_all();
    for (std::thread& t : threads_) t.join();
  }
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  // Waits for a job.
  Status wait(size_t job) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return jobs_[job].done || !status_.ok(); });
    return status_;
  }
  // Its bytes have been written.
  void free(size_t job) {
    std::vector<std::byte>().swap(jobs_[job].packed);
    {
      const std::lock_guard lock(mutex_);
      held_ -= jobs_[job].bytes;
    }
    changed_.notify_all();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] {
        return next_ == jobs_.size() || held_ == 0 || held_ + jobs_[next_].bytes <= limit_ || !status_.ok();
      });
      if (next_ == jobs_.size() || !status_.ok()) return;
      Job& job = jobs_[next_++];
      held_ += job.bytes;
      lock.unlock();
      const Status s = within_memory([&] { return pack(job); });
      lock.lock();
      job.done = true;
      if (!s.ok() && status_.ok()) status_ = s;
      changed_.notify_all();
    }
  }

  Status pack(Job& job) const {
    const Tensor& tensor = program_.tensors[job.tensor];
    const PlanDevice& device = devices_[job.device];
    const swy_tensor desc = describe(tensor);
    job.packed.resize(job.bytes);  // zero-filled, as a buffer of the device is
    PluginError e;
    const auto pack = [&](swy_error* x) {
      return device.api->pack(&desc, job.layout, program_.segment_bytes(tensor).data(), job.packed.data(), x);
    };
    return e.status(call_plugin(device, "pack", e.get(), pack),
                    fmt::format("{}: packing weight {}", device.name, tensor.name));
  }

  const Program& program_;
  const std::vector<PlanDevice>& devices_;
  std::vector<Job>& jobs_;
  const uint64_t limit_;
  std::mutex mutex_;  // over everything below, and Job::done
  std::condition_variable changed_;
  Status status_;
  size_t next_ = 0;
  uint64_t held_ = 0;
  std::vector<std::thread> threads_;
};

class Repacker {
 public:
  Repacker(Os& os, const Program& program, const std::vector<PlanDevice>& devices, const PackOptions& options)
      : os_(os), program_(program), devices_(devices), options_(options) {}

  Result<PackReport> run(const std::vector<WeightUse>& uses, const std::string& output) {
    SWY_TRY(check_program_output(os_, output));
    SWY_TRY(plan(uses));
    SWY_LET(ProgramWriter writer, ProgramWriter::create(os_, output, spec_));
    SWY_TRY(check_space(os_, output, writer.file_bytes()));
    PackReport report{writer.file_bytes(), 0, 0};
    for (const Job& job : jobs_) report.packed_bytes += job.bytes;
    report.packed_tensors = jobs_.size();
    total_ = writer.file_bytes();
    Packer packer(program_, devices_, jobs_, options_);
    size_t job = 0;
    for (size_t t = 0; t < spec_.tensors.size(); ++t) {
      size_t segment = 0;
      SWY_TRY(copy(writer, t, program_.tensors[t].segments[0], segment++));
      for (const Segment* s : kept_[t]) SWY_TRY(copy(writer, t, *s, segment++));
      for (; job < jobs_.size() && jobs_[job].tensor == t; ++job) {
        SWY_TRY(packer.wait(job));
        SWY_TRY(write(writer, t, jobs_[job].packed, segment++));
        packer.free(job);
      }
      program_.release(program_.tensors[t].segments[0]);
    }
    SWY_TRY(writer.finish());
    return report;
  }

 private:
  // The contents of the new file: the canonical forms, then packed forms that are kept, then newly packed ones.
  Status plan(std::vector<WeightUse> uses) {
    spec_ = spec_of(program_);
    kept_.resize(program_.tensors.size());
    std::sort(uses.begin(), uses.end());
    uses.erase(std::unique(uses.begin(), uses.end()), uses.end());
    for (uint32_t t = 0, u = 0; t < program_.tensors.size(); ++t) {
      std::vector<ProgramSpec::Packed>& packed = spec_.tensors[t].packed;
      packed.clear();
      for (; u < uses.size() && uses[u].tensor == t; ++u) {
        if (uses[u].layout != 0 && uses[u].decoded == 0) SWY_TRY(add(uses[u], packed));
      }
      const auto replaced = [&](const Segment& s) {
        return std::any_of(packed.begin(), packed.end(), [&](const auto& p) { return p.layout == s.layout; });
      };
      std::vector<ProgramSpec::Packed> kept;
      for (const Segment& s : program_.tensors[t].segments.subspan(1)) {
        if (replaced(s)) continue;
        kept_[t].push_back(&s);
        kept.push_back({std::string(s.layout), s.layout_revision, s.bytes});
      }
      packed.insert(packed.begin(), kept.begin(), kept.end());
    }
    if (!jobs_.empty()) return {};
    return error(Code::unsupported, "{} reads all weights as they are; there is nothing to pack",
                 devices_.empty() ? "no device" : devices_[0].name);
  }

  Status add(const WeightUse& use, std::vector<ProgramSpec::Packed>& packed) {
    const PlanDevice& device = devices_[use.device];
    const auto name = layout_name(device, use.layout);
    if (!name) {
      return error(Code::unsupported, "{} has no name for layout {} of {}, so a file cannot hold it", device.name,
                   use.layout, program_.tensors[use.tensor].name);
    }
    SWY_LET(const uint64_t bytes, packed_bytes(device, program_.tensors[use.tensor], use.layout));
    const auto same = [&](const auto& p) { return p.layout == name->name; };
    if (std::any_of(packed.begin(), packed.end(), same)) return {};  // another device of the backend
    packed.push_back({std::string(name->name), name->revision, bytes});
    jobs_.push_back({use.tensor, use.device, use.layout, bytes});
    return {};
  }

  Status copy(ProgramWriter& writer, size_t tensor, const Segment& from, size_t segment) {
    SWY_TRY(write(writer, tensor, program_.segment_bytes(from), segment));
    if (segment != 0) program_.release(from);
    return {};
  }

  Status write(ProgramWriter& writer, size_t tensor, std::span<const std::byte> bytes, size_t segment) {
    SWY_TRY(writer.begin_segment(tensor, segment));
    while (!bytes.empty()) {
      const std::span<const std::byte> part = bytes.first(std::min<size_t>(bytes.size(), kChunk));
      SWY_TRY(writer.append(part));
      bytes = bytes.subspan(part.size());
      done_ += part.size();
      if (options_.progress && !options_.progress(done_, total_)) {
        return error(Code::cancelled, "packing stopped; the file was not written");
      }
    }
    return writer.end_segment();
  }

  Os& os_;
  const Program& program_;
  const std::vector<PlanDevice>& devices_;
  const PackOptions& options_;
  ProgramSpec spec_;
  std::vector<std::vector<const Segment*>> kept_;  // per tensor: packed forms of other backends
  std::vector<Job> jobs_;                          // in the order of the file
  uint64_t done_ = 0, total_ = 0;
};

}  // namespace

Result<PackReport> pack_program(Os& os, const Program& program, const std::vector<PlanDevice>& devices,
                                const std::vector<WeightUse>& uses, const std::string& output,
                                const PackOptions& options) {
  return Repacker(os, program, devices, options).run(uses, output);
}

}  // namespace switchyard
