// SPDX-License-Identifier: Apache-2.0
// Recorded results of the demo model, from tests/data/demo (see tools/oracle).
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "core/text/tokenizer.h"
#include "tests/engine/fixture.h"

namespace switchyard {

inline std::string demo_text(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(SWITCHYARD_TEST_DATA "/demo/" + name, std::ios::binary).rdbuf();
  return text.str();
}

inline nlohmann::json demo_expected() { return nlohmann::json::parse(demo_text("expected.json"), nullptr, false); }

}  // namespace switchyard
