// switchyard convert: a Hugging Face checkpoint to a program file.
#include <memory>

#include "cli/commands.h"
#include "cli/runtime.h"
#include "core/import/convert.h"

namespace switchyard::cli {
namespace {

struct Options {
  std::string source, output, quant = "i4", group = "64";
  uint32_t threads = 0;
  bool json = false;
};

Status convert_command(const Options& o) {
  ConvertOptions c;
  c.source = o.source;
  c.output = o.output;
  SWY_LET(c.encoding, parse_encoding(o.quant, o.group));
  Settings threads;
  threads.threads = o.threads;
  c.threads = thread_count(threads);
  Progress bar("converting");
  c.begin = [&](uint64_t bytes) {
    if (!o.json)
      fmt::print(stderr, "writing {} ({}, {:.1f} MiB)\n", o.output, encoding_name(c.encoding),
                 static_cast<double>(bytes) / 1048576);
  };
  c.progress = [&](uint64_t done, uint64_t total) {
    bar.update(done, total);
    return !interrupted.load();
  };
  const uint64_t begin = Os::real().now_ns();
  SWY_LET(const ConvertReport report, convert(Os::real(), c));
  if (o.json) {
    const nlohmann::ordered_json out = {{"output", o.output},
                                        {"encoding", encoding_name(c.encoding)},
                                        {"bytes", report.file_bytes},
                                        {"parameters", report.parameters},
                                        {"seconds", seconds_since(begin)},
                                        {"notes", report.notes}};
    print_json(out);
    return {};
  }
  for (const std::string& note : report.notes) fmt::print(stderr, "note: {}\n", note);
  fmt::print(stderr, "{}: {:.1f}M parameters in {:.1f} MiB, {:.1f} s\n", o.output,
             static_cast<double>(report.parameters) / 1e6, static_cast<double>(report.file_bytes) / 1048576,
             seconds_since(begin));
  return {};
}

}  // namespace

void add_convert(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("convert", "Make a program file from a Hugging Face checkpoint");
  c->footer(
      "Example: switchyard convert Qwen3.5-35B-A3B -o qwen.swy --quant i4 --group 64\n"
      "The source is a folder with config.json and safetensors. Nothing appears at the output unless all went well.");
  c->add_option("source", o->source, "folder of the checkpoint")->required();
  c->add_option("--output,-o", o->output, "file to write")->required();
  c->add_option("--quant", o->quant, "encoding of the large weights: bf16, i8, i4 or i4a (i4 with an offset)")
      ->capture_default_str();
  c->add_option("--group", o->group, "weights that share a scale: 32, 64, 128, or row")->capture_default_str();
  c->add_option("--threads", o->threads, "threads that quantize; 0: one per core")->check(thread_range());
  c->add_flag("--json", o->json, "print the result as JSON");
  c->callback([o, &exit_code] {
    if (const Status s = convert_command(*o); !s.ok()) exit_code = report(s);
  });
}

}  // namespace switchyard::cli
