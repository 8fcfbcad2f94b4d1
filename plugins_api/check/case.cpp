// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "plugins_api/check/quantize.h"
#include "switchyard/weights.h"

namespace switchyard::check {
namespace {

swy_tensor describe(swy_dtype dtype, const std::vector<uint64_t>& dims) {
  swy_tensor t{};
  t.struct_size = sizeof t;
  t.dtype = dtype;
  t.rank = static_cast<uint32_t>(dims.size());
  std::fill(t.dims, t.dims + 4, 1);
  std::copy(dims.begin(), dims.end(), t.dims);
  return t;
}

uint64_t product(const std::vector<uint64_t>& dims) {
  uint64_t n = 1;
  for (const uint64_t d : dims) n *= d;
  return n;
}

constexpr float kUnread = std::numeric_limits<float>::quiet_NaN();

}  // namespace

uint32_t Step::rows() const {
  uint32_t n = 0;
  for (const Sequence& s : seqs) n += s.rows;
  return n;
}

uint32_t Step::rows(swy_rows domain) const {
  return domain == SWY_ROWS_LOGITS   ? static_cast<uint32_t>(logit_rows.size())
         : domain == SWY_ROWS_SAMPLE ? static_cast<uint32_t>(draws.size())
                                     : rows();
}

uint32_t Step::owner(swy_rows domain, uint32_t row) const {
  if (domain == SWY_ROWS_SAMPLE) row = draws[row].logit_row;
  if (domain != SWY_ROWS_STEP) row = logit_rows[row];
  uint32_t s = 0;
  for (; row >= seqs[s].rows; ++s) row -= seqs[s].rows;
  return s;
}

bool Step::is_read(swy_rows domain, uint32_t row) const {
  const Sequence& q = seqs[owner(domain, row)];
  return q.active && (q.drafts.empty() || domain != SWY_ROWS_STEP || row == q.read);
}

swy_op Case::header() const {
  swy_op o{};
  o.struct_size = sizeof o;
  o.id = op;
  o.revision = revision;
  o.attrs = attrs.data();
  o.attrs_size = static_cast<uint32_t>(attrs.size());
  o.input_count = static_cast<uint32_t>(inputs.size());
  o.weight_count = static_cast<uint32_t>(weights.size());
  o.state_count = static_cast<uint32_t>(states.size());
  o.output_count = static_cast<uint32_t>(outputs.size());
  return o;
}

const Weight* Case::weight(const char* name) const {
  const swy_op o = header();
  const swy_ref at = swy_operand(&o, name);
  return at != SWY_REF_NONE && SWY_REF_KIND(at) == SWY_REF_WEIGHT ? &weights[SWY_REF_INDEX(at)] : nullptr;
}

void fit_bucket(Case& c, uint32_t spare) {
  swy_bucket& b = c.bucket;
  const swy_bucket pool = b;
  b = {};
  b.struct_size = sizeof b;
  b.pages = pool.pages;
  b.slots = pool.slots;
  b.page_size = pool.page_size;
  bool decode = spare == 0;
  for (const Step& s : c.steps) {
    b.rows = std::max(b.rows, s.rows() + spare);
    b.seqs = std::max(b.seqs, static_cast<uint32_t>(s.seqs.size()) + (spare != 0 ? 1 : 0));
    b.logit_rows = std::max(b.logit_rows, static_cast<uint32_t>(s.logit_rows.size()));
    b.sample_rows = std::max(b.sample_rows, static_cast<uint32_t>(s.draws.size()));
    for (const Sequence& q : s.seqs) {
      b.context = std::max(b.context, q.position + q.rows);
      decode = decode && q.rows <= 1;
    }
  }
  if (decode) b.flags |= SWY_BUCKET_DECODE;
  for (auto* list : {&c.inputs, &c.outputs}) {
    for (Operand& o : *list) {
      o.desc.dims[0] = o.desc.rows == SWY_ROWS_LOGITS   ? b.logit_rows
                       : o.desc.rows == SWY_ROWS_SAMPLE ? b.sample_rows
                                                        : b.rows;
    }
  }
}

Builder& Builder::rows(const std::vector<uint32_t>& counts) {
  std::vector<Sequence> seqs(counts.size());
  uint32_t page = 0;
  for (uint32_t s = 0; s < counts.size(); ++s) {
    seqs[s].id = seqs[s].read_slot = seqs[s].write_slot = s;
    seqs[s].rows = counts[s];
    seqs[s].position = s == 0 ? 0 : 5 + 17 * s;
    for (uint32_t p = 0; p * page_size_ < seqs[s].position + counts[s]; ++p) seqs[s].pages.push_back(page++);
  }
  return step(std::move(seqs));
}

Builder& Builder::page_size(uint32_t tokens) {
  page_size_ = tokens;
  return *this;
}

Builder& Builder::step(std::vector<Sequence> seqs) {
  Step s;
  s.seqs = std::move(seqs);
  s.tokens.assign(s.rows(), 0);
  c_.bucket.page_size = page_size_;
  for (const Sequence& q : s.seqs) {
    c_.bucket.slots = std::max({c_.bucket.slots, q.read_slot + 2, q.write_slot + 2});  // and one that is not used
    for (const uint32_t p : q.pages) c_.bucket.pages = std::max(c_.bucket.pages, p + 2);
  }
  c_.steps.push_back(std::move(s));
  return *this;
}

Builder& Builder::wanted(const std::vector<uint32_t>& logit_rows) {
  c_.steps.back().logit_rows = logit_rows;
  return *this;
}

Builder& Builder::activation(uint64_t width, double mean, double deviation, swy_rows domain, bool fixed) {
  Operand o{describe(SWY_F32, {0, width}), fixed};
  o.desc.rows = domain;
  c_.inputs.push_back(o);
  for (Step& s : c_.steps) s.inputs.push_back({random_.normals(s.rows(domain) * width, mean, deviation), {}});
  return *this;
}

Builder& Builder::input(uint64_t width, double mean, double deviation, swy_rows domain) {
  return activation(width, mean, deviation, domain, false);
}
Builder& Builder::fixed_input(uint64_t width, double mean, double deviation, swy_rows domain) {
  return activation(width, mean, deviation, domain, true);
}
Builder& Builder::int_input(uint64_t width) {
  c_.inputs.push_back({describe(SWY_I32, {0, width}), true});
  for (Step& s : c_.steps) s.inputs.push_back({{}, std::vector<int32_t>(s.rows() * width)});
  return *this;
}

Builder& Builder::matrix(std::vector<uint64_t> dims, swy_dtype encoding, uint32_t group, double deviation) {
  Weight w;
  w.desc = describe(encoding, dims);
  w.desc.group = encoding == SWY_F32 || encoding == SWY_BF16 ? 0 : group;
  w.quantizable = true;
  const double spread = deviation / std::sqrt(static_cast<double>(dims.back()));
  if (random_.draws()) encode_weight(w, random_.normals(product(dims), encoding == SWY_I4A ? 0.3 * spread : 0, spread));
  c_.weights.push_back(std::move(w));
  return *this;
}

Builder& Builder::plain(const std::vector<uint64_t>& dims, swy_dtype dtype, double mean, double deviation) {
  Weight w;
  w.desc = describe(dtype, dims);
  if (random_.draws()) encode_weight(w, random_.normals(product(dims), mean, deviation));
  c_.weights.push_back(std::move(w));
  return *this;
}

Builder& Builder::values(const std::vector<uint64_t>& dims, const std::vector<float>& values) {
  Weight w;
  w.desc = describe(SWY_F32, dims);
  encode_weight(w, values);
  c_.weights.push_back(std::move(w));
  return *this;
}

// Memory that an active sequence reads is filled with numbers, everything else with NaN, so that reading it shows.
// Slots that no sequence uses get numbers, too, which must be unchanged afterwards.
Builder& Builder::slotted(std::vector<uint64_t> dims, double deviation) {
  State s;
  s.desc = describe(SWY_F32, dims);
  s.desc.state = SWY_STATE_SLOTTED;
  s.units = c_.bucket.slots;
  s.unit = product(dims);
  s.row = s.unit / dims[0];
  s.content = random_.normals(s.units * s.unit, 0, deviation);
  std::vector<bool> written(s.units, false), read(s.units, false);
  for (const Step& step : c_.steps) {
    for (const Sequence& q : step.seqs) {
      if (q.position > 0 && !written[q.read_slot]) read[q.read_slot] = true;
      if (q.position == 0 && !read[q.read_slot]) written[q.read_slot] = true;
      if (!read[q.write_slot] && q.active) written[q.write_slot] = true;
    }
  }
  for (uint64_t u = 0; random_.draws() && u < s.units; ++u) {
    if (written[u]) std::fill_n(s.content.begin() + static_cast<ptrdiff_t>(u * s.unit), s.unit, kUnread);
  }
  c_.states.push_back(std::move(s));
  return *this;
}

Builder& Builder::pending(uint64_t width) {
  uint32_t most = 1;
  for (const Step& step : c_.steps) {
    for (const Sequence& q : step.seqs) most = std::max(most, q.pending ? q.rows : 0);
  }
  State s;
  s.desc = describe(SWY_F32, {most, width});
  s.desc.state = SWY_STATE_SLOTTED;
  s.units = c_.bucket.slots;
  s.unit = most * width;
  s.row = width;
  s.content.assign(random_.draws() ? s.units * s.unit : 0, kUnread);
  s.own = true;
  c_.states.push_back(std::move(s));
  return *this;
}

Builder& Builder::counts(uint64_t vocab) {
  std::vector<Draw>& draws = c_.steps.back().draws;
  State s;
  s.desc = describe(SWY_I32, {vocab});
  s.desc.state = SWY_STATE_SLOTTED;
  s.units = 2 * draws.size() + 1;  // and one that is not used
  s.unit = s.row = vocab;
  s.content.assign(random_.draws() ? s.units * vocab : 0, kUnread);
  for (uint32_t i = 0; i < draws.size(); ++i) {
    const bool fresh = i % 4 == 2, dropped = i % 4 == 3, same = i % 4 == 0;
    if (!fresh) draws[i].counts_read = 2 * i;
    if (!dropped) draws[i].counts_write = same ? 2 * i : 2 * i + 1;
    for (uint64_t id = 0; random_.draws() && !fresh && id < vocab; ++id) {
      const uint32_t prompt = random_.below(3) == 0 ? SWY_SEEN_IN_PROMPT : 0, times = random_.below(6);
      s.content[2 * i * vocab + id] = std::bit_cast<float>(prompt | (times < 3 ? times : 0));
    }
  }
  c_.bucket.slots = std::max(c_.bucket.slots, static_cast<uint32_t>(s.units));
  c_.states.push_back(std::move(s));
  return *this;
}

Builder& Builder::paged(const std::vector<uint64_t>& dims, double deviation) {
  State s;
  s.desc = describe(SWY_F32, dims);
  s.desc.state = SWY_STATE_PAGED;
  s.units = c_.bucket.pages;
  s.row = product(dims);
  s.unit = s.row * page_size_;
  s.content.assign(random_.draws() ? s.units * s.unit : 0, kUnread);
  std::vector<bool> filled(s.units * page_size_, false);
  for (const Step& step : c_.steps) {
    for (const Sequence& q : step.seqs) {
      for (uint32_t t = 0; random_.draws() && t < q.position + q.rows; ++t) {
        const uint64_t token = uint64_t{q.pages[t / page_size_]} * page_size_ + t % page_size_;
        if (t < q.position && !filled[token]) {
          for (uint64_t i = 0; i < s.row; ++i) {
            s.content[token * s.row + i] = static_cast<float>(deviation * random_.normal());
          }
        }
        filled[token] = true;
      }
    }
  }
  c_.states.push_back(std::move(s));
  return *this;
}

Builder& Builder::output(uint64_t width, swy_rows domain) {
  Operand o{describe(SWY_F32, {0, width}), false};
  o.desc.rows = domain;
  c_.outputs.push_back(o);
  return *this;
}
Builder& Builder::fixed_output(uint64_t width, swy_dtype dtype, swy_rows domain) {
  Operand o{describe(dtype, {0, width}), true};
  o.desc.rows = domain;
  c_.outputs.push_back(o);
  return *this;
}

Case Builder::done(uint32_t spare) {
  fit_bucket(c_, spare);
  return std::move(c_);
}

}  // namespace switchyard::check
