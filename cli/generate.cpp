// SPDX-License-Identifier: Apache-2.0
#include "cli/generate.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <nlohmann/json.hpp>

#include "cli/text_input.h"
#include "switchyard/sampling_math.h"

namespace switchyard::cli {
namespace {

constexpr uint64_t kMostConstraintBytes = uint64_t{1} << 20;

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

// The range that samplers hold this parameter to.
template <class T>
CLI::Validator sampling_range(T swy_sample_params::*parameter) {
  return CLI::Validator(
      [parameter](const std::string& text) {
        swy_sample_params params;
        swy_sample_params_init(&params);
        if (!CLI::detail::lexical_cast(text, params.*parameter))
          return std::string();  // CLI11 says that it is no number
        const swy_sample_fault fault = swy_sample_params_check(&params);
        return fault.field == nullptr ? std::string() : fmt::format("{} must be {}", text, fault.range);
      },
      "");
}

// Of a file in place of its name.
CLI::Validator content() {
  return CLI::Validator(
      [](std::string& value) {
        auto text = read_text(value, kMostConstraintBytes);
        if (!text.ok()) return text.status().message();
        if (text->empty()) return fmt::format("{} is empty", value);
        value = *std::move(text);
        return std::string();
      },
      "");
}

}  // namespace

Result<TextOptions> TextFlags::resolved() const {
  TextOptions o = options;
  if (seed_option != nullptr && seed_option->count() > 0) o.sampling.seed = seed;
  SWY_LET(o.path, parse_path(sampling));
  return o;
}

Result<Runtime> load_for_text(const Settings& settings, const TextOptions& options) {
  Settings s = settings;
  s.device_sampling = options.path != SamplingPath::logits;
  return load_runtime(s);
}

void add_sampling_flags(CLI::App& command, SamplingParams& p) {
  const auto value = [&](const char* name, auto& target, auto parameter, const char* help) {
    command.add_option(name, target, help)->check(sampling_range(parameter))->capture_default_str()->group("Sampling");
  };
  using Swy = swy_sample_params;
  value("--temp", p.temperature, &Swy::temperature, "temperature; 0 always takes the most likely token");
  value("--top-p", p.top_p, &Swy::top_p,
        "sample only from the most likely tokens that together reach this probability");
  value("--top-k", p.top_k, &Swy::top_k, "sample only from this many of the most likely tokens; 0: from all");
  value("--min-p", p.min_p, &Swy::min_p, "drop tokens less likely than this share of the most likely one");
  value("--repeat-penalty", p.repetition_penalty, &Swy::repetition_penalty,
        "values above 1 discourage tokens of the prompt and of the text");
  value("--presence-penalty", p.presence_penalty, &Swy::presence_penalty,
        "subtracted from the logits of tokens that were generated before");
  value("--frequency-penalty", p.frequency_penalty, &Swy::frequency_penalty,
        "subtracted from a token's logit for each time it was generated before");
}

void add_text_flags(CLI::App& command, TextFlags& f, uint32_t default_tokens) {
  f.options.max_tokens = default_tokens;
  add_sampling_flags(command, f.options.sampling);
  command
      .add_option("--sampling", f.sampling,
                  "where tokens are sampled: auto, fused (on the device), candidates (on the host, from the device's "
                  "best), logits (on the host)")
      ->capture_default_str()
      ->group("Sampling");
  f.seed_option =
      command.add_option("--seed", f.seed, "the same seed repeats a run; without it a random seed, printed at the end")
          ->check(whole_number())
          ->group("Sampling");
  const auto ending = [&](CLI::Option* option) { option->group("Ending"); };
  ending(command.add_option("--tokens,-n", f.options.max_tokens, "tokens to generate at most")
             ->check(CLI::Range(1u, 1u << 24))
             ->capture_default_str());
  ending(command
             .add_option("--stop", f.options.stops,
                         "stop before this text, which is not printed; may be given more than once")
             ->allow_extra_args(false));
  ending(command.add_flag("--ignore-eos", f.options.ignore_eos, "continue after the model has ended its text"));
  ending(command.add_option("--allow-regex", f.options.allow_regex,
                            "generate only text that matches this regular expression as a whole"));
  ending(command
             .add_option("--json-schema", f.options.json_schema,
                         "generate only a JSON value that this file's JSON Schema allows")
             ->transform(content())
             ->type_name("FILE"));
  ending(command
             .add_option("--grammar", f.options.grammar,
                         "generate only text of this file's grammar: GBNF, or in the style of Lark")
             ->transform(content())
             ->type_name("FILE"));
}

Result<Generation> generate(const Runtime& runtime, Session& session, const TextOptions& options,
                            std::vector<int32_t> prompt, std::vector<int32_t> history,
                            const std::function<void(const TextPiece&)>& emit) {
  Generation g;
  g.prompt_tokens = prompt.size();
  SWY_LET(const auto text,
          TextGeneration::create(*runtime.model, *runtime.tokenizer, options, [&](const TextPiece& piece) {
            emit(piece);
            return !interrupted.load();
          }));
  Batch batch(*runtime.model);
  SWY_LET(const Batch::Id id, batch.add(session, text->request(std::move(prompt), std::move(history))));
  while (batch.running(id)) {
    if (interrupted.load()) batch.cancel(id);
    SWY_LET(const bool more, batch.step());
    (void)more;
  }
  text->finish();
  g.outcome = std::move(*batch.take(id));
  SWY_TRY(g.outcome.status);
  g.text = text->text();
  g.stopped = interrupted.load() ? "interrupt" : text->stopped(g.outcome);
  return g;
}

namespace {

double seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

double bytes_per_token(const Generation& g) {
  return static_cast<double>(g.outcome.read_bytes) / static_cast<double>(std::max<size_t>(g.outcome.ids.size(), 1));
}

}  // namespace

std::string for_output(const std::string& text) {
  static const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  if (!terminal) return text;
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool c1 = c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;  // U+0080-9F
    const bool control = c1 || c == 0x7F || (c < 0x20 && c != '\n' && c != '\t');
    out += control ? '?' : text[i];
    if (c1) ++i;
  }
  return out;
}

