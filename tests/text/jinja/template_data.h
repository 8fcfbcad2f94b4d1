// SPDX-License-Identifier: Apache-2.0
// The recorded cases of tests/data/templates.
#pragma once

#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

#include <nlohmann/json.hpp>

namespace switchyard::jinja {

inline std::string read_data(const std::string& name) {
  std::ifstream file(std::string(TEMPLATE_DATA) + "/" + name, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline nlohmann::ordered_json read_json(const std::string& name) {
  return nlohmann::ordered_json::parse(read_data(name));
}

// The moment at which the cases were recorded.
inline std::tm recorded_time() {
  std::tm time{};
  time.tm_year = 2026 - 1900;
  time.tm_mon = 2;
  time.tm_mday = 9;
  time.tm_hour = 14;
  time.tm_min = 5;
  time.tm_sec = 7;
  std::mktime(&time);
  return time;
}

}  // namespace switchyard::jinja
