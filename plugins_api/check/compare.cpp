// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "plugins_api/check/failure.h"

namespace switchyard::check {
namespace {

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

// The name of a special element of an SWY_I32 state.
uint32_t word(double x) { return std::bit_cast<uint32_t>(static_cast<float>(x)); }

// Slots of counts that are written: a row of State::row elements is a slot.
std::vector<bool> written_counts(const Case& c, const State& s) {
  std::vector<bool> out(s.units, false);
  for (const Step& step : c.steps) {
    for (const Draw& d : step.draws) {
      if (d.counts_write != SWY_NO_SLOT && c.op != SWY_OP_TOP_CANDIDATES) out[d.counts_write] = true;
    }
  }
  return out;
}

// Elements of a state's rows that the steps write: per row of State::row elements.
std::vector<bool> written_rows(const Case& c, const State& s) {
  if (s.desc.dtype == SWY_I32) return written_counts(c, s);
  const uint64_t rows_per_unit = s.unit / s.row;
  std::vector<bool> out(s.units * rows_per_unit, false);
  for (const Step& step : c.steps) {
    for (const Sequence& q : step.seqs) {
      if (!q.active || q.rows == 0) continue;
      if (s.desc.state == SWY_STATE_SLOTTED) {
        for (uint64_t r = 0; r < rows_per_unit; ++r) out[q.write_slot * rows_per_unit + r] = true;
      } else {
        for (uint32_t t = q.position; t < q.position + q.rows; ++t) {
          out[q.pages[t / c.bucket.page_size] * rows_per_unit + t % c.bucket.page_size] = true;
        }
      }
    }
  }
  return out;
}

// Gathers the errors of rows of one width. Narrow rows are judged in groups: a few values may all be small by chance,
// and then a relative error says little.
class RowErrors {
 public:
  // `row` is for the report alone.
  void add(uint64_t row, const double* wanted, const double* got, uint64_t n) {
    if (group_.values >= kFewest) judge(std::exchange(before_, std::exchange(group_, {})));
    for (uint64_t i = 0; i < n; ++i) {
      group_.add({std::fabs(got[i] - wanted[i]), wanted[i], got[i], row, i});
    }
  }
  Errors errors() {
    if (group_.values < kFewest) group_.join(std::exchange(before_, {}));
    judge(std::exchange(before_, {}));
    judge(std::exchange(group_, {}));
    return {at_.error, groups_ == 0 ? 0 : sum_ / static_cast<double>(groups_)};
  }
  std::string report(const std::string& what, const Budget& b) {
    const Errors e = errors();
    // The mean of a few rows scatters as they do; of one row it is that row.
    const double mean = b.mean + std::max(b.worst - b.mean, 0.0) / static_cast<double>(std::max<uint64_t>(groups_, 1));
    if (e.worst <= b.worst && e.mean <= mean) return "";
    const Element& x = at_.worst;
    return text(what, " row ", x.row, ": relative error ", e.worst, " (budget ", b.worst, "), mean over the rows ",
                e.mean, " (budget ", mean, "); element ", x.at, " is ", x.got, " instead of ", x.wanted);
  }

 private:
  static constexpr uint64_t kFewest = 64;  // values in a group
  struct Element {
    double difference = -1, wanted = 0, got = 0;
    uint64_t row = 0, at = 0;
  };
  struct Group {
    double difference = 0, norm = 0, error = 0;  // the first two are sums of squares
    uint64_t values = 0;
    Element worst;

    void add(const Element& x) {
      difference += x.difference * x.difference;
      norm += x.wanted * x.wanted;
      ++values;
      see(x);
    }
    void join(const Group& other) {
      difference += other.difference;
      norm += other.norm;
      values += other.values;
      see(other.worst);
    }
    void see(const Element& x) {
      if (!(x.difference <= worst.difference) && !std::isnan(worst.difference)) worst = x;
    }
  };

