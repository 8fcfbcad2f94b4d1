// SPDX-License-Identifier: Apache-2.0
// Which files a written file replaces, and which it leaves alone.
#include "core/base/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "tests/support/files.h"

namespace switchyard::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// Writes "hXllo" as a writer of programs does: in order, and then once more at the beginning.
Status write_hello(const std::string& path) {
  SWY_LET(const auto file, Os::real().create(path));
  SWY_TRY(file->append(bytes_of("Hello")));
  SWY_TRY(file->write_at(0, bytes_of("h")));
  return file->commit();
}

mode_t mode_of(const std::string& path) {
  struct stat st {};
  EXPECT_EQ(::stat(path.c_str(), &st), 0);
  return st.st_mode & 07777;
}

TEST(OutputFile, ANewFileHasTheModeThatTheUmaskLeaves) {
  const TemporaryFolder folder;
  for (const mode_t mask : {0022, 0027, 0077}) {
    const mode_t before = ::umask(mask);
    const std::string path = folder.path(std::to_string(mask));
    EXPECT_TRUE(write_hello(path).ok());
    ::umask(before);
    EXPECT_EQ(mode_of(path), 0666 & ~mask);
  }
}

TEST(OutputFile, AReplacedFileKeepsItsMode) {
  const TemporaryFolder folder;
  const std::string path = folder.write("old", "old");
  fs::permissions(path, fs::perms(0640));
  EXPECT_TRUE(write_hello(path).ok());
  EXPECT_EQ(read_file(path), "hello");
  EXPECT_EQ(mode_of(path), 0640u);
}

TEST(OutputFile, ALinkStaysAndWhatItLeadsToIsReplaced) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path("there"));
  const std::string target = folder.write("there/target", "old");
  fs::create_symlink("there/target", folder.path("one"));
  fs::create_symlink("one", folder.path("two"));
  fs::create_symlink("there/absent", folder.path("dangling"));
  EXPECT_TRUE(write_hello(folder.path("two")).ok());
  EXPECT_TRUE(write_hello(folder.path("dangling")).ok());
  for (const char* link : {"one", "two", "dangling"}) EXPECT_TRUE(fs::is_symlink(folder.path(link))) << link;
  EXPECT_EQ(read_file(target), "hello");
  EXPECT_EQ(read_file(folder.path("there/absent")), "hello");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path("there")), {}), 2) << "no temporary file stays";
}

TEST(OutputFile, APipeIsWrittenTo) {
  const TemporaryFolder folder;
  const std::string path = folder.path("pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] { read = read_file(path); });
  EXPECT_TRUE(write_hello(path).ok());
  reader.join();
  EXPECT_EQ(read, "hello");
  EXPECT_TRUE(fs::is_fifo(path));
}

TEST(OutputFile, ADeviceIsWrittenTo) {
  EXPECT_TRUE(write_hello("/dev/null").ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  const Status full = write_hello("/dev/full");
  EXPECT_THAT(full.message(), HasSubstr("cannot write /dev/full: the disk is full after 0 bytes"));
}

TEST(OutputFile, AnOpenFileIsWrittenWhereItStands) {
  const TemporaryFolder folder;
  const std::string path = folder.path("shell");
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::write(fd, "first ", 6), 6);
  EXPECT_TRUE(write_hello("/dev/fd/" + std::to_string(fd)).ok());
  ASSERT_EQ(::write(fd, " last", 5), 5);
  ::close(fd);
  EXPECT_EQ(read_file(path), "first hello last");
}

TEST(OutputFile, WhatIsReadIsNotReplaced) {
  const TemporaryFolder folder;
  const std::string path = folder.write("in", "input");
  fs::create_hard_link(path, folder.path("same"));
  {
    const auto map = Os::real().map(path);
    ASSERT_TRUE(map.ok());
    for (const std::string& name : {path, folder.path("same"), folder.path("./in")}) {
      const Status s = write_hello(name);
      EXPECT_EQ(s.code(), Code::usage);
      EXPECT_EQ(s.message(), name + " is read by this command, too; name another file to write");
    }
  }
  EXPECT_EQ(read_file(path), "input");
  EXPECT_TRUE(write_hello(path).ok()) << "nobody reads it any more";
}

TEST(OutputFile, AReadOnlyFileIsNotReplaced) {
  const uid_t self = ::geteuid();
  if (self == 0) {  // root may write anything
    EXPECT_EQ(::seteuid(65534), 0);
  }
  {
    const TemporaryFolder folder;
    const std::string path = folder.write("old", "old");
    fs::permissions(path, fs::perms(0444));
    EXPECT_THAT(write_hello(path).message(), HasSubstr("Permission denied"));
    EXPECT_EQ(read_file(path), "old");
  }
  EXPECT_EQ(::seteuid(self), 0);
}

TEST(OutputFile, ALongNameHasRoomForItsTemporaryOne) {
  const TemporaryFolder folder;
  const std::string path = folder.path(std::string(255, 'n'));
  EXPECT_TRUE(write_hello(path).ok());
  EXPECT_EQ(read_file(path), "hello");
}

TEST(OutputFile, ASignalsHandlerRemovesWhatIsUnfinished) {
  const TemporaryFolder folder;
  const auto one = Os::real().create(folder.path("one")), two = Os::real().create(folder.path("two"));
  ASSERT_TRUE(one.ok() && two.ok());
  ASSERT_TRUE(Os::real().create(folder.path("three")).ok()) << "and is deleted with its object";
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 2);
  remove_unfinished_files();
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

}  // namespace
}  // namespace switchyard::testing
