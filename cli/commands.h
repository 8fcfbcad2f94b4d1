// SPDX-License-Identifier: Apache-2.0
// The commands. Each adds itself to the program with its flags and help; its callback leaves the exit code in
// `exit_code`.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/command.h"

namespace switchyard::cli {

void add_run(CLI::App& app, int& exit_code);
void add_chat(CLI::App& app, int& exit_code);
void add_pull(CLI::App& app, int& exit_code);
void add_list(CLI::App& app, int& exit_code);
void add_rm(CLI::App& app, int& exit_code);
void add_convert(CLI::App& app, int& exit_code);
void add_inspect(CLI::App& app, int& exit_code);
void add_backends(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_perplexity(CLI::App& app, int& exit_code);
void add_diverge(CLI::App& app, int& exit_code);
void add_experts(CLI::App& app, int& exit_code);
void add_logits(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_bench_ops(CLI::App& bench, int& exit_code);
void add_bench_arrival(CLI::App& bench, int& exit_code);
void add_tune(CLI::App& app, int& exit_code);
void add_synth(CLI::App& app, int& exit_code);
void add_serve(CLI::App& app, int& exit_code);
void add_config(CLI::App& app, int& exit_code);

}  // namespace switchyard::cli
