// SPDX-License-Identifier: Apache-2.0
// switchyard serve: a server that speaks the OpenAI protocol, with a web page.
#include <fmt/ranges.h>
#include <malloc.h>
#include <sys/resource.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "cli/commands.h"
#include "cli/generate.h"
#include "cli/model_source.h"
#include "cli/output.h"
#include "cli/text_input.h"
#include "cli/version.h"
#include "core/engine/prepare.h"
#include "server/app/application.h"
#include "server/http/http_server.h"

namespace switchyard::cli {
namespace {

using server::Application;
using server::HttpServer;
using json = nlohmann::ordered_json;

struct ServeFlags {
  Settings settings;
  server::HttpOptions http;
  ServiceOptions service;
  TextOptions defaults;
  std::vector<CLI::Option*> sampling_options;
  std::vector<std::string> names, origins, hosts, keys;
  std::string key_file, chat_template, cache_dir;
  uint32_t max_tokens = 0, sessions = 16, body_mib = 16, cache_mib = 0, cache_states = 8, drain_seconds = 600,
           cache_disk_mib = 1024;
  bool no_cache = false, no_page = false, json = false, quiet = false;
};

// A line each; empty lines and those that begin with # do not count.
Result<std::vector<std::string>> read_keys(const ServeFlags& o) {
  std::vector<std::string> keys = o.keys;
  if (o.key_file.empty()) return keys;
  SWY_LET(const std::string text, read_text(o.key_file));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty() && line[0] != '#') keys.push_back(line);
  }
  if (keys.empty()) return error(Code::usage, "{} has no key; write one a line", o.key_file);
  return keys;
}

std::string name_of(const ServeFlags& o) {
  const std::string path = model_path(o.settings);
  return path.starts_with("synth:") ? path : std::filesystem::path(path).stem().string();
}

// Every connection is a file.
void raise_file_limit(uint32_t connections) {
  rlimit limit{};
  const rlim_t wanted = rlim_t{connections} + 256;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(limit.rlim_max, wanted);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::string time_text() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", text, ms);
}

// The C library learns from large blocks that are freed to take their like from its heap, which short-lived requests
// then leave full of holes. Blocks with a mapping of their own go back to the system.
void keep_memory_tidy() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  mallopt(M_ARENA_MAX, 2);
#endif
}

// One line on standard error.
void log_line(const ServeFlags& o, const std::string& event, json fields) {
  if (o.json) {
    json line = {{"time", time_text()}, {"event", event}};
    line.update(fields);
    say("{}\n", line.dump(-1, ' ', false, json::error_handler_t::replace));
    return;
  }
  std::string text = fmt::format("{} {}", time_text(), event);
  for (const auto& [name, value] : fields.items()) {
    text += fmt::format(" {}={}", name, value.dump(-1, ' ', true, json::error_handler_t::replace));
  }
  say("{}\n", text);
}

void log_request(const ServeFlags& o, const server::RequestLog& l) {
  log_line(o, "request",
           {{"id", l.request.id},
            {"peer", l.request.peer},
            {"method", l.request.method},
            {"path", l.request.path},
            {"status", l.status},
            {"seconds", l.seconds},
            {"bytes", l.bytes},
            {"whole", l.whole}});
}

// Reachable from this machine alone.
bool is_local(const ServeFlags& o) { return o.http.address.starts_with("127.") || o.http.address == "::1"; }

Result<server::ApplicationOptions> application_options(const ServeFlags& o) {
  server::ApplicationOptions a;
  a.model_names = o.names.empty() ? std::vector<std::string>{name_of(o)} : o.names;
  a.defaults.text = o.defaults;
  a.defaults.text.max_tokens = o.max_tokens;
  SWY_LET(a.api_keys, read_keys(o));
  a.origins = o.origins;
  if (is_local(o) || !o.hosts.empty()) a.hosts = o.hosts;
  a.page = !o.no_page;
  if (!o.chat_template.empty()) {
    SWY_LET(a.chat_template, read_text(o.chat_template));
  }
  if (!o.quiet) a.log = [&o](const server::RequestLog& l) { log_request(o, l); };
  return a;
}

void warn_of_open_door(const ServeFlags& o, const server::ApplicationOptions& a) {
  if (is_local(o) || !a.api_keys.empty()) return;
  say("switchyard: warning: {} is reachable from other machines, and no --api-key is set: anybody there can use this "
      "server\n",
      o.http.address);
}

Status make_cache_dir(const ServeFlags& o) {
  if (o.cache_dir.empty()) return {};
  if (o.no_cache) return error(Code::usage, "--no-cache leaves nothing to keep in --cache-dir; give one of them");
  std::error_code ec;
  std::filesystem::create_directories(o.cache_dir, ec);
  if (!std::filesystem::is_directory(o.cache_dir, ec)) {
    return error(Code::io, "--cache-dir '{}' is no folder, and cannot be made one", o.cache_dir);
  }
  return {};
}

