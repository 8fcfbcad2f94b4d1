// SPDX-License-Identifier: Apache-2.0
// Which requests' answers are limited, and to what.
#include <algorithm>
#include <utility>

#include "server/app/application.h"

namespace switchyard::server {

namespace {

// What is wrong with a constraint is the client's to change, also where it is a part that is not supported.
ApiError refused(std::string field, const Status& status) {
  return wrong_field(std::move(field), std::string(status.message()));
}

}  // namespace

Refusal Application::compile_calls(const ChatRequest& request, std::shared_ptr<const Constraint>& to) {
  std::vector<std::string> specs;
  if (Refusal no = model_.call_constraints(request, specs)) return no;
  Status last;
  for (const std::string& spec : specs) {
    auto made = constraints_.get(ConstraintKind::tool_calls, spec, model_.tokenizer(), service_.loaded().model->vocab(),
                                 "'tools'");
    if (made.ok()) {
      to = std::move(*made);
      return {};
    }
    last = made.status();
  }
  return refused("tools", last);
}

// `answers`: what may stand for the request's own format.
Refusal Application::constrain(const Generation& g, Reasoning reasoning,
                               std::vector<std::shared_ptr<const Constraint>> answers, Constraints& to) {
  const Tokenizer& tokenizer = model_.tokenizer();
  const uint32_t vocab = service_.loaded().model->vocab();
  std::string name = "'tool_choice'";
  if (g.format) {
    name = fmt::format("'{}'", g.format->field);
    auto made = constraints_.get(g.format->kind, g.format->text, tokenizer, vocab, name);
    if (!made.ok()) return refused(g.format->field, made.status());
    answers.push_back(std::move(*made));
  }
  if (answers.empty()) return {};
  std::shared_ptr<const Constraint> before;
  if (reasoning != Reasoning::none) {
    auto made =
        constraints_.get(ConstraintKind::regex, reasoning_pattern(reasoning), tokenizer, vocab, "the reasoning");
    if (!made.ok()) return failed(made.status());
    before = std::move(*made);
  }
  std::vector<int32_t> ends = g.text.sampling.stop_ids;
  if (!g.text.ignore_eos && ends.empty()) {
    const auto& own = service_.loaded().model->program().eos_ids;
    ends.assign(own.begin(), own.end());
  }
  const bool may_skip = reasoning == Reasoning::optional;
  to = [before, may_skip, answers = std::move(answers), &tokenizer, ends = std::move(ends), name = std::move(name)] {
    return std::make_shared<AnswerConstraint>(before, may_skip, answers, tokenizer, ends, name);
  };
  return {};
}

Refusal Application::constrain_chat(const ChatRequest& chat, const ChatPrompt& prompt, Constraints& to) {
  const bool required = chat.tool_choice == ToolChoice::required;
  const bool strict = prompt.form.tools && std::any_of(chat.tools.begin(), chat.tools.end(), is_strict);
  const bool calls = required || strict || (prompt.form.tools && chat.generation.format);
  if (!calls && !chat.generation.format) return {};
  if (!chat.generation.text.allow_regex.empty()) {
    const char* other = required ? "a 'tool_choice' that requires a call" : "strict tools";
    return wrong_field("allow_regex", fmt::format("'allow_regex' and {} exclude each other", other));
  }
  if (Refusal no = model_.check_constraint(prompt)) return no;
  std::vector<std::shared_ptr<const Constraint>> answers;
  if (calls) {
    if (Refusal no = compile_calls(chat, answers.emplace_back())) return no;
  }
  if (!required) return constrain(chat.generation, prompt.reasoning, std::move(answers), to);
  Generation only_calls = chat.generation;  // the format is the text's, and there is none
  only_calls.format.reset();
  return constrain(only_calls, prompt.reasoning, std::move(answers), to);
}

}  // namespace switchyard::server
