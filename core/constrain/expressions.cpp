// SPDX-License-Identifier: Apache-2.0
#include "core/constrain/expressions.h"

#include <algorithm>

#include "core/base/os.h"
#include "core/constrain/utf8_ranges.h"

namespace switchyard::constrain {
namespace {

// Of expressions within expressions: functions that recurse over them need this much of the stack, times some hundred
// bytes.
constexpr uint16_t kMaxDepth = 1000;

}  // namespace

Expressions::Expressions(size_t max_expressions) : max_(max_expressions) {
  set_index({});
  intern({.kind = Kind::nothing});
  intern({.kind = Kind::epsilon, .nullable = true});
  intern({.kind = Kind::complement, .nullable = true, .finite = false, .a = kNothing});
  const std::pair<uint32_t, uint32_t> all[] = {{0, 0x10FFFF}};
  character_ = characters(all);
  characters_ = repeat(character_, 0, kUnbounded);
}

uint32_t Expressions::set_index(const ByteSet& set) {
  uint64_t hash = 1;
  for (const uint64_t w : set.words) hash = mix(hash, w);
  const uint32_t found = set_table_.find(hash, [&](uint32_t i) { return sets_[i] == set; });
  if (found != IndexTable::kNone) return found;
  set_table_.insert(hash, static_cast<uint32_t>(sets_.size()));
  sets_.push_back(set);
  return static_cast<uint32_t>(sets_.size() - 1);
}

Expr Expressions::intern(Node n) {
  if (n.depth > kMaxDepth) {
    exceed(Excess::depth);
    return kNothing;
  }
  uint64_t hash = mix(mix(mix(static_cast<uint64_t>(n.kind), n.a), n.b), n.c);
  const bool listed = n.kind == Kind::either || n.kind == Kind::both;
  if (listed) {
    hash = static_cast<uint64_t>(n.kind);
    for (const Expr e : parts(n)) hash = mix(hash, e);
  }
  const uint32_t found = node_table_.find(hash, [&](uint32_t i) {
    const Node& o = nodes_[i];
    if (o.kind != n.kind) return false;
    if (listed) return std::ranges::equal(parts(o), parts(n));
    return o.a == n.a && o.b == n.b && o.c == n.c;
  });
  if (found != IndexTable::kNone) {
    if (listed) lists_.resize(n.a);
    return found;
  }
  if (nodes_.size() >= max_) {
    exceed(Excess::expressions);
    if (listed) lists_.resize(n.a);
    return kNothing;
  }
  node_table_.insert(hash, static_cast<uint32_t>(nodes_.size()));
  nodes_.push_back(n);
  life_.push_back(Life::unknown);
  return static_cast<Expr>(nodes_.size() - 1);
}

Expr Expressions::bytes(const ByteSet& set) {
  if (set.empty()) return kNothing;
  return intern({.kind = Kind::bytes, .a = set_index(set), .edges = set_index(set.edges())});
}

Expr Expressions::literal(std::string_view text) {
  Expr e = kEpsilon;
  for (size_t i = text.size(); i-- > 0;) {
    const auto b = static_cast<unsigned char>(text[i]);
    e = concat(bytes(ByteSet::range(b, b)), e);
  }
  return e;
}

Expr Expressions::concat(Expr a, Expr b) {
  if (a == kNothing || b == kNothing) return kNothing;
  if (a == kEpsilon) return b;
  if (b == kEpsilon) return a;
  std::vector<Expr> heads;  // of `a`, which is a chain if it is a concatenation
  while (nodes_[a].kind == Kind::concat) {
    heads.push_back(nodes_[a].a);
    a = nodes_[a].b;
  }
  heads.push_back(a);
  work(heads.size());
  for (size_t i = heads.size(); i-- > 0;) {
    const Node &x = nodes_[heads[i]], &y = nodes_[b];
    Node n{.kind = Kind::concat, .nullable = x.nullable && y.nullable, .finite = x.finite && y.finite};
    n.plain = x.plain && y.plain;
    n.depth = std::max<uint16_t>(static_cast<uint16_t>(x.depth + 1), y.depth);
    n.a = heads[i];
    n.b = b;
    n.edges = x.edges;
    if (x.nullable) {
      ByteSet edges = sets_[x.edges];
      edges |= sets_[y.edges];
      n.edges = set_index(edges);
    }
    b = intern(n);
    if (b == kNothing) return kNothing;
  }
  return b;
}

Expr Expressions::concat(std::initializer_list<Expr> list) {
  Expr e = kEpsilon;
  for (size_t i = list.size(); i-- > 0;) e = concat(list.begin()[i], e);
  return e;
}

Expr Expressions::list(Kind kind, const std::vector<Expr>& parts, bool nullable) {
  Node n{.kind = kind, .nullable = nullable};
  n.a = static_cast<uint32_t>(lists_.size());
  n.b = static_cast<uint32_t>(parts.size());
  n.finite = kind == Kind::either;
  n.plain = kind == Kind::either;
  ByteSet edges;
  for (const Expr e : parts) {
    const Node& p = nodes_[e];
    edges |= sets_[p.edges];
    n.depth = std::max<uint16_t>(n.depth, static_cast<uint16_t>(p.depth + 1));
    n.finite = kind == Kind::either ? n.finite && p.finite : n.finite || p.finite;
    n.plain = n.plain && p.plain;
  }
  n.edges = set_index(edges);
  lists_.insert(lists_.end(), parts.begin(), parts.end());
  return intern(n);
}

Expr Expressions::either(std::vector<Expr> given) {
  std::vector<Expr> flat;
  ByteSet single;
  for (const Expr e : given) {
    const Node& n = nodes_[e];
    if (e == kNothing) continue;
    if (e == kAllBytes) return kAllBytes;
    if (n.kind == Kind::bytes) {
      single |= sets_[n.a];
    } else if (n.kind == Kind::either) {
      for (const Expr p : parts(n)) {
        if (nodes_[p].kind == Kind::bytes) {
          single |= sets_[nodes_[p].a];
        } else {
          flat.push_back(p);
        }
      }
    } else {
      flat.push_back(e);
    }
  }
  if (!single.empty()) flat.push_back(bytes(single));
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  bool nullable = false, other = false;
  for (const Expr e : flat) {
    nullable = nullable || nodes_[e].nullable;
    other = other || (e != kEpsilon && nodes_[e].nullable);
  }
  if (other && !flat.empty() && flat[0] == kEpsilon) flat.erase(flat.begin());
  if (flat.empty()) return kNothing;
  if (flat.size() == 1) return flat[0];
  return list(Kind::either, flat, nullable);
}

bool Expressions::runs(Expr e, uint32_t& min, uint32_t& max) const {
  const Node& n = nodes_[e];
  const bool one = e == character_;
  if (!one && (n.kind != Kind::repeat || n.a != character_)) return false;
  min = std::max(min, one ? 1 : n.b);
  max = std::min(max, one ? 1 : n.c);
  return true;
}

Expr Expressions::both(std::vector<Expr> given) {
  std::vector<Expr> flat;
  bool bounded = false, run = false;
  uint32_t min = 0, max = kUnbounded;
  ByteSet single = ByteSet::all();
  for (const Expr e : given) {
    if (e == kNothing) return kNothing;
    if (e == kAllBytes) continue;
    const Node& n = nodes_[e];
    if (n.kind == Kind::both) {
      for (const Expr part : parts(n)) {
        const bool any = runs(part, min, max);
        if (!any) flat.push_back(part);
        run = run || any;
      }
    } else if (runs(e, min, max)) {
      run = true;
    } else if (n.kind == Kind::bytes) {
      single = single & sets_[n.a];
      bounded = true;
    } else {
      flat.push_back(e);
    }
  }
  if (bounded) {
    if (single.empty()) return kNothing;
    flat.push_back(bytes(single));
  }
  if (run && min > max) return kNothing;
  if (run) flat.push_back(repeat(character_, min, max));
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return kAllBytes;
  if (flat.size() == 1) return flat[0];
  bool nullable = true;
  for (const Expr e : flat) {
    nullable = nullable && nodes_[e].nullable;
    // Neither the empty text alone nor something and its opposite has a second text.
    if (nodes_[e].kind == Kind::complement && std::binary_search(flat.begin(), flat.end(), nodes_[e].a))
      return kNothing;
  }
  if (flat[0] == kEpsilon) return nullable ? kEpsilon : kNothing;
  return list(Kind::both, flat, nullable);
}

Expr Expressions::complement(Expr a) {
  const Node& n = nodes_[a];
  if (n.kind == Kind::complement) return n.a;
  return intern({.kind = Kind::complement,
                 .nullable = !n.nullable,
                 .finite = false,
                 .plain = false,
                 .depth = static_cast<uint16_t>(n.depth + 1),
                 .a = a,
                 .edges = n.edges});
}

Expr Expressions::repeat(Expr a, uint32_t min, uint32_t max) {
  const Node& n = nodes_[a];
  if (max == 0 || a == kEpsilon) return kEpsilon;
  if (a == kNothing) return min == 0 ? kEpsilon : kNothing;
  if (min == 1 && max == 1) return a;
  if (n.nullable) min = 0;
  if (a == kAllBytes) return a;
  if (n.kind == Kind::repeat && n.b == 0 && n.c == kUnbounded) return a;
  return intern({.kind = Kind::repeat,
                 .nullable = min == 0,
                 .finite = n.finite && max != kUnbounded,
                 .plain = n.plain,
                 .depth = static_cast<uint16_t>(n.depth + 1),
                 .a = a,
                 .b = min,
                 .c = max,
                 .edges = n.edges});
}

Expr Expressions::tree(std::span<const std::string_view> texts, size_t at) {
  // All have the same first `at` bytes. A stretch that they share goes into one literal.
  size_t same = at;
  const std::string_view first = texts.front(), last = texts.back();
  while (same < first.size() && same < last.size() && first[same] == last[same]) ++same;
  const Expr head = literal(first.substr(at, same - at));
  if (texts.size() == 1) return head;
  std::vector<Expr> branches;
  size_t i = 0;
  while (i < texts.size() && texts[i].size() == same) ++i;
  if (i > 0) branches.push_back(kEpsilon);
  while (i < texts.size()) {
    size_t end = i + 1;
    while (end < texts.size() && texts[end][same] == texts[i][same]) ++end;
    branches.push_back(tree(texts.subspan(i, end - i), same));
    i = end;
  }
  return concat(head, either(std::move(branches)));
}

Expr Expressions::one_of(std::vector<std::string_view> texts) {
  if (texts.empty()) return kNothing;
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return tree(texts, 0);
}

Expr Expressions::characters(std::span<const std::pair<uint32_t, uint32_t>> ranges) {
  std::vector<Expr> branches;
  for (const auto& [low, high] : ranges) {
    for (const Utf8Range& range : utf8_ranges(low, high)) {
      Expr e = kEpsilon;
      for (size_t i = range.length; i-- > 0;) {
        e = concat(bytes(ByteSet::range(range.bytes[i].first, range.bytes[i].second)), e);
      }
      branches.push_back(e);
    }
  }
  return either(std::move(branches));
}

Status Expressions::status() const {
  switch (excess_) {
    case Excess::none:
      return {};
    case Excess::depth:
      return error(Code::usage, "its parts nest more than {} deep; write it with less nesting", kMaxDepth);
    case Excess::expressions:
      return error(Code::usage,
                   "its compiled form has more than {} parts; use shorter texts, smaller counts or fewer alternatives",
                   max_);
    case Excess::work:
      return error(
          Code::usage,
          "working it out takes more than {} steps; use fewer repetitions within each other, smaller counts or fewer "
          "patterns that hold at once",
          work_allowed_);
    case Excess::time:
      return error(Code::usage, "it takes too long to compile; make it smaller");
  }
  return {};
}

bool Expressions::late() {
  if (stop_ns_ == 0 || ++looks_ % 64 != 0 || Os::real().now_ns() < stop_ns_) return false;
  exceed(Excess::time);
  return true;
}

size_t Expressions::memory_bytes() const {
  return nodes_.size() * (sizeof(Node) + 1) + lists_.size() * sizeof(Expr) + sets_.size() * sizeof(ByteSet) +
         derivatives_.size() * sizeof(Derivative) + node_table_.bytes() + set_table_.bytes() +
         derivative_table_.bytes();
}

}  // namespace switchyard::constrain
