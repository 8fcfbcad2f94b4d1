// SPDX-License-Identifier: Apache-2.0
// Derivatives of expressions, and whether a language is empty.
#include <algorithm>

#include "core/constrain/expressions.h"

namespace switchyard::constrain {

Expr Expressions::derive(Expr e, uint8_t byte) {
  if (e == kNothing || e == kEpsilon) return kNothing;
  if (e == kAllBytes) return e;
  if (nodes_[e].kind == Kind::bytes) return sets_[nodes_[e].a].has(byte) ? kEpsilon : kNothing;
  const uint32_t first = sets_[nodes_[e].edges].last(byte);  // of the bytes with the same derivative
  const uint64_t hash = mix(e, first);
  const uint32_t found = derivative_table_.find(
      hash, [&](uint32_t i) { return derivatives_[i].from == e && derivatives_[i].byte == first; });
  if (found != IndexTable::kNone) return derivatives_[found].to;
  const Expr to = derive_now(e, byte);
  derivative_table_.insert(hash, static_cast<uint32_t>(derivatives_.size()));
  derivatives_.push_back({e, to, first});
  return to;
}

Expr Expressions::derive_now(Expr e, uint8_t byte) {
  const Node n = nodes_[e];
  work(1 + (n.kind == Kind::either || n.kind == Kind::both ? n.b : 0));
  if (exhausted()) return kNothing;
  switch (n.kind) {
    case Kind::nothing:
    case Kind::epsilon:
      return kNothing;
    case Kind::bytes:
      return sets_[n.a].has(byte) ? kEpsilon : kNothing;
    case Kind::concat:
      return derive_concat(e, byte);
    case Kind::either:
    case Kind::both:
      return derive_list(e, byte);
    case Kind::complement:
      return complement(derive(n.a, byte));
    case Kind::repeat: {
      const Expr rest = repeat(n.a, n.b == 0 ? 0 : n.b - 1, n.c == kUnbounded ? n.c : n.c - 1);
      return concat(derive(n.a, byte), rest);
    }
    case Kind::json:
      return derive_json(e, byte);
    case Kind::multiple:
      return derive_multiple(e, byte);
  }
  return kNothing;
}

Expr Expressions::derive_concat(Expr e, uint8_t byte) {
  std::vector<Expr> ways;
  for (;;) {
    const Node n = nodes_[e];
    work(1);
    if (exhausted()) return kNothing;
    if (n.kind != Kind::concat) {
      ways.push_back(derive(e, byte));
      break;
    }
    ways.push_back(concat(derive(n.a, byte), n.b));
    if (!nodes_[n.a].nullable) break;
    e = n.b;
  }
  return ways.size() == 1 ? ways[0] : either(std::move(ways));
}

Expr Expressions::derive_list(Expr e, uint8_t byte) {
  const Node n = nodes_[e];
  std::vector<Expr> ways;
  ways.reserve(n.b);
  for (uint32_t i = 0; i < n.b; ++i) {
    const Expr way = derive(lists_[n.a + i], byte);
    if (way == kNothing && n.kind == Kind::both) return kNothing;
    if (way != kNothing) ways.push_back(way);
  }
  return n.kind == Kind::either ? either(std::move(ways)) : both(std::move(ways));
}

bool Expressions::matches(Expr e, std::string_view text) {
  for (const char c : text) {
    e = derive(e, static_cast<uint8_t>(c));
    if (e == kNothing) return false;
  }
  return nullable(e);
}

Expressions::Life Expressions::known(Expr e) {
  const Node& n = nodes_[e];
  if (e == kNothing) return Life::dead;
  if (n.plain || n.nullable) return Life::alive;
  return life_[e];
}

bool Expressions::alive(Expr e) {
  const Life life = known(e);
  if (life != Life::unknown) return life == Life::alive;
  const Node n = nodes_[e];
  bool alive = false;
  switch (n.kind) {
    case Kind::concat: {
      alive = true;
      while (alive && nodes_[e].kind == Kind::concat) {
        alive = this->alive(nodes_[e].a);
        e = nodes_[e].b;
      }
      return alive && this->alive(e);
    }
    case Kind::either:
      for (uint32_t i = 0; i < n.b && !alive; ++i) alive = this->alive(lists_[n.a + i]);
      break;
    case Kind::repeat:
      alive = n.b == 0 || this->alive(n.a);
      break;
    case Kind::json:
      alive = n.b == 0 ? this->alive(n.a) : escape_alive(n.a, n.b);
      break;
    default: {
      // An endless language without finitely many of its texts is not empty.
      if (n.kind == Kind::both) {
        size_t unlike = 0;
        for (const Expr p : parts(n)) {
          const bool finite_gap = nodes_[p].kind == Kind::complement && nodes_[nodes_[p].a].finite;
          if (!finite_gap) unlike += endless(p) ? 1 : 2;
        }
        if (unlike <= 1) {
          alive = true;
          break;
        }
      }
      return search(e);
    }
  }
  life_[e] = alive ? Life::alive : Life::dead;
  return alive;
}

bool Expressions::endless(Expr e) const {
  const Node& n = nodes_[e];
  return e == kAllBytes || (n.kind == Kind::repeat && n.c == kUnbounded && n.plain);
}

// Breadth first over derivatives, for one whose language has the empty text.
bool Expressions::search(Expr start) {
  std::vector<std::pair<Expr, uint32_t>> queue = {{start, 0}};  // with the index of what it derives from
  IndexTable seen;
  seen.insert(mix(start, 7), 0);
  for (uint32_t at = 0; at < queue.size() && !exhausted(); ++at) {
    const ByteSet edges = sets_[nodes_[queue[at].first].edges];
    for (unsigned b = 0; b < 256; b = b == 255 ? 256 : edges.next(b + 1)) {
      const Expr next = derive(queue[at].first, static_cast<uint8_t>(b));
      const Life life = known(next);
      if (life == Life::dead) continue;
      if (life == Life::alive) {
        for (uint32_t i = at;; i = queue[i].second) {
          life_[queue[i].first] = Life::alive;
          if (i == 0) return true;
        }
      }
      const uint64_t hash = mix(next, 7);
      if (seen.find(hash, [&](uint32_t i) { return queue[i].first == next; }) != IndexTable::kNone) continue;
      seen.insert(hash, static_cast<uint32_t>(queue.size()));
      queue.emplace_back(next, at);
    }
  }
  if (exhausted()) return false;
  for (const auto& [e, from] : queue) life_[e] = Life::dead;
  return false;
}

std::optional<std::vector<std::string>> Expressions::texts(Expr e, size_t most) {
  constexpr size_t kMaxBytes = 1000;
  std::vector<std::string> found;
  std::vector<std::pair<Expr, std::string>> open = {{e, ""}};
  while (!open.empty()) {
    const auto [at, text] = std::move(open.back());
    open.pop_back();
    if (nullable(at)) found.push_back(text);
    if (text.size() > kMaxBytes || found.size() > most || open.size() > most + 256 || exhausted()) return std::nullopt;
    const ByteSet edges = sets_[nodes_[at].edges];
    Expr next = kNothing;
    for (unsigned b = 0; b < 256; ++b) {
      if (b == 0 || edges.has(b)) next = derive(at, static_cast<uint8_t>(b));
      if (alive(next)) open.emplace_back(next, text + static_cast<char>(b));
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

namespace {

// The number of fraction digits seen, plus 1; 0 before the point.
constexpr uint32_t kWhole = 0;

}  // namespace

Expr Expressions::multiple(uint32_t divisor, uint32_t scale, uint32_t remainder, uint32_t phase) {
  // Both fit: `divisor` is below 2^24, `scale` below 2^8.
  uint64_t rest = remainder;
  for (uint32_t i = phase == kWhole ? 0 : phase - 1; i < scale; ++i) rest = rest * 10 % divisor;
  return intern({.kind = Kind::multiple,
                 .nullable = rest == 0,
                 .finite = false,
                 .plain = false,
                 .a = divisor | scale << 24,
                 .b = remainder,
                 .c = phase,
                 .edges = set_index([] {
                   ByteSet edges = ByteSet::range('0', '9' + 1);
                   for (const char c : {'-', '.', '/'}) edges.add(static_cast<unsigned char>(c));
                   return edges;
                 }())});
}

Expr Expressions::derive_multiple(Expr e, uint8_t byte) {
  const Node n = nodes_[e];
  const uint32_t divisor = n.a & 0xFFFFFF, scale = n.a >> 24;
  if (byte == '-') return e;
  if (byte == '.') return n.c == kWhole ? multiple(divisor, scale, n.b, 1) : kNothing;
  if (byte < '0' || byte > '9') return kNothing;
  const auto next = static_cast<uint32_t>((uint64_t{n.b} * 10 + (byte - '0')) % divisor);
  if (n.c == kWhole) return multiple(divisor, scale, next, kWhole);
  if (n.c - 1 < scale) return multiple(divisor, scale, next, n.c + 1);
  return byte == '0' ? e : kNothing;
}

}  // namespace switchyard::constrain
