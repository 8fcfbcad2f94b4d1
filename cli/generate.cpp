// SPDX-License-Identifier: Apache-2.0
#include "cli/generate.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <nlohmann/json.hpp>

#include "cli/runtime.h"
#include "cli/text_input.h"
#include "core/engine/prepare.h"
#include "core/sampling/recommended.h"
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

void take_recommended(const Program& program, const std::vector<CLI::Option*>& flags, SamplingParams& params) {
  const SamplingParams asked = params;
  switchyard::take_recommended(program.metadata, params);
  const auto given = [&](const std::string& name) {
    return std::any_of(flags.begin(), flags.end(),
                       [&](const CLI::Option* o) { return o->get_lnames()[0] == name && o->count() > 0; });
  };
  if (given("temp")) params.temperature = asked.temperature;
  if (given("top-p")) params.top_p = asked.top_p;
  if (given("top-k")) params.top_k = asked.top_k;
  if (given("min-p")) params.min_p = asked.min_p;
  if (given("repeat-penalty")) params.repetition_penalty = asked.repetition_penalty;
  if (given("presence-penalty")) params.presence_penalty = asked.presence_penalty;
  if (given("frequency-penalty")) params.frequency_penalty = asked.frequency_penalty;
}

Result<std::unique_ptr<Speaker>> Speaker::load(const Settings& settings, const TextOptions& options) {
  Settings s = settings;
  s.device_sampling = options.path != SamplingPath::logits;
  s.pin = false;  // the loop's thread is pinned, which computes
  SWY_LET(Runtime runtime, load_runtime(s));
  SWY_TRY(runtime.text().status());
  std::unique_ptr<Speaker> speaker(new Speaker);
  speaker->load_seconds_ = runtime.load_seconds;
  ServiceOptions serving;
  serving.cache_bytes = 0;       // the session keeps what it has seen
  serving.slow_ns = UINT64_MAX;  // the output may be a pager's
  SWY_LET(serving.speculate, parse_speculation(s.speculate));
  if (serving.speculate != Speculation::off) SWY_TRY(prepare_decoding(*runtime.model, options.sampling));
  SWY_LET(speaker->service_, Service::create(std::move(runtime), serving));
  SWY_TRY(speaker->service_->on_loop([&](Model& model) -> Status {
    if (settings.pin) pin(*speaker->loaded().host);
    SWY_LET(speaker->session_, model.session());
    speaker->thread_ = std::make_unique<TextThread>(*speaker->session_, speaker->tokenizer());
    return {};
  }));
  return speaker;
}

Speaker::~Speaker() {
  if (service_ != nullptr) service_->stop();
  session_.reset();
}

