// SPDX-License-Identifier: Apache-2.0
#include "core/hub/listing.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/json.h"
#include "core/base/printable.h"

namespace switchyard::hub {
namespace {

using nlohmann::json;

constexpr uint64_t kMostListBytes = uint64_t{64} << 20;
constexpr size_t kMostFiles = 100000;
constexpr uint64_t kMostFileBytes = uint64_t{1} << 46;  // 64 TiB

bool is_hash(const std::string& text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string text_in(const json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

Result<RemoteFile> parse_file(const json& entry) {
  constexpr size_t kSha256 = 64, kSha1 = 40;
  if (!entry.is_object()) return error(Code::invalid_data, "a file is no object");
  RemoteFile f;
  f.path = text_in(entry, "rfilename");
  if (const std::string fault = fault_of_path(f.path); !fault.empty()) {
    return error(Code::invalid_data, "the file name '{}' {}; nothing is fetched from such a repository",
                 printable(f.path), fault);
  }
  const auto lfs = entry.find("lfs");
  const bool large = lfs != entry.end() && lfs->is_object();
  const json& about = large ? *lfs : entry;
  f.digest = text_in(about, large ? "sha256" : "blobId");
  const auto size = about.find("size");
  if (size == about.end() || !size->is_number_unsigned() || size->get<uint64_t>() > kMostFileBytes) {
    return error(Code::invalid_data, "the size of '{}' is {}; it must be a whole number of bytes", printable(f.path),
                 size == about.end() ? "missing" : brief(*size));
  }
  f.bytes = size->get<uint64_t>();
  if (!is_hash(f.digest, large ? kSha256 : kSha1)) {
    return error(Code::invalid_data, "the hash of '{}' is '{}', which is none", printable(f.path), printable(f.digest));
  }
  return f;
}

}  // namespace

std::string fault_of_path(const std::string& path) {
  constexpr size_t kLongestPath = 1024, kLongestName = 255;
  if (path.empty()) return "is empty";
  if (path.size() > kLongestPath) return "is too long";
  if (printable(path, kLongestPath) != path) return "has characters that are no text";
  if (path.find('\\') != std::string::npos) return "has a backslash";
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string part = path.substr(at, end - at);
    if (part.empty()) return path[0] == '/' ? "is absolute" : "has an empty part";
    if (part == "." || part == "..") return "leads out of its folder";
    if (part.size() > kLongestName) return "is too long";
    at = end + 1;
  }
  return "";
}

std::vector<NamedFile> Listing::named() const {
  std::vector<NamedFile> all;
  for (const RemoteFile& f : files) all.push_back({f.path, f.bytes});
  return all;
}

const RemoteFile* Listing::find(const std::string& path) const {
  const auto it = std::find_if(files.begin(), files.end(), [&](const RemoteFile& f) { return f.path == path; });
  return it == files.end() ? nullptr : &*it;
}

Result<Listing> parse_listing(const std::string& text, const std::string& repo) {
  SWY_LET(const json whole, read_json(text, repo + ": the list of files"));
  const auto wrong = [&](const std::string& what) { return error(Code::invalid_data, "{}: {}", repo, what); };
  if (!whole.is_object()) return wrong("the list of files is no object; is HF_ENDPOINT a hub?");
  Listing out;
  out.commit = text_in(whole, "sha");
  constexpr size_t kCommit = 40;
  if (!is_hash(out.commit, kCommit)) return wrong("the commit is '" + printable(out.commit) + "', which is none");
  const auto siblings = whole.find("siblings");
  if (siblings == whole.end() || !siblings->is_array()) return wrong("the list of files is missing");
  if (siblings->size() > kMostFiles) return wrong(fmt::format("{} files are more than are read", siblings->size()));
  std::set<std::string> seen;
  for (const json& entry : *siblings) {
    Result<RemoteFile> file = parse_file(entry);
    if (!file.ok()) return file.status().in(repo);
    if (!seen.insert(file->path).second) return wrong("'" + printable(file->path) + "' is listed twice");
    out.files.push_back(std::move(*file));
  }
  if (const auto gguf = whole.find("gguf"); gguf != whole.end() && gguf->is_object()) {
    out.gguf_architecture = text_in(*gguf, "architecture");
  }
  return out;
}

Result<Listing> fetch_listing(const Http& http, const std::string& repo, const CancelCheck& cancelled,
                              const std::function<void(const std::string&)>& retrying) {
  const std::string url = http.settings().endpoint + "/api/models/" + url_path(repo) + "/revision/main?blobs=true";
  SWY_LET(const std::string text, http.text(url, repo, kMostListBytes, cancelled, retrying));
  return parse_listing(text, repo);
}

}  // namespace switchyard::hub
