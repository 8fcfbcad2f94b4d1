// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/scenes.h"

#include <algorithm>
#include <map>

namespace switchyard::check {
namespace {

// One sequence in one step.
Sequence at(uint32_t id, uint32_t position, uint32_t rows, uint32_t read, uint32_t write, bool active = true) {
  return {id, rows, position, active, read, write, {}};
}

std::vector<Scene> make_scenes() {
  std::vector<Scene> s;
  s.push_back({"first_token", {{at(0, 0, 1, 0, 0)}}});
  s.push_back({"one_token", {{at(0, 37, 1, 1, 1)}}});
  s.push_back({"one_token_moves", {{at(0, 63, 1, 0, 1)}}, false, 8});
  s.push_back({"decode4", {{at(0, 5, 1, 0, 0), at(1, 64, 1, 2, 1), at(2, 100, 1, 3, 3), at(3, 0, 1, 4, 4)}}});
  s.push_back({"decode6",
               {{at(0, 8, 1, 0, 0, false), at(1, 0, 1, 2, 2), at(2, 70, 1, 1, 3), at(3, 2, 1, 4, 4), at(4, 33, 1, 6, 5),
                 at(5, 0, 1, 7, 7, false)}}});
  s.push_back({"prompt63", {{at(0, 0, 63, 0, 0)}}});
  s.push_back({"prompt65", {{at(0, 0, 65, 0, 1)}}, false, 32});
  s.push_back({"prompt130", {{at(0, 0, 130, 0, 0)}}});
  s.push_back({"prompt513", {{at(0, 0, 513, 0, 0)}}, true});
  s.push_back({"ragged",
               {{at(0, 0, 23, 0, 0), at(1, 40, 1, 1, 1), at(2, 64, 65, 3, 2), at(3, 9, 1, 4, 4, false),
                 at(4, 17, 6, 5, 6, false), at(5, 0, 1, 7, 7), at(6, 3, 2, 8, 9)}}});
  // Several prompts in one step: whole chunks, tails, one that crosses a split of the context, one that is not active.
  s.push_back({"prompts",
               {{at(0, 0, 128, 0, 0), at(1, 240, 33, 1, 2), at(2, 7, 70, 3, 3, false), at(3, 64, 31, 4, 4),
                 at(4, 0, 1, 5, 5)}}});
  s.push_back({"inactive_first",
               {{at(0, 0, 4, 0, 0, false), at(1, 12, 3, 1, 1), at(2, 30, 1, 2, 3, false), at(3, 31, 1, 5, 4)}},
               false,
               8});
  s.push_back({"nobody_active", {{at(0, 5, 2, 0, 1, false), at(1, 0, 3, 2, 2, false)}}});
  // A prompt in chunks, while another sequence decodes and moves from slot to slot.
  s.push_back({"chunks",
               {{at(0, 0, 64, 0, 0), at(1, 20, 1, 1, 2)},
                {at(1, 21, 1, 2, 1), at(0, 64, 13, 0, 3)},
                {at(0, 77, 40, 3, 0), at(1, 22, 1, 1, 2)},
                {at(0, 117, 1, 0, 0)}}});
  // The second step is dropped: its writes stay behind, and the third begins again from slot 0.
  s.push_back({"rollback", {{at(0, 10, 5, 0, 1)}, {at(0, 10, 5, 0, 2)}, {at(0, 15, 2, 2, 2)}}});
  s.push_back({"long_context", {{at(0, 700, 3, 0, 0), at(1, 512, 1, 1, 1)}}, true});
  s.push_back({"many",
               {{at(0, 1, 1, 0, 0), at(1, 2, 1, 1, 1), at(2, 3, 1, 2, 2), at(3, 4, 1, 3, 3), at(4, 15, 1, 4, 4),
                 at(5, 16, 1, 5, 5), at(6, 17, 1, 6, 6), at(7, 31, 1, 7, 7), at(8, 32, 1, 8, 8), at(9, 33, 130, 9, 9),
                 at(10, 0, 64, 10, 10), at(11, 64, 64, 11, 12)}},
               true});
  return s;
}

}  // namespace

Scene decoding(uint32_t sequences) {
  Scene scene{"decode" + std::to_string(sequences), {{}}};
  for (uint32_t i = 0; i < sequences; ++i) scene.steps[0].push_back(at(i, i * 37 % 131, 1, i, i, i % 7 != 6));
  return scene;
}

const std::vector<Scene>& all_scenes() {
  static const std::vector<Scene> scenes = make_scenes();
  return scenes;
}

const Scene& scene_named(const std::string& name) {
  return *std::find_if(all_scenes().begin(), all_scenes().end(), [&](const Scene& s) { return s.name == name; });
}

const Scene& far_scene() {
  static const Scene scene{"far", {{at(0, 4090, 9, 0, 0), at(1, 1500, 1, 1, 1)}}};
  return scene;
}

const Scene& many_rows_scene() {
  static const Scene scene{"rows1100", {{at(0, 0, 1030, 0, 0), at(1, 7, 69, 2, 1), at(2, 3, 1, 3, 3)}}};
  return scene;
}

void play(const Scene& scene, Builder& b) {
  b.page_size(scene.page_size);
  std::map<uint32_t, uint32_t> needed;
  uint32_t total = 0;
  for (const auto& step : scene.steps) {
    for (const Sequence& q : step) {
      const uint32_t pages = (q.position + q.rows + scene.page_size - 1) / scene.page_size;
      needed[q.id] = std::max(needed[q.id], pages);
    }
  }
  for (const auto& [id, n] : needed) total += n;
  const std::vector<uint32_t> order = b.random().permutation(total);
  for (std::vector<Sequence> step : scene.steps) {
    for (Sequence& q : step) {
      uint32_t first = 0;
      for (const auto& [id, n] : needed) first += id < q.id ? n : 0;
      q.pages.assign(order.begin() + first, order.begin() + first + needed[q.id]);
    }
    b.step(std::move(step));
  }
}

}  // namespace switchyard::check
