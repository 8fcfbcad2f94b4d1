// SPDX-License-Identifier: Apache-2.0
// The automaton's objects, whose members come in any order.
#include <bit>

#include "core/constrain/automaton.h"

namespace switchyard::constrain {

// Required members that the object does not have yet. Members that occur once come first in the list.
uint32_t Automaton::missing(const ObjectSpec& spec, const Members& m) const {
  uint32_t found = 0;
  for (size_t i = 0; i < spec.members.size() && spec.members[i].once; ++i) {
    const bool seen = i / 64 < m.seen.size() && (m.seen[i / 64] >> i % 64 & 1) != 0;
    found += spec.members[i].required && seen ? 1 : 0;
  }
  return spec.required - found;
}

uint32_t Automaton::with_member(const ObjectSpec& spec, uint32_t members, uint32_t index) {
  Members m = members_[members];
  // Counts matter up to the limits only, so that they do not make states differ.
  const uint32_t most = spec.max != kUnbounded ? spec.max : spec.min;
  if (m.count < most) ++m.count;
  if (spec.members[index].once) {
    if (m.seen.size() <= index / 64) m.seen.resize(index / 64 + 1);
    m.seen[index / 64] |= 1ull << index % 64;
  }
  return intern_members(std::move(m));
}

void Automaton::keys(NodeId node, uint32_t members, Parent parent, bool first) {
  const ObjectSpec& spec = g_.objects[g_.nodes[node].a];
  const Members m = members_[members];  // a copy: pushing adds to the table
  const uint32_t missing = this->missing(spec, m);
  x_.work(spec.members.size());
  const bool only_required = spec.max != kUnbounded && m.count + missing >= spec.max;
  for (uint32_t i = 0; i < spec.members.size(); ++i) {
    const auto& member = spec.members[i];
    const bool seen = member.once && i / 64 < m.seen.size() && (m.seen[i / 64] >> i % 64 & 1) != 0;
    if (seen || (only_required && !member.required)) continue;
    add(member.key, push({node, value + 4 * i, members}, parent));
  }
  if (first && missing == 0 && m.count >= spec.min) add(spec.close, parent);
}

void Automaton::after_member(NodeId node, uint32_t members, Parent parent) {
  const ObjectSpec& spec = g_.objects[g_.nodes[node].a];
  const Members m = members_[members];  // a copy: pushing adds to the table
  const uint32_t missing = this->missing(spec, m);
  bool another = missing > 0;
  if (!another && (spec.max == kUnbounded || m.count < spec.max)) {
    size_t seen = 0;
    for (const uint64_t w : m.seen) seen += static_cast<size_t>(std::popcount(w));
    another = seen < spec.members.size();  // those of many names are never seen
  }
  const bool complete = missing == 0 && m.count >= spec.min;
  if (another && spec.separator == kEpsilon) {
    keys(node, members, parent, false);
  } else if (another) {
    add(spec.separator, push({node, next_key, members}, parent));
  }
  if (complete) add(spec.close, parent);
}

}  // namespace switchyard::constrain
