// SPDX-License-Identifier: Apache-2.0
// A case: one operation with all that it reads, ready to be given to any kernel, or to the naive implementation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "plugins_api/check/random.h"
#include "switchyard/op_table.h"
#include "switchyard/plugin.h"
#include "switchyard/sampling_math.h"
#include "switchyard/step.h"

namespace switchyard::check {

// An activation's description. dims[0] is set from the bucket. `fixed`: its dtype is the operation's, not a choice
// between fp32 and bf16.
struct Operand {
  swy_tensor desc{};
  bool fixed = false;
};

// An activation's content in one step, [rows of the step, width]: floats, or ints where the dtype is SWY_I32.
struct Values {
  std::vector<float> floats;
  std::vector<int32_t> ints;
};

// Numbers that do not change any more, which all copies have together.
template <class T>
class Shared {
 public:
  Shared() = default;
  explicit Shared(std::vector<T> all)
      : all_(std::make_shared<const std::vector<T>>(std::move(all))), data_(all_->data()) {}
  size_t size() const { return all_ == nullptr ? 0 : all_->size(); }
  const T* data() const { return data_; }
  const T& operator[](uint64_t i) const { return data_[i]; }

 private:
  std::shared_ptr<const std::vector<T>> all_;
  const T* data_ = nullptr;
};

struct Weight {
  swy_tensor desc{};
  bool quantizable = false;   // a matrix, for which a kernel's weight_dtypes speak
  Shared<std::byte> segment;  // canonical, as weights.h says
  Shared<double> values;      // the values it encodes, row-major
  double at(uint64_t row, uint64_t i) const { return values[row * desc.dims[desc.rank - 1] + i]; }
  double operator[](uint64_t i) const { return values[i]; }
};

struct State {
  swy_tensor desc{};
  uint64_t units = 0;          // slots or pages
  uint64_t unit = 0;           // elements of one
  uint64_t row = 0;            // elements that are compared as one: a token of a page, dims[1..] of a slot
  std::vector<float> content;  // canonical, [units, unit]; NaN where nothing may be read; SWY_I32: the words' bits
  // What is in it is for the backend to choose: it begins as poison, and only slots that no step writes are compared.
  bool own = false;
};

struct Sequence {
  uint32_t id = 0;  // the same in every step of a case
  uint32_t rows = 1;
  uint32_t position = 0;  // of its first row
  bool active = true;
  uint32_t read_slot = 0, write_slot = 0;
  std::vector<uint32_t> pages;
  uint32_t kept = 0;     // pending rows of the read slot that stand
  bool pending = false;  // its rows stay pending
  // The draft after each row but the last, in the form of Step::tokens, where not all may stand (extensions_ahead.h).
  std::vector<int32_t> drafts = {};
  uint32_t read = 0;  // then: the row that is read, of those drafts the last one that stands
};

// One sampling row.
struct Draw {
  uint32_t logit_row = 0, token_entry = 0;
  uint64_t position = 0;
  swy_sample_params params{};
  std::vector<uint32_t> mask;
  std::vector<swy_logit_bias> biases;  // ids rising
  std::vector<int32_t> stops;
  uint32_t counts_read = SWY_NO_SLOT, counts_write = SWY_NO_SLOT;
};

struct Step {
  std::vector<Sequence> seqs;
  std::vector<int32_t> tokens;  // per row, as swy_step has them
  std::vector<uint32_t> logit_rows;
  std::vector<Draw> draws;
  std::vector<Values> inputs;

  uint32_t rows() const;
  uint32_t rows(swy_rows domain) const;
  // Which sequence (index into seqs) owns a row of a domain.
  uint32_t owner(swy_rows domain, uint32_t row) const;
  // Whether what a row of a domain gets is read: not of an inactive sequence, nor of rows before one that alone is
  // read.
  bool is_read(swy_rows domain, uint32_t row) const;
};

struct Case {
  uint32_t op = 0, revision = 1;
  std::vector<std::byte> attrs;
  std::vector<Operand> inputs, outputs;
  std::vector<Weight> weights;
  std::vector<State> states;
  std::vector<Step> steps;      // run one after the other on the same states
  std::vector<int32_t> tokens;  // the device's token buffer at the beginning
  swy_bucket bucket{};

