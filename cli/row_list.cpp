// SPDX-License-Identifier: Apache-2.0
#include "cli/row_list.h"

#include <algorithm>
#include <charconv>
#include <sstream>

namespace switchyard::cli {
namespace {

constexpr uint32_t kMostRows = 65536;

}  // namespace

Result<std::vector<uint32_t>> parse_rows(const std::string& text) {
  std::vector<uint32_t> rows;
  std::istringstream parts(text);
  bool goes_on = false;
  for (std::string part; std::getline(parts, part, ',');) {
    if (part == "..." || part == "…") {
      if (rows.size() < 2 || goes_on || rows.back() <= rows[rows.size() - 2]) {
        return error(Code::usage, "--rows {}: dots follow two growing numbers, as in 1,2,4,...,4096", text);
      }
      goes_on = true;
      continue;
    }
    uint32_t n = 0;
    const auto [end, failed] = std::from_chars(part.data(), part.data() + part.size(), n);
    if (failed != std::errc() || end != part.data() + part.size() || n == 0 || n > kMostRows) {
      return error(Code::usage, "--rows: '{}' is not a whole number from 1 to {}", part, kMostRows);
    }
    if (goes_on) {
      const double factor = static_cast<double>(rows.back()) / rows[rows.size() - 2];
      while (rows.back() * factor < n + 0.5) rows.push_back(static_cast<uint32_t>(rows.back() * factor + 0.5));
    }
    goes_on = false;
    rows.push_back(n);
  }
  if (goes_on || rows.empty()) return error(Code::usage, "--rows {}: a last number is missing", text);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

}  // namespace switchyard::cli