std::string summary(const Runtime& runtime, const Generation& g) {
  std::string devices;
  for (const std::string& name : runtime.model->device_names())
    devices += fmt::format("{}{}", devices.empty() ? "" : ", ", name);
  const Outcome& o = g.outcome;
  const size_t steps = o.ids.empty() ? 0 : o.ids.size() - 1;  // the first token comes with the prompt
  const auto rate = [](size_t n, uint64_t ns) { return static_cast<double>(n) / std::max(seconds(ns), 1e-9); };
  std::string path = fmt::format("{} ({})", path_name(o.path.path), o.path.reason);
  if (o.undecided > 0) path += fmt::format(", {} draws from logits", o.undecided);
  return fmt::format(
      "on {}; seed {}; load {:.2f} s; prefill {} tokens in {:.2f} s ({:.1f} tok/s); decode {} tokens in {:.2f} s "
      "({:.1f} tok/s); stopped: {}\nsampling: {}; {:.0f} bytes per token read from the device\n",
      devices, o.seed, runtime.load_seconds, g.prompt_tokens, seconds(o.prompt_ns), rate(g.prompt_tokens, o.prompt_ns),
      steps, seconds(o.draw_ns), rate(steps, o.draw_ns), g.stopped, path, bytes_per_token(g));
}

nlohmann::ordered_json summary_json(const Generation& g) {
  const Outcome& o = g.outcome;
  return {{"stopped", g.stopped},
          {"seed", o.seed},
          {"sampling",
           {{"path", path_name(o.path.path)},
            {"reason", o.path.reason},
            {"bytes_per_token", bytes_per_token(g)},
            {"draws_from_logits", o.path.path == SamplingPath::logits ? o.ids.size() : o.undecided}}},
          {"prefill_seconds", seconds(o.prompt_ns)},
          {"decode_seconds", seconds(o.draw_ns)}};
}

}  // namespace switchyard::cli
