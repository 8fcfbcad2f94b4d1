// SPDX-License-Identifier: Apache-2.0
#include "cli/pull_model.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "cli/load_watch.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "core/base/printable.h"
#include "core/base/status.h"
#include "core/hub/download.h"
#include "core/models/registry.h"

namespace switchyard::cli {
namespace {

using hub::Choice;
using hub::Listing;
using hub::RemoteFile;

std::string time_text(double seconds) {
  constexpr double kMinute = 60, kHour = 3600;
  if (seconds < 2 * kMinute) return fmt::format("{:.0f} s", seconds);
  return seconds < 2 * kHour ? fmt::format("{:.0f} min", seconds / kMinute) : fmt::format("{:.1f} h", seconds / kHour);
}

// How far it is: a line that is rewritten on a terminal, elsewhere one now and then.
class TransferLine {
 public:
  ~TransferLine() {
    if (terminal_ && shown_ns_ != 0) say("\n");
  }
  void update(uint64_t done, uint64_t total) {
    constexpr uint64_t kRewrite_ns = 200'000'000, kAgain_ns = 30'000'000'000, kFirst_ns = 3'000'000'000;
    const uint64_t now = Os::real().now_ns();
    if (begin_ns_ == 0) begin_ns_ = now;  // the first bytes: what was there has been checked
    const uint64_t pause = terminal_ ? kRewrite_ns : shown_ns_ == 0 ? kFirst_ns : kAgain_ns;
    if (now - std::max(shown_ns_, begin_ns_) < pause) return;
    shown_ns_ = now;
    const double speed = static_cast<double>(done) / (static_cast<double>(now - begin_ns_) / 1e9);
    const std::string left = speed > 0 ? time_text(static_cast<double>(total - done) / speed) : "unknown time";
    say("{}fetching: {} of {}, {}/s, {} left{}", terminal_ ? "\r" : "", size_text(done), size_text(total),
        size_text(static_cast<uint64_t>(speed)), left, terminal_ ? "    " : "\n");
  }
  void note(const std::string& line) {
    say("{}note: {}\n", terminal_ && shown_ns_ != 0 ? "\n" : "", printable_line(line));
  }

 private:
  uint64_t begin_ns_ = 0, shown_ns_ = 0;
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
};

// What is to come: sizes, room and time.
Status tell_need(const hub::ModelName& name, const hub::Cache& cache, const Choice& choice, uint64_t missing) {
  constexpr double kLine = 100e6 / 8;  // bytes a second, to compare with
  std::error_code ec;                  // what cannot be made is missing when a file is written
  std::filesystem::create_directories(cache.folder(), ec);
  SWY_LET(const uint64_t free, Os::real().free_bytes(cache.folder()));
  if (free < missing) {
    return error(Code::io,
                 "{}: {} are to be fetched, and {} has {} free; free some space, or set HF_HOME to another disk",
                 name.text(), size_text(missing), cache.folder(), size_text(free));
  }
  say("{}{}: {}, {} to fetch ({} at 100 Mbit/s), {} free in {}\n", name.repo,
      choice.label.empty() ? "" : ":" + printable(choice.label), size_text(choice.bytes), size_text(missing),
      time_text(static_cast<double>(missing) / kLine), size_text(free), cache.folder());
  return {};
}

// Of a checkpoint, the files that say what it is.
Status check_family(const hub::Cache& cache, const std::string& repo, const Listing& listing) {
  constexpr uint64_t kMostBytes = uint64_t{64} << 20;
  const RemoteFile* config = listing.find("config.json");
  SWY_LET(const std::string text, Os::real().read(cache.blob(repo, config->digest), kMostBytes));
  SWY_LET(const Config parsed, Config::parse(text, ""));
  return family_of(parsed).status();
}

Status fetch_choice(const hub::Http& http, const hub::Cache& cache, const std::string& repo, const Listing& listing,
                    const Choice& choice, bool any_family) {
  TransferLine line;
  const LoadWatch watch;
  hub::PullOptions options;
  options.progress = [&](uint64_t done, uint64_t total) { line.update(done, total); };
  options.note = [&](const std::string& text) { line.note(text); };
  options.cancelled = [] { return interrupted.load(); };
  std::vector<RemoteFile> first, rest;
  for (const std::string& path : choice.files) {
    const bool weights = choice.gguf || path.ends_with(".safetensors");
    (weights ? rest : first).push_back(*listing.find(path));
  }
  if (!first.empty()) {
    SWY_TRY(hub::pull_files(http, cache, repo, listing, first, options));
    if (!any_family) SWY_TRY(check_family(cache, repo, listing).in(repo));
  }
  return hub::pull_files(http, cache, repo, listing, rest, options);
}

}  // namespace

std::string size_text(uint64_t bytes) {
  constexpr double kKiB = 1024, kMiB = 1048576, kGiB = 1073741824;
  const auto b = static_cast<double>(bytes);
  if (b < kMiB) return fmt::format("{:.1f} KiB", b / kKiB);
  return b < kGiB ? fmt::format("{:.1f} MiB", b / kMiB) : fmt::format("{:.1f} GiB", b / kGiB);
}

Result<PulledModel> pull_model(const hub::ModelName& name, const PullLimits& limits) {
  SWY_LET(hub::HubSettings settings, hub::read_hub_settings(Os::real()));
  settings.attempts = limits.attempts;
  settings.stall_seconds = limits.stall_seconds;
  if (settings.cache.empty()) {
    return error(Code::usage, "{}: no folder is known in which models are kept; set HF_HOME to one", name.text());
  }
  if (settings.offline) {
    return error(Code::not_found, "{} is not in {}, and HF_HUB_OFFLINE is set; unset it to fetch the model",
                 name.text(), settings.cache);
  }
  const uint64_t begin = Os::real().now_ns();
  const hub::Http http(Os::real(), settings);
  const hub::Cache cache(settings.cache);
  const auto note = [](const std::string& line) { say("note: {}\n", printable_line(line)); };
  SWY_LET(const Listing listing, hub::fetch_listing(
                                     http, name.repo, [] { return interrupted.load(); }, note));
  SWY_LET(const Choice choice, hub::choose(name, listing.named()));
  if (choice.gguf && !limits.any_family && !listing.gguf_architecture.empty()) {
    SWY_TRY(family_of_gguf(listing.gguf_architecture).status().in(name.repo));
  }
  std::vector<RemoteFile> files;
  for (const std::string& path : choice.files) files.push_back(*listing.find(path));
  const uint64_t missing = hub::missing_bytes(cache, name.repo, files);
  SWY_TRY(tell_need(name, cache, choice, missing));
  SWY_TRY(fetch_choice(http, cache, name.repo, listing, choice, limits.any_family));
  PulledModel out;
  out.model.name = {name.repo, choice.gguf ? choice.label : hub::is_encoding(name.selector) ? name.selector : ""};
  out.model.commit = listing.commit;
  out.model.folder = cache.repo_folder(name.repo) + "/snapshots/" + listing.commit;
  out.model.choice = choice;
  out.fetched_bytes = missing;
  out.seconds = seconds_since(begin);
  return out;
}

}  // namespace switchyard::cli
