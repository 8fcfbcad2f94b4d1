// SPDX-License-Identifier: Apache-2.0
#include "core/hub/cache.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/base/output_file.h"
#include "core/hub/listing.h"

namespace switchyard::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModels = "models--";
constexpr int kMostDepth = 8;  // folders in a snapshot
constexpr size_t kMostEntries = 100000;

std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ec;
  for (auto it = fs::directory_iterator(folder, ec); !ec && it != fs::directory_iterator(); it.increment(ec)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The files of a snapshot, without those whose link leads nowhere.
std::vector<NamedFile> files_in(const std::string& folder) {
  std::vector<NamedFile> files;
  std::error_code ec;
  for (auto it = fs::recursive_directory_iterator(folder, ec); !ec && it != fs::recursive_directory_iterator();
       it.increment(ec)) {
    if (it.depth() > kMostDepth || files.size() > kMostEntries) break;
    std::error_code missing;
    if (!it->is_regular_file(missing)) continue;
    files.push_back({it->path().lexically_relative(folder).string(), it->file_size(missing)});
  }
  std::sort(files.begin(), files.end(), [](const NamedFile& a, const NamedFile& b) { return a.path < b.path; });
  return files;
}

// "OWNER/NAME" of "models--OWNER--NAME"; "" of any other folder.
std::string repo_of(const std::string& folder) {
  if (!folder.starts_with(kModels)) return "";
  std::string rest = folder.substr(kModels.size());
  const size_t at = rest.find("--");
  if (at == std::string::npos) return "";
  rest.replace(at, 2, "/");
  return parse_name(rest) ? rest : "";
}

// The blob that a file of a snapshot leads to; "" where it leads to none of this repository.
std::string blob_of(const fs::path& link) {
  std::error_code ec;
  const fs::path to = fs::read_symlink(link, ec);
  return ec || to.parent_path().filename() != "blobs" ? "" : to.filename().string();
}

void remove_empty_parents(fs::path folder, const fs::path& up_to) {
  std::error_code ec;
  while (folder != up_to && folder.string().size() > up_to.string().size() && fs::is_empty(folder, ec) && !ec) {
    fs::remove(folder, ec);
    folder = folder.parent_path();
  }
}

}  // namespace

std::string CachedModel::path() const { return choice.gguf ? folder + "/" + choice.files[0] : folder; }

std::vector<std::string> CachedModel::blobs() const {
  std::vector<std::string> all;
  for (const std::string& f : choice.files) all.push_back(blob_of(folder + "/" + f));
  return all;
}

std::string Cache::repo_folder(const std::string& repo) const {
  std::string name = repo;
  name.replace(name.find('/'), 1, "--");
  return folder_ + "/" + std::string(kModels) + name;
}

std::string Cache::blob(const std::string& repo, const std::string& digest) const {
  return repo_folder(repo) + "/blobs/" + digest;
}

std::string Cache::lock(const std::string& repo, const std::string& digest) const {
  return folder_ + "/.locks/" + fs::path(repo_folder(repo)).filename().string() + "/" + digest + ".lock";
}

std::vector<std::string> Cache::commits(const std::string& repo) const {
  constexpr uint64_t kMostBytes = 256;
  std::vector<std::string> all = entries_of(repo_folder(repo) + "/snapshots");
  auto main = Os::real().read(repo_folder(repo) + "/refs/main", kMostBytes);
  if (!main.ok()) return all;
  while (!main->empty() && main->back() == '\n') main->pop_back();
  std::stable_partition(all.begin(), all.end(), [&](const std::string& c) { return c == *main; });
  return all;
}

std::vector<CachedModel> Cache::models_in(const std::string& repo, const std::string& commit) const {
  std::vector<CachedModel> all;
  const std::string folder = repo_folder(repo) + "/snapshots/" + commit;
  for (Choice& c : models_of(files_in(folder))) {
    all.push_back({{repo, c.label}, commit, folder, std::move(c)});
  }
  return all;
}

