// SPDX-License-Identifier: Apache-2.0
// GGUF files are untrusted: every value of one that is accepted can be described and taken apart, and every tensor read
// from its first block to its last. If it is a model, all that a conversion takes from it is read as well.
#include <cstdint>
#include <memory>
#include <vector>

#include "core/import/gguf.h"
#include "core/import/gguf_model.h"
#include "core/import/recommended.h"
#include "core/models/registry.h"
#include "switchyard/weights.h"
#include "tests/fuzz/bytes.h"

namespace switchyard {
namespace {

// A refusal is a line, not a dump of the file.
void check(const Status& status) {
  if (status.message().size() > 1000) __builtin_trap();
}

size_t read_values(const GgufFile& file) {
  size_t read = 0;
  for (const auto& [key, value] : file.metadata()) {
    read += value.describe().size();
    if (const auto all = value.wholes()) read += all->size();
    if (const auto all = value.flags()) read += all->size();
    if (const auto all = value.texts()) {
      for (const std::string_view text : *all) read += text.size();
    }
  }
  return read;
}

void read_tensors(const GgufFile& file) {
  std::vector<float> row;
  for (const GgufTensor& t : file.tensors()) {
    row.resize(t.width());
    for (uint64_t r = 0; r < t.rows(); ++r) {
      decode_blocks(*t.block, t.bytes.subspan(r * t.row_bytes(), t.row_bytes()), row);
    }
  }
}

// A weight of a program as its source has it.
void read_weight(const ProgramSpec::Tensor& tensor, const std::vector<SourceRows>& parts) {
  swy_tensor desc{};
  desc.struct_size = sizeof desc;
  desc.dtype = tensor.dtype;
  desc.group = tensor.group;
  desc.rank = static_cast<uint32_t>(tensor.dims.size());
  std::copy(tensor.dims.begin(), tensor.dims.end(), desc.dims);
  swy_weight_planes planes;
  if (swy_weight_planes_of(&desc, &planes) != 0) __builtin_trap();
  std::vector<float> row(tensor.dims.back());
  std::vector<std::byte> quants(planes.row_bytes);
  std::vector<uint16_t> scales(planes.groups), offsets(tensor.dtype == SWY_I4A ? planes.groups : 0);
  for (const SourceRows& part : parts) {
    for (uint64_t r = part.first; r < part.first + part.count; ++r) {
      part.tensor->read_row(r, row);
      const bool same = part.tensor->encoding() == WeightEncoding{tensor.dtype, tensor.group};
      if (planes.groups != 0 && same) (void)part.tensor->encode_row(r, quants, scales, offsets);
    }
  }
}

void read_model(GgufFile file) {
  const auto model = GgufModel::create(std::move(file));
  if (!model.ok()) return check(model.status());
  for (const std::string& note : recommended_by(model->file()).notes) check(error(Code::invalid_data, "{}", note));
  (void)model->quantization();
  (void)model->chat_template();
  (void)model->names();
  if (const auto tokenizer = model->tokenizer_json(); !tokenizer.ok()) check(tokenizer.status());
  const auto plan = plan_model(model->family(), model->config(), &*model, std::nullopt);
  if (!plan.ok()) return check(plan.status());
  for (size_t i = 0; i < plan->weights.size(); ++i) read_weight(plan->spec.tensors[i], plan->weights[i].parts);
}

}  // namespace
}  // namespace switchyard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace switchyard;  // NOLINT(google-build-using-namespace)
  const auto input = std::as_bytes(std::span(data, size));
  auto file =
      GgufFile::parse("x.gguf", std::make_unique<testing::Bytes>(std::vector<std::byte>(input.begin(), input.end())));
  if (!file.ok()) {
    check(file.status());
    return 0;
  }
  if (read_values(*file) == SIZE_MAX) __builtin_trap();
  read_tensors(*file);
  read_model(std::move(*file));
  return 0;
}
