// SPDX-License-Identifier: Apache-2.0
// C++ SDK: structs of a host that may be older than this plugin's headers, as this plugin knows them.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "switchyard/op_table.h"
#include "switchyard/plugin.h"

#pragma GCC visibility push(hidden)  // so that two plugins with this code share none of it

namespace swy {

// By the smaller size; what lies beyond is 0. The copy's struct_size says what was there.
template <class T>
T sized_copy(const T& theirs) {
  T out{};
  const uint32_t bytes = std::min<uint32_t>(theirs.struct_size, sizeof(T));
  std::memcpy(&out, &theirs, bytes);
  out.struct_size = bytes;
  return out;
}

// The host's struct if it is at least as long as this plugin's, otherwise a copy of it.
template <class T>
class Whole {
 public:
  explicit Whole(const T& theirs) : at_(&theirs) {
    if (theirs.struct_size >= sizeof(T)) return;
    copy_ = sized_copy(theirs);
    at_ = &copy_;
  }
  Whole(const Whole&) = delete;
  Whole& operator=(const Whole&) = delete;
  const T& operator*() const { return *at_; }
  const T* operator->() const { return at_; }

 private:
  T copy_{};
  const T* at_;
};

// Bytes of the attribute struct of an operation of ops.h.
inline uint32_t attrs_bytes(uint32_t op) {
  const swy_op_spec* spec = swy_find_op(op, 0);
  return spec == nullptr ? 0 : spec->attrs_size;
}

// The same for an operation, with its attributes and its operands' descriptions. Allocates if the host is older; throws
// std::bad_alloc.
class WholeOp {
 public:
  explicit WholeOp(const swy_op& theirs) : at_(&theirs) {
    if (!is_whole(theirs)) complete(theirs);
  }
  WholeOp(const WholeOp&) = delete;
  WholeOp& operator=(const WholeOp&) = delete;
  const swy_op& operator*() const { return *at_; }
  const swy_op* operator->() const { return at_; }

 private:
  static bool is_whole(const swy_op& op) {
    const auto all = [](const swy_tensor* const* tensors, uint32_t count) {
      for (uint32_t i = 0; i < count; ++i) {
        if (tensors[i]->struct_size < sizeof(swy_tensor)) return false;
      }
      return true;
    };
    return op.struct_size >= sizeof op && op.attrs_size >= attrs_bytes(op.id) && all(op.inputs, op.input_count) &&
           all(op.weights, op.weight_count) && all(op.states, op.state_count) && all(op.outputs, op.output_count);
  }
  void complete(const swy_op& theirs) {
    op_ = sized_copy(theirs);
    if (op_.attrs_size != 0) {
      attrs_.resize((std::max(op_.attrs_size, attrs_bytes(op_.id)) + 7) / 8);
      std::memcpy(attrs_.data(), op_.attrs, op_.attrs_size);
      op_.attrs = attrs_.data();
    }
    tensors_.reserve(op_.input_count + op_.weight_count + op_.state_count + op_.output_count);
    lists_.reserve(tensors_.capacity());
    const auto take = [this](const swy_tensor* const*& tensors, uint32_t count) {
      const size_t first = lists_.size();
      for (uint32_t i = 0; i < count; ++i) lists_.push_back(&tensors_.emplace_back(sized_copy(*tensors[i])));
      tensors = lists_.data() + first;
    };
    take(op_.inputs, op_.input_count);
    take(op_.weights, op_.weight_count);
    take(op_.states, op_.state_count);
    take(op_.outputs, op_.output_count);
    at_ = &op_;
  }

  swy_op op_{};
  std::vector<uint64_t> attrs_;  // aligned storage
  std::vector<swy_tensor> tensors_;
  std::vector<const swy_tensor*> lists_;
  const swy_op* at_;
};

}  // namespace swy

#pragma GCC visibility pop
