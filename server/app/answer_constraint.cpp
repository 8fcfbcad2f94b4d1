// SPDX-License-Identifier: Apache-2.0
#include "server/app/answer_constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace switchyard::server {

// The end's only '<' is its first character, so a text without the end is made of pieces that begin with '<', have no
// other one, and do not go on with the rest of the end.
std::string reasoning_pattern(Reasoning reasoning) {
  if (reasoning == Reasoning::none) return "";
  std::string other = "(?:[^<>][^<]*)?";
  const std::string rest = "/think";
  for (size_t i = rest.size(); i-- > 0;) {
    other = fmt::format("(?:{}{}|[^<{}][^<]*)?", rest[i], other, rest[i]);
  }
  const std::string open = reasoning == Reasoning::open ? "" : "<think>";
  return open + "[^<]*(?:<" + other + ")*</think>\\n\\n";
}

AnswerConstraint::AnswerConstraint(std::shared_ptr<const Constraint> before, bool may_skip,
                                   const std::vector<std::shared_ptr<const Constraint>>& answers,
                                   const Tokenizer& tokenizer, std::span<const int32_t> end_ids, std::string name)
    : tokenizer_(tokenizer), name_(std::move(name)) {
  for (const auto& answer : answers) fresh_.emplace_back(answer, end_ids);
  if (before == nullptr || may_skip) answers_ = fresh_;
  if (before != nullptr) before_.emplace_back(std::move(before));
}

// Whether it went well. Limits are remembered; text that belongs to another answer is not.
bool AnswerConstraint::took(const Status& status) {
  if (fault_.ok() && status.code() == Code::unsupported) {
    fault_ = error(Code::unsupported, "{}: {}", name_, status.message());
  }
  return status.ok();
}

void AnswerConstraint::accept(int32_t id) {
  const auto refuses = [&](ConstraintMatcher& m) { return !took(m.accept(id)); };
  std::erase_if(answers_, refuses);
  std::erase_if(before_, refuses);
  if (before_.empty() || !before_[0].finished()) return;
  before_.clear();
  answers_ = fresh_;
}

void AnswerConstraint::follow(std::span<const int32_t> drawn) {
  for (; followed_ < drawn.size(); ++followed_) {
    const int32_t id = drawn[followed_];
    if (!tokenizer_.piece(id).empty() && !tokenizer_.is_special(id)) accept(id);
  }
}

void AnswerConstraint::allow(std::span<const int32_t> drawn, std::span<uint32_t> mask) {
  follow(drawn);
  for (auto* matchers : {&before_, &answers_}) {
    std::erase_if(*matchers, [&](ConstraintMatcher& m) {
      part_.assign(mask.size(), 0);
      if (!took(m.mask(part_))) return true;
      std::transform(mask.begin(), mask.end(), part_.begin(), mask.begin(), std::bit_or<>());
      return false;
    });
  }
}

bool AnswerConstraint::finished(std::span<const int32_t> drawn) {
  follow(drawn);
  return before_.empty() && !answers_.empty() &&
         std::all_of(answers_.begin(), answers_.end(), [](ConstraintMatcher& m) { return m.finished(); });
}

void AnswerConstraint::back() {
  if (!held_) return;
  before_ = std::move(held_->before);
  answers_ = std::move(held_->answers);
  followed_ = held_->followed;
  fault_ = std::move(held_->fault);
  held_.reset();
}

// Only where one of them alone is left: otherwise several texts may follow.
std::string AnswerConstraint::likely(std::span<const int32_t> drawn, size_t max_bytes) {
  follow(drawn);
  if (before_.size() + answers_.size() != 1) return {};
  return (before_.empty() ? answers_ : before_)[0].likely_text(max_bytes);
}

}  // namespace switchyard::server
