// SPDX-License-Identifier: Apache-2.0
// Which requests' answers are limited, and to what.
#include <algorithm>
#include <utility>

#include "core/base/printable.h"
#include "core/generate/text_constraint.h"
#include "server/app/application.h"

namespace switchyard::server {

namespace {

// What is wrong with a constraint is the client's to change, also where it is a part that is not supported.
ApiError refused(std::string field, const Status& status) {
  return wrong_field(std::move(field), std::string(status.message()));
}

}  // namespace

Result<std::shared_ptr<const Constraint>> Application::constraint(ConstraintKind kind, const std::string& text,
                                                                  const std::string& name, Compiling& compiling) {
  if (compiling.allowed) {
    return constraints_.get(kind, text, model_.tokenizer(), service_.loaded().model->vocab(), name);
  }
  if (auto known = constraints_.known(kind, text, name)) return std::move(*known);
  compiling.missing = true;
  return std::shared_ptr<const Constraint>();
}

Refusal Application::compile_calls(const ChatRequest& request, Compiling& compiling,
                                   std::shared_ptr<const Constraint>& to) {
  std::vector<std::string> specs;
  if (Refusal no = model_.call_constraints(request, specs)) return no;
  Status last;
  for (const std::string& spec : specs) {
    auto made = constraint(ConstraintKind::tool_calls, spec, "'tools'", compiling);
    if (made.ok()) {
      to = std::move(*made);
      return {};
    }
    last = made.status();
  }
  return refused("tools", last);
}

std::vector<int32_t> Application::end_ids(const Generation& g) const {
  if (g.text.ignore_eos || !g.text.sampling.stop_ids.empty()) return g.text.sampling.stop_ids;
  const auto& own = service_.loaded().model->program().eos_ids;
  return {own.begin(), own.end()};
}

// `answers`: what may stand for the request's own format.
Refusal Application::constrain(const Generation& g, Reasoning reasoning,
                               std::vector<std::shared_ptr<const Constraint>> answers, Compiling& compiling,
                               Constraints& to) {
  const Tokenizer& tokenizer = model_.tokenizer();
  if (!g.text.allow_regex.empty()) {
    std::string name = fmt::format("'allow_regex' ({})", printable(g.text.allow_regex));
    auto made = constraint(ConstraintKind::regex, g.text.allow_regex, name, compiling);
    if (!made.ok()) return refused("allow_regex", made.status());
    to = [whole = *made, &tokenizer, ends = end_ids(g), name = std::move(name)] {
      return std::make_shared<TextConstraint>(whole, tokenizer, ends, name);
    };
    return {};
  }
  std::string name = "'tool_choice'";
  if (g.format) {
    name = fmt::format("'{}'", g.format->field);
    auto made = constraint(g.format->kind, g.format->text, name, compiling);
    if (!made.ok()) return refused(g.format->field, made.status());
    answers.push_back(std::move(*made));
  }
  if (answers.empty()) return {};
  std::shared_ptr<const Constraint> before;
  if (reasoning != Reasoning::none) {
    auto made = constraint(ConstraintKind::regex, reasoning_pattern(reasoning), "the reasoning", compiling);
    if (!made.ok()) return failed(made.status());
    before = std::move(*made);
  }
  if (compiling.missing) return {};
  const bool may_skip = reasoning == Reasoning::optional;
  to = [before, may_skip, answers = std::move(answers), &tokenizer, ends = end_ids(g), name = std::move(name)] {
    return std::make_shared<AnswerConstraint>(before, may_skip, answers, tokenizer, ends, name);
  };
  return {};
}

Refusal Application::constrain_chat(const ChatRequest& chat, const ChatPrompt& prompt, Compiling& compiling,
                                    Constraints& to) {
  const bool required = chat.tool_choice == ToolChoice::required;
  const bool strict = prompt.form.tools && std::any_of(chat.tools.begin(), chat.tools.end(), is_strict);
  const bool calls = required || strict || (prompt.form.tools && chat.generation.format);
  const bool pattern = !chat.generation.text.allow_regex.empty();
  if (!calls && !chat.generation.format && !pattern) return {};
  if (pattern && !calls) return constrain(chat.generation, Reasoning::none, {}, compiling, to);
  if (pattern) {
    const char* other = required ? "a 'tool_choice' that requires a call" : "strict tools";
    return wrong_field("allow_regex", fmt::format("'allow_regex' and {} exclude each other", other));
  }
  if (Refusal no = model_.check_constraint(prompt)) return no;
  std::vector<std::shared_ptr<const Constraint>> answers;
  if (calls) {
    if (Refusal no = compile_calls(chat, compiling, answers.emplace_back())) return no;
  }
  if (!required) return constrain(chat.generation, prompt.reasoning, std::move(answers), compiling, to);
  Generation only_calls = chat.generation;  // the format is the text's, and there is none
  only_calls.format.reset();
  return constrain(only_calls, prompt.reasoning, std::move(answers), compiling, to);
}

}  // namespace switchyard::server
