// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/kit.h"

#include <algorithm>

#include "plugins_api/check/host.h"
#include "plugins_api/check/naive.h"
#include "plugins_api/check/pending.h"

namespace switchyard::check {
namespace {

const char* type_name(swy_dtype d) { return d == SWY_BF16 ? "bf16" : "f32"; }

std::vector<swy_dtype> choices(uint32_t mask, const std::vector<Operand>& operands) {
  const bool free = std::any_of(operands.begin(), operands.end(), [](const Operand& o) { return !o.fixed; });
  if (!free) return {SWY_F32};
  std::vector<swy_dtype> out;
  for (const swy_dtype d : {SWY_F32, SWY_BF16}) {
    if (mask == 0 || (mask & SWY_DTYPE_BIT(d)) != 0) out.push_back(d);
  }
  return out;
}

const swy_kernel* kernel_for(const Plugin& plugin, const Case& c) {
  for (const swy_kernel* k : plugin.kernels()) {
    if (k->op == c.op && takes(plugin, *k, c, nullptr)) return k;
  }
  return nullptr;
}

// Sequences to run alone: the one with the most rows and the one with the fewest, since kernels change their ways with
// the number of rows.
std::vector<uint32_t> loners(const Case& c) {
  std::map<uint32_t, uint32_t> rows;  // by id
  for (const Step& s : c.steps) {
    for (const Sequence& q : s.seqs) {
      if (q.active && q.rows > 0) rows[q.id] += q.rows;
    }
  }
  if (rows.empty()) return {};
  const auto [fewest, most] =
      std::minmax_element(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (fewest == most) return {most->first};
  return {most->first, fewest->first};
}

bool can_be_in_place(const Case& c) {
  if (c.inputs.empty() || c.outputs.empty()) return false;
  const swy_tensor &in = c.inputs[0].desc, &out = c.outputs[0].desc;
  return in.dtype == out.dtype && in.rows == out.rows && in.dims[1] == out.dims[1];
}

// Everything that is run of one kernel on one case.
class Trial {
 public:
  Trial(const Plugin& plugin, const swy_kernel& kernel, const Case& c, const Outcome& wanted, swy_dtype activations,
        Errors* errors)
      : plugin_(plugin), kernel_(kernel), c_(c), wanted_(wanted), activations_(activations), errors_(errors) {}

  std::string run() {
    Execution whole(plugin_, kernel_, c_);
    got_ = whole.run(c_);
    std::string problem = compare(c_, wanted_, got_, activations_, errors_);
    if (problem.empty() && flag(SWY_KERNEL_DETERMINISTIC)) problem = again(whole);
    for (const uint32_t id : loners(c_)) {
      if (problem.empty()) problem = sequence(whole, alone(c_, id));
    }
    if (problem.empty() && flag(SWY_KERNEL_DETERMINISTIC) && flag(SWY_KERNEL_BATCH_INVARIANT)) problem = plainly(whole);
    if (problem.empty() && flag(SWY_KERNEL_IN_PLACE) && can_be_in_place(c_)) problem = in_place(whole);
    return problem;
  }

 private:
  bool flag(uint32_t f) const { return (kernel_.flags & f) != 0; }
  static std::string unless_empty(const std::string& prefix, const std::string& problem) {
    return problem.empty() ? "" : prefix + problem;
  }

  std::string again(Execution& whole) {
    return unless_empty("DETERMINISTIC, but a second submission has other bits in ",
                        differing_bits(c_, got_, whole.run(c_)));
  }

  // One sequence alone: in the list of the whole step, then in a list of its own.
  std::string sequence(Execution& whole, const Part& part) {
    const Outcome mine = select(got_, part);
    const Outcome replayed = whole.run(part.c);
    const std::string what = text("sequence ", part.c.steps[0].seqs[0].id, " alone ");
    std::string problem = unless_empty(what + "in a list that was recorded for more: ",
                                       compare(part.c, select(wanted_, part), replayed, activations_, errors_));
    if (!problem.empty() || !flag(SWY_KERNEL_BATCH_INVARIANT)) return problem;
    problem = unless_empty("BATCH_INVARIANT, but " + what + "has other bits than in company in ",
                           differing_bits(part.c, mine, replayed));
    if (!problem.empty() || !takes(plugin_, kernel_, part.c, nullptr)) return problem;
    Execution own(plugin_, kernel_, part.c, {.like = &whole});
    problem = unless_empty("BATCH_INVARIANT, but " + what + "in a list of its own has other bits in ",
                           differing_bits(part.c, mine, own.run(part.c)));
    if (problem.empty() && chunkable(part.c)) problem = chunks(whole, part.c, mine);
    return problem;
  }

  static bool chunkable(const Case& c) {
    return !c.states.empty() && c.steps.size() == 1 && c.steps[0].seqs[0].rows > 64 && c.steps[0].logit_rows.empty();
  }

  std::string chunks(const Execution& whole, const Case& c, const Outcome& mine) {
    const Case cut = in_chunks(c, 64);
    if (!takes(plugin_, kernel_, cut, nullptr)) return "";
    Execution e(plugin_, kernel_, cut, {.like = &whole});
    return unless_empty("BATCH_INVARIANT, but in chunks of 64 it has other bits in ",
                        differing_bits(c, mine, joined(e.run(cut))));
  }

  // Pending rows against the same rows in plain steps.
  std::string plainly(const Execution& whole) {
    if (!has_pending_rows(c_)) return "";
    const PlainForm form(c_);
    if (!takes(plugin_, kernel_, form.plain(), nullptr)) return "";
    Execution e(plugin_, kernel_, form.plain(), {.like = &whole});
    return unless_empty("BATCH_INVARIANT, but with pending rows it has other bits than without in ",
                        form.differing(c_, got_, e.run(form.plain())));
  }

  std::string in_place(const Execution& whole) {
    Execution e(plugin_, kernel_, c_, {.in_place = true, .like = &whole});
    return unless_empty("IN_PLACE, but with output 0 on input 0 it has other bits in ",
                        differing_bits(c_, got_, e.run(c_)));
  }

  const Plugin& plugin_;
  const swy_kernel& kernel_;
  const Case& c_;
  const Outcome& wanted_;
  const swy_dtype activations_;
  Errors* errors_;
  Outcome got_;
};

}  // namespace

swy_dtype activations_of(const swy_kernel& k, const Types& types) {
  const swy_dtype declared = k.activations == 0 ? swy_dtype{SWY_F32} : k.activations;
  const bool finer = declared == SWY_F32 || declared == SWY_F16;
  return finer && types.input == SWY_BF16 ? swy_dtype{SWY_BF16} : declared;
}

std::string Check::name() const {
  std::string s = std::string(kernel->name) + "/" + spec->name;
  if (types.input == SWY_F32 && types.output == SWY_F32) return s;
  return s + "." + type_name(types.input) + "_to_" + type_name(types.output);
}

std::vector<Check> sample_of(const Claims& claims, uint64_t seed,
                             const std::vector<std::pair<uint32_t, uint32_t>>& rows) {
  std::map<const CaseSpec*, uint32_t> known;
  const auto rows_of = [&](const CaseSpec* spec) {
    if (const auto it = known.find(spec); it != known.end()) return it->second;
    Random random = Random::shapes_only();
    return known[spec] = spec->build(random).bucket.rows;
  };
  std::vector<Check> out;
  for (size_t i = 0; i < claims.checks.size();) {
    const swy_kernel* kernel = claims.checks[i].kernel;
    std::vector<std::vector<const Check*>> fitting(rows.size());
    for (; i < claims.checks.size() && claims.checks[i].kernel == kernel; ++i) {
      const uint32_t n = rows_of(claims.checks[i].spec);
      for (size_t r = 0; r < rows.size(); ++r) {
        if (n >= rows[r].first && n <= rows[r].second) fitting[r].push_back(&claims.checks[i]);
      }
    }
    for (const auto& some : fitting) {
      if (!some.empty()) out.push_back(*some[derive(seed, kernel->name) % some.size()]);
    }
  }
  return out;
}

Kit::Kit(const Request& request) : request_(request), random_cases_(random_cases(request.seed)) {
  try {
    const Library library(request.plugin);
    set_plugin_code(reinterpret_cast<const void*>(library.api().device_count));
    plugin_ = std::make_unique<Plugin>(library, request.settings);
    if (!request.reference.empty()) {
      reference_ = std::make_unique<Plugin>(Library(request.reference), std::vector<Setting>{});
    }
  } catch (const WrongMachine& e) {
    error_ = e.what();
    wrong_machine_ = true;
  } catch (const std::exception& e) {
    error_ = e.what();
  }
}

Claims Kit::claims() const {
  Claims out;
  if (plugin_ == nullptr) return out;
  std::vector<std::pair<const CaseSpec*, Case>> shapes;
  for (const auto* table : {&all_cases(), &random_cases_}) {
    for (const CaseSpec& spec : *table) {
      Random random = Random::shapes_only();
      if (!spec.slow || request_.slow) shapes.emplace_back(&spec, spec.build(random));
    }
  }
  for (const swy_kernel* k : plugin_->kernels()) {
    for (auto& [spec, shape] : shapes) {
      if (spec->op != k->op) continue;
      for (const swy_dtype in : choices(k->input_dtypes, shape.inputs)) {
        for (const swy_dtype to : choices(k->output_dtypes, shape.outputs)) {
          Case c = shape;
          for (Operand& o : c.inputs) o.desc.dtype = o.fixed ? o.desc.dtype : in;
          for (Operand& o : c.outputs) o.desc.dtype = o.fixed ? o.desc.dtype : to;
          const Check check{k, spec, {in, to}};
          std::string why;
          bool by_machine = false;
          try {
            if (takes(*plugin_, *k, c, &why, &by_machine)) {
              out.checks.push_back(check);
              continue;
            }
          } catch (const std::exception& e) {
            why = e.what();
          }
          out.refused.push_back({check, why, by_machine});
        }
      }
    }
  }
  return out;
}

Case Kit::build(const Check& check, uint64_t variant) const {
  Random random(derive(request_.seed + variant, check.spec->name));
  Case c = check.spec->build(random);
  set_types(c, check.types);
  return c;
}

const Outcome& Kit::known(const Check& check, const Case& c) {
  const std::string key =
      check.spec->name + type_name(check.types.input) + (c.op == SWY_OP_LM_HEAD_SAMPLE ? check.kernel->name : "");
  const auto it = expected_.find(key);
  return it != expected_.end() ? it->second : expected_[key] = expected(check, c);
}

Outcome Kit::expected(const Check& check, const Case& c) const {
  if (c.op == SWY_OP_LM_HEAD_SAMPLE) return drawn_from_own_logits(check, c);
  if (reference_ == nullptr) return run_naive(c);
  Case plain = c;
  set_types(plain, {});
  const swy_kernel* kernel = kernel_for(*reference_, plain);
  if (kernel == nullptr) throw Failure("the reference backend does not take this case");
  return Execution(*reference_, *kernel, plain).run(plain);
}

// LM_HEAD_SAMPLE must sample from the bits of the backend's own LM_HEAD; if there are several such kernels, from those
// of one of them.
Outcome Kit::drawn_from_own_logits(const Check& check, const Case& c) const {
  Case head = c;
  head.op = SWY_OP_LM_HEAD;
  head.states.clear();
  head.outputs.resize(1);
  const uint64_t vocab = c.weights[0].desc.dims[0];
  head.outputs[0].desc.dtype = SWY_F32;
  head.outputs[0].desc.rows = SWY_ROWS_LOGITS;
  head.outputs[0].desc.dims[1] = vocab;
  fit_bucket(head, 0);
  std::vector<Outcome> candidates;
  for (const swy_kernel* k : plugin_->kernels()) {
    if (k->op != SWY_OP_LM_HEAD || !takes(*plugin_, *k, head, nullptr)) continue;
    const Outcome logits = Execution(*plugin_, *k, head).run(head);
    Outcome& o = candidates.emplace_back(blank_outcome(c));
    for (size_t s = 0; s < c.steps.size(); ++s) {
      const std::vector<double>& x = logits.outputs[s][0].values;
      const std::vector<float> narrow(x.begin(), x.end());
      draw(c.steps[s], narrow.data(), vocab, o, o.outputs[s]);
    }
  }
  if (candidates.empty()) throw Failure("the backend has no LM_HEAD to compare with, which is mandatory");
  const Outcome got = Execution(*plugin_, *check.kernel, c).run(c);
  for (Outcome& o : candidates) {
    if (compare(c, o, got, SWY_F32, nullptr).empty()) return std::move(o);
  }
  return std::move(candidates[0]);
}

std::string Kit::verify(const Check& check, Errors* errors) {
  if ((check.kernel->flags & SWY_KERNEL_CAPTURE_SAFE) == 0) return "is not CAPTURE_SAFE, which is mandatory";
  const Case c = build(check);
  const Outcome& wanted = known(check, c);
  return Trial(*plugin_, *check.kernel, c, wanted, activations_of(*check.kernel, check.types), errors).run();
}

std::string Kit::run(const Check& check, Errors* errors) {
  std::string problem;
  try {
    problem = verify(check, errors);
  } catch (const std::exception& e) {
    problem = e.what();
  }
  return problem.empty() ? "" : line(check, problem);
}

std::string Kit::line(const Check& check, const std::string& problem) const {
  return text("backend ", plugin_->id(), ", operation ", op_name(check.spec->op), ", kernel ", check.kernel->name,
              ", case ", check.name(), ": ", problem, " [--seed ", request_.seed, "]");
}

}  // namespace switchyard::check
