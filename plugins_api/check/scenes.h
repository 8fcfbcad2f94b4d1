// SPDX-License-Identifier: Apache-2.0
// Scenes: steps for operations that have states.
#pragma once

#include "plugins_api/check/case.h"

namespace switchyard::check {

struct Scene {
  std::string name;
  std::vector<std::vector<Sequence>> steps;  // without pages
  bool slow = false;
  uint32_t page_size = 16;
  bool whole = false;  // the bucket has no rows to spare
};

// Decode rows beside chunks, inactive sequences, slots that are read and others that are written, chunk boundaries.
const std::vector<Scene>& all_scenes();

const Scene& scene_named(const std::string& name);

// Positions that need more than 12 bits, in a prompt and in decoding.
const Scene& far_scene();

// Rows that stay pending, and every number of them that stands in the next step. Forks of a slot are one sequence.
const std::vector<Scene>& pending_scenes();

// More rows than all_scenes() has.
const Scene& many_rows_scene();

// One sequence that decodes, so that all of a device reads its keys and values.
Scene decoding_at(uint32_t position);

// This many sequences that decode, so that rows alone fill a device.
Scene decoding(uint32_t sequences);

// Adds the scene's steps; every sequence gets its own pages, in random order.
void play(const Scene& scene, Builder& b);

}  // namespace switchyard::check
