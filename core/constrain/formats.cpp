// SPDX-License-Identifier: Apache-2.0
#include "core/constrain/formats.h"

#include <fmt/format.h>

#include "core/constrain/regex_syntax.h"

namespace switchyard::constrain {
namespace {

// RFC 3339. A leap second would depend on the zone and on the day: second 60 is left out.
const std::string kTime = R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([zZ]|[+-]([01]\d|2[0-3]):[0-5]\d))";
const std::string kLeapYear = R"((\d\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00))";
const std::string kDate = R"((\d{4}-(0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|\d{4}-(0[469]|11)-(0[1-9]|[12]\d|30)|)"
                          R"(\d{4}-02-(0[1-9]|1\d|2[0-8])|)" +
                          kLeapYear + "-02-29)";
// ISO 8601, as RFC 3339 has it in appendix A.
const std::string kDuration =
    R"(P(\d+W|(\d+Y(\d+M(\d+D)?)?|\d+M(\d+D)?|\d+D)(T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S))?|)"
    R"(T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S)))";
const std::string kOctet = R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";
const std::string kIpv4 = kOctet + R"((\.)" + kOctet + "){3}";
const std::string kLabel = R"([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)";
const std::string kHostname = kLabel + R"((\.)" + kLabel + ")*";
const std::string kAtom = R"([A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)";
const std::string kUuid = R"([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})";

// RFC 4291: eight groups, of which "::" may stand for one or more.
std::string ipv6() {
  const std::string group = "[0-9a-fA-F]{1,4}";
  const std::string tail = "(" + group + ":" + group + "|" + kIpv4 + ")";  // the last two
  std::string all = fmt::format("(({0}:){{6}}{1}", group, tail);
  for (int before = 0; before <= 7; ++before) {
    const std::string head = before == 0 ? "" : fmt::format("({0}(:{0}){{0,{1}}})?", group, before - 1);
    const int after = 7 - before;  // groups at most
    std::string end = fmt::format("({0})?", group);
    if (after == 0) end = "";
    if (after >= 2) end = fmt::format("(({0}:){{0,{1}}}{2}|{0})?", group, after - 2, tail);
    all += fmt::format("|{}::{}", head, end);
  }
  return all + ")";
}

// RFC 3986.
const std::string kPercent = "%[0-9A-Fa-f]{2}";
std::string characters(std::string_view more) {
  return fmt::format("([A-Za-z0-9._~!$&'()*+,;={}-]|{})", more, kPercent);
}
std::string hierarchy() {
  const std::string user = characters(":") + "*", name = characters("") + "*", segment = characters(":@");
  const std::string host = R"((\[()" + ipv6() + R"(|[vV][0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\]|)" + name + ")";
  return fmt::format(R"((//({}@)?{}(:\d*)?(/{}*)*|/({}+(/{}*)*)?|{}+(/{}*)*)?)", user, host, segment, segment, segment,
                     segment, segment);
}
std::string after_path() { return fmt::format(R"((\?{0}*)?(#{0}*)?)", characters(":@/?")); }
std::string uri() { return "[A-Za-z][A-Za-z0-9+.-]*:" + hierarchy() + after_path(); }
std::string uri_reference() {
  const std::string plain = characters("@"), segment = characters(":@");
  const std::string relative =
      fmt::format(R"((//({}*@)?(\[{}\]|{}*)(:\d*)?(/{}*)*|/({}+(/{}*)*)?|{}+(/{}*)*)?)", characters(":"), ipv6(),
                  characters(""), segment, segment, segment, plain, segment);
  return "(" + uri() + "|" + relative + after_path() + ")";
}

const std::string kPointer = R"((/([^/~]|~[01])*)*)";

struct Format {
  std::string_view name;
  std::string (*pattern)();
};
const Format kFormats[] = {
    {"date-time", [] { return kDate + "[tT]" + kTime; }},
    {"date", [] { return kDate; }},
    {"time", [] { return kTime; }},
    {"duration", [] { return kDuration; }},
    {"email",
     [] {
       return "(" + kAtom + R"((\.)" + kAtom + R"()*|"([ !#-\[\]-~]|\\[ -~])*")@()" + kHostname + R"(|\[)" + kIpv4 +
              R"(\]|\[IPv6:)" + ipv6() + R"(\]))";
     }},
    {"hostname", [] { return kHostname; }},
    {"ipv4", [] { return kIpv4; }},
    {"ipv6", [] { return ipv6(); }},
    {"uuid", [] { return kUuid; }},
    {"uri", [] { return uri(); }},
    {"uri-reference", [] { return uri_reference(); }},
    {"json-pointer", [] { return kPointer; }},
    {"relative-json-pointer", [] { return R"((0|[1-9]\d*)(#|)" + kPointer + ")"; }},
};

}  // namespace

std::optional<Expr> format_expression(Expressions& x, std::string_view format) {
  for (const Format& f : kFormats) {
    if (f.name != format) continue;
    auto parsed = parse_regex(x, f.pattern(), {.dot_all = true});
    if (!parsed.ok()) return std::nullopt;
    // RFC 1123 limits the whole name, which the labels do not.
    if (format == "hostname") return x.both(*parsed, x.repeat(x.character(), 1, 253));
    return *parsed;
  }
  return std::nullopt;
}

std::string supported_formats() {
  std::string all;
  for (const Format& f : kFormats) all += (all.empty() ? "" : ", ") + std::string(f.name);
  return all;
}

}  // namespace switchyard::constrain
