// SPDX-License-Identifier: Apache-2.0
#include "tests/import/faulty_os.h"

namespace switchyard::testing {
namespace {

class FaultyFile final : public OutputFile {
 public:
  FaultyFile(std::unique_ptr<OutputFile> file, Faults& faults) : file_(std::move(file)), faults_(faults) {}

  Status append(std::span<const std::byte> bytes) override {
    ++faults_.writes;
    SWY_TRY(faults_.next("append"));
    if (file_->size() + bytes.size() > faults_.disk_bytes) {
      SWY_TRY(file_->append(bytes.first(faults_.disk_bytes - file_->size())));  // as much as fits, like a real disk
      return error(Code::io, "cannot write: the disk is full after {} bytes", faults_.disk_bytes);
    }
    return file_->append(bytes);
  }
  Status write_at(uint64_t offset, std::span<const std::byte> bytes) override {
    ++faults_.writes;
    SWY_TRY(faults_.next("write_at"));
    return file_->write_at(offset, bytes);
  }
  uint64_t size() const override { return file_->size(); }
  Status commit() override {
    SWY_TRY(faults_.next("commit"));
    return file_->commit();
  }

 private:
  std::unique_ptr<OutputFile> file_;
  Faults& faults_;
};

}  // namespace

Status Faults::next(const char* what) {
  if (++calls != fail_call) return {};
  return error(Code::io, "told to fail: {}, call {}", what, calls);
}

Result<std::unique_ptr<MappedFile>> FaultyOs::map(const std::string& path) {
  SWY_TRY(faults.next("map"));
  return real().map(path);
}

Result<std::string> FaultyOs::read(const std::string& path, uint64_t max_bytes) {
  SWY_TRY(faults.next("read"));
  return real().read(path, max_bytes);
}

Result<std::unique_ptr<OutputFile>> FaultyOs::create(const std::string& path, WhenMapped when_mapped) {
  SWY_TRY(faults.next("create"));
  SWY_LET(auto file, real().create(path, when_mapped));
  return std::unique_ptr<OutputFile>(std::make_unique<FaultyFile>(std::move(file), faults));
}

Result<std::vector<std::string>> FaultyOs::list(const std::string& folder) {
  SWY_TRY(faults.next("list"));
  return real().list(folder);
}

Result<uint64_t> FaultyOs::free_bytes(const std::string& folder) {
  SWY_TRY(faults.next("free_bytes"));
  if (!faults.lie_about_space) return faults.disk_bytes;
  return real().free_bytes(folder);
}

}  // namespace switchyard::testing