// ServiceOptions::cache_identity.
std::string cache_identity(const Settings& s) {
  return fmt::format("{}\nexact {}\nvariants {}\nsettings {}", version_text(), s.exact, fmt::join(s.variants, " "),
                     fmt::join(s.sets, " "));
}

// Where the states of this model are kept between two runs; "": nowhere.
std::string cache_path(const ServeFlags& o, const Model& model) {
  if (o.cache_dir.empty()) return {};
  return (std::filesystem::path(o.cache_dir) / fmt::format("prefix-{:016x}.cache", model.fingerprint())).string();
}

void load_cache(Service& service, const std::string& path, json& fields) {
  if (path.empty()) return;
  const auto loaded = service.load_cache(path);
  if (loaded.ok()) fields["cached_states"] = loaded->states;
  if (loaded.ok() || loaded.status().code() == Code::not_found) return;
  say("switchyard: warning: {}: {}; it is not used\n", path, loaded.status().message());
}

void save_cache(const ServeFlags& o, Service& service, const std::string& path) {
  if (path.empty()) return;
  const auto saved = service.save_cache(path, uint64_t{o.cache_disk_mib} << 20);
  if (saved.ok()) {
    return log_line(o, "saved", {{"path", path}, {"states", saved->states}, {"bytes", saved->bytes}});
  }
  say("switchyard: warning: the prefix cache is not kept: {}\n", saved.status().message());
}

