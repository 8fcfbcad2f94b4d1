// SPDX-License-Identifier: Apache-2.0
#include "core/import/export.h"

#include <nlohmann/json.hpp>

#include "switchyard/weights.h"

namespace switchyard {

Status export_dequantized(Os& os, const Program& program, const std::string& path) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  uint64_t end = 0;
  for (const Tensor& t : program.tensors) {
    const std::vector<uint64_t> dims(t.dims.begin(), t.dims.begin() + t.rank);
    uint64_t bytes = 4;
    for (const uint64_t d : dims) bytes *= d;
    header[std::string(t.name)] = {{"dtype", "F32"}, {"shape", dims}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  SWY_LET(const auto file, os.create(path));
  SWY_TRY(file->append(std::as_bytes(std::span(&size, 1))));
  SWY_TRY(file->append(std::as_bytes(std::span(text))));
  for (const Tensor& t : program.tensors) {
    const swy_tensor desc = describe(t);
    swy_weight_planes planes;
    if (swy_weight_planes_of(&desc, &planes) != 0) return error(Code::internal, "{}: no such weight", t.name);
    std::vector<float> row(desc.dims[desc.rank - 1]);
    for (uint64_t r = 0; r < planes.rows; ++r) {
      swy_weight_row(&desc, &planes, program.segment_bytes(t).data(), r, row.data());
      SWY_TRY(file->append(std::as_bytes(std::span(row))));
    }
  }
  return file->commit();
}

}  // namespace switchyard
