// SPDX-License-Identifier: Apache-2.0
// TraceFile: a profile as a file in the Trace Event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
//
// One process of the file is the host, with a lane for the thread that steps; each device is another, with a lane for
// its lists and one for its kernels, or more where kernels overlap. Times are microseconds from the beginning.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/os.h"
#include "core/engine/profile.h"

namespace switchyard::bench {

class TraceFile final : public ProfileListener {
 public:
  static constexpr size_t kMostEvents = size_t{1} << 20;  // 48 bytes each

  // `devices` as the profile numbers them. Events after `most_events` are counted, but not kept.
  explicit TraceFile(std::vector<std::string> devices, uint64_t begin_ns = Os::real().now_ns(),
                     size_t most_events = kMostEvents);

  void stretch(const char* what, uint64_t begin_ns, uint64_t end_ns) override;
  void submitted(uint64_t list, const Plan& plan, const PlanSegment& segment, uint64_t begin_ns,
                 uint64_t end_ns) override;
  void kernel(const KernelSpan& span) override;

  // A line about the file, shown by the viewers: "model", "demo.swy".
  void describe(const std::string& key, const std::string& value) { about_[key] = value; }
  size_t events() const { return events_.size(); }
  size_t left_out() const { return left_out_; }

  // Writes all of it, as a whole or not at all. Errors: io.
  Status write(OutputFile& file) const;

 private:
  static constexpr uint32_t kHost = 0;  // process; device d is d + 1

  struct Event {
    uint64_t begin_ns = 0, end_ns = 0;
    uint64_t list = 0;  // that a kernel or submission belongs to; 0: none
    uint32_t process = kHost;
    uint32_t name = 0;  // of names_
    uint32_t args = 0;  // of args_; 0: none
  };
  class Writer;

  bool room();
  uint32_t name(const std::string& text);
  uint32_t args(std::string json);
  uint32_t args_of(const KernelSpan& span);

  std::vector<std::string> devices_;
  uint64_t begin_ns_;
  size_t most_events_, left_out_ = 0;
  std::vector<Event> events_;
  std::vector<std::string> names_, args_;  // args: JSON objects
  std::map<std::string, uint32_t> name_index_, args_index_;
  std::unordered_map<const void*, uint32_t> by_node_;  // args of an operation's kernel, or of a list
  std::map<std::string, std::string> about_;
};

}  // namespace switchyard::bench
