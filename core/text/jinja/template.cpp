// SPDX-License-Identifier: Apache-2.0
#include "core/text/jinja/template.h"

#include <new>

#include "core/text/jinja/interpreter.h"
#include "core/text/jinja/lexer.h"
#include "core/text/jinja/parser.h"
#include "core/text/jinja/utf8.h"

namespace switchyard::jinja {

std::tm system_time() {
  std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

Result<Template> Template::parse(std::string_view source, std::string_view name) {
  if (source.size() > kMaxSourceBytes) {
    return error(Code::invalid_data, "{}: {} bytes is no chat template; at most {} are read", name, source.size(),
                 kMaxSourceBytes);
  }
  if (!utf8::valid(source)) return error(Code::invalid_data, "{}: is not valid UTF-8; save it as UTF-8", name);
  try {
    return Template(std::string(name), std::make_shared<const Tree>(Parser(tokenize(source)).parse()));
  } catch (const Failure& failure) {
    return error(failure.code, "{} {}", name, failure.message);
  } catch (const std::bad_alloc&) {
    return error(Code::out_of_host_memory, "{}: out of memory while parsing", name);
  }
}

Result<std::string> Template::render(const Value& globals, const Limits& limits, const Clock& clock) const {
  Context cx(limits, clock);
  Interpreter interpreter(*tree_, globals, cx);
  try {
    return interpreter.run();
  } catch (const Failure& failure) {
    return error(failure.code, "{} line {}: {}", name_, interpreter.line(), failure.message);
  } catch (const std::bad_alloc&) {
    return error(Code::out_of_host_memory, "{} line {}: out of memory", name_, interpreter.line());
  }
}

}  // namespace switchyard::jinja
