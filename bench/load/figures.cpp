// SPDX-License-Identifier: Apache-2.0
#include "bench/load/figures.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "bench/text.h"

namespace switchyard::bench {
namespace {

using nlohmann::ordered_json;

void add_failure(std::vector<LoadFigures::Failure>& failures, const Exchange& e) {
  const auto found = std::find_if(failures.begin(), failures.end(), [&](const LoadFigures::Failure& f) {
    return f.fault == e.fault && (e.fault != Fault::status || f.status == e.status);
  });
  if (found != failures.end()) {
    ++found->count;
  } else {
    failures.push_back({e.fault, e.status, 1, e.message});
  }
}

bool is_good(const Exchange& e, const LoadLimits& l) {
  return (l.first_token == 0 || e.first_token() <= l.first_token) && (l.per_token == 0 || e.per_token() <= l.per_token);
}

// Sums become means.
void add(LoadFigures& f, const Exchange& e, const LoadLimits& limits, size_t turns) {
  f.first_token.seconds.push_back(e.first_token());
  f.gaps.seconds.insert(f.gaps.seconds.end(), e.gaps.begin(), e.gaps.end());
  if (e.drawn() > 1) f.per_token.seconds.push_back(e.per_token());
  f.whole.seconds.push_back(e.end - e.begin);
  f.prompt_tokens += e.prompt_tokens;
  f.cached_tokens += e.cached_tokens;
  f.answer_tokens += e.drawn();
  f.counted |= e.tokens != 0;
  if (is_good(e, limits)) ++f.good;
  ++f.ended_well;
  if (turns < 2) return;
  LoadFigures::Turn& t = f.turns[e.turn];
  t.first_token.seconds.push_back(e.first_token());
  t.prompt_tokens += e.prompt_tokens;
  t.cached_tokens += e.cached_tokens;
}

void make_rates(LoadFigures& f, const LoadResult& r, uint64_t pieces) {
  const double seconds = std::max(f.seconds, 1e-9);
  f.requests_per_second = f.ended_well / seconds;
  f.good_per_second = f.good / seconds;
  f.tokens_per_second = f.answer_tokens / seconds;
  const double steady = r.steady_end - r.begin;
  if (r.steady_end != 0 && steady > 0 && pieces != 0) {
    f.tokens_per_second = static_cast<double>(r.steady_pieces) * f.answer_tokens / static_cast<double>(pieces) / steady;
  }
  f.processor_seconds = r.processor_seconds;
  f.processor_share = r.processor_seconds / seconds;
}

}  // namespace

LoadFigures figures_of(const LoadResult& result, const LoadLimits& limits) {
  LoadFigures f;
  f.requests = static_cast<uint32_t>(result.exchanges.size());
  f.seconds = std::max(0.0, result.end - result.begin);
  f.interrupted = result.interrupted;
  size_t turns = 0;
  for (const Exchange& e : result.exchanges) turns = std::max<size_t>(turns, e.turn + 1);
  if (turns > 1) f.turns.resize(turns);
  uint64_t pieces = 0;
  for (const Exchange& e : result.exchanges) {
    if (e.ok()) {
      add(f, e, limits, turns);
      pieces += e.pieces;
    } else {
      add_failure(f.failures, e);
    }
  }
  std::stable_sort(f.failures.begin(), f.failures.end(), [](auto& a, auto& b) { return a.count > b.count; });
  make_rates(f, result, pieces);
  const auto mean = [](double& sum, size_t n) { sum /= static_cast<double>(std::max<size_t>(n, 1)); };
  for (double* sum : {&f.prompt_tokens, &f.cached_tokens, &f.answer_tokens}) mean(*sum, f.ended_well);
  for (LoadFigures::Turn& t : f.turns) {
    for (double* sum : {&t.prompt_tokens, &t.cached_tokens}) mean(*sum, t.first_token.seconds.size());
  }
  return f;
}

namespace {

std::string kind_of(const Load& load) {
  std::string text = load.chat ? "chat completions" : "completions";
  if (load.rate > 0) {
    text += fmt::format(", {} arrivals per second", load.rate);
  } else {
    text += fmt::format(", {} client{}", load.clients, load.clients == 1 ? "" : "s");
  }
  if (load.turns > 1) text += fmt::format(", {} turns each", load.turns);
  return text + fmt::format(", seed {}", load.seed);
}

std::string failure_name(const LoadFigures::Failure& f) {
  return f.fault == Fault::status ? fmt::format("status {}", f.status) : fault_name(f.fault);
}

std::string limits_text(const LoadLimits& l) {
  std::string text;
  if (l.first_token > 0) text += fmt::format("first token within {:g} ms", l.first_token * 1e3);
  if (l.per_token > 0) text += fmt::format("{}{:g} ms per token", text.empty() ? "" : ", ", l.per_token * 1e3);
  return text;
}

void print_latency(std::string& out, const char* what, const Samples& s) {
  const auto ms = [&](double share) { return number_text(s.at(share) * 1e3); };
  fmt::format_to(std::back_inserter(out), "{:<28}{:>10}{:>10}{:>10}{:>10}\n", what, ms(0.5), ms(0.9), ms(0.99),
                 number_text(s.mean() * 1e3));
}

ordered_json latency_json(const Samples& s) {
  return {
      {"p50", s.at(0.5)}, {"p90", s.at(0.9)}, {"p99", s.at(0.99)}, {"mean", s.mean()}, {"samples", s.seconds.size()}};
}

}  // namespace

std::string render_load(const Load& load, const LoadFigures& f, const LoadLimits& limits) {
  std::string out;
  const auto line = [&](const char* name, const std::string& text) {
    fmt::format_to(std::back_inserter(out), "{:<14}{}\n", name, text);
  };
  line("load", fmt::format("{}: {}", one_line(load.model), kind_of(load)));
  line("requests", fmt::format("{} of {} ended well, in {:.2f} s{}", f.ended_well, f.requests, f.seconds,
                               f.interrupted ? "; stopped early" : ""));
  line("tokens",
       fmt::format("prompts {:.1f} ({:.1f} cached), answers {:.1f}, on average{}", f.prompt_tokens, f.cached_tokens,
                   f.answer_tokens, f.counted ? "" : "; the server counts none, so each piece of text is one"));
  line("throughput",
       fmt::format("{} tokens/s, {:.3f} requests/s", rate_text(f.tokens_per_second), f.requests_per_second));
  if (limits.any()) {
    line("goodput", fmt::format("{:.3f} requests/s: {} of {} kept {}", f.good_per_second, f.good, f.requests,
                                limits_text(limits)));
  }
  for (const LoadFigures::Failure& e : f.failures) {
    line("failed", fmt::format("{} by {}: {}", e.count, failure_name(e), e.message));
  }
  line("generator", fmt::format("{:.1f}% of one core", f.processor_share * 100));
  fmt::format_to(std::back_inserter(out), "\n{:<28}{:>10}{:>10}{:>10}{:>10}\n", "milliseconds", "p50", "p90", "p99",
                 "mean");
  print_latency(out, "to the first token", f.first_token);
  print_latency(out, "between pieces of text", f.gaps);
  print_latency(out, "per token, of a request", f.per_token);
  print_latency(out, "whole request", f.whole);
  if (f.turns.empty()) return out;
  fmt::format_to(std::back_inserter(out), "\n{:<6}{:>10}{:>10}{:>16}{:>16}\n", "turn", "p50", "p90", "prompt tokens",
                 "cached");
  for (size_t i = 0; i < f.turns.size(); ++i) {
    const LoadFigures::Turn& t = f.turns[i];
    fmt::format_to(std::back_inserter(out), "{:<6}{:>10}{:>10}{:>16.1f}{:>16.1f}\n", i + 1,
                   number_text(t.first_token.at(0.5) * 1e3), number_text(t.first_token.at(0.9) * 1e3), t.prompt_tokens,
                   t.cached_tokens);
  }
  return out;
}

ordered_json load_json(const Load& load, const LoadFigures& f, const LoadLimits& limits) {
  ordered_json out = {{"model", load.model},
                      {"protocol", load.chat ? "chat/completions" : "completions"},
                      {"rate", load.rate},
                      {"clients", load.rate > 0 ? 0 : load.clients},
                      {"turns", load.turns},
                      {"seed", load.seed},
                      {"requests", f.requests},
                      {"ended_well", f.ended_well},
                      {"interrupted", f.interrupted},
                      {"seconds", f.seconds},
                      {"prompt_tokens", f.prompt_tokens},
                      {"cached_tokens", f.cached_tokens},
                      {"answer_tokens", f.answer_tokens},
                      {"counted_by_server", f.counted},
                      {"tokens_per_second", f.tokens_per_second},
                      {"requests_per_second", f.requests_per_second},
                      {"ttft", latency_json(f.first_token)},
                      {"itl", latency_json(f.gaps)},
                      {"tpot", latency_json(f.per_token)},
                      {"whole", latency_json(f.whole)},
                      {"generator", {{"processor_seconds", f.processor_seconds}, {"core_share", f.processor_share}}}};
  if (limits.any()) {
    out["goodput"] = {{"ttft_limit", limits.first_token},
                      {"tpot_limit", limits.per_token},
                      {"requests", f.good},
                      {"requests_per_second", f.good_per_second}};
  }
  out["failures"] = ordered_json::array();
  for (const LoadFigures::Failure& e : f.failures) {
    out["failures"].push_back(
        {{"kind", fault_name(e.fault)}, {"status", e.status}, {"count", e.count}, {"message", e.message}});
  }
  if (f.turns.empty()) return out;
  out["by_turn"] = ordered_json::array();
  for (const LoadFigures::Turn& t : f.turns) {
    out["by_turn"].push_back({{"ttft", latency_json(t.first_token)},
                              {"prompt_tokens", t.prompt_tokens},
                              {"cached_tokens", t.cached_tokens}});
  }
  return out;
}

}  // namespace switchyard::bench