void wait_for_signal() {
  while (!interrupted.load()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

// After the first signal: what runs may end. Errors: cancelled, if it did not in time.
Status drain(const ServeFlags& o, Application& application, HttpServer& http, Service& service) {
  const uint64_t begin = Os::real().now_ns();
  application.drain();
  log_line(o, "draining", {{"seconds", o.drain_seconds}, {"running", service.stats().running}});
  const bool whole = http.drain(o.drain_seconds);
  log_line(o, "stopped", {{"seconds", seconds_since(begin)}, {"whole", whole}});
  if (whole) return {};
  return error(Code::cancelled, "requests were still running after --drain {} seconds, and were ended",
               o.drain_seconds);
}

Status serve(ServeFlags& o) {
  keep_memory_tidy();
  raise_file_limit(o.http.connections);
  o.http.body_bytes = uint64_t{o.body_mib} << 20;
  o.http.bodies_bytes = std::max(o.http.bodies_bytes, o.http.body_bytes);
  if (o.no_cache) o.service.cache_bytes = o.service.cache_host_bytes = 0;
  if (o.cache_mib != 0) o.service.cache_host_bytes = uint64_t{o.cache_mib} << 20;
  Settings settings = o.settings;
  settings.sessions = o.sessions;
  settings.checkpoints = o.no_cache ? 0 : o.cache_states;
  SWY_LET(server::ApplicationOptions options, application_options(o));
  SWY_LET(o.service.speculate, parse_speculation(settings.speculate));
  SWY_TRY(make_cache_dir(o));
  o.service.cache_identity = cache_identity(settings);
  SWY_LET(Runtime runtime, load_runtime(settings));
  take_recommended(*runtime.program, o.sampling_options, options.defaults.text.sampling);
  const std::vector<std::string> devices = runtime.model->device_names();
  if (o.sessions > 1) {
    SWY_TRY(prepare(*runtime.model, options.defaults.text.sampling).status());
  } else if (runtime.model->drafts() > 0) {
    SWY_TRY(prepare_decoding(*runtime.model, options.defaults.text.sampling));
  }
  const uint32_t context = runtime.model->context();
  const double load_seconds = runtime.load_seconds;
  const std::string cache = cache_path(o, *runtime.model);
  o.service.warn = [](const std::string& message) { say("switchyard: warning: {}\n", message); };
  SWY_LET(const auto service, Service::create(std::move(runtime), o.service));
  json kept = json::object();
  load_cache(*service, cache, kept);
  warn_of_open_door(o, options);
  const std::string name = options.model_names[0];
  SWY_LET(const auto application, Application::create(*service, std::move(options)));
  SWY_LET(auto http, HttpServer::start(*application, o.http));
  const bool v6 = o.http.address.find(':') != std::string::npos;
  const std::string host = v6 ? "[" + o.http.address + "]" : o.http.address;
  json listening = {{"url", fmt::format("http://{}:{}", host, http->port())},
                    {"model", name},
                    {"context", context},
                    {"sessions", o.sessions},
                    {"devices", devices},
                    {"load_seconds", load_seconds}};
  listening.update(kept);
  log_line(o, "listening", listening);
  wait_for_signal();
  const Status drained = drain(o, *application, *http, *service);
  http.reset();
  save_cache(o, *service, cache);
  if (drained.ok()) end_as_told();
  return drained;
}

void add_listening(CLI::App& c, ServeFlags& o) {
  const auto option = [&](const char* name, auto& value, const char* help) {
    return c.add_option(name, value, help)->capture_default_str()->group("Listening");
  };
  option("--host", o.http.address, "address to listen on; 0.0.0.0 or :: for all of this machine's");
  option("--port", o.http.port, "port to listen on; 0 takes any free one, and says which");
  option("--api-key", o.keys,
         "a key that requests must bring; may be given more than once. Others can see arguments: "
         "--api-key-file is safer")
      ->allow_extra_args(false);
  set_input(*option("--api-key-file", o.key_file, "file with one such key a line"));
  option("--cors-origin", o.origins, "site whose pages may use this server, such as https://chat.example; * for all")
      ->allow_extra_args(false);
  option("--allow-host", o.hosts,
         "name by which requests may call this server, such as llm.example, besides localhost and the loopback "
         "addresses; * for all. On another --host than the loopback, names are checked only if one is given")
      ->allow_extra_args(false);
  option("--max-body", o.body_mib, "largest request, in MiB")->check(CLI::Range(1u, 1024u));
  option("--max-connections", o.http.connections, "connections at a time; more are refused")
      ->check(CLI::Range(1u, 1u << 20));
  option("--ping", o.http.ping_seconds, "seconds of silence on a stream after which it gets a sign of life")
      ->check(CLI::Range(1u, 3600u));
  option("--drain", o.drain_seconds,
         "after SIGTERM or Ctrl-C, seconds for running requests to end; a second signal ends them")
      ->check(CLI::Range(0u, 86400u));
  c.add_flag("--no-page", o.no_page, "leave out the web page at /")->group("Listening");
}

void add_serving(CLI::App& c, ServeFlags& o) {
  const auto option = [&](const char* name, auto& value, const char* help) {
    return c.add_option(name, value, help)->capture_default_str()->group("Serving");
  };
  option("--sessions", o.sessions, "requests that are computed at a time; more of them wait")
      ->check(CLI::Range(1u, 4096u));
  option("--queue", o.service.queue, "requests that may wait; more get 429")->check(CLI::Range(1u, 1u << 20));
  option("--prompt-rows", o.service.prompt_rows,
         "tokens of prompts in a step while others generate: more of them read "
         "prompts sooner, fewer let the others wait less")
      ->check(CLI::Range(1u, 1u << 16));
  option("--cache-states", o.cache_states,
         "states of earlier prompts to keep on the device; a prompt that begins like one of them is read from there on")
      ->check(CLI::Range(0u, 4096u));
  option("--cache-mib", o.cache_mib, "host memory for further such states, in MiB; 0: 1,024");
  option("--cache-dir", o.cache_dir,
         "folder in which such states are kept while the server does not run; they have the texts of prompts in them");
  option("--cache-disk-mib", o.cache_disk_mib, "largest file in --cache-dir, in MiB")->check(CLI::Range(1u, 1u << 24));
  c.add_flag("--no-cache", o.no_cache, "keep nothing of earlier prompts")->group("Serving");
  option("--model-name", o.names,
         "name of the model in requests and answers (default: the file's); more than one may be "
         "given, and * takes every name")
      ->allow_extra_args(false);
  set_input(*option("--chat-template", o.chat_template, "file with a chat template, instead of the model file's"));
  option("--max-tokens", o.max_tokens,
         "tokens to generate at most, where a request says nothing; 0: as the context has room");
}

}  // namespace

void add_serve(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<ServeFlags>();
  CLI::App* c = app.add_subcommand("serve", "Serve a model over HTTP, with the OpenAI protocol and a web page");
  c->footer(
      "Example: switchyard serve model.swy\n"
      "Then open http://127.0.0.1:8080 in a browser, or point any client of the OpenAI protocol at\n"
      "http://127.0.0.1:8080/v1. The sampling flags are the defaults of requests that do not say otherwise; without\n"
      "them, what the model recommends.");
  add_listening(*c, *o);
  add_serving(*c, *o);
  o->sampling_options = add_sampling_flags(*c, o->defaults.sampling);
  c->add_flag("--json", o->json, "log as JSON, one object a line");
  c->add_flag("--quiet", o->quiet, "log no requests");
  add_speculate(*c, o->settings);
  add_settings(*c, o->settings, "model");
  set_action(*c, exit_code, [o] { return serve(*o); });
}

}  // namespace switchyard::cli
