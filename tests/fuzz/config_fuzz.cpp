// SPDX-License-Identifier: Apache-2.0
// Configurations are untrusted: the input is a config.json, a zero byte, and a generation_config.json. One that is
// accepted is planned as a model, whose sizes must fit.
#include <cstdint>
#include <string_view>

#include "core/models/registry.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  auto config = switchyard::Config::parse(input.substr(0, end),
                                          end == std::string_view::npos ? std::string_view() : input.substr(end + 1));
  const auto plan = [&]() -> switchyard::Result<switchyard::ModelPlan> {
    if (!config.ok()) return config.status();
    const auto family = switchyard::family_of(*config);
    if (!family.ok()) return family.status();
    return switchyard::plan_model(**family, *config, nullptr, switchyard::WeightEncoding{SWY_I4, 32});
  }();
  if (!plan.ok()) {
    if (plan.status().message().size() > 1000) __builtin_trap();  // a line, not a dump of the file
    return 0;
  }
  long double elements = 0;
  for (const auto& tensor : plan->spec.tensors) {
    uint64_t product = 1;
    for (const uint64_t dim : tensor.dims) {
      if (dim == 0 || __builtin_mul_overflow(product, dim, &product)) __builtin_trap();
    }
    elements += static_cast<long double>(product);
  }
  if (elements > 2e14L) __builtin_trap();
  return 0;
}
