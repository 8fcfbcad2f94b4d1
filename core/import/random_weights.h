// SPDX-License-Identifier: Apache-2.0
// Random bytes of one tensor in its canonical form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/program/spec.h"

namespace switchyard {

// The mean and the spread of a weight's values.
struct Spread {
  float mean = 0;
  float deviation = 1;
};

// Chosen by the weight's role, which its name in a checkpoint tells. `centre`: of a norm's weights. `layers`: of the
// whole model.
Spread spread_of(const std::string& name, const std::vector<uint64_t>& dims, float centre, uint32_t layers);

// Fills bytes [begin, begin + out.size()) of the tensor's canonical segment. `begin` is a multiple of 64. The bytes
// depend on (seed, the tensor, the position) alone, so that parts may be made in any order. [thread-safe]
void random_weights(const ProgramSpec::Tensor& tensor, Spread spread, uint64_t seed, uint64_t begin,
                    std::span<std::byte> out);

}  // namespace switchyard
