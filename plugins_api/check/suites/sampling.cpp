// SPDX-License-Identifier: Apache-2.0
// sampling: for everything that the device claims to sample in swy_device_info and swy.sampling/1, some kernel must
// accept a case.
#include "plugins_api/check/kit.h"
#include "plugins_api/check/sampling_needs.h"
#include "plugins_api/check/suites.h"
#include "switchyard/extensions.h"

namespace switchyard::check {
namespace {

bool any_claim(const Claims& claims, std::initializer_list<swy_op_id> ops, uint32_t need = 0) {
  for (const Check& c : claims.checks) {
    for (const swy_op_id op : ops) {
      if (c.spec->op != op) continue;
      Random random = Random::shapes_only();
      if ((sampling_needs(c.spec->build(random)) & need) == need) return true;
    }
  }
  return false;
}

struct Flag {
  uint32_t bit;
  const char* name;
};

constexpr Flag kParts[] = {
    {SWY_SAMPLES_GREEDY, "GREEDY"},     {SWY_SAMPLES_SEEDED, "SEEDED"},       {SWY_SAMPLES_TEMPERATURE, "TEMPERATURE"},
    {SWY_SAMPLES_TOP_K, "TOP_K"},       {SWY_SAMPLES_TOP_P, "TOP_P"},         {SWY_SAMPLES_MIN_P, "MIN_P"},
    {SWY_SAMPLES_MASK, "MASK"},         {SWY_SAMPLES_PENALTIES, "PENALTIES"}, {SWY_SAMPLES_BIAS, "BIAS"},
    {SWY_SAMPLES_LOGPROBS, "LOGPROBS"}, {SWY_SAMPLES_STOP_IDS, "STOP_IDS"}};

std::string part(const Kit& kit, const Flag& flag) {
  const Claims claims = kit.claims();
  return any_claim(claims, {SWY_OP_SAMPLE, SWY_OP_LM_HEAD_SAMPLE, SWY_OP_TOP_CANDIDATES}, flag.bit)
             ? ""
             : text("sampling_steps has ", flag.name, ", and no kernel takes a case with it");
}

std::string level(const Kit& kit, const char* name, std::initializer_list<swy_op_id> ops) {
  return any_claim(kit.claims(), ops) ? "" : text("the device says ", name, ", and no kernel takes a case of it");
}

// Nothing is claimed that the flags do not announce: the host would never use it.
std::string unannounced(const Kit& kit) {
  const uint32_t s = kit.plugin().info().sampling;
  const Claims claims = kit.claims();
  if ((s & SWY_SAMPLING_TOKEN) == 0 && any_claim(claims, {SWY_OP_SAMPLE, SWY_OP_LM_HEAD_SAMPLE})) {
    return "there are kernels that draw tokens, and the device does not say TOKEN";
  }
  if ((s & SWY_SAMPLING_TOPK_CANDIDATES) == 0 && any_claim(claims, {SWY_OP_TOP_CANDIDATES})) {
    return "there are kernels of TOP_CANDIDATES, and the device does not say TOPK_CANDIDATES";
  }
  return "";
}

// A case within the limits must be accepted; each given limit must cover the smallest request.
std::string limits(const Kit& kit) {
  const auto* t = static_cast<const swy_sampling*>(kit.plugin().extension(SWY_EXT_SAMPLING));
  const struct {
    uint32_t limit;
    uint32_t part;
    const char* name;
  } all[] = {{t->max_top_k, SWY_SAMPLES_TOP_K, "max_top_k"},
             {t->max_bias, SWY_SAMPLES_BIAS, "max_bias"},
             {t->max_stop_ids, SWY_SAMPLES_STOP_IDS, "max_stop_ids"},
             {t->max_logprobs, SWY_SAMPLES_LOGPROBS, "max_logprobs"}};
  for (const auto& l : all) {
    if (l.limit != 0 && (kit.plugin().info().sampling_steps & l.part) == 0) {
      return text(l.name, " is ", l.limit, ", and the device does not sample with it");
    }
  }
  if (t->max_candidates != 0 && (kit.plugin().info().sampling & SWY_SAMPLING_TOPK_CANDIDATES) == 0) {
    return text("max_candidates is ", t->max_candidates, ", and the device gives no candidates");
  }
  return "";
}

std::vector<Task> list(Session& session, std::vector<Refusal>* refusals) {
  Kit& kit = session.kit();
  const swy_device_info& info = kit.plugin().info();
  std::vector<Task> tasks = {{"unannounced", [&kit] { return unannounced(kit); }, {}}};
  const auto claim = [&](uint32_t bit, const char* name, auto check) {
    if ((info.sampling & bit) != 0) {
      tasks.push_back({name, [&kit, check] { return check(kit); }, {}});
    } else {
      refusals->push_back({name, "the device does not say so", {}});
    }
  };
  claim(SWY_SAMPLING_LOGITS, "LOGITS", [](const Kit& k) { return level(k, "LOGITS", {SWY_OP_LM_HEAD}); });
  claim(SWY_SAMPLING_TOPK_CANDIDATES, "TOPK_CANDIDATES",
        [](const Kit& k) { return level(k, "TOPK_CANDIDATES", {SWY_OP_TOP_CANDIDATES}); });
  claim(SWY_SAMPLING_TOKEN, "TOKEN", [](const Kit& k) {
    return level(k, "TOKEN", {SWY_OP_SAMPLE, SWY_OP_LM_HEAD_SAMPLE});
  });
  for (const Flag& f : kParts) {
    if ((info.sampling_steps & f.bit) != 0) {
      tasks.push_back({f.name, [&kit, f] { return part(kit, f); }, {}});
    } else {
      refusals->push_back({f.name, "the device does not say so", {}});
    }
  }
  if (kit.plugin().extension(SWY_EXT_SAMPLING) != nullptr) {
    tasks.push_back({"limits", [&kit] { return limits(kit); }, {}});
  } else {
    refusals->push_back({"limits", "the plugin has no " SWY_EXT_SAMPLING ": no limits", {}});
  }
  return tasks;
}

}  // namespace

const Suite kSamplingSuite = {"sampling", "what the device says that it samples, kernels take", true, false, {}, list};

}  // namespace switchyard::check
