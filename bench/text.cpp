// SPDX-License-Identifier: Apache-2.0
#include "bench/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/text/utf8.h"

namespace switchyard::bench {
namespace {

constexpr const char* kNone = "-";
constexpr double kMost = 1e15;  // beyond it digits say nothing

std::string with_thousands(double v) {
  const std::string digits = fmt::format("{:.0f}", std::abs(v));
  std::string out = v < 0 && digits != "0" ? "-" : "";
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i != 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

// `digits` significant ones, at most six after the point.
std::string significant(double v, int digits) {
  if (!std::isfinite(v)) return kNone;
  if (v == 0) return "0";
  if (std::abs(v) >= kMost || std::abs(v) < 1e-5) return fmt::format("{:.{}e}", v, digits - 1);
  const double rounded = std::strtod(fmt::format("{:.{}e}", v, digits - 1).c_str(), nullptr);
  const int before = static_cast<int>(std::floor(std::log10(std::abs(rounded)))) + 1;
  if (before >= digits) return with_thousands(v);
  return fmt::format("{:.{}f}", v, std::min(digits - before, 8));
}

struct Unit {
  double scale;
  const char* name;
};

std::string in_units(double v, std::initializer_list<Unit> units) {
  if (!std::isfinite(v)) return kNone;
  const Unit* unit = units.begin();
  for (const Unit& u : units) {
    if (std::abs(v) >= u.scale * 0.9995) unit = &u;
  }
  return significant(v / unit->scale, 3) + " " + unit->name;
}

}  // namespace

std::string number_text(double v) { return significant(v, 4); }
std::string rate_text(double v) { return significant(v, 3); }
std::string percent_text(double share) {
  return std::isfinite(share) && std::abs(share) < 1e6 ? fmt::format("{:.1f}%", 100 * share) : kNone;
}
std::string seconds_text(double v) { return in_units(v, {{1e-6, "us"}, {1e-3, "ms"}, {1, "s"}}); }
std::string bytes_text(double v) { return in_units(v, {{1, "B"}, {1e3, "kB"}, {1e6, "MB"}, {1e9, "GB"}}); }

std::string small_text(double v) {
  if (!std::isfinite(v)) return "not a number";
  if (v == 0) return "0";
  return std::abs(v) >= 0.001 && std::abs(v) < 1000 ? significant(v, 3) : fmt::format("{:.1e}", v);
}

std::string short_text(double v) {
  if (!std::isfinite(v)) return kNone;
  const auto trimmed = [](double x) { return fmt::format("{:.4g}", x); };
  const double size = std::abs(v);
  if (size >= 1e9 && size < kMost) return trimmed(v / 1e9) + "G";
  if (size >= 1e6 && size < kMost) return trimmed(v / 1e6) + "M";
  if (size >= 1e4 && size < kMost) return trimmed(v / 1e3) + "k";
  return trimmed(v);
}

std::string one_line(std::string_view text) {
  std::string valid;
  append_utf8_lossy(text, true, valid);
  for (char& c : valid) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return valid;
}

size_t characters(std::string_view utf8) {
  return static_cast<size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string cut(const std::string& utf8, size_t most) {
  if (characters(utf8) <= most) return utf8;
  size_t at = 0;
  for (size_t n = 0; n + 1 < most && at < utf8.size(); ++n) at += std::max<size_t>(utf8_length(utf8.substr(at)), 1);
  return utf8.substr(0, at) + "…";
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : one_line(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string escape_md(std::string_view text) {
  std::string out;
  for (const char c : one_line(text)) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      if (std::string_view("\\`*_[]|#~!").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out;
}

std::string csv_text(std::string_view text) {
  const std::string plain = one_line(text);
  const bool formula = !plain.empty() && std::string_view("=+-@").find(plain[0]) != std::string_view::npos;
  const bool quoted = plain.find_first_of(",\"") != std::string::npos;
  std::string out = quoted ? "\"" : "";
  if (formula) out += '\'';
  for (const char c : plain) {
    if (c == '"') out += c;
    out += c;
  }
  if (quoted) out += '"';
  return out;
}

std::string csv_number(double v) { return std::isfinite(v) ? fmt::format("{}", v) : ""; }

}  // namespace switchyard::bench
