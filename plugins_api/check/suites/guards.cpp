// SPDX-License-Identifier: Apache-2.0
// guards: every operand ends where a page begins that nobody may touch. Reads past an operand have no effect on results
// where what they find is dropped, and end the process where no memory follows.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "plugins_api/check/host.h"
#include "plugins_api/check/kit.h"
#include "plugins_api/check/suites.h"

namespace switchyard::check {
namespace {

// The judge's line about the current check, around what happened: a signal's handler puts it together.
struct Line {
  int fd = -1;
  char before[1024] = {}, after[256] = {};
};
Line current;

void say_and_end(int signal, siginfo_t* info, void*) {
  char what[256], all[2048];
  if (!describe_guard(info->si_addr, what, sizeof what)) {  // any other crash
    ::signal(signal, SIG_DFL);
    return;
  }
  const int n = std::snprintf(all, sizeof all, "{\"closed\": \"%sreads or writes %s%s\", \"wrong_machine\": false}\n",
                              current.before, what, current.after);
  ::_exit(::write(current.fd, all, static_cast<size_t>(n)) == n ? 1 : 3);
}

// Guard pages, and the handler of their signal, while it lives.
class Guarded {
 public:
  Guarded(const Kit& kit, const Check& check, int fd) {
    const std::string line = kit.line(check, "\n");
    const size_t at = line.find('\n');
    current.fd = fd;
    std::snprintf(current.before, sizeof current.before, "%s", line.substr(0, at).c_str());
    std::snprintf(current.after, sizeof current.after, "%s", line.substr(at + 1).c_str());
    struct sigaction action {};
    action.sa_sigaction = say_and_end;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &before_);
    set_guard_pages(true);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() {
    set_guard_pages(false);
    sigaction(SIGSEGV, &before_, nullptr);
  }

 private:
  struct sigaction before_ {};
};

// The case in a bucket that has no more rows than its steps: the last row ends where its operand does.
Case tight(Case c) {
  fit_bucket(c, 0);
  return c;
}

std::string guarded(const Kit& kit, const Check& check, int fd) {
  const Case c = tight(kit.build(check));
  const Guarded pages(kit, check, fd);
  Execution e(kit.plugin(), *check.kernel, c);
  if (guarded_blocks() == 0) throw Unsupported("the plugin's buffers are not from the host's allocator");
  e.run(c);
  return "";
}

// Operands that end where a cache line does. What ends amid a line may be read to its end, which is in the same page.
uint32_t whole_lines(const Case& c) {
  uint32_t n = 0;
  const auto see = [&](uint64_t bytes) { n += bytes % 64 == 0 ? 1 : 0; };
  for (const auto* list : {&c.inputs, &c.outputs}) {
    for (const Operand& o : *list) see(o.desc.dims[0] * o.desc.dims[1] * (o.desc.dtype == SWY_BF16 ? 2 : 4));
  }
  for (const Weight& w : c.weights) {
    uint64_t bytes = w.desc.dtype == SWY_BF16 ? 2 : 4;
    for (uint32_t i = 0; i < w.desc.rank; ++i) bytes *= w.desc.dims[i];
    see(bytes);
  }
  return n;
}

struct Candidate {
  const Check* check;
  uint32_t rows, lines;
};

std::vector<Task> list(Session& session, std::vector<Refusal>*) {
  Kit& kit = session.kit();
  const int fd = session.options().worker_fd;
  const Claims claims = kit.claims();
  std::vector<Task> tasks;
  constexpr std::pair<uint32_t, uint32_t> kRows[] = {{1, 1}, {2, 16}, {17, 70}};
  for (size_t i = 0; i < claims.checks.size();) {
    const swy_kernel* kernel = claims.checks[i].kernel;
    std::vector<Candidate> all;
    for (; i < claims.checks.size() && claims.checks[i].kernel == kernel; ++i) {
      Random random = Random::shapes_only();
      const Case shape = tight(claims.checks[i].spec->build(random));
      all.push_back({&claims.checks[i], shape.bucket.rows, whole_lines(shape)});
    }
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.lines > b.lines; });
    for (const auto& [fewest, most] : kRows) {
      const auto fits = [&, low = fewest, high = most](const Candidate& k) {
        if (k.rows < low || k.rows > high) return false;
        Random random = Random::shapes_only();
        Case c = tight(k.check->spec->build(random));
        set_types(c, k.check->types);
        return takes(kit.plugin(), *kernel, c, nullptr);
      };
      const auto best = std::find_if(all.begin(), all.end(), fits);
      if (best == all.end()) continue;
      const Check check = *best->check;
      tasks.push_back({check.name(), [&kit, check, fd] { return guarded(kit, check, fd); }, {}});
    }
  }
  return tasks;
}

}  // namespace

const Suite kGuardsSuite = {"guards", "nothing is read past the end of an operand", true, false, {}, list};

}  // namespace switchyard::check
