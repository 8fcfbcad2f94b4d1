// The chain of sampling_math.h is normative to the bit, so that its own reference is the oracle here.
#include <algorithm>
#include <bit>
#include <cstring>

#include "plugins_api/check/naive.h"
#include "switchyard/sampling_row.h"

namespace switchyard::check {

namespace {

swy_sample_row_in row_in(const Draw& d, const float* logits, uint64_t vocab) {
  swy_sample_row_in in{};
  in.logits = logits + d.logit_row * vocab;
  in.vocab = static_cast<uint32_t>(vocab);
  in.bias_count = static_cast<uint32_t>(d.biases.size());
  in.biases = d.biases.data();
  in.mask = d.mask.empty() ? nullptr : d.mask.data();
  in.position = d.position;
  return in;
}

}  // namespace

void draw(const Step& step, const float* logits, uint64_t vocab, Matrix& results, std::vector<int32_t>& tokens) {
  std::vector<uint64_t> order(vocab);
  for (size_t i = 0; i < step.draws.size(); ++i) {
    const Draw& d = step.draws[i];
    const swy_sample_row_in in = row_in(d, logits, vocab);
    swy_sample_row_out out{};
    const int32_t status = swy_sample_row(&d.params, &in, order.data(), &out);
    const bool stopped = std::find(d.stops.begin(), d.stops.end(), out.token) != d.stops.end();
    const int32_t row[4] = {out.token, status, std::bit_cast<int32_t>(out.logprob), stopped ? 1 : 0};
    std::copy(row, row + 4, results.ints.begin() + static_cast<ptrdiff_t>(4 * i));
    tokens[d.token_entry] = status == SWY_SAMPLE_OK ? out.token : 0;
  }
}

namespace naive {

void sample(const Case& c, const Step& step, Outcome& all, std::vector<Matrix>& outputs) {
  draw(step, step.inputs[0].floats.data(), c.width(0), outputs[0], all.tokens);
}

void top_candidates(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  const auto k = static_cast<uint32_t>(outputs[0].width);
  std::vector<uint64_t> order(c.width(0));
  std::vector<float> logits(k);
  for (size_t i = 0; i < step.draws.size(); ++i) {
    const swy_sample_row_in in = row_in(step.draws[i], step.inputs[0].floats.data(), c.width(0));
    swy_candidates_result result;
    swy_row_candidates(&step.draws[i].params, &in, k, order.data(), &outputs[0].ints[i * k], logits.data(), &result);
    std::copy(logits.begin(), logits.end(), outputs[1].values.begin() + static_cast<ptrdiff_t>(i * k));
    std::memcpy(&outputs[2].ints[i * 8], &result, sizeof result);
  }
}

}  // namespace naive
}  // namespace switchyard::check
