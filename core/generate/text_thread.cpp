// SPDX-License-Identifier: Apache-2.0
#include "core/generate/text_thread.h"

namespace switchyard {

Result<TextThread::Reading> TextThread::read(std::string text) const {
  Reading r;
  const bool known = !seen_.empty() || !owed_.empty();
  r.anew = known && !text.starts_with(text_);
  const bool continues = known && !r.anew;
  const std::string_view unread = continues ? std::string_view(text).substr(text_.size()) : text;
  SWY_LET(r.fresh, tokenizer_.encode(unread, Specials::marked));
  if (continues) r.fresh.insert(r.fresh.begin(), owed_.begin(), owed_.end());
  r.text = std::move(text);
  return r;
}

void TextThread::end(const Reading& reading, std::vector<int32_t> drawn, const std::string& answer) {
  text_ = reading.text + answer;
  owed_.clear();
  if (reading.anew) seen_.clear();
  const size_t prompt_end = seen_.size() + reading.fresh.size();
  seen_.insert(seen_.end(), reading.fresh.begin(), reading.fresh.end());
  const size_t position = session_.position();
  if (position < prompt_end) return forget_tokens();
  // What was shown may end before the last drawn token, or before several: then it is another text.
  const size_t fed = std::min(position - prompt_end, drawn.size());
  if (tokenizer_.decode(drawn, true) != answer) {
    drawn.resize(fed);
    if (tokenizer_.decode(drawn, true) != answer) return forget_tokens();
  }
  if (position != prompt_end + fed) return forget_tokens();
  seen_.insert(seen_.end(), drawn.begin(), drawn.begin() + static_cast<ptrdiff_t>(fed));
  owed_.assign(drawn.begin() + static_cast<ptrdiff_t>(fed), drawn.end());
}

void TextThread::forget_tokens() {
  session_.reset();
  seen_.clear();
  owed_.clear();
}

void TextThread::clear() {
  forget_tokens();
  text_.clear();
}

void TextThread::resume(std::string text, std::vector<int32_t> seen, std::vector<int32_t> owed) {
  text_ = std::move(text);
  seen_ = std::move(seen);
  owed_ = std::move(owed);
}

}  // namespace switchyard
