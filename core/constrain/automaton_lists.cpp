// SPDX-License-Identifier: Apache-2.0
// The automaton's lists, and those of strings that must differ.
#include <algorithm>

#include "core/constrain/automaton.h"

namespace switchyard::constrain {

// Item number `count`, or the end where there need not be one.
void Automaton::enter_item(NodeId node, uint32_t count, uint32_t texts, Parent parent) {
  const ListSpec& list = g_.lists[g_.nodes[node].a];
  if (count < list.max) {
    // Numbers beyond that mean the same; 0 means that there is no item, and no separator after it.
    const uint32_t most =
        list.max != kUnbounded ? list.max : std::max({list.min, static_cast<uint32_t>(list.first.size()), 1u});
    const uint32_t then = std::min(count + 1, most);
    const Parent next = push({node, then * 2 + 1, texts}, parent);
    if (list.unique != kNothing) {
      add(unused_text(list.unique, texts), next);
    } else {
      enter(list.item(count), next);
      if (g_.nodes[list.item(count)].nullable) after_item(node, then, texts, parent);
    }
  }
  if (count == 0 && list.min == 0) add(list.close, parent);
}

void Automaton::after_item(NodeId node, uint32_t count, uint32_t texts, Parent parent) {
  const ListSpec& list = g_.lists[g_.nodes[node].a];
  if (count < list.max) add(list.separator, push({node, count * 2, texts}, parent));
  if (count >= list.min) add(list.close, parent);
}

Expr Automaton::unused_text(Expr all, uint32_t texts) {
  const Expr quote = x_.literal("\"");
  const std::vector<std::string>& used = texts_[texts].sorted;
  const Expr left = used.empty() ? all : x_.minus(all, x_.one_of({used.begin(), used.end()}));
  return x_.concat({quote, x_.json_inside(left), quote});
}

// The sets of one list take memory, and time, by the square of its length. If they filled the automaton on their own,
// every operation would begin a new one, and follow the text from its beginning.
uint32_t Automaton::with_text(uint32_t texts, std::string_view text) {
  std::vector<std::string> more = texts_[texts].sorted;
  if (more.size() >= kMaxTexts) fail(Limit::texts);
  const auto at = std::lower_bound(more.begin(), more.end(), text);
  if (at == more.end() || *at != text) more.emplace(at, text);
  const auto [found, fresh] = text_index_.try_emplace(more, static_cast<uint32_t>(texts_.size()));
  if (fresh) {
    size_t bytes = texts_[texts].bytes;
    for (const std::string& one : more) {
      text_bytes_ += 2 * (sizeof(one) + one.size());
      bytes += one.size();
    }
    if (bytes > limits_.memory_bytes / kTextShare) fail(Limit::texts);
    texts_.push_back({std::move(more), bytes});
  }
  return found->second;
}

bool Automaton::is_unique_list(NodeId node) const {
  return node != kNone && g_.nodes[node].kind == GrammarNode::Kind::list &&
         g_.lists[g_.nodes[node].a].unique != kNothing;
}

Automaton::State Automaton::saw_item(State s, std::string_view text) {
  if (failed_) return kDead;
  std::vector<Item> all(items(s).begin(), items(s).end());
  bool changed = false;
  for (Item& item : all) {
    const Range range = stacks_[item.stack];
    std::vector<uint32_t> frames(stack_frames_.begin() + range.first,
                                 stack_frames_.begin() + range.first + range.count);
    for (uint32_t& f : frames) {
      Frame frame = frames_[f];
      if (!is_unique_list(frame.node) || frame.place % 2 != 0) continue;
      frame.members = with_text(frame.members, text);
      f = intern_frame(frame);
      changed = true;
    }
    item.stack = intern_stack(frames);
  }
  return changed ? intern_state(all, states_[s].accepts) : s;
}

bool Automaton::in_unique_list(State s) const {
  if (!g_.unique_texts) return false;
  const auto unique = [this](uint32_t f) { return is_unique_list(frames_[f].node); };
  return std::any_of(items(s).begin(), items(s).end(), [&](const Item& item) {
    const auto begin = stack_frames_.begin() + stacks_[item.stack].first;
    return std::any_of(begin, begin + stacks_[item.stack].count, unique);
  });
}

}  // namespace switchyard::constrain
