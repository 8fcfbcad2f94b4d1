// SPDX-License-Identifier: Apache-2.0
// Model: the hidden rows of its steps, and what concerns the steps of its multi-token prediction layer, too.
#include "core/engine/model.h"

namespace switchyard {

Status Model::read_hidden(uint32_t first, std::span<float> rows) const {
  return runner_->read_result(hidden_, std::as_writable_bytes(rows), uint64_t{first} * hidden_width_ * sizeof(float));
}

Result<bool> Model::read_hidden_with_next(uint32_t rows) {
  return runner_->read_with_next(hidden_, uint64_t{rows} * hidden_width_ * sizeof(float));
}

Result<std::span<const float>> Model::hidden_of_last() {
  SWY_LET(const std::span<const std::byte> bytes, runner_->read_with());
  return std::span(reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float));
}

void Model::observe(StepObserver* observer) {
  runner_->observe(observer);
  if (mtp_ != nullptr) mtp_->observe(observer);
}

void Model::forget_lists() {
  runner_->forget_lists();
  if (mtp_ != nullptr) mtp_->forget_lists();
}

}  // namespace switchyard