Result<CachedModel> Cache::find(const ModelName& name) const {
  for (const std::string& commit : commits(name.repo)) {
    const std::string folder = repo_folder(name.repo) + "/snapshots/" + commit;
    auto chosen = choose(name, files_in(folder));
    if (!chosen.ok()) continue;
    return CachedModel{{name.repo, chosen->label}, commit, folder, std::move(*chosen)};
  }
  return error(Code::not_found, "{} is not in {}", name.text(), folder_);
}

std::vector<CachedModel> Cache::list() const {
  std::vector<CachedModel> all;
  for (const std::string& entry : entries_of(folder_)) {
    const std::string repo = repo_of(entry);
    if (repo.empty()) continue;
    std::set<std::string> labels;
    for (const std::string& commit : commits(repo)) {
      for (CachedModel& m : models_in(repo, commit)) {
        if (labels.insert(m.choice.label).second) all.push_back(std::move(m));
      }
    }
  }
  return all;
}

Status Cache::link(const std::string& repo, const std::string& commit, const std::string& path,
                   const std::string& digest) const {
  const fs::path at = fs::path(repo_folder(repo)) / "snapshots" / commit / path;
  std::error_code ec;
  fs::create_directories(at.parent_path(), ec);
  if (ec) return io_error("create", at.parent_path().string(), ec.value());
  if (fs::exists(at, ec) && blob_of(at) == digest) return {};
  const fs::path to = (fs::path(repo_folder(repo)) / "blobs" / digest).lexically_relative(at.parent_path());
  const std::string temporary = fmt::format("{}.link-{}", at.string(), ::getpid());
  ::unlink(temporary.c_str());
  if (::symlink(to.c_str(), temporary.c_str()) != 0) return io_error("create", at.string(), errno);
  if (::rename(temporary.c_str(), at.c_str()) == 0) return {};
  const int failed = errno;
  ::unlink(temporary.c_str());
  return io_error("create", at.string(), failed);
}

Status Cache::set_main(const std::string& repo, const std::string& commit) const {
  const std::string folder = repo_folder(repo) + "/refs";
  std::error_code ec;
  fs::create_directories(folder, ec);
  SWY_LET(const auto file, Os::real().create(folder + "/main"));
  SWY_TRY(file->append(std::as_bytes(std::span(commit))));
  return file->commit();
}

Result<uint64_t> Cache::remove(const CachedModel& model) const {
  const fs::path repo = repo_folder(model.name.repo), snapshots = repo / "snapshots";
  std::set<std::string> blobs, kept;
  uint64_t freed = 0;
  std::error_code ec;
  for (const std::string& commit : commits(model.name.repo)) {
    for (const std::string& file : model.choice.files) {
      const fs::path at = snapshots / commit / file;
      if (!fs::is_symlink(at, ec) && !fs::is_regular_file(at, ec)) continue;
      if (const std::string blob = blob_of(at); !blob.empty()) blobs.insert(blob);
      const uint64_t bytes = fs::is_symlink(at, ec) ? 0 : fs::file_size(at, ec);
      if (fs::remove(at, ec)) freed += bytes;
      if (ec) return io_error("remove", at.string(), ec.value());
      remove_empty_parents(at.parent_path(), snapshots);
    }
  }
  for (auto it = fs::recursive_directory_iterator(snapshots, ec); !ec && it != fs::recursive_directory_iterator();
       it.increment(ec)) {
    kept.insert(blob_of(it->path()));
  }
  for (const std::string& blob : blobs) {
    const fs::path at = repo / "blobs" / blob;
    if (kept.contains(blob)) continue;
    const uint64_t bytes = fs::is_symlink(at, ec) ? 0 : fs::file_size(at, ec);
    if (fs::remove(at, ec)) freed += bytes;
  }
  if (entries_of(snapshots.string()).empty()) {
    fs::remove_all(repo, ec);  // what is left are references, and parts of files that were not fetched to their end
    fs::remove_all(folder_ + "/.locks/" + repo.filename().string(), ec);
  }
  return freed;
}

}  // namespace switchyard::hub
