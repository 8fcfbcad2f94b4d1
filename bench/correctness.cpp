// SPDX-License-Identifier: Apache-2.0
#include "bench/correctness.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/clock.h"
#include "core/engine/evaluate.h"

namespace switchyard::bench {
namespace {

constexpr uint64_t kMagic = 0x31676e6979617353ull;  // "Saying1"
constexpr uint64_t kMostBytes = uint64_t{4} << 30;
constexpr uint32_t kFirst = 8;  // tokens from whose time the rest is estimated

struct Header {
  uint64_t magic = kMagic;
  uint32_t tokens = 0, vocab = 0, greedy = 0, reserved = 0;
};

Status too_long(double each, size_t tokens, double seconds) {
  if (each * static_cast<double>(tokens) <= seconds) return {};
  return error(Code::cancelled, "{} tokens would take about {:.0f} s, by the first {}", tokens,
               each * static_cast<double>(tokens), kFirst);
}

}  // namespace

Result<Saying> say(Model& model, std::span<const int32_t> text, uint32_t prompt, uint32_t continued, double seconds) {
  Saying s;
  s.tokens = static_cast<uint32_t>(text.size());
  s.vocab = model.vocab();
  SWY_LET(auto session, model.session());
  const auto read = [&](std::span<const int32_t> ids, uint32_t most) {
    return read_logits(*session, ids, most, [&s](auto, std::span<const float> rows) -> Status {
      s.logits.insert(s.logits.end(), rows.begin(), rows.end());
      return {};
    });
  };
  const uint32_t first = std::min(kFirst, prompt);
  const double begin = now();
  SWY_TRY(read(text.first(first), first));
  SWY_TRY(too_long((now() - begin) / first, text.size() + prompt + continued, seconds));
  SWY_TRY(read(text.subspan(first, prompt - first), 256));
  SWY_TRY(read(text.subspan(prompt), 1));
  session.reset();
  if (continued != 0) {
    SWY_LET(s.greedy, continue_greedily(model, text.first(prompt), continued));
  }
  return s;
}

Status save(Os& os, const std::string& path, const Saying& saying) {
  SWY_LET(const auto file, os.create(path));
  const Header header{kMagic, saying.tokens, saying.vocab, static_cast<uint32_t>(saying.greedy.size()), 0};
  SWY_TRY(file->append(std::as_bytes(std::span(&header, 1))));
  SWY_TRY(file->append(std::as_bytes(std::span(saying.greedy))));
  SWY_TRY(file->append(std::as_bytes(std::span(saying.logits))));
  return file->commit();
}

Result<Saying> load_saying(Os& os, const std::string& path) {
  SWY_LET(const std::string bytes, os.read(path, kMostBytes));
  Header header;
  if (bytes.size() >= sizeof header) std::memcpy(&header, bytes.data(), sizeof header);
  const uint64_t greedy = uint64_t{header.greedy} * sizeof(GreedyStep);
  const uint64_t rows = uint64_t{header.tokens} * header.vocab * sizeof(float);
  if (header.magic != kMagic || bytes.size() != sizeof header + greedy + rows) {
    return error(Code::invalid_data, "{} holds no logits", path);
  }
  Saying s;
  s.tokens = header.tokens;
  s.vocab = header.vocab;
  s.greedy.resize(header.greedy);
  s.logits.resize(rows / sizeof(float));
  std::memcpy(s.greedy.data(), bytes.data() + sizeof header, greedy);
  std::memcpy(s.logits.data(), bytes.data() + sizeof header + greedy, rows);
  return s;
}

Result<Correctness> compare(Model& model, std::span<const int32_t> text, uint32_t prompt, const Saying& reference,
                            double seconds) {
  if (model.vocab() != reference.vocab || text.size() != reference.tokens) {
    return error(Code::usage, "the reference's logits are of another model or text");
  }
  SWY_LET(const Saying own, say(model, text, prompt, 0, seconds));
  Correctness c;
  c.against = "reference";
  c.positions = reference.tokens;
  uint32_t agree = 0;
  for (size_t i = 0; i < reference.tokens; ++i) {
    const auto p = std::span(reference.logits).subspan(i * reference.vocab, reference.vocab);
    const auto q = std::span(own.logits).subspan(i * reference.vocab, reference.vocab);
    const double kl = divergence_of(p, q);
    c.kl_mean += kl / static_cast<double>(reference.tokens);
    c.kl_worst = std::isnan(kl) || std::isnan(c.kl_worst) ? NAN : std::max(c.kl_worst, kl);
    if (!std::isnan(kl) && most_likely(p) == most_likely(q)) ++agree;
  }
  c.top1 = static_cast<double>(agree) / reference.tokens;
  SWY_LET(const auto parted, first_divergence(model, text.first(prompt), reference.greedy));
  if (parted) {
    c.divergence = Divergence{parted->position, parted->gap.value_or(NAN), parted->other_id, parted->id};
  }
  return c;
}

}  // namespace switchyard::bench
