// SPDX-License-Identifier: Apache-2.0
#include "core/import/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/json.h"
#include "core/base/load.h"
#include "core/base/printable.h"
#include "switchyard/weights.h"

namespace switchyard {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as the format's own library has it

using Dtype = SafetensorsTensor::Type;

uint64_t element_bytes(Dtype type) { return type == Dtype::f32 ? 4 : type == Dtype::u8 ? 1 : 2; }

float element(Dtype type, const std::byte* at) {
  if (type == Dtype::f32) return load<float>(at);
  if (type == Dtype::u8) return static_cast<float>(static_cast<uint8_t>(*at));
  const auto h = load<uint16_t>(at);
  return type == Dtype::bf16 ? swy_bf16_to_f32(h) : swy_f16_to_f32(h);
}

// One entry of a shard's header.
Result<SafetensorsTensor> parse_entry(const json& entry, std::span<const std::byte> data, const std::string& where) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets")) {
    return error(Code::invalid_data, "{} has a broken header entry", where);
  }
  SafetensorsTensor t;
  const std::string dtype = entry["dtype"].is_string() ? entry["dtype"].get<std::string>() : "?";
  if (dtype == "F32") {
    t.type = Dtype::f32;
  } else if (dtype == "F16") {
    t.type = Dtype::f16;
  } else if (dtype == "BF16") {
    t.type = Dtype::bf16;
  } else if (dtype == "U8" && (where.ends_with("_blocks") || where.ends_with("_scales"))) {
    t.type = Dtype::u8;
  } else {
    return error(Code::unsupported, "{} has dtype {}; F32, F16, BF16 and MXFP4 can be converted", where,
                 printable(dtype));
  }
  uint64_t elements = 1;
  const json& shape = entry["shape"];
  if (!shape.is_array()) return error(Code::invalid_data, "{} has the impossible shape {}", where, brief(shape));
  for (const json& d : shape) {
    if (!d.is_number_unsigned() || d.get<uint64_t>() == 0 || d.get<uint64_t>() > (uint64_t{1} << 48) / elements) {
      return error(Code::invalid_data, "{} has the impossible shape {}", where, brief(shape));
    }
    t.dims.push_back(d.get<uint64_t>());
    elements *= t.dims.back();
  }
  const json& offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return error(Code::invalid_data, "{} has broken data_offsets", where);
  }
  const auto begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  if (begin > end || end > data.size()) {
    return error(Code::invalid_data, "{} lies at bytes {}..{}, and the file's data ends at {}: the file is truncated",
                 where, begin, end, data.size());
  }
  if (end - begin != elements * element_bytes(t.type)) {
    return error(Code::invalid_data, "{} has {} bytes, and its shape {} needs {}", where, end - begin, brief(shape),
                 elements * element_bytes(t.type));
  }
  t.bytes = data.subspan(begin, end - begin);
  return t;
}

}  // namespace

void SafetensorsTensor::read_row(uint64_t row, std::span<float> out) const {
  const std::byte* from = bytes.data() + row * width() * element_bytes(type);
  if (type == Dtype::f32) {
    std::memcpy(out.data(), from, out.size() * 4);
    return;
  }
  for (size_t i = 0; i < out.size(); ++i) out[i] = element(type, from + i * element_bytes(type));
}

void SafetensorsTensor::read_column(uint64_t first_row, uint64_t column, std::span<float> out) const {
  const uint64_t size = element_bytes(type), stride = width() * size;
  const std::byte* from = bytes.data() + first_row * stride + column * size;
  for (size_t i = 0; i < out.size(); ++i) out[i] = element(type, from + i * stride);
}

void SafetensorsTensor::release_rows(uint64_t first, uint64_t count) const {
  const uint64_t size = width() * element_bytes(type);
  file->release(file_offset + first * size, count * size);
}

// ---- MXFP4

namespace {

constexpr uint64_t kBlockBytes = 16, kBlockElements = 2 * kBlockBytes;
constexpr uint8_t kNoNumber = 255;

}  // namespace

Result<Mxfp4Tensor> Mxfp4Tensor::create(const SafetensorsTensor& blocks, const SafetensorsTensor& scales) {
  std::vector<uint64_t> expected = scales.dims;
  expected.push_back(kBlockBytes);
  if (blocks.type != Dtype::u8 || scales.type != Dtype::u8 || blocks.dims != expected || scales.dims.size() < 2) {
    return error(Code::invalid_data,
                 "its blocks [{}] and scales [{}] do not belong together: MXFP4 has a scale for {}"
                 " bytes",
                 fmt::join(blocks.dims, ", "), fmt::join(scales.dims, ", "), kBlockBytes);
  }
  Mxfp4Tensor t;
  t.dims = scales.dims;
  t.dims.back() *= kBlockElements;
  t.blocks_ = blocks;
  t.scales_ = scales;
  return t;
}

void Mxfp4Tensor::read_row(uint64_t row, std::span<float> out) const {
  const uint64_t groups = scales_.width();
  const auto* quants = reinterpret_cast<const uint8_t*>(blocks_.bytes.data()) + row * groups * kBlockBytes;
  const auto* exponents = reinterpret_cast<const uint8_t*>(scales_.bytes.data()) + row * groups;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = swy_e2m1_to_f32(swy_element(quants, 4, i)) * swy_e8m0_to_f32(exponents[i / kBlockElements]);
  }
}

