// SPDX-License-Identifier: Apache-2.0
// The validation layer: each rule is broken once, by the fixture or by the caller, and named in the error.
#include "core/plugin/validate.h"

#include <gtest/gtest.h>

#include <functional>

#include "core/plugin/buffer.h"
#include "switchyard/extensions_ahead.h"
#include "tests/plugin/support.h"

namespace switchyard::testing {
namespace {

std::function<void()> on_log;  // the host's reaction when the plugin logs

class Validate : public ::testing::Test {
 protected:
  void SetUp() override {
    host_ = *test_host().table();
    host_.log = [](void*, swy_log_level, const char*) {
      if (on_log) on_log();
    };
    const PluginNote note{1, 1, "misbehaving", "1", ""};
    auto plugin = Plugin::open(Os::real(), fixture("misbehaving"), note, &host_, true);
    ASSERT_TRUE(plugin.ok()) << plugin.status().message();
    plugin_ = std::move(*plugin);
    api_ = plugin_->table();
  }
  void TearDown() override { on_log = nullptr; }

  // The text of the call's error; "" when it succeeded.
  std::string call(const std::function<swy_status(swy_error*)>& f) {
    PluginError e;
    const swy_status status = f(e.get());
    if (status == SWY_OK) return "";
    EXPECT_EQ(status, SWY_INTERNAL) << e.get()->message;
    return e.get()->message;
  }
  std::string open(const std::string& fault) {
    const swy_setting setting{"fault", fault.c_str()};
    return call([&](swy_error* e) { return api_->device_open(0, &setting, 1, &device_, e); });
  }
  std::string alloc(swy_buffer** out, uint64_t bytes = 256) {
    return call([&](swy_error* e) { return api_->buffer_alloc(device_, SWY_MEMORY_DEVICE, bytes, out, e); });
  }
  // The violation of an entry without a status, which the next call brings.
  std::string pending() {
    uint32_t n = 0;
    return call([&](swy_error* e) { return api_->device_count(&n, e); });
  }
  swy_list_info info(swy_binding step) {
    bucket_.struct_size = sizeof bucket_;
    return {sizeof(swy_list_info), 0, &bucket_, step, {}};
  }
  std::string begin(swy_list** list, swy_binding step = {}) {
    const swy_list_info i = info(step);
    return call([&](swy_error* e) { return api_->list_begin(device_, &i, list, e); });
  }
  // A further step of the list.
  std::string next(swy_list* list, swy_binding step = {}) {
    const auto* ahead = static_cast<const swy_ahead*>(api_->get_extension(device_, SWY_EXT_AHEAD));
    const swy_list_info i = info(step);
    return call([&](swy_error* e) { return ahead->next_step(list, &i, e); });
  }
  // Records an ADD whose only operand is `input`.
  std::string record(swy_list* list, swy_binding input) {
    const swy_kernel* k = api_->kernel_at(device_, 0);
    swy_tensor tensor{};
    const swy_tensor* tensors[] = {&tensor};
    swy_op op{};
    op.struct_size = sizeof op;
    op.id = SWY_OP_ADD;
    op.input_count = 1;
    op.inputs = tensors;
    const swy_bindings bindings{sizeof bindings, 0, &input, nullptr, nullptr, nullptr, {}};
    return call([&](swy_error* e) { return k->record(list, k, &op, &bindings, e); });
  }
  std::string finalize(swy_list* list) {
    return call([&](swy_error* e) { return api_->list_finalize(list, e); });
  }
  std::string submit(swy_list* list) {
    return call([&](swy_error* e) { return api_->list_submit(list, nullptr, e); });
  }

  static std::string says(const std::string& rest) { return "validation: plugin misbehaving, " + rest; }

