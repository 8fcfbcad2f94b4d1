// SPDX-License-Identifier: Apache-2.0
// Replays the inputs of a fuzz target's corpus in an ordinary build: one folder as argument, every file in it once.
// Fails when the folder holds no file; a target that crashes fails by itself.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
    return 2;
  }
  int replayed = 0;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1], failed)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    ++replayed;
  }
  std::printf("%d inputs of %s\n", replayed, argv[1]);
  return replayed > 0 ? 0 : 1;
}
