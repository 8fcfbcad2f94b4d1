// SPDX-License-Identifier: Apache-2.0
// The manual page, from the commands and options as they are declared.
#include <fmt/format.h>

#include <algorithm>

#include "cli/option_tree.h"
#include "cli/version.h"

namespace switchyard::cli {
namespace {

// Text that man's formatter takes for nothing else.
std::string plain_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string bold(const std::string& text) { return "\\fB" + plain_text(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + plain_text(text) + "\\fR"; }

std::string heading_of(const OptionInfo& o) {
  std::string out = o.names.empty() ? italic(o.place) : "";
  for (const std::string& name : o.names) out += (out.empty() ? "" : ", ") + bold(name);
  if (!o.names.empty() && !o.value.empty()) out += " " + italic(o.value);
  return out;
}

std::string text_of(const OptionInfo& o) {
  std::string out = plain_text(o.help);
  if (!o.choices.empty()) out += plain_text(fmt::format(" ({})", fmt::join(o.choices, ", ")));
  if (!o.initial.empty()) out += plain_text("; without it " + o.initial);
  if (o.required) out += "; needed";
  if (!o.environment.empty()) out += plain_text("; environment: " + o.environment);
  return out;
}

void add_options(std::string& out, const std::vector<OptionInfo>& options) {
  for (const OptionInfo& o : options) out += fmt::format(".TP\n{}\n{}\n", heading_of(o), text_of(o));
}

// A footer's lines stand as they are.
void add_footer(std::string& out, const std::string& footer) {
  if (!footer.empty()) out += ".PP\n.nf\n" + plain_text(footer) + "\n.fi\n";
}

constexpr const char* kShared = "Model and backend";  // options that most commands have are listed once

void add_command(std::string& out, const CommandInfo& c) {
  out += ".SS \"" + plain_text(c.path) + "\"\n" + plain_text(c.help) + ".\n";
  std::vector<OptionInfo> own;
  bool shared = false;
  for (const OptionInfo& o : c.options) {
    const bool everywhere = o.group == kShared && o.place.empty();
    shared |= everywhere;
    if (!everywhere && (o.names.empty() || o.names.back() != "--help")) own.push_back(o);
  }
  add_options(out, own);
  if (shared) out += ".PP\nAlso options of the model and backend, see below.\n";
  add_footer(out, c.footer);
  for (const CommandInfo& s : c.commands) add_command(out, s);
}

// Options of that group, of the command that has most of them.
std::vector<OptionInfo> shared_options(const CommandInfo& program) {
  std::vector<OptionInfo> most;
  for (const CommandInfo& c : program.commands) {
    std::vector<OptionInfo> own;
    std::copy_if(c.options.begin(), c.options.end(), std::back_inserter(own),
                 [](const OptionInfo& o) { return o.group == kShared; });
    if (own.size() > most.size()) most = own;
  }
  return most;
}

}  // namespace

std::string manual_page(const CommandInfo& program) {
  std::string out = fmt::format(
      ".TH SWITCHYARD 1 \"\" \"{}\" \"User Commands\"\n"
      ".SH NAME\nswitchyard \\- {}\n"
      ".SH SYNOPSIS\n{} {} [{}] ...\n.br\n{} {} {}\n.SH COMMANDS\n",
      plain_text(version_text()), plain_text(program.help.substr(0, program.help.find('\n'))), bold("switchyard"),
      italic("command"), italic("option"), bold("switchyard"), italic("command"), bold("--help"));
  for (const CommandInfo& c : program.commands) add_command(out, c);
  out += ".SH \"OPTIONS OF THE MODEL AND BACKEND\"\nAn option wins over its environment variable.\n";
  add_options(out, shared_options(program));
  out +=
      ".SH \"EXIT STATUS\"\n.TP\n0\nsuccess\n.TP\n1\na failure; one line on standard error tells it\n"
      ".TP\n2\na request that cannot be understood\n.TP\n3\nbench compare \\-\\-fail found a regression\n"
      ".TP\n130, 143, 129\nended by Ctrl\\-C, SIGTERM or SIGHUP\n"
      ".PP\nWith \\-\\-json a failure is also a JSON object on standard output, {\"error\": {...}}.\n";
  return out;
}

}  // namespace switchyard::cli
