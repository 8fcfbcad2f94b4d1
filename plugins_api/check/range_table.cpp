// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/range_table.h"

#include <algorithm>
#include <cstring>

#include "plugins_api/check/failure.h"

namespace switchyard::check {
namespace {

template <class Table>
Table table_of(const Plugin& plugin, const char* name) {
  Table table{};
  const void* theirs = plugin.extension(name);
  if (theirs == nullptr) return table;
  uint32_t bytes = 0;
  std::memcpy(&bytes, theirs, sizeof bytes);
  std::memcpy(&table, theirs, std::min<size_t>(bytes, sizeof table));
  return table;
}

}  // namespace

RangeTable::RangeTable(const Plugin& plugin)
    : plugin_(plugin),
      first_(table_of<swy_range>(plugin, SWY_EXT_RANGE)),
      second_(table_of<swy_range_2>(plugin, SWY_EXT_RANGE_2)) {
  name_ = compiles() ? SWY_EXT_RANGE_2 : first_.struct_size != 0 ? SWY_EXT_RANGE : nullptr;
  const bool complete = second_.claim != nullptr && second_.accept != nullptr && second_.key != nullptr &&
                        second_.compile != nullptr && second_.prepare != nullptr && second_.record != nullptr &&
                        second_.code_free != nullptr;
  if (compiles() && !complete) throw Failure(SWY_EXT_RANGE_2 " lacks an entry; only keeps and store may be NULL");
}

RangeTable::~RangeTable() {
  for (const auto& [key, code] : codes_) second_.code_free(plugin_.device(), code);
}

swy_status RangeTable::claim(const swy_range_ops& offered, uint32_t* accepted, double* microseconds,
                             swy_error* error) const {
  if (!compiles()) {
    return first_.claim(plugin_.device(), offered.ops, offered.op_count, offered.bucket, accepted, microseconds, error);
  }
  swy_range_ops unknown = offered;
  unknown.values = nullptr;
  return second_.claim(plugin_.device(), &unknown, accepted, microseconds, error);
}

swy_status RangeTable::accept(const swy_range_ops& range, swy_error* error) const {
  if (!compiles()) {
    return first_.accept(plugin_.device(), range.ops, range.op_count, range.bucket, range.values, error);
  }
  uint32_t offer = range.op_count - 1;
  const swy_status s = second_.accept(plugin_.device(), &range, &offer, error);
  if (s == SWY_UNSUPPORTED && offer >= range.op_count) {
    throw Failure(text("accept refuses ", range.op_count, " operations and asks to be offered ", offer));
  }
  return s;
}

std::string RangeTable::key_of(const swy_range_ops& range) const {
  std::string first;
  for (int i = 0; i < 2; ++i) {
    std::vector<char> buffer(SWY_RANGE_KEY_BYTES, '\x7f');
    PluginError e;
    e.expect_ok(second_.key(plugin_.device(), &range, buffer.data(), e.get()), "key");
    const auto end = std::find(buffer.begin(), buffer.end(), '\0');
    if (end == buffer.end() || end == buffer.begin()) throw Failure("the key of a range is empty, or has no end");
    const std::string key(buffer.begin(), end);
    if (i == 1 && key != first) throw Failure(text("the key of a range was '", first, "' and is '", key, "'"));
    first = key;
  }
  return first;
}

swy_range_code* RangeTable::compile(const swy_range_ops& range, const std::vector<char>* stored) const {
  PluginError e;
  swy_range_code* code = nullptr;
  e.expect_ok(second_.compile(plugin_.device(), &range, stored == nullptr ? nullptr : stored->data(),
                              stored == nullptr ? 0 : stored->size(), &code, e.get()),
              stored == nullptr ? "compile" : "compile from the stored form");
  if (code == nullptr) throw Failure("compile succeeded and gave nothing");
  return code;
}

std::vector<char> RangeTable::stored_form(swy_range_code* code) const {
  PluginError e;
  uint64_t bytes = 0;
  e.expect_ok(second_.store(plugin_.device(), code, nullptr, &bytes, e.get()), "store, asked for its size");
  if (bytes == 0) throw Failure("the stored form of a range has no bytes");
  constexpr size_t kGuard = 64;
  std::vector<char> form(bytes + kGuard, '\x5a');
  uint64_t written = bytes;
  e.expect_ok(second_.store(plugin_.device(), code, form.data(), &written, e.get()), "store");
  if (written != bytes) throw Failure(text("store gave ", written, " bytes after ", bytes));
  if (std::any_of(form.begin() + static_cast<ptrdiff_t>(bytes), form.end(), [](char c) { return c != '\x5a'; })) {
    throw Failure("store wrote past the end of its buffer");
  }
  form.resize(bytes);
  return form;
}

RangeNeeds RangeTable::prepare(const swy_range_ops& range, size_t weights, bool stored) {
  RangeNeeds needs;
  needs.layouts.assign(weights, 0);
  PluginError e;
  const auto count = static_cast<uint32_t>(weights);
  if (!compiles()) {
    e.expect_ok(first_.prepare(plugin_.device(), range.ops, range.op_count, range.bucket, &needs.workspace_bytes,
                               needs.layouts.data(), count, e.get()),
                "prepare");
    return needs;
  }
  swy_range_code*& code = codes_[key_of(range)];
  if (code == nullptr) code = compile(range, nullptr);
  if (stored) {
    const std::vector<char> form = stored_form(code);
    second_.code_free(plugin_.device(), code);
    code = nullptr;
    code = compile(range, &form);
  }
  needs.code = code;
  swy_range_prepared prepared{sizeof prepared, count, needs.layouts.data(), 0};
  e.expect_ok(second_.prepare(plugin_.device(), code, &range, &prepared, e.get()), "prepare");
  needs.workspace_bytes = prepared.workspace_bytes;
  return needs;
}

swy_status RangeTable::record(swy_list* list, const RangeNeeds& needs, const swy_range_operands& operands,
                              const swy_binding& workspace, swy_error* error) const {
  if (!compiles()) return first_.record(list, &operands, &workspace, error);
  return second_.record(list, needs.code, &operands, &workspace, error);
}

}  // namespace switchyard::check
