// SPDX-License-Identifier: Apache-2.0
#include "cli/chat_history.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/base/os.h"
#include "core/base/user_folder.h"

namespace switchyard::cli {
namespace {

constexpr size_t kHistoryKept = 1000;  // of which the file may hold twice as many
constexpr size_t kLongestKept = 4096;  // bytes
constexpr uint64_t kLargestHistory = uint64_t{32} << 20;

std::string escaped(const std::string& line) {
  std::string out;
  for (const char c : line) out += c == '\\' ? "\\\\" : c == '\n' ? "\\n" : std::string(1, c);
  return out;
}

std::string unescaped(std::string_view line) {
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size()) {
      out += line[++i] == 'n' ? '\n' : line[i];
    } else if (line[i] != '\0') {
      out += line[i];
    }
  }
  return out;
}

Status rewrite(const std::string& path, const std::vector<std::string>& lines) {
  SWY_LET(auto file, Os::real().create(path));
  file->keep_private();
  std::string text;
  for (const std::string& line : lines) text += escaped(line) + "\n";
  SWY_TRY(file->append(std::as_bytes(std::span(text))));
  return file->commit();
}

Status append(const std::string& path, const std::string& text) {
  std::error_code ec;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::filesystem::create_directories(folder.parent_path(), ec);
  ::mkdir(folder.c_str(), S_IRWXU);  // what fails here fails at `open`, too
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, S_IRUSR | S_IWUSR);
  if (fd < 0) return error(Code::io, "cannot write {}: {}", path, std::strerror(errno));
  const bool done = ::fchmod(fd, S_IRUSR | S_IWUSR) == 0 &&
                    ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int reason = errno;
  ::close(fd);
  return done ? Status() : error(Code::io, "cannot write {}: {}", path, std::strerror(reason));
}

}  // namespace

std::string chat_history_path() {
  const std::string folder = user_folder("XDG_STATE_HOME", ".local/state");
  return folder.empty() ? "" : folder + "/chat_history";
}

std::vector<std::string> ChatHistory::load() {
  std::vector<std::string> lines;
  if (path_.empty() || !Os::real().exists(path_)) return lines;
  const Result<std::string> text = Os::real().read(path_, kLargestHistory);
  if (!text.ok()) {
    spdlog::warn("the history of chats is not used: {}; --no-history does without", text.status().message());
    path_.clear();
    return lines;
  }
  for (size_t at = 0; at < text->size();) {
    const size_t end = std::min(text->find('\n', at), text->size());
    if (end > at) lines.push_back(unescaped(std::string_view(*text).substr(at, end - at)));
    at = end + 1;
  }
  if (lines.size() <= kHistoryKept) return lines;
  const bool long_file = lines.size() > 2 * kHistoryKept;
  lines.erase(lines.begin(), lines.end() - kHistoryKept);
  if (long_file) {
    if (const Status s = rewrite(path_, lines); !s.ok()) spdlog::warn("{}", s.message());
  }
  return lines;
}

void ChatHistory::add(const std::string& line) {
  if (path_.empty() || line.empty() || line.size() > kLongestKept) return;
  if (const Status s = append(path_, escaped(line) + "\n"); !s.ok()) {
    spdlog::warn("the history of chats is not kept: {}; --no-history does without", s.message());
    path_.clear();
  }
}

}  // namespace switchyard::cli