  swy_host host_{};
  std::unique_ptr<Plugin> plugin_;
  const swy_plugin* api_ = nullptr;
  swy_device* device_ = nullptr;
  swy_bucket bucket_{};
};

TEST_F(Validate, ACorrectLifePasses) {
  ASSERT_EQ(open(""), "");
  swy_buffer* b = nullptr;
  swy_list* list = nullptr;
  ASSERT_EQ(alloc(&b), "");
  ASSERT_NE(api_->buffer_map(device_, b), nullptr);
  char bytes[64] = {};
  EXPECT_EQ(call([&](swy_error* e) { return api_->write(device_, b, 192, bytes, 64, nullptr, e); }), "");
  EXPECT_EQ(call([&](swy_error* e) { return api_->read(device_, bytes, b, 0, 64, nullptr, e); }), "");
  ASSERT_EQ(begin(&list, {b, 64, 64}), "");
  EXPECT_EQ(record(list, {b, 128, 128}), "");
  EXPECT_EQ(finalize(list), "");
  EXPECT_EQ(submit(list), "");
  EXPECT_EQ(submit(list), "");
  api_->list_free(list);
  api_->buffer_free(device_, b);
  api_->device_close(device_);
  EXPECT_EQ(pending(), "");
}

TEST_F(Validate, ErrorTexts) {
  swy_buffer* b = nullptr;
  const std::pair<const char*, const char*> cases[] = {
      {"no_text", "buffer_alloc: failed with status 3 and no error text"},
      {"no_nul", "buffer_alloc: the error text does not end in NUL"},
      {"overrun", "buffer_alloc: wrote beyond the error text's capacity of 480"},
      {"two_lines", "buffer_alloc: the error text is more than one line"},
      {"status", "buffer_alloc: returned the unknown status 77"}};
  for (const auto& [fault, text] : cases) {
    ASSERT_EQ(open(fault), "");
    EXPECT_EQ(alloc(&b), says(text));
    api_->device_close(device_);
  }
}

TEST_F(Validate, OutputPointers) {
  swy_buffer* b = nullptr;
  EXPECT_EQ(open("open_no_device"), says("device_open: succeeded and did not set the output pointer"));
  ASSERT_EQ(open("no_buffer"), "");
  EXPECT_EQ(alloc(&b), says("buffer_alloc: succeeded and did not set the output pointer"));
  ASSERT_EQ(open("count_unset"), "");
  EXPECT_EQ(pending(), says("device_count: succeeded and did not set the count"));
  ASSERT_EQ(open("count_no_reason"), "");
  EXPECT_EQ(pending(), says("device_count: counted no device and gave no reason"));
  ASSERT_EQ(open("same_buffer"), "");
  ASSERT_EQ(alloc(&b), "");
  EXPECT_EQ(alloc(&b), says("buffer_alloc: gave a handle that is already alive"));
}

TEST_F(Validate, FilledStructs) {
  swy_device_info info{};
  const auto ask = [&] {
    info.struct_size = sizeof info;
    return call([&](swy_error* e) { return api_->device_info(0, &info, e); });
  };
  ASSERT_EQ(open("info_size"), "");
  EXPECT_EQ(ask(), says("device_info: filled a struct_size of 4000 where 64 was given"));
  ASSERT_EQ(open("info_alignment"), "");
  EXPECT_EQ(ask(), says("device_info: buffer_alignment is 48, which is not a power of two up to 4096"));
  swy_state_layout layout{sizeof layout, 0, 0};
  const auto lay = [&] {
    layout = {sizeof layout, 0, 0};
    return call([&](swy_error* e) { return api_->state_layout(device_, nullptr, 0, nullptr, &layout, e); });
  };
  ASSERT_EQ(open("layout_size"), "");
  EXPECT_EQ(lay(), says("state_layout: filled a struct_size of 0 where 16 was given"));
  ASSERT_EQ(open("unit"), "");
  EXPECT_EQ(lay(), says("state_layout: a unit of state 0 has no bytes"));
}

TEST_F(Validate, KernelTables) {
  EXPECT_EQ(open("kernel_names"), says("device_open: two kernels are named add.one"));
  EXPECT_EQ(open("kernel_record"), says("device_open: kernel add.one has no record"));
  EXPECT_EQ(open("kernel_size"), says("device_open: kernel 0 has a struct_size of 40, which does not reach `record`"));
}

TEST_F(Validate, KernelAnswers) {
  const swy_op op{};
  ASSERT_EQ(open("cost"), "");
  const swy_kernel* k = api_->kernel_at(device_, 0);
  double us = 0;
  EXPECT_EQ(call([&](swy_error* e) { return k->cost(device_, k, &op, &bucket_, &us, e); }),
            says("cost: kernel add.one costs -5 us"));
  for (const auto& [fault, text] : {std::pair("cost_nan", "nan"), std::pair("cost_inf", "inf")}) {
    ASSERT_EQ(open(fault), "");
    k = api_->kernel_at(device_, 0);
    EXPECT_EQ(call([&](swy_error* e) { return k->cost(device_, k, &op, &bucket_, &us, e); }),
              says(fmt::format("cost: kernel add.one costs {} us", text)));
  }
  ASSERT_EQ(open("reason"), "");
  k = api_->kernel_at(device_, 1);
  EXPECT_EQ(call([&](swy_error* e) { return k->supports(device_, k, &op, &bucket_, e); }),
            says("supports: kernel add.two is unsupported and gives no reason"));
  const swy_kernel copy = *k;
  EXPECT_EQ(call([&](swy_error* e) { return k->supports(device_, &copy, &op, &bucket_, e); }),
            says("supports: the kernel is not one of the device"));
}

TEST_F(Validate, Handles) {
  ASSERT_EQ(open(""), "");
  swy_device* const first = device_;
  swy_buffer* b = nullptr;
  ASSERT_EQ(alloc(&b), "");
  ASSERT_EQ(open(""), "");
  api_->buffer_free(device_, b);
  EXPECT_EQ(pending(), says("buffer_free: the buffer belongs to another device"));
  EXPECT_EQ(pending(), "");
  api_->buffer_free(first, b);
  api_->buffer_free(first, b);
  EXPECT_EQ(pending(), says("buffer_free: the buffer is foreign or was freed"));
  char byte = 0;
  EXPECT_EQ(call([&](swy_error* e) { return api_->read(first, &byte, b, 0, 1, nullptr, e); }),
            says("read: the buffer is foreign or was freed"));
  EXPECT_EQ(api_->buffer_map(first, b), nullptr);
  EXPECT_EQ(pending(), says("buffer_map: the buffer is foreign or was freed"));
  api_->device_close(first);
  api_->device_close(first);
  EXPECT_EQ(pending(), says("device_close: the device is not open"));
  swy_list* list = nullptr;
  ASSERT_EQ(begin(&list), "");
  api_->list_free(list);
  api_->list_free(list);
  EXPECT_EQ(pending(), says("list_free: the list is foreign or was freed"));
  EXPECT_EQ(submit(list), says("list_submit: the list is foreign or was freed"));
}

TEST_F(Validate, KernelsStayOnTheirDevice) {
  ASSERT_EQ(open(""), "");
  swy_device* const first = device_;
  ASSERT_EQ(open(""), "");
  swy_list* list = nullptr;
  ASSERT_EQ(begin(&list), "");
  device_ = first;  // whose kernel is recorded
  EXPECT_EQ(record(list, {}), says("record: kernel add.one belongs to another device than the list"));
}

TEST_F(Validate, NothingIsAliveWhenADeviceCloses) {
  ASSERT_EQ(open(""), "");
  swy_buffer* b = nullptr;
  swy_list* list = nullptr;
  ASSERT_EQ(alloc(&b), "");
  ASSERT_EQ(begin(&list), "");
  api_->device_close(device_);
  EXPECT_EQ(pending(), says("device_close: 1 buffers, 1 lists and 0 timelines are still alive"));
  api_->buffer_free(device_, b);
  api_->list_free(list);
  api_->device_close(device_);
  EXPECT_EQ(pending(), "");
}

TEST_F(Validate, NoTimelineIsAliveWhenADeviceCloses) {
  ASSERT_EQ(open(""), "");
  swy_timeline* timeline = nullptr;
  ASSERT_EQ(call([&](swy_error* e) { return api_->timeline_create(device_, &timeline, e); }), "");
  api_->device_close(device_);
  EXPECT_EQ(pending(), says("device_close: 0 buffers, 0 lists and 1 timelines are still alive"));
  api_->timeline_free(device_, timeline);
  api_->device_close(device_);
  EXPECT_EQ(pending(), "");
}

TEST_F(Validate, OrderOfRecording) {
  ASSERT_EQ(open(""), "");
  swy_list* list = nullptr;
  ASSERT_EQ(begin(&list), "");
  EXPECT_EQ(submit(list), says("list_submit: the list is not finalized"));
  ASSERT_EQ(finalize(list), "");
  EXPECT_EQ(finalize(list), says("list_finalize: [recording] after list_finalize"));
  EXPECT_EQ(record(list, {}), says("record: [recording] after list_finalize"));
}

TEST_F(Validate, FurtherStepsOfAList) {
  ASSERT_EQ(open(""), "");
  swy_buffer* b = nullptr;
  swy_list* list = nullptr;
  ASSERT_EQ(alloc(&b), "");
  ASSERT_EQ(begin(&list), "");
  EXPECT_EQ(next(list, {b, 64, 64}), "");
  EXPECT_EQ(record(list, {}), "");
  EXPECT_EQ(next(list, {b, 0, 257}), says("next_step: step 0 is bytes 0+257 of a buffer of 256"));
  EXPECT_EQ(record(list, {}), says("record: next_step failed on this list, which can only be freed"));
  api_->list_free(list);
  EXPECT_EQ(next(list), says("next_step: the list is foreign or was freed"));
  ASSERT_EQ(begin(&list), "");
  EXPECT_EQ(next(list, {b, 4, 64}), says("next_step: step 0 begins at byte 4, which is not a multiple of 64"));
  api_->list_free(list);
  ASSERT_EQ(begin(&list), "");
  ASSERT_EQ(next(list, {b, 64, 64}), "");
  ASSERT_EQ(finalize(list), "");
  EXPECT_EQ(next(list), says("next_step: [recording] after list_finalize"));
  EXPECT_EQ(submit(list), "");
  api_->buffer_free(device_, b);
  EXPECT_EQ(submit(list), says("list_submit: a buffer that the list uses was freed"));
}

TEST_F(Validate, AFurtherStepThatFails) {
  ASSERT_EQ(open("next_step"), "");
  swy_list* list = nullptr;
  ASSERT_EQ(begin(&list), "");
  EXPECT_EQ(next(list), says("next_step: failed with status 1 and no error text"));
  EXPECT_EQ(finalize(list), says("list_finalize: next_step failed on this list, which can only be freed"));
  api_->list_free(list);
  EXPECT_EQ(pending(), "");
}

TEST_F(Validate, Bindings) {
  ASSERT_EQ(open(""), "");
  swy_buffer* b = nullptr;
  swy_list* list = nullptr;
  ASSERT_EQ(alloc(&b), "");
  EXPECT_EQ(begin(&list, {b, 0, 257}), says("list_begin: step 0 is bytes 0+257 of a buffer of 256"));
  ASSERT_EQ(begin(&list), "");
  EXPECT_EQ(record(list, {b, 192, 65}), says("record: input 0 is bytes 192+65 of a buffer of 256"));
  EXPECT_EQ(record(list, {b, UINT64_MAX, 64}),
            says("record: input 0 is bytes 18446744073709551615+64 of a buffer of 256"));
  EXPECT_EQ(record(list, {b, 4, 64}), says("record: input 0 begins at byte 4, which is not a multiple of 64"));
  EXPECT_EQ(record(list, {nullptr, 0, 64}), says("record: input 0 has 64 bytes and no buffer"));
  ASSERT_EQ(record(list, {b, 0, 256}), "");
  ASSERT_EQ(finalize(list), "");
  char byte = 0;
  EXPECT_EQ(call([&](swy_error* e) { return api_->write(device_, b, 256, &byte, 1, nullptr, e); }),
            says("write: range 0 is bytes 256+1 of a buffer of 256"));
  api_->buffer_free(device_, b);
  EXPECT_EQ(submit(list), says("list_submit: a buffer that the list uses was freed"));
}

TEST_F(Validate, DeviceSerial) {
  ASSERT_EQ(open(""), "");
  swy_buffer* b = nullptr;
  swy_list* list = nullptr;
  ASSERT_EQ(alloc(&b), "");
  ASSERT_EQ(begin(&list), "");
  ASSERT_EQ(finalize(list), "");
  std::string second;
  on_log = [&] { second = call([&](swy_error* e) { return api_->fill_zero(device_, b, 0, 64, e); }); };
  EXPECT_EQ(submit(list), "");
  EXPECT_EQ(second, says("fill_zero: [device-serial] entered while list_submit runs on the device"));
  on_log = nullptr;
  EXPECT_EQ(call([&](swy_error* e) { return api_->fill_zero(device_, b, 0, 64, e); }), "");
}

TEST_F(Validate, NoAlloc) {
  for (const char* fault : {"alloc_in_submit", "alloc_in_team"}) {
    ASSERT_EQ(open(fault), "");
    swy_list* list = nullptr;
    ASSERT_EQ(begin(&list), "");
    ASSERT_EQ(record(list, {}), "");
    ASSERT_EQ(finalize(list), "");
    EXPECT_EQ(submit(list), says("list_submit: allocated memory of the host in a [no-alloc] entry")) << fault;
  }
}

TEST_F(Validate, SlotsRunOutWithAnErrorAndComeBack) {
  std::vector<std::unique_ptr<Validator>> all;
  for (;;) {
    auto v = Validator::create("x", &host_);
    if (!v.ok()) {
      EXPECT_EQ(v.status().message(), "validation: at most 16 plugins can be validated at once");
      break;
    }
    all.push_back(std::move(*v));
    ASSERT_LE(all.size(), 16u);
  }
  all.pop_back();
  EXPECT_TRUE(Validator::create("x", &host_).ok());
}

}  // namespace
}  // namespace switchyard::testing