  void judge(Group g) {
    if (g.values == 0) return;
    const double alone = g.worst.difference * g.worst.difference * static_cast<double>(g.values) / 64;
    g.error = g.difference == 0 ? 0 : std::sqrt(std::max(g.difference, alone) / std::max(g.norm, 1e-60));
    if (std::isnan(g.error)) g.error = INFINITY;
    sum_ += g.error;
    if (groups_++ == 0 || g.error > at_.error) at_ = g;
  }

  Group before_, group_;  // before_: not judged yet, so that the last one can join it
  Group at_;              // the worst one
  double sum_ = 0;
  uint64_t groups_ = 0;
};

swy_dtype encoding_of(const Case& c) {
  for (const Weight& w : c.weights) {
    if (w.quantizable) return w.desc.dtype;
  }
  return SWY_F32;
}

// In fp32 an angle of p radians is known to p * 6e-8: the budgets have room for that of a thousand positions.
Budget far(const Case& c, const Budget& b) {
  if (c.op != SWY_OP_ROPE && c.op != SWY_OP_ATTENTION) return b;
  const double angle = 6e-8 * std::max(0.0, static_cast<double>(c.bucket.context) - 1024);
  return {b.worst + angle, b.mean + angle};
}

std::string compare_output(const Case& c, const Step& step, uint32_t index, const Matrix& wanted, const Matrix& got,
                           swy_dtype activations, const std::string& what, Errors* errors) {
  const swy_rows domain = c.outputs[index].desc.rows;
  if (wanted.rows != got.rows || wanted.width != got.width) return what + " has another shape";
  RowErrors rows;
  for (uint32_t r = 0; r < got.rows; ++r) {
    if (!step.is_read(domain, r)) continue;
    if (got.dtype != SWY_I32) {
      rows.add(r, &wanted.values[r * got.width], &got.values[r * got.width], got.width);
      continue;
    }
    for (uint64_t i = 0; i < got.width; ++i) {
      const int32_t w = wanted.ints[r * got.width + i], g = got.ints[r * got.width + i];
      if (w != g) return text(what, " row ", r, ": element ", i, " is ", g, " instead of ", w);
    }
  }
  if (errors != nullptr) errors->add(rows.errors());
  return rows.report(what, far(c, budget(c.op, encoding_of(c), activations, got.dtype)));
}

// Whether a device may hold this value as that one: rounded to bf16, or by `step`, if it keeps the state in fewer bytes
// than fp32 has.
bool may_hold(double held, double given, bool shorter, double step) {
  return same_bits(held, given) || (std::isnan(held) && std::isnan(given)) ||
         (shorter && std::abs(held - given) <= std::max(std::abs(given) / 256, step));
}

std::string compare_state(const Case& c, uint32_t index, const std::vector<double>& wanted, const Outcome& outcome,
                          swy_dtype activations, Errors* errors) {
  const State& s = c.states[index];
  const std::vector<double>& got = outcome.states[index];
  const bool held = !outcome.before.empty();
  const auto before = [&](uint64_t i) { return held ? outcome.before[index].content[i] : s.content[i]; };
  const uint64_t unit_bytes = held ? outcome.before[index].unit_bytes : s.unit * sizeof(float);
  const bool shorter = unit_bytes < s.unit * sizeof(float);
  const std::vector<bool> written = written_rows(c, s);
  RowErrors rows;
  for (uint64_t r = 0; r < written.size(); ++r) {
    if (written[r] && s.own) continue;
    if (written[r] && s.desc.dtype != SWY_I32) {
      rows.add(r, &wanted[r * s.row], &got[r * s.row], s.row);
      continue;
    }
    const double step = half_step(s, r, unit_bytes);
    for (uint64_t i = r * s.row; i < (r + 1) * s.row; ++i) {
      if (written[r] ? same_bits(got[i], wanted[i])
                     : same_bits(got[i], before(i)) && may_hold(got[i], s.content[i], shorter, step)) {
        continue;
      }
      if (written[r]) {
        return text("state ", index, " unit ", i / s.unit, " element ", i % s.unit, " is ", word(got[i]),
                    " instead of ", word(wanted[i]));
      }
      return text("state ", index, " unit ", i / s.unit, " element ", i % s.unit,
                  " changed though no step writes it: it is ", got[i], " and was ", s.content[i]);
    }
  }
  if (errors != nullptr) errors->add(rows.errors());
  return rows.report(text("state ", index), far(c, budget(c.op, encoding_of(c), activations, SWY_F32)));
}

std::string compare_tokens(const Case& c, const Outcome& wanted, const Outcome& got) {
  std::vector<int32_t> right = c.tokens;
  for (const Step& s : c.steps) {
    for (const Draw& d : s.draws) {
      if (c.op == SWY_OP_SAMPLE || c.op == SWY_OP_LM_HEAD_SAMPLE) right[d.token_entry] = wanted.tokens[d.token_entry];
    }
  }
  for (size_t i = 0; i < right.size(); ++i) {
    if (got.tokens[i] != right[i]) {
      return text("entry ", i, " of the token buffer is ", got.tokens[i], " instead of ", right[i]);
    }
  }
  return "";
}

}  // namespace

// A step is a share of 127, or of 32,767 with a scale that is a power of two.
double half_step(const State& s, uint64_t row, uint64_t unit_bytes) {
  const bool paged = s.desc.state == SWY_STATE_PAGED;
  if (s.desc.rank != 3 || unit_bytes >= s.unit * (paged ? 2 : 4)) return 0;
  double largest = 0;
  for (uint64_t i = row * s.row; i < (row + 1) * s.row; ++i) largest = std::fmax(largest, std::abs(s.content[i]));
  return largest * (1 + 1e-4) / (paged ? 2 * 127 : 32767);
}

std::string compare(const Case& c, const Outcome& wanted, const Outcome& got, swy_dtype activations, Errors* errors) {
  for (uint32_t s = 0; s < c.steps.size(); ++s) {
    for (uint32_t i = 0; i < c.outputs.size(); ++i) {
      const std::string what = text("output ", i, c.steps.size() > 1 ? text(" of step ", s) : "");
      std::string problem =
          compare_output(c, c.steps[s], i, wanted.outputs[s][i], got.outputs[s][i], activations, what, errors);
      if (!problem.empty()) return problem;
    }
  }
  for (uint32_t i = 0; i < c.states.size(); ++i) {
    std::string problem = compare_state(c, i, wanted.states[i], got, activations, errors);
    if (!problem.empty()) return problem;
  }
  return compare_tokens(c, wanted, got);
}

std::string differing_bits(const Case& c, const Outcome& a, const Outcome& b) {
  for (uint32_t s = 0; s < c.steps.size(); ++s) {
    for (uint32_t i = 0; i < c.outputs.size(); ++i) {
      const Matrix &x = a.outputs[s][i], &y = b.outputs[s][i];
      for (uint32_t r = 0; r < x.rows; ++r) {
        if (c.steps[s].is_read(c.outputs[i].desc.rows, r) && !x.same_row(r, y, r)) {
          return text("output ", i, " row ", r, " of step ", s);
        }
      }
    }
  }
  for (uint32_t i = 0; i < c.states.size(); ++i) {
    if (c.states[i].own) continue;
    const std::vector<bool> written = written_rows(c, c.states[i]);
    for (uint64_t at = 0; at < a.states[i].size(); ++at) {
      if (written[at / c.states[i].row] && !same_bits(a.states[i][at], b.states[i][at])) {
        return text("state ", i, " unit ", at / c.states[i].unit, " element ", at % c.states[i].unit);
      }
    }
  }
  return a.tokens == b.tokens ? "" : "the token buffer";
}

}  // namespace switchyard::check
