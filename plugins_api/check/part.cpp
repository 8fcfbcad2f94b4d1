// SPDX-License-Identifier: Apache-2.0
// Parts of a case: one sequence alone, and a prompt in chunks.
#include <algorithm>

#include "plugins_api/check/compare.h"

namespace switchyard::check {
namespace {

template <class T>
std::vector<T> pick_rows(const std::vector<T>& all, const std::vector<uint32_t>& rows, uint64_t width) {
  std::vector<T> out;
  if (all.empty()) return out;
  for (const uint32_t r : rows) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>(r * width);
    out.insert(out.end(), begin, begin + static_cast<ptrdiff_t>(width));
  }
  return out;
}

Matrix pick_rows(const Matrix& m, const std::vector<uint32_t>& rows) {
  return {rows.size(), m.width, m.dtype, pick_rows(m.values, rows, m.width), pick_rows(m.ints, rows, m.width)};
}

// The part's rows of a step, per domain.
Part::StepRows rows_of(const Step& step, uint32_t index, uint32_t seq) {
  Part::StepRows out;
  out.step = index;
  for (const swy_rows domain : {SWY_ROWS_STEP, SWY_ROWS_LOGITS, SWY_ROWS_SAMPLE}) {
    for (uint32_t r = 0; r < step.rows(domain); ++r) {
      if (step.owner(domain, r) == seq) out.rows[domain].push_back(r);
    }
  }
  return out;
}

uint32_t place_of(const std::vector<uint32_t>& rows, uint32_t row) {
  return static_cast<uint32_t>(std::find(rows.begin(), rows.end(), row) - rows.begin());
}

Step step_of(const Case& c, const Step& whole, uint32_t seq, const Part::StepRows& from) {
  Step s;
  s.seqs = {whole.seqs[seq]};
  s.tokens = pick_rows(whole.tokens, from.rows[SWY_ROWS_STEP], 1);
  for (const uint32_t i : from.rows[SWY_ROWS_LOGITS]) {
    s.logit_rows.push_back(place_of(from.rows[SWY_ROWS_STEP], whole.logit_rows[i]));
  }
  for (const uint32_t i : from.rows[SWY_ROWS_SAMPLE]) {
    s.draws.push_back(whole.draws[i]);
    s.draws.back().logit_row = place_of(from.rows[SWY_ROWS_LOGITS], whole.draws[i].logit_row);
  }
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const std::vector<uint32_t>& rows = from.rows[c.inputs[i].desc.rows];
    s.inputs.push_back({pick_rows(whole.inputs[i].floats, rows, c.width(static_cast<uint32_t>(i))),
                        pick_rows(whole.inputs[i].ints, rows, c.width(static_cast<uint32_t>(i)))});
  }
  return s;
}

}  // namespace

Part alone(const Case& c, uint32_t sequence_id) {
  Part p{c, {}};
  p.c.steps.clear();
  for (uint32_t i = 0; i < c.steps.size(); ++i) {
    for (uint32_t s = 0; s < c.steps[i].seqs.size(); ++s) {
      if (c.steps[i].seqs[s].id != sequence_id) continue;
      p.from.push_back(rows_of(c.steps[i], i, s));
      p.c.steps.push_back(step_of(c, c.steps[i], s, p.from.back()));
    }
  }
  fit_bucket(p.c, 0);
  return p;
}

Outcome select(const Outcome& whole, const Part& part) {
  Outcome out;
  for (const Part::StepRows& from : part.from) {
    auto& outputs = out.outputs.emplace_back();
    for (size_t i = 0; i < part.c.outputs.size(); ++i) {
      outputs.push_back(pick_rows(whole.outputs[from.step][i], from.rows[part.c.outputs[i].desc.rows]));
    }
  }
  out.states = whole.states;
  out.before = whole.before;
  out.tokens = part.c.tokens;
  for (const Step& s : part.c.steps) {
    for (const Draw& d : s.draws) out.tokens[d.token_entry] = whole.tokens[d.token_entry];
  }
  return out;
}

Case in_chunks(const Case& c, uint32_t tokens) {
  Case out = c;
  out.steps.clear();
  const Step& whole = c.steps[0];
  const Sequence& q = whole.seqs[0];
  for (uint32_t first = 0; first < q.rows;) {
    const uint32_t end = std::min(q.rows, (q.position + first) / tokens * tokens + tokens - q.position);
    Step s;
    s.seqs = {q};
    s.seqs[0].position += first;
    s.seqs[0].rows = end - first;
    if (first > 0) s.seqs[0].read_slot = q.write_slot;
    std::vector<uint32_t> rows;
    for (uint32_t r = first; r < end; ++r) rows.push_back(r);
    s.tokens = pick_rows(whole.tokens, rows, 1);
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      s.inputs.push_back({pick_rows(whole.inputs[i].floats, rows, c.width(static_cast<uint32_t>(i))),
                          pick_rows(whole.inputs[i].ints, rows, c.width(static_cast<uint32_t>(i)))});
    }
    out.steps.push_back(std::move(s));
    first = end;
  }
  fit_bucket(out, 0);
  return out;
}

Outcome joined(const Outcome& chunks) {
  Outcome out{{chunks.outputs[0]}, chunks.states, chunks.tokens, chunks.before};
  for (size_t s = 1; s < chunks.outputs.size(); ++s) {
    for (size_t i = 0; i < chunks.outputs[s].size(); ++i) {
      Matrix& to = out.outputs[0][i];
      const Matrix& from = chunks.outputs[s][i];
      to.rows += from.rows;
      to.values.insert(to.values.end(), from.values.begin(), from.values.end());
      to.ints.insert(to.ints.end(), from.ints.begin(), from.ints.end());
    }
  }
  return out;
}

}  // namespace switchyard::check
