// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/base/os.h"
#include "core/base/printable.h"

namespace switchyard::cli {

void print_json(const nlohmann::ordered_json& value, int indent) {
  const std::string text = value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  print_document(printable_json(text) + "\n");
}

namespace {
bool document_is_printed = false;
}

void print_document(std::string_view text) {
  fmt::print("{}", text);
  document_is_printed = true;
}

bool printed_document() { return document_is_printed; }

double seconds_since(uint64_t begin_ns) { return static_cast<double>(Os::real().now_ns() - begin_ns) / 1e9; }

int report(const Status& status) {
  std::fflush(stdout);
  say("switchyard: {}\n", printable_line(status.message()));  // it may quote a file or an argument
  return status.code() == Code::usage ? 2 : 1;
}

Progress::Progress(std::string what)
    : what_(std::move(what)), begin_ns_(Os::real().now_ns()), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (drawn_) say("\n");
}

void Progress::update(uint64_t done, uint64_t total) {
  const double elapsed = seconds_since(begin_ns_);
  const uint64_t now = Os::real().now_ns();
  if (!terminal_ || total == 0 || elapsed < 1 || (now - shown_ns_ < 100'000'000 && done != total)) return;
  shown_ns_ = now;
  drawn_ = true;
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const int filled = static_cast<int>(share * 30);
  say("\r{} [{:#<{}}{:.<{}}] {:3.0f}%, {:.0f} s left   ", what_, "", filled, "", 30 - filled, share * 100,
      share > 0 ? elapsed / share - elapsed : 0.0);
  std::fflush(stderr);
}

}  // namespace switchyard::cli
