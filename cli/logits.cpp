// SPDX-License-Identifier: Apache-2.0
// switchyard logits: the raw numbers, for comparing with other implementations.
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/runtime.h"
#include "core/engine/evaluate.h"
#include "core/engine/room.h"

namespace switchyard::cli {
namespace {

struct LogitsFlags {
  Settings settings;
  std::string ids, out;
  bool json = false;
};

Result<std::vector<int32_t>> parse_ids(const std::string& text) {
  std::vector<int32_t> ids;
  for (const char *p = text.data(), *end = p + text.size(); p != end;) {
    if (std::string_view(" ,\t\r\n").find(*p) != std::string_view::npos) {
      ++p;
      continue;
    }
    int32_t id = 0;
    const auto r = std::from_chars(p, end, id);
    if (r.ec != std::errc()) return error(Code::usage, "--ids takes whole numbers separated by blanks, not '{}'", text);
    ids.push_back(id);
    p = r.ptr;
  }
  if (ids.empty()) return error(Code::usage, "--ids is empty");
  return ids;
}

// The .npy format, version 1.0: float32 [rows, columns], C order.
std::string npy_header(size_t rows, size_t columns) {
  std::string dict = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, columns);
  dict.resize((10 + dict.size() + 1 + 63) / 64 * 64 - 11, ' ');
  dict += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dict.size() & 0xff);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

Status logits(const LogitsFlags& o) {
  SWY_LET(const std::vector<int32_t> ids, parse_ids(o.ids));
  Settings settings = o.settings;
  if (settings.chunk == 0) settings.chunk = Model::kChunk;  // all rows of a step have logits
  SWY_LET(Runtime r, load_runtime(settings));
  if (ids.size() > r.model->context()) {
    return error(Code::usage, "--ids has {} tokens, and the context holds {}; {}", ids.size(), r.model->context(),
                 room_advice(*r.model));
  }
  SWY_LET(auto session, r.model->session());
  SWY_LET(const auto file, Os::real().create(o.out));
  const std::string header = npy_header(ids.size(), r.model->vocab());
  SWY_TRY(file->append(std::as_bytes(std::span(header))));
  SWY_TRY(read_logits(*session, ids, 0, [&](auto, std::span<const float> values) -> Status {
    if (interrupted.load()) return error(Code::cancelled, "stopped; nothing was written to {}", o.out);
    return file->append(std::as_bytes(values));
  }));
  SWY_TRY(file->commit());
  if (o.json) {
    print_json({{"output", o.out}, {"dtype", "float32"}, {"shape", {ids.size(), r.model->vocab()}}});
  } else {
    say("{}: float32 [{}, {}]\n", o.out, ids.size(), r.model->vocab());
  }
  return {};
}

}  // namespace

void add_logits(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<LogitsFlags>();
  CLI::App* c = app.add_subcommand("logits", "Write a model's logits for given token ids");
  c->footer("Example: switchyard logits demo.swy --ids \"46 1392 570\" --out logits.npy");
  c->add_option("--ids", o->ids, "token ids, separated by blanks")->required();
  add_output(*c, "--out", o->out, "file to write: NumPy's .npy, float32 [tokens, vocab]")->required();
  c->add_flag("--json", o->json, "print the file's name and shape as JSON");
  add_settings(*c, o->settings, "program");
  set_action(*c, exit_code, [o] { return logits(*o); });
}

}  // namespace switchyard::cli
