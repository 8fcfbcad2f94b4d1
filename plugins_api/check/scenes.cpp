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
  s.push_back({"eight_rows", {{at(0, 13, 8, 0, 1)}, {at(0, 21, 7, 1, 1)}}, false, 16, true});
  s.push_back({"long_context", {{at(0, 700, 3, 0, 0), at(1, 512, 1, 1, 1)}}, true});
  s.push_back({"many",
               {{at(0, 1, 1, 0, 0), at(1, 2, 1, 1, 1), at(2, 3, 1, 2, 2), at(3, 4, 1, 3, 3), at(4, 15, 1, 4, 4),
                 at(5, 16, 1, 5, 5), at(6, 17, 1, 6, 6), at(7, 31, 1, 7, 7), at(8, 32, 1, 8, 8), at(9, 33, 130, 9, 9),
                 at(10, 0, 64, 10, 10), at(11, 64, 64, 11, 12)}},
               true});
  return s;
}

// The same, after `kept` rows that stood; its rows are pending if `pending`.
Sequence after(uint32_t kept, bool pending, Sequence q) {
  q.kept = kept;
  q.pending = pending;
  return q;
}

constexpr bool kPending = true, kApplied = false;

std::vector<Scene> make_pending_scenes() {
  std::vector<Scene> s;
  // Of four rows of each sequence 0 to 4 stand, before rows that are applied and before pending ones. A sixth has none.
  for (const bool again : {kPending, kApplied}) {
    Scene scene{again ? "counts_again" : "counts", {{}, {}, {}}};
    for (uint32_t i = 0; i < 5; ++i) {
      const uint32_t position = 20 + 13 * i;
      scene.steps[0].push_back(after(0, kPending, at(i, position, 4, i, i)));
      scene.steps[1].push_back(after(i, again, at(i, position + i, 3, i, i)));
      const uint32_t stand = again ? i % 4 : 0;
      scene.steps[2].push_back(after(stand, kApplied, at(i, position + i + (again ? stand : 3), 1, i, i)));
    }
    for (uint32_t step = 0; step < 3; ++step) scene.steps[step].push_back(at(5, 7 + step, 1, 5, 5));
    s.push_back(std::move(scene));
  }
  // The first rows of a sequence: none of them stands, then some do.
  s.push_back({"start",
               {{after(0, kPending, at(0, 0, 3, 0, 0)), after(0, kPending, at(1, 0, 2, 1, 2))},
                {after(0, kPending, at(0, 0, 4, 0, 0)), after(2, kApplied, at(1, 2, 1, 2, 2))},
                {after(3, kPending, at(0, 3, 1, 0, 1)), at(1, 3, 2, 2, 2)},
                {after(1, kApplied, at(0, 4, 1, 1, 1))}}});
  // One row at a time, which stands or not.
  s.push_back({"one_row",
               {{after(0, kPending, at(0, 9, 1, 0, 0)), at(1, 4, 1, 2, 2)},
                {after(1, kPending, at(0, 10, 1, 0, 0)), after(0, kPending, at(1, 5, 1, 2, 2))},
                {after(0, kPending, at(0, 10, 1, 0, 1)), after(1, kApplied, at(1, 6, 1, 2, 3))},
                {after(1, kApplied, at(0, 11, 1, 1, 1)), at(1, 7, 1, 3, 3)}}});
  // Drafts of a sequence that decodes alone: all stand, some and none, from slot to slot and within one.
  s.push_back({"drafts",
               {{after(0, kPending, at(0, 50, 4, 0, 0))},
                {after(3, kPending, at(0, 53, 4, 0, 1))},
                {after(4, kPending, at(0, 57, 3, 1, 1))},
                {after(0, kPending, at(0, 57, 2, 1, 2))},
                {after(1, kPending, at(0, 58, 1, 2, 2))},
                {after(1, kApplied, at(0, 59, 3, 2, 2))},
                {at(0, 62, 1, 2, 2)}}});
  s.push_back({"eight_drafts",
               {{after(0, kPending, at(0, 50, 8, 0, 0))},
                {after(5, kPending, at(0, 55, 6, 0, 1))},
                {after(6, kApplied, at(0, 61, 8, 1, 1))}},
               false,
               16,
               true});
  s.push_back({"two_drafts",
               {{after(0, kPending, at(0, 0, 2, 0, 0))},
                {after(2, kPending, at(0, 2, 2, 0, 0))},
                {after(1, kPending, at(0, 3, 1, 0, 1))},
                {after(0, kApplied, at(0, 3, 2, 1, 1))},
                {at(0, 5, 1, 1, 1)}}});
  // Several go on from a slot, with other counts, and the slot stays as it is.
  s.push_back({"forks",
               {{after(0, kPending, at(0, 30, 4, 1, 0))},
                {after(0, kPending, at(0, 30, 2, 0, 2)), after(4, kPending, at(0, 34, 2, 0, 3)),
                 after(2, kApplied, at(0, 32, 1, 0, 4))},
                {after(2, kApplied, at(0, 32, 1, 2, 2)), after(1, kPending, at(0, 35, 3, 3, 5)),
                 after(3, kApplied, at(0, 33, 2, 0, 6))},
                {after(0, kApplied, at(0, 35, 2, 5, 5)), after(4, kApplied, at(0, 34, 1, 0, 0))}}});
  // Prompts after rows that stand and beside them, inactive sequences, and rows of which nobody says how many stand.
  s.push_back(
      {"beside_prompts",
       {{after(0, kPending, at(0, 40, 5, 0, 0)), at(1, 0, 70, 1, 1), after(0, kPending, at(2, 3, 2, 2, 2, false)),
         after(0, kPending, at(3, 90, 3, 4, 4))},
        {after(3, kApplied, at(0, 43, 66, 0, 0)), at(1, 70, 1, 1, 1), at(2, 3, 2, 2, 3),
         after(2, kPending, at(3, 92, 2, 4, 4, false))},
        {at(0, 109, 1, 0, 0), at(1, 71, 20, 1, 1), at(2, 5, 1, 3, 3), after(1, kApplied, at(3, 91, 2, 4, 5))}}});
  // So many rows that other kernels may take them.
  s.push_back({"many_pending",
               {{after(0, kPending, at(0, 100, 33, 0, 0)), after(0, kPending, at(1, 10, 17, 2, 2))},
                {after(33, kPending, at(0, 133, 20, 0, 0)), after(16, kPending, at(1, 26, 16, 2, 3))},
                {after(7, kApplied, at(0, 140, 65, 0, 1)), after(16, kApplied, at(1, 42, 1, 3, 3))}}});
  return s;
}

}  // namespace

const std::vector<Scene>& pending_scenes() {
  static const std::vector<Scene> scenes = make_pending_scenes();
  return scenes;
}

Scene decoding_at(uint32_t position) { return {"decode_at_" + std::to_string(position), {{at(0, position, 1, 0, 0)}}}; }

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
