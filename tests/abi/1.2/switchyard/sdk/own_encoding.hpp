// SPDX-License-Identifier: Apache-2.0
// C++ SDK: an encoding that a recorded operation keeps, since the host's descriptions end with the call.
#pragma once

#include <string>
#include <vector>

#include "switchyard/ops.h"

#pragma GCC visibility push(hidden)  // so that two plugins with this code share none of it

namespace swy {

class OwnEncoding {
 public:
  explicit OwnEncoding(const swy_encoding& theirs)
      : name_(theirs.name), codes_(theirs.codes, theirs.codes + (size_t{1} << theirs.bits)) {
    desc_.struct_size = sizeof desc_;
    desc_.bits = theirs.bits;
    desc_.group = theirs.group;
    desc_.scale_dtype = theirs.scale_dtype;
    desc_.has_offset = theirs.has_offset;
    desc_.name = name_.c_str();
    desc_.codes = codes_.data();
  }
  OwnEncoding(const OwnEncoding&) = delete;
  OwnEncoding& operator=(const OwnEncoding&) = delete;
  const swy_encoding* get() const { return &desc_; }

 private:
  std::string name_;
  std::vector<float> codes_;
  swy_encoding desc_{};
};

}  // namespace swy

#pragma GCC visibility pop
