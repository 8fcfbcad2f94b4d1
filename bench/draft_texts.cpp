// SPDX-License-Identifier: Apache-2.0
#include "bench/draft_texts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <thread>

#include "core/base/median.h"
#include "core/import/synthetic.h"

namespace switchyard {

Result<Program> bench_program(const std::string& name) {
  if (!name.starts_with("synth:")) return Program::load(Os::real(), name);
  SWY_LET(const SyntheticRequest request, parse_synthetic(name.substr(6)));
  return synthetic_program(Os::real(), request, std::thread::hardware_concurrency());
}

Result<BenchText> tell(Session& session, const std::vector<int32_t>& prompt, const Telling& how) {
  session.reset();
  BenchText t;
  t.prompt = prompt;
  Batch batch(session.model());
  Request r;
  r.prompt = prompt;
  r.max_tokens = how.tokens;
  r.sampling.temperature = how.temperature;
  r.sampling.top_p = 1;
  r.sampling.seed = 7;
  if (how.drafter != nullptr) r.drafters.push_back(how.drafter);
  r.draft_always = how.always;
  SWY_LET(const auto id, batch.add(session, std::move(r)));
  SWY_TRY(batch.run(id));
  const Outcome o = *batch.take(id);
  SWY_TRY(o.status);
  t.ids = o.ids;
  t.ms_a_token = static_cast<double>(o.draw_ns) / 1e6 / static_cast<double>(o.ids.size() - 1);
  t.ms = static_cast<double>(o.prompt_ns + o.draw_ns) / 1e6;
  t.drafts = o.drafts;
  return t;
}

ForcedDrafter::ForcedDrafter(const char* name, const BenchText& text, Wrong wrong, uint32_t most, uint32_t seed,
                             Session* layer)
    : name_(name), whole_(text.prompt), most_(most), layer_(layer) {
  if (layer != nullptr) inner_.emplace(*layer, most);
  whole_.insert(whole_.end(), text.ids.begin(), text.ids.end());
  std::mt19937 random(seed);
  std::uniform_real_distribution<> chance(0, 1);
  std::vector<bool> block(20);
  std::fill_n(block.begin(), static_cast<ptrdiff_t>(std::lround(wrong.share * 20)), true);
  while (wrong_.size() < whole_.size()) {
    if (wrong.drawn) {
      wrong_.push_back(chance(random) < wrong.share);
    } else {
      std::shuffle(block.begin(), block.end(), random);
      wrong_.insert(wrong_.end(), block.begin(), block.end());
    }
  }
}

Status ForcedDrafter::propose(uint32_t most, Guesses& guesses) {
  if (layer_ != nullptr) SWY_TRY(inner_->catch_up());
  const size_t end = std::min<size_t>(seen_ + std::min(most, most_), whole_.size());
  if (layer_ != nullptr && end > seen_) {
    const auto rows = guesses.device_rows(static_cast<uint32_t>(end - seen_));
    if (!rows.empty()) {
      SWY_TRY(layer_->submit_drafts(whole_[seen_ - 1], rows).status());
      for (size_t at = seen_; at < end; ++at) guesses.add(guess(at));
      return {};
    }
  }
  for (size_t at = seen_; at < end && (layer_ == nullptr || layer_->can_draft()); ++at) {
    if (layer_ != nullptr) {
      const bool first = at == seen_;
      SWY_TRY((first ? layer_->draft_row(whole_[at - 1]) : layer_->next_draft_row(guesses.ids().back())).status());
    }
    guesses.add(guess(at));
  }
  return {};
}

void StretchSums::stretch(const char* what, uint64_t begin_ns, uint64_t end_ns) {
  auto sum = std::find_if(sums_.begin(), sums_.end(), [&](const Sum& s) { return s.what == what; });
  if (sum == sums_.end()) sum = sums_.insert(sum, {what});
  ++sum->times, sum->ns += end_ns - begin_ns;
}

void StretchSums::print() const {
  std::printf("\n| stretch | times | us each |\n|---|---|---|\n");
  for (const Sum& s : sums_) {
    std::printf("| %s | %llu | %.1f |\n", s.what.c_str(), static_cast<unsigned long long>(s.times),
                static_cast<double>(s.ns) / 1e3 / static_cast<double>(s.times));
  }
}

void TextPairs::print_head() {
  std::printf(
      "\n| drafts | ms a token without | with | times as fast | least | most | all texts with their prompts | kept in "
      "a text | same "
      "texts |\n|---|---|---|---|---|---|---|---|---|\n");
}

Status TextPairs::add(bool plain_first, const Tell& tell_plain, const Tell& tell_with) {
  SWY_LET(const BenchText one, (plain_first ? tell_plain : tell_with)());
  SWY_LET(const BenchText two, (plain_first ? tell_with : tell_plain)());
  const BenchText &plain = plain_first ? one : two, &with = plain_first ? two : one;
  plain_ms_.push_back(plain.ms_a_token);
  ms_.push_back(with.ms_a_token);
  ratio_.push_back(plain.ms_a_token / with.ms_a_token);
  plain_all_ += plain.ms, all_ += with.ms;
  drafted_ += with.drafts.all_drafted(), accepted_ += with.drafts.all_accepted();
  same_ += with.ids == plain.ids ? 1 : 0;
  return {};
}

void TextPairs::print(const std::string& name) const {
  const auto [least, most] = std::minmax_element(ratio_.begin(), ratio_.end());
  const auto n = static_cast<double>(ratio_.size());
  std::printf("| %s | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f | %.1f of %.1f | %zu of %zu |\n", name.c_str(),
              median_of(plain_ms_), median_of(ms_), median_of(ratio_), *least, *most, plain_all_ / all_,
              static_cast<double>(accepted_) / n, static_cast<double>(drafted_) / n, same_, ratio_.size());
}

}  // namespace switchyard
