// SPDX-License-Identifier: Apache-2.0
#include "cli/conversation.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/text/utf8.h"

namespace switchyard::cli {

Status Conversation::instruct(const std::string& text) {
  SWY_TRY(check_utf8(text));
  if (first_turn() == 1) messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), {"system", text});
  return {};
}

std::string Conversation::instructions() const { return first_turn() == 1 ? messages_[0].content : std::string(); }

Status Conversation::clear() {
  messages_.resize(first_turn());
  return speaker_.on_loop([&]() -> Status {
    speaker_.thread().clear();
    return {};
  });
}

std::vector<size_t> Conversation::turn_starts() const {
  std::vector<size_t> starts;
  for (size_t i = first_turn(); i < messages_.size(); ++i) {
    if (messages_[i].role == "user") starts.push_back(i);
  }
  return starts;
}

size_t Conversation::turns() const { return turn_starts().size(); }

Result<TextThread::Reading> Conversation::read() const { return read_without(0); }

Result<TextThread::Reading> Conversation::read_without(size_t turns) const {
  const std::vector<size_t> starts = turn_starts();
  const size_t next = turns == 0 ? first_turn() : starts[turns];
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (size_t i = 0; i < messages_.size(); ++i) {
    if (i >= first_turn() && i < next) continue;
    // What people write and models answer stays text: it can neither end a turn nor begin another.
    list.push_back(
        {{"role", messages_[i].role}, {"content", speaker_.tokenizer().quote_specials(messages_[i].content)}});
  }
  SWY_LET(std::string text, template_.render(list, true));
  return thread().read(std::move(text));
}

// States cannot be cut back, so what stays after the oldest turns were dropped is read again: it takes half of the
// context at most, so that this is rare.
Result<TextThread::Reading> Conversation::fit(const TextOptions& options) {
  const size_t context = speaker_.model().context();
  const size_t for_answer = std::min<size_t>(options.max_tokens, context / 4);
  SWY_LET(TextThread::Reading all, read());
  const std::vector<size_t> starts = turn_starts();
  const size_t older = starts.size() - 1;
  if (all.total(thread()) + for_answer <= context || older == 0) return all;
  size_t fewest = 1, most = older;
  while (fewest < most) {
    const size_t middle = (fewest + most) / 2;
    SWY_LET(const TextThread::Reading rest, read_without(middle));
    if (rest.total(thread()) <= context / 2) {
      most = middle;
    } else {
      fewest = middle + 1;
    }
  }
  SWY_LET(TextThread::Reading rest, read_without(fewest));
  if (rest.total(thread()) >= context) return rest;  // the last message alone is too long: nothing is dropped for it
  note_(
      fmt::format("the context of {} tokens is nearly full: dropped the oldest {} of {} turns; computing the other {} "
                  "tokens again",
                  context, fewest, starts.size(), rest.total(thread())));
  messages_.erase(messages_.begin() + static_cast<ptrdiff_t>(first_turn()),
                  messages_.begin() + static_cast<ptrdiff_t>(starts[fewest]));
  return rest;
}

Result<Generation> Conversation::answer(const TextOptions& options, const std::function<void(const Event&)>& emit) {
  SWY_LET(const TextThread::Reading reading, fit(options));
  const size_t tokens = reading.total(thread()), context = speaker_.model().context();
  if (tokens >= context) {
    return error(Code::usage, "the message takes {} tokens{}, and the context has {}; raise --ctx or shorten it",
                 tokens, instructions().empty() ? "" : " with the instructions", context);
  }
  return generate(speaker_, reading, options, emit);
}

Result<Generation> Conversation::ask(const std::string& message, const TextOptions& options,
                                     const std::function<void(const Event&)>& emit) {
  SWY_TRY(check_utf8(message));
  messages_.push_back({"user", message});
  auto made = answer(options, emit);
  const bool answered = made.ok() && (!made->finish.text.empty() || made->stopped != "interrupt");
  if (answered) {
    messages_.push_back({"assistant", made->finish.text});
  } else {
    messages_.pop_back();
  }
  return made;
}

Status Conversation::save(const std::string& path) const {
  return speaker_.on_loop(
      [&] { return save_session(Os::real(), path, SessionFile::Kind::conversation, speaker_.thread(), messages_); });
}

Status Conversation::load(const std::string& path) {
  return speaker_.on_loop([&]() -> Status {
    SWY_LET(messages_, load_session(Os::real(), path, SessionFile::Kind::conversation, speaker_.thread()));
    return {};
  });
}

}  // namespace switchyard::cli
