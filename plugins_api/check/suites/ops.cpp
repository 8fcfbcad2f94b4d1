// SPDX-License-Identifier: Apache-2.0
// ops: every kernel on the table of cases and on random shapes, against the oracle, its flags taken at their word.
#include <set>

#include "plugins_api/check/kit.h"
#include "plugins_api/check/suites.h"

namespace switchyard::check {
namespace {

std::string type_name(swy_dtype d) { return encoding_name(d, 0); }

// The encoding of the weights that may be quantized; "" where there are none.
std::string encoding(const CaseSpec& spec) {
  Random random = Random::shapes_only();
  for (const Weight& w : spec.build(random).weights) {
    if (w.quantizable) return encoding_name(w.desc.dtype, w.desc.group);
  }
  return "";
}

class Facts {
 public:
  std::map<std::string, std::string> of(const Check& c) {
    const auto it = encodings_.find(c.spec);
    const std::string e = it != encodings_.end() ? it->second : encodings_[c.spec] = encoding(*c.spec);
    return {{"op", op_name(c.spec->op)},
            {"kernel", c.kernel->name},
            {"encoding", e},
            {"input", type_name(c.types.input)},
            {"output", type_name(c.types.output)}};
  }

 private:
  std::map<const CaseSpec*, std::string> encodings_;
};

// A kernel must accept at least one case, unless this machine or the settings prevent it.
std::string coverage(const Claims& claims, const swy_kernel& k) {
  std::string why = "the table has no case for it";
  for (const Check& c : claims.checks) {
    if (c.kernel == &k) return "";
  }
  for (const Claims::Refused& r : claims.refused) {
    if (r.check.kernel != &k) continue;
    if (r.by_machine) throw Unsupported(r.why);
    why = r.why;
  }
  return text("kernel ", k.name, " of operation ", op_name(k.op), " takes no case of the table: ", why);
}

std::vector<Task> list(Session& session, std::vector<Refusal>* refusals) {
  Kit& kit = session.kit();
  auto claims = std::make_shared<Claims>(kit.claims());
  std::vector<Task> tasks;
  Facts facts;
  std::set<swy_op_id> in_table;
  for (const CaseSpec& s : all_cases()) in_table.insert(s.op);
  for (const swy_kernel* k : kit.plugin().kernels()) {
    if (!in_table.contains(k->op)) continue;
    tasks.push_back({text(k->name, "/takes_a_case"), [claims, k] { return coverage(*claims, *k); }, {}});
  }
  for (const Check& c : claims->checks) {
    if (derive(kit.request().seed, c.name()) % kit.request().one_in != 0) continue;
    tasks.push_back(
        {c.name(), [&session, &kit, c] { return kit.run(c, &session.errors[c.kernel->name]); }, facts.of(c)});
  }
  for (const Claims::Refused& r : claims->refused) {
    auto f = facts.of(r.check);
    if (r.by_machine) f.emplace("by_machine", "yes");
    refusals->push_back({r.check.name(), r.why, std::move(f)});
  }
  return tasks;
}

}  // namespace

const Suite kOpsSuite = {"ops", "every kernel against the oracle, with the promises of its flags", true, false, {},
                         list};

}  // namespace switchyard::check
