// SPDX-License-Identifier: Apache-2.0
// numbers: NaN and infinities in the inputs of one sequence. Their results in that sequence are arbitrary. No other
// sequence may notice; and if an operation carries something from row to row, neither may earlier rows of the sequence.
//
// Kernels that round activations for their products may notice in earlier rows: matrix instructions multiply rows in
// blocks, later ones by zeros, and zero times NaN is NaN. Products in fp32 have no such excuse.
#include <cmath>

#include "plugins_api/check/kit.h"
#include "plugins_api/check/suites.h"

namespace switchyard::check {
namespace {

enum class Odd { kNan, kInfinity, kMinusInfinity, kRowOfNan };

const char* name_of(Odd o) {
  return o == Odd::kNan        ? "nan"
         : o == Odd::kInfinity ? "infinity"
         : o == Odd::kRowOfNan ? "row_of_nan"
                               : "minus_infinity";
}

// Which inputs carry floats per row of the step.
std::vector<uint32_t> poisonable(const Case& c) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < c.inputs.size(); ++i) {
    if (c.inputs[i].desc.dtype != SWY_I32 && c.inputs[i].desc.rows == SWY_ROWS_STEP) out.push_back(i);
  }
  return out;
}

// A row of the step's sequence `s` becomes odd.
void poison(Case& c, uint32_t input, uint32_t s, uint64_t row, Odd odd) {
  Step& step = c.steps[0];
  for (uint32_t i = 0; i < s; ++i) row += step.seqs[i].rows;
  const uint64_t width = c.width(input);
  float* x = &step.inputs[input].floats[row * width];
  const float value = odd == Odd::kInfinity ? INFINITY : odd == Odd::kMinusInfinity ? -INFINITY : NAN;
  for (uint64_t i = 0; i < width; ++i) {
    if (odd == Odd::kRowOfNan || i == width / 2) x[i] = value;
  }
}

// Ids that the operation gives are ids, whatever it was given.
std::string ids_in_range(const Case& c, const Outcome& got) {
  if (c.op != SWY_OP_ROUTER_TOPK) return "";
  const auto experts = static_cast<int32_t>(c.attributes<swy_moe_attrs>().experts);
  for (const int32_t id : got.outputs[0][0].ints) {
    if (id < 0 || id >= experts) return text("chose expert ", id, " of ", experts);
  }
  return "";
}

// Compares only outputs: a part of the step does not include the others' writes to the states.
std::string compare_rows(const Part& part, const Outcome& wanted, const Outcome& got, swy_dtype activations,
                         bool bits) {
  Case c = part.c;
  Outcome a = select(wanted, part), b = select(got, part);
  if (bits) return differing_bits(c, a, b);
  c.states.clear();
  a.states.clear();
  b.states.clear();
  return compare(c, a, b, activations, nullptr);
}

std::string odd_numbers(const Kit& kit, const Check& check, Odd odd) {
  const Case clean = kit.build(check);
  const uint32_t victim = derive(kit.request().seed, check.name()) % clean.steps[0].seqs.size();
  Case c = clean;
  poison(c, poisonable(c)[0], victim, 0, odd);
  Execution e(kit.plugin(), *check.kernel, clean);
  const Outcome before = e.run(clean), got = e.run(c);
  if (std::string problem = ids_in_range(c, got); !problem.empty()) return kit.line(check, problem);
  const bool invariant = (check.kernel->flags & SWY_KERNEL_BATCH_INVARIANT) != 0;
  for (const Sequence& q : clean.steps[0].seqs) {
    if (q.id == clean.steps[0].seqs[victim].id || !q.active || q.rows == 0) continue;
    const std::string problem =
        compare_rows(alone(clean, q.id), before, got, activations_of(*check.kernel, check.types), invariant);
    if (problem.empty()) continue;
    return kit.line(check, text(name_of(odd), " in an input of sequence ", clean.steps[0].seqs[victim].id,
                                " reached sequence ", q.id, invariant ? ", which has other bits in " : ": ", problem));
  }
  const std::string after = differing_bits(clean, before, e.run(clean));
  if (after.empty() || (check.kernel->flags & SWY_KERNEL_DETERMINISTIC) == 0) return "";
  return kit.line(check, text(name_of(odd), " of one submission reached the next: other bits in ", after));
}

// The active sequence with the most rows: an index into `seqs`.
uint32_t longest(const Step& step) {
  uint32_t out = 0, most = 0;
  for (uint32_t s = 0; s < step.seqs.size(); ++s) {
    if (!step.seqs[s].active || step.seqs[s].rows <= most) continue;
    most = step.seqs[s].rows;
    out = s;
  }
  return out;
}

