// SPDX-License-Identifier: Apache-2.0
// A device that takes several steps into one list (swy.ahead/1), and the faults of such lists.
#include <map>
#include <mutex>

#include "switchyard/extensions_ahead.h"
#include "tests/plugin/wrong/wrong.h"

namespace wrong {
namespace {

namespace right = swy::detail;

enum class Joining { kRight, kFirstBlockAgain, kFirstStepAlone, kTokensAsBefore };
Joining joining = Joining::kRight;

// A step of a list: its operations, and what they read.
struct Step {
  size_t first = 0, end = 0;
  const swy_step* block = nullptr;
  int32_t* tokens = nullptr;
};

std::mutex mutex;
std::map<const swy_list*, std::vector<Step>>& further() {  // steps, without the first
  static std::map<const swy_list*, std::vector<Step>> all;
  return all;
}

std::vector<Step> steps_of(const swy_list* handle) {
  const auto& list = *static_cast<const right::List*>(handle);
  std::vector<Step> all = {{0, 0, list.step, list.tokens}};
  const std::lock_guard lock(mutex);
  const std::vector<Step>& more = further()[handle];
  all.insert(all.end(), more.begin(), more.end());
  for (size_t i = 0; i < all.size(); ++i) all[i].end = i + 1 < all.size() ? all[i + 1].first : list.ops.size();
  return all;
}

constexpr swy_ahead kAhead = {sizeof(swy_ahead), 0, [](swy_list* list, const swy_list_info* info, swy_error*) {
                                Step next;
                                next.first = static_cast<right::List*>(list)->ops.size();
                                next.block = reinterpret_cast<const swy_step*>(right::address(info->step));
                                next.tokens = reinterpret_cast<int32_t*>(right::address(info->tokens));
                                const std::lock_guard lock(mutex);
                                further()[list].push_back(next);
                                return swy_status{SWY_OK};
                              }};

void run(right::List& list, const Step& step, int32_t* tokens, size_t first, size_t end) {
  list.step = step.block, list.tokens = tokens;
  for (size_t i = first; i < end; ++i) right::run_op(list, list.ops[i], &swy::kAlone);
}

swy_status submit(swy_list* handle, const swy_submit* points, swy_error* error) {
  std::vector<Step> steps = steps_of(handle);
  if (steps.size() == 1) return right::list_submit(handle, points, error);
  auto& list = *static_cast<right::List*>(handle);
  const Step begin = steps[0];
  std::vector<int32_t> before(begin.tokens, begin.tokens + steps.size());
  if (joining == Joining::kFirstStepAlone) steps.resize(1);
  for (Step& s : steps) {
    if (joining == Joining::kFirstBlockAgain) s.block = begin.block;
    const size_t embedded = s.first + 1;  // the first operation reads tokens
    run(list, s, joining == Joining::kTokensAsBefore ? before.data() : s.tokens, s.first, embedded);
    run(list, s, s.tokens, embedded, s.end);
  }
  list.step = begin.block, list.tokens = begin.tokens;
  return SWY_OK;
}

template <Joining how>
void joined(swy_plugin& t) {
  joining = how;
  t.get_extension = [](swy_device*, const char* name) -> const void* {
    return std::strcmp(name, SWY_EXT_AHEAD) == 0 ? &kAhead : nullptr;
  };
  t.list_submit = submit;
  t.list_free = [](swy_list* list) {
    {
      const std::lock_guard lock(mutex);
      further().erase(list);
    }
    right::list_free(list);
  };
}

constexpr Fault kFaults[] = {
    {"joined", "ahead", "", 0, nullptr, nullptr, joined<Joining::kRight>},
    {"joined_reads_the_first_block_again", "ahead", "in a list of 4 steps, step 1 drew token -7", 0, nullptr, nullptr,
     joined<Joining::kFirstBlockAgain>},
    {"joined_runs_the_first_step_alone", "ahead", "in a list of 4 steps, step 1 drew token -7", 0, nullptr, nullptr,
     joined<Joining::kFirstStepAlone>},
    {"joined_reads_tokens_before_they_are_drawn", "ahead", "in a list of 4 steps, step 1 drew token ", 0, nullptr,
     nullptr, joined<Joining::kTokensAsBefore>},
};

}  // namespace

std::span<const Fault> faults_of_ahead() { return kFaults; }

}  // namespace wrong
