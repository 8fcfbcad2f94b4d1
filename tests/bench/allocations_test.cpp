// A step allocates nothing, neither in core nor in a backend: every call of malloc and its kin is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <numeric>

#include "tests/engine/fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, size_t),
                                                         void (*)(const volatile void*));
#else
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}
#endif

namespace {

std::atomic<uint64_t> allocations;

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
namespace {
const int installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, size_t) { allocations.fetch_add(1, std::memory_order_relaxed); },
    [](const volatile void*) {});
}  // namespace
#else
// The program's own come before the C library's, for the plugins, too.
extern "C" {
void* malloc(size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(n, size);
}
void* realloc(void* p, size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(p, n);
}
void* aligned_alloc(size_t alignment, size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, n);
}
int posix_memalign(void** to, size_t alignment, size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  *to = __libc_memalign(alignment, n);
  return *to == nullptr ? ENOMEM : 0;
}
}
#endif

namespace switchyard {
namespace {

// Calls while `step` runs the second time and the third: the first records.
template <class Step>
uint64_t allocations_of(Step step) {
  step();
  const uint64_t before = allocations.load();
  step();
  step();
  return allocations.load() - before;
}

TEST(Allocations, AreCounted) {
  EXPECT_GE(allocations_of([] { std::make_unique<std::vector<int>>(100).reset(); }), 2u);
}

class Steps : public ::testing::TestWithParam<const char*> {};

TEST_P(Steps, AllocateNothing) {
  const TestModel t = make_model(SWITCHYARD_DEMO_MODEL, GetParam(), with_context(128));
  ASSERT_NE(t.model, nullptr);
  auto session = t.model->session();
  ASSERT_TRUE(session.ok());
  std::vector<int32_t> ids(40);
  std::iota(ids.begin(), ids.end(), 50);
  const auto prompt = [&] {
    (*session)->reset();
    if (!(*session)->feed(ids).ok()) std::abort();
  };
  EXPECT_EQ(allocations_of(prompt), 0u) << "a prompt";
  EXPECT_EQ(allocations_of([&] {
              if (!(*session)->feed(std::span(ids).first(1)).ok()) std::abort();
            }),
            0u)
      << "a token";
}

#ifdef SWITCHYARD_TEST_CPU
INSTANTIATE_TEST_SUITE_P(Backends, Steps, ::testing::Values("reference", "cpu"));
#else
INSTANTIATE_TEST_SUITE_P(Backends, Steps, ::testing::Values("reference"));
#endif

}  // namespace
}  // namespace switchyard
