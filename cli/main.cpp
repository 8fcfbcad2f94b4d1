// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <system_error>

#include "cli/bench_worker.h"
#include "cli/commands.h"
#include "cli/runtime.h"

namespace switchyard::cli {
namespace {

// CLI11 only says that there is no command at all.
Status check_command(const CLI::App& app, const std::string& name) {
  std::string known;
  for (const CLI::App* c : app.get_subcommands({})) {
    if (c->get_name() == name) return {};
    if (c->get_group().empty()) continue;
    known += (known.empty() ? "" : ", ") + c->get_name();
  }
  return error(Code::usage, "there is no command '{}'; the commands are {}", name, known);
}

int run_program(int argc, char** argv) {
  CLI::App app(
      "Runs mixture-of-experts language models on backends that are plugins.\n"
      "Try: switchyard run \"Once upon a time\"",
      "switchyard");
  app.set_version_flag("--version", "switchyard " SWITCHYARD_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  add_run(app, exit_code);
  add_chat(app, exit_code);
  add_convert(app, exit_code);
  add_inspect(app, exit_code);
  add_backends(app, exit_code);
  add_plan(app, exit_code);
  add_perplexity(app, exit_code);
  add_diverge(app, exit_code);
  add_experts(app, exit_code);
  add_logits(app, exit_code);
  add_bench(app, exit_code);
  add_bench_worker(app, exit_code);
  add_tune(app, exit_code);
  add_synth(app, exit_code);
  add_config(app, exit_code);
  catch_interrupts();
  if (argc > 1 && *argv[1] != '-') {
    if (const Status s = check_command(app, argv[1]); !s.ok()) return report(s);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    return report(Status(Code::usage, std::string(e.what()) + "; see switchyard --help"));
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "switchyard: out of memory\n");
    return 1;
  } catch (const std::system_error& e) {  // fmt, whose only use of files here is to print
    fmt::print(stderr, "switchyard: cannot write to standard output: {}\n", e.code().message());
    return 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "switchyard: {}\n", e.what());
    return 1;
  }
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && exit_code == 0) {
    fmt::print(stderr, "switchyard: cannot write to standard output\n");
    return 1;
  }
  return exit_code;
}

}  // namespace
}  // namespace switchyard::cli

int main(int argc, char** argv) { return switchyard::cli::run_program(argc, argv); }
