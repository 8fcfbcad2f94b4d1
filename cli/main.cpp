// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <system_error>

#include "cli/bench_worker.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/option_tree.h"
#include "cli/output.h"
#include "cli/plugin_faults.h"
#include "cli/signals.h"
#include "cli/usage.h"
#include "cli/version.h"
#include "core/base/status.h"

namespace switchyard::cli {
namespace {

// A file that is opened later must not become standard error, and receive what is said there. Writing to a standard
// output that was closed still fails; what goes to standard error is lost.
void open_closed_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    const int opened = ::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
    if (opened >= 0 && opened != fd) {
      ::dup2(opened, fd);
      ::close(opened);
    }
  }
}

void add_commands(CLI::App& app, int& exit_code) {
  add_run(app, exit_code);
  add_chat(app, exit_code);
  add_pull(app, exit_code);
  add_list(app, exit_code);
  add_rm(app, exit_code);
  add_convert(app, exit_code);
  add_serve(app, exit_code);
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
  add_manual(app, exit_code);
  add_completion(app, exit_code);
}

// Runs the command that was given. Returns the exit code.
int parse_and_run(CLI::App& app, int& exit_code, int argc, char** argv) {
  const bool as_json =
      std::any_of(argv, argv + argc, [](const char* word) { return std::strcmp(word, "--json") == 0; });
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);  // `help run` is `run --help`
  if (!words.empty() && words[0] == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  if (!words.empty() && words[0][0] != '-') {
    if (const Status s = check_command_name(app, words[0]); !s.ok()) return report(s, as_json);
  }
  try {
    std::reverse(words.begin(), words.end());  // as CLI11 takes them
    app.parse(std::move(words));
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != 0) return report(usage_error(app, e), as_json);
    std::ostringstream text;  // --help, --version
    app.exit(e, text, text);
    fmt::print("{}", text.str());
  }
  return exit_code_after_signals(exit_code);
}

int run_program(int argc, char** argv) {
  open_closed_streams();
  catch_signals();
  int exit_code = 0;
  try {
    CLI::App app(
        "Runs mixture-of-experts language models on backends that are plugins.\n"
        "Try: switchyard run \"Once upon a time\"",
        "switchyard");
    app.formatter(help_formatter());  // before the commands, which take it over
    app.set_version_flag("--version", version_text());
    app.require_subcommand(1);
    add_commands(app, exit_code);
    exit_code = parse_and_run(app, exit_code, argc, argv);
  } catch (const std::bad_alloc&) {
    say("switchyard: out of memory\n");
    return 1;
  } catch (const std::system_error& e) {  // fmt, whose only use of files here is to print
    say("switchyard: cannot write to standard output: {}\n", e.code().message());
    return 1;
  } catch (const std::exception& e) {
    say("switchyard: {}\n", e.what());
    return 1;
  }
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && exit_code == 0) {
    say("switchyard: cannot write to standard output: {}\n", std::strerror(errno));
    return 1;
  }
  return exit_code;
}

}  // namespace
}  // namespace switchyard::cli

int main(int argc, char** argv) {
  const int code = switchyard::cli::run_program(argc, argv);
  switchyard::cli::main_returns();
  return code;
}
