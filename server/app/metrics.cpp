// SPDX-License-Identifier: Apache-2.0
// GET /metrics, in Prometheus' text form. Names and meanings are vLLM's with another prefix, so that dashboards can be
// ported by renaming.
#include <fmt/format.h>

#include "server/app/application.h"

namespace switchyard::server {

namespace {

// A label's value.
std::string label(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

class Writer {
 public:
  explicit Writer(const std::string& model) : model_(fmt::format("model_name=\"{}\"", label(model))) {}

  void head(const char* name, const char* kind, const char* help) {
    text_ += fmt::format("# HELP switchyard:{} {}\n# TYPE switchyard:{} {}\n", name, help, name, kind);
  }
  template <class Number>
  void value(const char* name, Number number, const std::string& labels = "") {
    text_ += fmt::format("switchyard:{}{{{}{}{}}} {}\n", name, model_, labels.empty() ? "" : ",", labels, number);
  }
  template <class Number>
  void one(const char* name, const char* kind, const char* help, Number number) {
    head(name, kind, help);
    value(name, number);
  }
  void histogram(const char* name, const char* help, const Histogram& h) {
    head(name, "histogram", help);
    uint64_t below = 0;
    const std::string bucket = std::string(name) + "_bucket";
    for (size_t i = 0; i < Histogram::kBounds; ++i) {
      below += h.counts[i];
      value(bucket.c_str(), below, fmt::format("le=\"{}\"", Histogram::bounds()[i]));
    }
    value(bucket.c_str(), h.count, "le=\"+Inf\"");
    value((std::string(name) + "_sum").c_str(), h.sum_seconds);
    value((std::string(name) + "_count").c_str(), h.count);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string model_, text_;
};

// The reasons of vLLM.
const char* finished_reason(const std::string& reason) {
  if (reason == "end" || reason == "stop" || reason == "pattern") return "stop";
  if (reason == "length" || reason == "context") return "length";
  if (reason == "cancelled" || reason == "slow" || reason == "deadline") return "abort";
  return "error";
}

void now(Writer& w, const ServiceStats& s) {
  const double pages = s.pages == 0 ? 0 : static_cast<double>(s.pages_used) / s.pages;
  w.one("num_requests_running", "gauge", "Requests that are computed.", s.running);
  w.one("num_requests_waiting", "gauge", "Requests that wait to begin, or that were set aside.",
        s.waiting + s.set_aside);
  w.one("num_requests_paused", "gauge", "Requests whose client does not read.", s.paused);
  w.one("kv_cache_usage_perc", "gauge", "Share of the KV cache's pages in use; 1 is all.", pages);
  w.one("state_slots_used", "gauge", "Slots of recurrent states in use.", s.slots_used);
  w.one("state_slots", "gauge", "Slots of recurrent states.", s.slots);
  w.one("engine_step_sizes", "gauge", "Sizes of steps that are planned and recorded.", s.step_sizes);
  w.one("prefix_cache_checkpoints", "gauge", "States that the prefix cache keeps.", s.checkpoints);
  w.one("prefix_cache_bytes", "gauge", "Bytes of these states on the devices.", s.cached_bytes);
  w.one("prefix_cache_host_bytes", "gauge", "Bytes of these states in host memory.", s.cached_host_bytes);
}

void since_start(Writer& w, const ServiceStats& s) {
  w.one("prompt_tokens_total", "counter", "Tokens of prompts.", s.prompt_tokens);
  w.one("prompt_tokens_cached_total", "counter", "Tokens of prompts that were in the prefix cache.",
        s.cache_hit_tokens);
  w.one("generation_tokens_total", "counter", "Tokens that were generated.", s.generated_tokens);
  w.one("spec_decode_num_drafts_total", "counter", "Steps of a request with drafted tokens.", s.drafts.steps);
  w.one("spec_decode_num_draft_tokens_total", "counter", "Tokens that were drafted.", s.drafts.all_drafted());
  w.one("spec_decode_num_accepted_tokens_total", "counter", "Drafted tokens that were generated.",
        s.drafts.all_accepted());
  w.head("spec_decode_num_accepted_tokens_per_pos_total", "counter", "The same by their place among a step's drafts.");
  for (uint32_t i = 0; i < s.drafts.places(); ++i) {
    w.value("spec_decode_num_accepted_tokens_per_pos_total", s.drafts.accepted[i], fmt::format("position=\"{}\"", i));
  }
  w.one("prefix_cache_queries_total", "counter", "Tokens that were looked up in the prefix cache.",
        s.computed_prompt_tokens + s.cache_hit_tokens);
  w.one("prefix_cache_hits_total", "counter", "Tokens that were found there.", s.cache_hit_tokens);
  w.one("prefix_cache_evictions_total", "counter", "States that the prefix cache gave up.", s.cache_evictions);
  w.one("num_preemptions_total", "counter", "Times that a request was set aside for lack of memory.", s.set_asides);
  w.one("engine_steps_total", "counter", "Steps of the model.", s.steps);
  w.one("engine_step_sizes_recorded_total", "counter", "Times that a size of steps was planned and recorded.",
        s.step_sizes_recorded);
  std::map<std::string, uint64_t> finished;
  for (const auto& [reason, count] : s.finished) finished[finished_reason(reason)] += count;
  w.head("request_success_total", "counter", "Requests that ended, by reason.");
  for (const auto& [reason, count] : finished) {
    w.value("request_success_total", count, fmt::format("finished_reason=\"{}\"", reason));
  }
  w.head("admission_rejections_total", "counter", "Requests that were refused, by reason.");
  for (const auto& [why, count] : s.refused) {
    w.value("admission_rejections_total", count, fmt::format("reason=\"{}\"", label(why)));
  }
}

}  // namespace

std::string metrics_text(const ServiceStats& s, const std::string& model_name,
                         const std::map<std::pair<std::string, int>, uint64_t>& replies) {
  Writer w(model_name);
  now(w, s);
  since_start(w, s);
  w.histogram("time_to_first_token_seconds", "From a request's arrival to its first token.", s.first_token);
  w.histogram("inter_token_latency_seconds", "From one token to the next.", s.between_tokens);
  w.histogram("e2e_request_latency_seconds", "From a request's arrival to its end.", s.whole);
  w.histogram("request_queue_time_seconds", "From a request's arrival to its first step.", s.queued);
  w.histogram("request_prefill_time_seconds", "From a request's first step to its first token.", s.prompt);
  w.histogram("request_decode_time_seconds", "From a request's first token to its last.", s.draw);
  w.head("http_requests_total", "counter", "Replies, by path and status.");
  for (const auto& [key, count] : replies) {
    w.value("http_requests_total", count, fmt::format("path=\"{}\",status=\"{}\"", key.first, key.second));
  }
  return w.take();
}

}  // namespace switchyard::server