bool keeps_rows_apart(const swy_kernel& k) {
  return k.activations == 0 || k.activations == SWY_F32 || k.activations == SWY_F16;
}

// Whether some rows of the case must not notice an odd one in its longest sequence.
bool has_later_rows(const Case& c, const swy_kernel& k) {
  if (c.steps.size() != 1 || c.states.empty() || c.outputs.empty() || poisonable(c).empty()) return false;
  const Sequence& q = c.steps[0].seqs[longest(c.steps[0])];
  return q.active && q.rows > 1 && (keeps_rows_apart(k) || c.steps[0].seqs.size() > 1);
}

// The parts of a sequence that must not notice bad numbers in row `row` of sequence `victim`. Its own states also
// depend on later rows.
Part rows_before(const Case& c, uint32_t sequence, uint32_t victim, uint32_t row) {
  Part part = alone(c, sequence);
  if (sequence != victim) return part;
  part.c.states.clear();
  part.c.steps[0].seqs[0].rows = row;
  part.from[0].rows[SWY_ROWS_STEP].resize(row);
  return part;
}

// In each input in turn, an odd row amid the longest sequence. Its number is odd, too: of rows that a kernel takes in
// twos or larger powers of it, the one before is among the same.
std::string odd_later_row(const Kit& kit, const Check& check, Odd odd) {
  const Case clean = kit.build(check);
  const Step& step = clean.steps[0];
  const uint32_t s = longest(step), victim = step.seqs[s].id;
  const uint32_t row = 1 + 2 * (derive(kit.request().seed, check.name()) % (step.seqs[s].rows / 2));
  Execution e(kit.plugin(), *check.kernel, clean);
  const Outcome before = e.run(clean);
  const bool invariant = (check.kernel->flags & SWY_KERNEL_BATCH_INVARIANT) != 0;
  for (const uint32_t input : poisonable(clean)) {
    Case c = clean;
    poison(c, input, s, row, odd);
    const Outcome got = e.run(c);
    for (const Sequence& q : step.seqs) {
      if (!q.active || q.rows == 0 || (q.id == victim && !keeps_rows_apart(*check.kernel))) continue;
      const Part part = rows_before(clean, q.id, victim, row);
      const std::string problem =
          compare_rows(part, before, got, activations_of(*check.kernel, check.types), invariant);
      if (problem.empty()) continue;
      return kit.line(check, text(name_of(odd), " in input ", input, " of row ", row, " of sequence ", victim,
                                  " reached ", q.id == victim ? "earlier rows" : text("sequence ", q.id), ": ",
                                  invariant ? "other bits in " : "", problem));
    }
  }
  return "";
}

void list_later_rows(Kit& kit, const Claims& claims, std::vector<Task>& tasks) {
  Claims long_enough;
  for (const Check& c : claims.checks) {
    Random random = Random::shapes_only();
    if (has_later_rows(c.spec->build(random), *c.kernel)) long_enough.checks.push_back(c);
  }
  for (const Check& c : sample_of(long_enough, kit.request().seed, {{2, 300}})) {
    for (const Odd odd : {Odd::kNan, Odd::kInfinity, Odd::kRowOfNan}) {
      tasks.push_back({c.name() + "." + name_of(odd) + "_in_a_later_row",
                       [&kit, c, odd] { return odd_later_row(kit, c, odd); },
                       {}});
    }
  }
}

std::vector<Task> list(Session& session, std::vector<Refusal>*) {
  Kit& kit = session.kit();
  std::vector<Task> tasks;
  Claims several;  // claims with several sequences in one step
  const Claims claims = kit.claims();
  for (const Check& c : claims.checks) {
    Random random = Random::shapes_only();
    const Case shape = c.spec->build(random);
    if (shape.steps.size() == 1 && shape.steps[0].seqs.size() > 1 && !poisonable(shape).empty())
      several.checks.push_back(c);
  }
  for (const Check& c : sample_of(several, kit.request().seed, {{2, 300}})) {
    const Odd single[] = {Odd::kNan, Odd::kInfinity, Odd::kMinusInfinity};
    std::vector<Odd> odds = {single[derive(kit.request().seed, c.name()) % 3], Odd::kRowOfNan};
    if (kit.request().slow) odds.assign({Odd::kNan, Odd::kInfinity, Odd::kMinusInfinity, Odd::kRowOfNan});
    for (const Odd odd : odds) {
      tasks.push_back({c.name() + "." + name_of(odd), [&kit, c, odd] { return odd_numbers(kit, c, odd); }, {}});
    }
  }
  list_later_rows(kit, claims, tasks);
  return tasks;
}

}  // namespace

const Suite kNumbersSuite = {"numbers", "NaN and infinities stay in the sequence that they came in", true, false, {},
                             list};

}  // namespace switchyard::check
