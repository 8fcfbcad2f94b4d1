// numbers: NaN and infinities in the inputs of one sequence. What they give there is the operation's affair; no other
// sequence may notice.
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

// Which input carries floats per row of the step; -1: none.
int poisonable(const Case& c) {
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (c.inputs[i].desc.dtype != SWY_I32 && c.inputs[i].desc.rows == SWY_ROWS_STEP) return static_cast<int>(i);
  }
  return -1;
}

// The first row of the step's sequence `s` becomes odd.
void poison(Case& c, uint32_t input, uint32_t s, Odd odd) {
  Step& step = c.steps[0];
  uint64_t row = 0;
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

// Outputs alone: a part does not know what the others wrote to the states.
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
  poison(c, static_cast<uint32_t>(poisonable(c)), victim, odd);
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

std::vector<Task> list(Session& session, std::vector<Refusal>*) {
  Kit& kit = session.kit();
  std::vector<Task> tasks;
  Claims several;  // claims with several sequences in one step
  for (const Check& c : kit.claims().checks) {
    Random random = Random::shapes_only();
    const Case shape = c.spec->build(random);
    if (shape.steps.size() == 1 && shape.steps[0].seqs.size() > 1 && poisonable(shape) >= 0)
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
  return tasks;
}

}  // namespace

const Suite kNumbersSuite = {"numbers", "NaN and infinities stay in the sequence that they came in", true, false, {},
                             list};

}  // namespace switchyard::check