bool Mxfp4Tensor::encode_row(uint64_t row, std::span<std::byte> quants, std::span<uint16_t> scales,
                             std::span<uint16_t>) const {
  const uint64_t groups = scales_.width();
  if (scales.size() != groups || quants.size() != groups * kBlockBytes) return false;
  const auto* exponents = reinterpret_cast<const uint8_t*>(scales_.bytes.data()) + row * groups;
  if (std::find(exponents, exponents + groups, kNoNumber) != exponents + groups) return false;
  std::copy_n(exponents, groups, scales.begin());
  std::memcpy(quants.data(), blocks_.bytes.data() + row * groups * kBlockBytes, quants.size());
  return true;
}

void Mxfp4Tensor::release_rows(uint64_t first, uint64_t count) const {
  const uint64_t groups = scales_.width();
  blocks_.release_rows(first * groups, count * groups);
  scales_.release_rows(first, count);
}

// ---- checkpoints

Status Checkpoint::join_halves() {
  const std::string end = "_blocks";
  for (auto it = tensors_.begin(); it != tensors_.end();) {
    const std::string name = it->first.ends_with(end) ? it->first.substr(0, it->first.size() - end.size()) : "";
    if (name.empty() || it->second.type != Dtype::u8) {
      ++it;
      continue;
    }
    const auto scales = tensors_.find(name + "_scales");
    if (scales == tensors_.end()) {
      return error(Code::invalid_data, "the checkpoint has no tensor {}_scales; is this the whole checkpoint?",
                   printable(name));
    }
    Result<Mxfp4Tensor> joined = Mxfp4Tensor::create(it->second, scales->second);
    if (!joined.ok()) return joined.status().in("tensor " + printable(name));
    mxfp4_.emplace(name, std::move(*joined));
    tensors_.erase(scales);
    it = tensors_.erase(it);
  }
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.type != Dtype::u8) continue;
    return error(Code::invalid_data, "tensor {} has no blocks to scale; is this the whole checkpoint?",
                 printable(name));
  }
  return {};
}

Status Checkpoint::map_shard(Os& os, const std::string& path) {
  SWY_LET(std::unique_ptr<MappedFile> file, os.map(path));
  return add_shard(path, std::move(file));
}

Status Checkpoint::add_shard(const std::string& path, std::unique_ptr<MappedFile> file) {
  const std::span<const std::byte> bytes = file->bytes();
  uint64_t header_bytes = 0;
  if (bytes.size() >= 8) std::memcpy(&header_bytes, bytes.data(), 8);
  if (bytes.size() < 8 || header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - 8) {
    return error(Code::invalid_data, "{} is not a safetensors file, or is truncated", path);
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data() + 8);
  SWY_LET(const json header,
          read_json({text, header_bytes}, path + ": the safetensors header", {.bytes = kMaxHeaderBytes}));
  if (!header.is_object()) return error(Code::invalid_data, "{} has a broken safetensors header", path);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    SWY_LET(SafetensorsTensor t,
            parse_entry(entry, bytes.subspan(8 + header_bytes), fmt::format("{}: tensor {}", path, printable(name))));
    t.file = file.get();
    t.file_offset = static_cast<uint64_t>(t.bytes.data() - bytes.data());
    if (!tensors_.emplace(name, std::move(t)).second) {
      return error(Code::invalid_data, "{}: tensor {} is in two shards", path, printable(name));
    }
  }
  files_.push_back(std::move(file));
  return {};
}

Result<Checkpoint> Checkpoint::open(Os& os, const std::string& folder) {
  Checkpoint c;
  const std::string single = folder + "/model.safetensors", index = folder + "/model.safetensors.index.json";
  if (!os.exists(index)) {
    if (!os.exists(single)) {
      return error(Code::not_found,
                   "{} has neither model.safetensors nor model.safetensors.index.json; name the folder "
                   "of a Hugging Face checkpoint",
                   folder);
    }
    SWY_TRY(c.map_shard(os, single));
    SWY_TRY(c.join_halves());
    return c;
  }
  SWY_LET(const std::string text, os.read(index, JsonLimits().bytes));
  SWY_LET(const json parsed, read_json(text, index));
  if (!parsed.is_object() || !parsed.contains("weight_map") || !parsed["weight_map"].is_object()) {
    return error(Code::invalid_data, "{} has no weight_map", index);
  }
  std::set<std::string> shards;
  for (const auto& [name, shard] : parsed["weight_map"].items()) {
    if (!shard.is_string()) return error(Code::invalid_data, "{}: tensor {} names no shard", index, printable(name));
    shards.insert(shard.get<std::string>());
  }
  for (const std::string& shard : shards) {
    if (shard.find('/') != std::string::npos) {
      return error(Code::invalid_data, "{} names the shard {}, which is outside the checkpoint's folder", index,
                   printable(shard));
    }
    const std::string path = fmt::format("{}/{}", folder, shard);
    if (!os.exists(path)) {
      return error(Code::not_found, "{} is missing, and {} names it; download the whole checkpoint", path, index);
    }
    SWY_TRY(c.map_shard(os, path));
  }
  for (const auto& [name, shard] : parsed["weight_map"].items()) {
    if (!c.tensors_.contains(name)) {
      return error(Code::invalid_data, "tensor {} is not in {}, where the index says it is", printable(name),
                   printable(shard.get_ref<const std::string&>()));
    }
  }
  SWY_TRY(c.join_halves());
  return c;
}

const SourceTensor* Checkpoint::find(const std::string& name) const {
  if (const auto joined = mxfp4_.find(name); joined != mxfp4_.end()) return &joined->second;
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> all;
  for (const auto& [name, tensor] : tensors_) all.push_back(name);
  for (const auto& [name, tensor] : mxfp4_) all.push_back(name);
  return all;
}

}  // namespace switchyard
