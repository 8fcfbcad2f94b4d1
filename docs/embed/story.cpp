// SPDX-License-Identifier: Apache-2.0
#include <switchyard/engine.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: story MODEL.swy PROMPT\n"), 2;
  auto engine = switchyard::Engine::load({.model = argv[1]});
  if (!engine.ok()) return std::fprintf(stderr, "%s\n", engine.status().message().c_str()), 1;
  auto session = engine->session();
  if (!session.ok()) return std::fprintf(stderr, "%s\n", session.status().message().c_str()), 1;
  std::printf("%s", argv[2]);
  const auto told =
      session->generate(argv[2], {.max_tokens = 100, .temperature = 0}, [](const switchyard::GeneratedToken& token) {
        std::printf("%s", token.text.c_str());
        return std::fflush(stdout) == 0;
      });
  if (!told.ok()) return std::fprintf(stderr, "%s\n", told.status().message().c_str()), 1;
  std::printf("\n");
}
