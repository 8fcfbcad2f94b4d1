#include "cli/generate.h"

#include <charconv>

#include "core/text/detokenizer.h"

namespace switchyard::cli {

SamplingParams SamplingFlags::resolved() const {
  SamplingParams p = params;
  if (seed_option != nullptr && seed_option->count() > 0) p.seed = seed;
  return p;
}

namespace {

// CLI11 reads -1 as the largest unsigned number.
CLI::Validator whole_number() {
  return CLI::Validator(
      [](const std::string& text) {
        uint64_t value = 0;
        const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool whole = failure == std::errc() && end == text.data() + text.size();
        return whole ? std::string() : fmt::format("{} is not a whole number from 0 to {}", text, UINT64_MAX);
      },
      "");
}

// Feeds the prompt, and returns the logits of its last token: none if it was interrupted between two chunks.
Result<std::span<const float>> prefill(const Runtime& runtime, Session& session, Sampler& sampler,
                                       std::span<const int32_t> prompt) {
  const uint32_t context = runtime.model->context();
  if (prompt.size() > context - session.position()) {
    return error(Code::usage,
                 "the prompt has {} tokens, and {} of the context's {} are free; raise --ctx or shorten it",
                 prompt.size(), context - session.position(), context);
  }
  for (const int32_t id : prompt) sampler.saw_prompt(id);
  std::span<const float> logits;
  while (!prompt.empty() && !interrupted.load()) {
    const size_t n = std::min<size_t>(prompt.size(), runtime.model->chunk());
    SWY_LET(logits, session.feed(prompt.first(n), n == prompt.size() ? 1 : 0));
    prompt = prompt.subspan(n);
  }
  return prompt.empty() ? logits : std::span<const float>{};
}

}  // namespace

void add_sampling(CLI::App& command, SamplingFlags& f) {
  const auto value = [&](const char* name, auto& target, const char* help) {
    return command.add_option(name, target, help)->capture_default_str()->group("Sampling");
  };
  value("--temp", f.params.temperature, "temperature; 0 always takes the most likely token");
  value("--top-p", f.params.top_p, "keep the most likely tokens that reach this probability");
  value("--top-k", f.params.top_k, "keep this many of the most likely tokens; 0: all");
  value("--min-p", f.params.min_p, "drop tokens below this share of the most likely one");
  value("--repeat-penalty", f.params.repetition_penalty, "above 1: what was said is said again less");
  value("--presence-penalty", f.params.presence_penalty, "taken from the logit of a token that was drawn before");
  value("--frequency-penalty", f.params.frequency_penalty, "the same, times how often it was drawn");
  command.add_flag("--ignore-eos", f.ignore_eos, "go on past the end of the text")->group("Sampling");
  f.seed_option = command.add_option("--seed", f.seed, "repeats a run; without it a random one, printed at the end")
                      ->check(whole_number())
                      ->group("Sampling");
}

Result<Generation> generate(const Runtime& runtime, Session& session, Sampler& sampler, std::span<const int32_t> prompt,
                            uint32_t limit, bool ignore_eos, const std::function<void(const std::string&)>& emit) {
  Generation g;
  g.prompt_tokens = prompt.size();
  g.stopped = "length";
  Detokenizer detokenizer(*runtime.tokenizer);
  const auto put = [&](const std::string& text) {
    g.text += text;
    if (!text.empty()) emit(text);
  };
  const uint64_t begin = Os::real().now_ns();
  SWY_LET(std::span<const float> logits, prefill(runtime, session, sampler, prompt));
  g.prefill_seconds = seconds_since(begin);
  if (logits.empty()) {
    g.stopped = "interrupt";
    return g;
  }
  const uint64_t decode = Os::real().now_ns();
  while (g.ids.size() < limit) {
    SWY_LET(const int32_t id, sampler.sample(logits, session.position()));
    sampler.saw_output(id);
    g.ids.push_back(id);
    if (!ignore_eos && runtime.is_end(id)) {
      g.stopped = "end";
      break;
    }
    put(detokenizer.push(id));
    if (interrupted.load()) {
      g.stopped = "interrupt";
      break;
    }
    if (session.position() >= runtime.model->context()) {
      g.stopped = "context";
      break;
    }
    if (g.ids.size() == limit) break;
    SWY_LET(logits, session.feed({&g.ids.back(), 1}));
  }
  put(detokenizer.flush());
  g.decode_seconds = seconds_since(decode);
  return g;
}

std::string summary(const Runtime& runtime, const Generation& g, uint64_t seed) {
  std::string devices;
  for (const std::string& name : runtime.model->device_names())
    devices += fmt::format("{}{}", devices.empty() ? "" : ", ", name);
  const size_t steps = g.ids.empty() ? 0 : g.ids.size() - 1;  // the first token comes with the prompt
  return fmt::format(
      "on {}; seed {}; load {:.2f} s; prefill {} tokens in {:.2f} s ({:.1f} tok/s); decode {} tokens in {:.2f} s "
      "({:.1f} tok/s); stopped: {}\n",
      devices, seed, runtime.load_seconds, g.prompt_tokens, g.prefill_seconds,
      static_cast<double>(g.prompt_tokens) / std::max(g.prefill_seconds, 1e-9), steps, g.decode_seconds,
      static_cast<double>(steps) / std::max(g.decode_seconds, 1e-9), g.stopped);
}

}  // namespace switchyard::cli
