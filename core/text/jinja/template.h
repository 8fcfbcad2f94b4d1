// SPDX-License-Identifier: Apache-2.0
// Template: a Jinja template of a language model's chat format, parsed once and rendered many times.
//
// The language is what Hugging Face's apply_chat_template gives to templates: jinja2's sandbox with trim_blocks and
// lstrip_blocks, break and continue, `generation` blocks, a tojson that writes plain JSON, raise_exception() and
// strftime_now(). Not in it: inheritance and imports, call blocks, recursive loops, %-formatting, and whatever changes
// a list or dict. Every name that is available is in a table of filters_*.cpp, tests.cpp and methods*.cpp.
//
// Where it differs from jinja2: text is never HTML-escaped (so `safe` does nothing), integers have 64 bits, and the
// condition of a for statement is tested on all items before the first is visited.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/text/jinja/context.h"

namespace switchyard::jinja {

struct Tree;

// The local time of the system.
std::tm system_time();

// Immutable and shared by its copies; all members are thread-safe.
class Template {
 public:
  // `name` begins every message. Errors: unsupported, with name and line, for an unknown statement, filter, test,
  // function or method; invalid_data for anything else that is not a template, or a template of over a megabyte.
  static Result<Template> parse(std::string_view source, std::string_view name = "template");

  // `globals` is a dict of the variables that the template sees. The result is UTF-8.
  // Errors: usage when the template calls raise_exception(); invalid_data for any other failure of the template, with
  // its line, and for work beyond `limits`; out_of_host_memory.
  Result<std::string> render(const Value& globals, const Limits& limits = {}, const Clock& clock = system_time) const;

 private:
  Template(std::string name, std::shared_ptr<const Tree> tree) : name_(std::move(name)), tree_(std::move(tree)) {}

  std::string name_;
  std::shared_ptr<const Tree> tree_;
};

}  // namespace switchyard::jinja