  template <class Attrs>
  Attrs attributes() const {
    Attrs a{};
    std::memcpy(&a, attrs.data(), attrs.size() < sizeof a ? attrs.size() : sizeof a);
    return a;
  }
  uint64_t width(uint32_t input) const { return inputs[input].desc.dims[1]; }

  // The operation without descriptions of its operands: what swy_attention_of and swy_operand need.
  swy_op header() const;
  // NULL where the operation does not have it; a repeated one's first.
  const Weight* weight(const char* name) const;
};

// Sets the bucket to just what the steps need, and the outer dims of the activations to the bucket's. `spare` rows and
// sequences are added to it.
void fit_bucket(Case& c, uint32_t spare);

// Builds a case: first the steps, then the operands in the operation's order. Contents are random.
class Builder {
 public:
  Builder(uint32_t op, Random& random, uint32_t revision = 1) : random_(random) {
    c_.op = op;
    c_.revision = revision;
  }

  // As many of them as this revision has.
  template <class Attrs>
  Builder& attrs(Attrs a) {
    a.struct_size = swy_find_op(c_.op, c_.revision)->attrs_size;
    c_.attrs.resize(a.struct_size);
    std::memcpy(c_.attrs.data(), &a, a.struct_size);
    return *this;
  }
  // A step in which the sequences have these many rows. Every sequence has a slot and pages of its own.
  Builder& rows(const std::vector<uint32_t>& counts);
  Builder& step(std::vector<Sequence> seqs);
  Builder& wanted(const std::vector<uint32_t>& logit_rows);  // of the last step
  Builder& page_size(uint32_t tokens);                       // before the first step; 16 unless told

  Builder& input(uint64_t width, double mean = 0, double deviation = 1, swy_rows domain = SWY_ROWS_STEP);
  // fp32 whatever the other activations are.
  Builder& fixed_input(uint64_t width, double mean = 0, double deviation = 1, swy_rows domain = SWY_ROWS_STEP);
  Builder& int_input(uint64_t width);  // zeros; the caller fills them
  // A matrix in some encoding, normal with deviation / sqrt(last dim).
  Builder& matrix(std::vector<uint64_t> dims, swy_dtype encoding, uint32_t group, double deviation = 1);
  // A plain weight, fp32 or bf16; with these values; of biases, beside products of about 1.
  Builder& plain(const std::vector<uint64_t>& dims, swy_dtype dtype, double mean, double deviation);
  Builder& values(const std::vector<uint64_t>& dims, const std::vector<float>& values);
  Builder& bias(const std::vector<uint64_t>& dims, swy_dtype dtype) { return plain(dims, dtype, 0.2, 0.5); }
  Builder& slotted(std::vector<uint64_t> dims, double deviation);
  // The pending rows of GATED_DELTA r2, as many as a sequence of the steps has, of so many elements.
  Builder& pending(uint64_t width);
  // SAMPLE's counts [slots, vocab]; the samples of the last step get their slots in every possible way.
  Builder& counts(uint64_t vocab);
  Builder& paged(const std::vector<uint64_t>& dims, double deviation);
  Builder& output(uint64_t width, swy_rows domain = SWY_ROWS_STEP);
  Builder& fixed_output(uint64_t width, swy_dtype dtype, swy_rows domain = SWY_ROWS_STEP);

  Random& random() { return random_; }
  Case& peek() { return c_; }
  // For counts below the bucket's, pass `spare` rows.
  Case done(uint32_t spare = 0);

 private:
  Builder& activation(uint64_t width, double mean, double deviation, swy_rows domain, bool fixed);
  Random& random_;
  uint32_t page_size_ = 16;
  Case c_;
};

}  // namespace switchyard::check
