// SPDX-License-Identifier: Apache-2.0
#include "tests/import/checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>

#include "switchyard/weights.h"

namespace switchyard::testing {

namespace fs = std::filesystem;
using nlohmann::json;

std::string safetensors(const RawTensors& tensors) {
  json header = json::object();
  size_t end = 0;
  for (const auto& [name, t] : tensors) {
    header[name] = {{"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {end, end + t.bytes.size()}}};
    end += t.bytes.size();
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  std::string file(reinterpret_cast<const char*>(&size), sizeof size);
  file += text;
  for (const auto& [name, t] : tensors) file += t.bytes;
  return file;
}

TinyCheckpoint::TinyCheckpoint(const std::string& name) {
  for (const auto& entry : fs::directory_iterator(SWITCHYARD_TEST_DATA "/tiny/" + name)) {
    const std::string file = entry.path().filename();
    const bool recorded = file == "expected.json" || entry.path().extension() == ".f32";
    if (!recorded) fs::copy_file(entry.path(), folder_.path(file));
  }
}

json TinyCheckpoint::config() const { return json::parse(read_file(path("config.json"))); }

RawTensors TinyCheckpoint::tensors() const {
  RawTensors all;
  for (const auto& entry : fs::directory_iterator(path())) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string file = read_file(entry.path());
    uint64_t size = 0;
    std::memcpy(&size, file.data(), sizeof size);
    const json header = json::parse(file.substr(8, size));
    for (const auto& [name, t] : header.items()) {
      if (name == "__metadata__") continue;
      const auto begin = t["data_offsets"][0].get<size_t>(), end = t["data_offsets"][1].get<size_t>();
      all[name] = {t["dtype"], t["shape"], file.substr(8 + size + begin, end - begin)};
    }
  }
  return all;
}

void TinyCheckpoint::set_tensors(const RawTensors& tensors) const {
  const std::string bytes = safetensors(tensors);
  for (const auto& entry : fs::directory_iterator(path())) {
    if (entry.path().filename().string().starts_with("model")) fs::remove(entry.path());
  }
  write("model.safetensors", bytes);
}

Result<ConvertReport> convert_to(const std::string& source, const std::string& output, WeightEncoding encoding,
                                 Os& os) {
  ConvertOptions options;
  options.source = source;
  options.output = output;
  options.encoding = encoding;
  auto report = convert(os, options);
  const std::string& message = report.status().message();
  EXPECT_EQ(message.find_first_of("\n\r\x1b"), std::string::npos) << message;
  EXPECT_LT(message.size(), 600u) << message;
  return report;
}

Program converted(const TinyCheckpoint& checkpoint, WeightEncoding encoding) {
  const TemporaryFolder out;
  const auto report = convert_to(checkpoint.path(), out.path("out.swy"), encoding);
  EXPECT_TRUE(report.ok()) << report.status().message();
  auto program = Program::load(Os::real(), out.path("out.swy"));  // stays mapped after the file is gone
  EXPECT_TRUE(program.ok()) << program.status().message();
  EXPECT_TRUE(program->verify_weights().ok());
  return std::move(*program);
}

std::vector<float> weight_values(const Program& program, const std::string& name) {
  for (const Tensor& t : program.tensors) {
    if (t.name != name) continue;
    const swy_tensor desc = describe(t);
    swy_weight_planes planes;
    EXPECT_EQ(swy_weight_planes_of(&desc, &planes), 0);
    const uint64_t width = desc.dims[desc.rank - 1];
    std::vector<float> values(planes.rows * width);
    for (uint64_t row = 0; row < planes.rows; ++row) {
      swy_weight_row(&desc, &planes, program.segment_bytes(t).data(), row, values.data() + row * width);
    }
    return values;
  }
  ADD_FAILURE() << "no weight " << name;
  return {};
}

}  // namespace switchyard::testing