std::vector<CLI::Option*> add_sampling_flags(CLI::App& command, SamplingParams& p) {
  std::vector<CLI::Option*> all;
  const auto value = [&](const char* name, auto& target, auto parameter, const char* help) {
    CLI::Option* option = command.add_option(name, target, help);
    all.push_back(option->check(sampling_range(parameter))->capture_default_str()->group("Sampling"));
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
  return all;
}

void add_text_flags(CLI::App& command, TextFlags& f, uint32_t default_tokens) {
  f.options.max_tokens = default_tokens;
  f.sampling_options = add_sampling_flags(command, f.options.sampling);
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

Result<Generation> generate(Speaker& speaker, const TextThread::Reading& reading, const TextOptions& options,
                            const std::function<void(const Event&)>& emit) {
  constexpr uint64_t kLook = 20'000'000;  // ns between looks at Ctrl-C
  TextThread& thread = speaker.thread();
  SWY_LET(const auto ticket, begin_turn(speaker.service(), speaker.session(), thread, reading, options));
  Generation g;
  g.prompt_tokens = reading.fresh.size();
  for (bool more = true; more;) {
    if (interrupted.load()) ticket->cancel();
    const std::optional<Event> event = ticket->wait(kLook);
    if (!event) continue;
    more = event->finish == nullptr;
    if (more) {
      emit(*event);
    } else {
      g.finish = *event->finish;
    }
  }
  if (!g.finish.status.ok()) {
    SWY_TRY(speaker.on_loop([&]() -> Status {
      if (thread.session().position() != thread.seen().size()) thread.clear();
      return {};
    }));
    return g.finish.status;
  }
  SWY_TRY(end_turn(speaker.service(), thread, reading, g.finish.ids, g.finish.text, g.finish));
  g.stopped = interrupted.load() ? "interrupt" : g.finish.reason;
  return g;
}

namespace {

double seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

double bytes_per_token(const Generation& g) {
  return static_cast<double>(g.finish.read_bytes) / static_cast<double>(std::max<size_t>(g.finish.ids.size(), 1));
}

std::string drafts_line(const Finish& o) {
  constexpr uint32_t kShown = 8;
  std::string places;
  for (uint32_t i = 0; i < std::min(o.drafts.places(), kShown); ++i) {
    places += fmt::format("{}{:.0f}%", i == 0 ? "" : ", ", 100 * o.drafts.share(i));
  }
  return fmt::format("{} of {} drafted tokens accepted, in {} steps; by place: {}", o.drafts.all_accepted(),
                     o.drafts.all_drafted(), o.drafts.steps, places);
}

nlohmann::ordered_json by_place(const Finish& o, const std::array<uint64_t, DraftCounts::kPlaces>& counts) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (uint32_t i = 0; i < o.drafts.places(); ++i) list.push_back(counts[i]);
  return list;
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

std::string summary(const Speaker& speaker, const Generation& g) {
  std::string devices;
  for (const std::string& name : speaker.model().device_names())
    devices += fmt::format("{}{}", devices.empty() ? "" : ", ", name);
  const Finish& o = g.finish;
  const size_t steps = o.ids.empty() ? 0 : o.ids.size() - 1;  // the first token comes with the prompt
  const auto rate = [](size_t n, uint64_t ns) { return static_cast<double>(n) / std::max(seconds(ns), 1e-9); };
  std::string path = fmt::format("{} ({})", path_name(o.path.path), o.path.reason);
  if (o.undecided > 0) path += fmt::format(", {} draws from logits", o.undecided);
  const std::string drafts = o.drafts.steps > 0 ? fmt::format("speculation: {}\n", drafts_line(o)) : std::string();
  return fmt::format(
      "on {}; seed {}; load {:.2f} s; prefill {} tokens in {:.2f} s ({:.1f} tok/s); decode {} tokens in {:.2f} s "
      "({:.1f} tok/s); stopped: {}\nsampling: {}; {:.0f} bytes per token read from the device\n{}",
      devices, o.seed, speaker.load_seconds(), g.prompt_tokens, seconds(o.usage.prompt_ns),
      rate(g.prompt_tokens, o.usage.prompt_ns), steps, seconds(o.usage.draw_ns), rate(steps, o.usage.draw_ns),
      g.stopped, path, bytes_per_token(g), drafts);
}

nlohmann::ordered_json summary_json(const Generation& g) {
  const Finish& o = g.finish;
  return {{"stopped", g.stopped},
          {"seed", o.seed},
          {"sampling",
           {{"path", path_name(o.path.path)},
            {"reason", o.path.reason},
            {"bytes_per_token", bytes_per_token(g)},
            {"draws_from_logits", o.path.path == SamplingPath::logits ? o.ids.size() : o.undecided}}},
          {"drafted", o.drafts.all_drafted()},
          {"accepted", o.drafts.all_accepted()},
          {"draft_steps", o.drafts.steps},
          {"drafted_by_place", by_place(o, o.drafts.drafted)},
          {"accepted_by_place", by_place(o, o.drafts.accepted)},
          {"prefill_seconds", seconds(o.usage.prompt_ns)},
          {"decode_seconds", seconds(o.usage.draw_ns)}};
}

}  // namespace switchyard::cli
