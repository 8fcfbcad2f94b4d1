// SPDX-License-Identifier: Apache-2.0
// The instructions that kernels have in asm statements, by their names, with operands in the order of the PTX manual.
// One that is missing here does not compile.
#pragma once

#include "machine/machine.h"

namespace emulated::ptx {

struct Nowhere {};
constexpr Nowhere nowhere;

// ---- registers and plain arithmetic

uint64_t special_globaltimer();
inline uint32_t special_cluster_ctarank() { return current->here.rank; }
inline uint32_t special_clusterid_x() { return current->here.cluster.x; }
inline uint32_t special_smid() { return 0; }
inline void nanosleep_u32(uint32_t) {}
template <class T>
void mov_u32(T& to, uint32_t from) {
  to = from;
}
template <class T>
void mov_u64(T& to, uint64_t from) {
  to = from;
}
template <class T>
void mov_b32(T& to, uint32_t from) {
  to = from;
}
inline void setp_eq_u32(bool& to, uint32_t a, uint32_t b) { to = a == b; }
inline void setp_ne_b32(bool& to, uint32_t a, uint32_t b) { to = a != b; }
inline void selp_u32(uint32_t& to, uint32_t a, uint32_t b, bool p) { to = p ? a : b; }
inline void lop3_b32(uint32_t& to, uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
  uint32_t r = 0;
  for (uint32_t i = 0; i < 32; ++i) r |= (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i;
  to = r;
}
inline void ex2_approx_ftz_f32(float& to, float x) { to = std::exp2f(x); }
inline void rcp_approx_ftz_f32(float& to, float x) { to = 1.0f / x; }
inline void rsqrt_approx_ftz_f32(float& to, float x) { to = 1.0f / std::sqrt(x); }
template <class A, class B>
int sum_of_bytes(uint32_t a, uint32_t b, int c) {
  for (uint32_t i = 0; i < 4; ++i)
    c += static_cast<int>(static_cast<A>(a >> 8 * i)) * static_cast<int>(static_cast<B>(b >> 8 * i));
  return c;
}
#define SWY_DP4A(name, A, B)                                            \
  template <class T>                                                    \
  void dp4a_##name(T& to, uint32_t a, uint32_t b, T c) {                \
    to = static_cast<T>(sum_of_bytes<A, B>(a, b, static_cast<int>(c))); \
  }
SWY_DP4A(u32_s32, uint8_t, int8_t)
SWY_DP4A(u32_u32, uint8_t, uint8_t)
SWY_DP4A(s32_s32, int8_t, int8_t)
SWY_DP4A(s32_u32, int8_t, uint8_t)
#undef SWY_DP4A

// ---- loads and stores

template <class T>
void load_shared(T& to, uint32_t at) {
  std::memcpy(&to, shared_pointer(at, sizeof(T), sizeof(T)), sizeof(T));
}
inline void ld_shared_u32(uint32_t& to, uint32_t at) { load_shared(to, at); }
inline void ld_shared_u16(uint16_t& to, uint32_t at) { load_shared(to, at); }
inline void ld_shared_f32(float& to, uint32_t at) { load_shared(to, at); }
inline void ld_shared_v2_f32(float& a, float& b, uint32_t at) {
  shared_pointer(at, 8, 8);
  load_shared(a, at), load_shared(b, at + 4);
}
template <class A, class B>
void ld_shared_v2_b32(A& a, B& b, uint32_t at) {
  shared_pointer(at, 8, 8);
  load_shared(a, at), load_shared(b, at + 4);
}
template <class T>
void ld_shared_v4_u32(T& a, T& b, T& c, T& d, uint32_t at) {
  shared_pointer(at, 16, 16);
  load_shared(a, at), load_shared(b, at + 4), load_shared(c, at + 8), load_shared(d, at + 12);
}
inline void ld_shared_v4_f32(float& a, float& b, float& c, float& d, uint32_t at) { ld_shared_v4_u32(a, b, c, d, at); }
inline void st_shared_f32(uint32_t at, float v) { std::memcpy(shared_pointer(at, 4, 4), &v, 4); }
inline void st_shared_v4_u32(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const uint32_t v[4] = {a, b, c, d};
  std::memcpy(shared_pointer(at, 16, 16), v, 16);
}
void check_aligned(const void* p, uint32_t alignment);
inline void ld_global_nc_L1_no_allocate_v4_u32(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d, const void* p) {
  check_aligned(p, 16);
  uint4 v = *static_cast<const uint4*>(p);
  a = v.x, b = v.y, c = v.z, d = v.w;
}
inline void st_release_sys_global_u64(uint64_t* p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }  // NOLINT
inline void atom_acq_rel_gpu_global_add_u32(uint32_t& seen, uint32_t* p, uint32_t v) { seen = *p, *p += v; }

// ---- ordering between kernels

void griddepcontrol_wait();
void griddepcontrol_launch_dependents();

// ---- barriers

void bar_sync(uint32_t id, uint32_t threads);
void barrier_cluster_arrive_relaxed_aligned();
void barrier_cluster_wait_aligned();
void mbarrier_init_shared_b64(uint32_t at, uint32_t arrivals);
void mbarrier_arrive(uint32_t at, uint32_t bytes, const char* what);
inline void mbarrier_arrive_shared_b64(Nowhere, uint32_t at) { mbarrier_arrive(at, 0, "mbarrier.arrive"); }
inline void mbarrier_arrive_release_cluster_shared_cluster_b64(Nowhere, uint32_t at) {
  mbarrier_arrive(at, 0, "mbarrier.arrive");
}
inline void mbarrier_arrive_expect_tx_shared_b64(Nowhere, uint32_t at, uint32_t bytes) {
  mbarrier_arrive(at, bytes, "mbarrier.arrive.expect_tx");
}
void mbarrier_expect_tx_relaxed_cta_shared_cta_b64(uint32_t at, uint32_t bytes);
void mbarrier_try_wait_parity_shared_b64(bool& done, uint32_t at, uint32_t parity);
void mbarrier_try_wait_parity_acquire_cluster_shared_cta_b64(bool& done, uint32_t at, uint32_t parity);
inline void fence_mbarrier_init_release_cluster() {}
inline void fence_proxy_async_shared_cta() {}
uint32_t address_at_peer(uint32_t at, uint32_t rank);
inline void mapa_shared_cluster_u32(uint32_t& to, uint32_t at, uint32_t rank) { to = address_at_peer(at, rank); }

// ---- copies

template <class T>
void createpolicy_fractional_L2_evict_first_b64(T& to, double) {
  to = 1;
}
template <class T>
void createpolicy_fractional_L2_evict_normal_b64(T& to, double) {
  to = 2;
}
inline void prefetch_tensormap(const void*) {}
inline void prefetch_global_L2(const void*) {}
void copy_box(uint32_t to, const void* map, int x, int y, int z, uint32_t barrier);
inline void cp_async_bulk_tensor_2d_shared_cluster_global_mbarrier_complete_tx_bytes_L2_cache_hint(
    uint32_t to, const void* map, uint32_t x, uint32_t y, uint32_t barrier, uint64_t) {
  copy_box(to, map, static_cast<int>(x), static_cast<int>(y), 0, barrier);
}
inline void cp_async_bulk_tensor_2d_shared_cluster_global_mbarrier_complete_tx_bytes(uint32_t to, const void* map,
                                                                                     uint32_t x, uint32_t y,
                                                                                     uint32_t barrier) {
  copy_box(to, map, static_cast<int>(x), static_cast<int>(y), 0, barrier);
}
inline void cp_async_bulk_tensor_3d_shared_cluster_global_mbarrier_complete_tx_bytes(uint32_t to, const void* map,
                                                                                     uint32_t x, uint32_t y, uint32_t z,
                                                                                     uint32_t barrier) {
  copy_box(to, map, static_cast<int>(x), static_cast<int>(y), static_cast<int>(z), barrier);
}
inline void cp_async_bulk_tensor_3d_shared_cluster_global_mbarrier_complete_tx_bytes_L2_cache_hint(
    uint32_t to, const void* map, uint32_t x, uint32_t y, uint32_t z, uint32_t barrier, uint64_t) {
  copy_box(to, map, static_cast<int>(x), static_cast<int>(y), static_cast<int>(z), barrier);
}
void cp_async_bulk_shared_cluster_global_mbarrier_complete_tx_bytes(uint32_t to, const void* from, uint32_t bytes,
                                                                    uint32_t barrier);
void cp_async_bulk_global_shared_cta_bulk_group(void* to, uint32_t from, uint32_t bytes);
inline void cp_async_bulk_commit_group() {}
void cp_async_bulk_wait_group_read(uint32_t left);
void cp_async_bulk_wait_group(uint32_t left);
void push_words(uint32_t to, const float* words, uint32_t count, uint32_t barrier);
inline void st_async_weak_shared_cluster_mbarrier_complete_tx_bytes_v4_f32(uint32_t to, float a, float b, float c,
                                                                           float d, uint32_t barrier) {
  const float v[4] = {a, b, c, d};
  push_words(to, v, 4, barrier);
}
inline void st_async_weak_shared_cluster_mbarrier_complete_tx_bytes_v2_f32(uint32_t to, float a, float b,
                                                                           uint32_t barrier) {
  const float v[2] = {a, b};
  push_words(to, v, 2, barrier);
}
void cp_async_cg_shared_global(uint32_t to, const void* from, uint32_t room, uint32_t bytes);
inline void cp_async_cg_shared_global(uint32_t to, const void* from, uint32_t bytes) {
  cp_async_cg_shared_global(to, from, bytes, bytes);
}
inline void cp_async_ca_shared_global(uint32_t to, const void* from, uint32_t room, uint32_t bytes) {
  cp_async_cg_shared_global(to, from, room, bytes);
}
void cp_async_commit_group();
void cp_async_wait_group(uint32_t left);
inline void cp_async_wait_all() {
  cp_async_commit_group();
  cp_async_wait_group(0);
}

// ---- matrices

void load_matrices(uint32_t** to, uint32_t at, bool transposed);
inline void ldmatrix_sync_aligned_m8n8_x4_shared_b16(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d, uint32_t at) {
  uint32_t* to[4] = {&a, &b, &c, &d};
  load_matrices(to, at, false);
}
// Stricter than the device: lanes 16 to 31 must pass addresses of rows, too.
inline void ldmatrix_sync_aligned_m8n8_x2_shared_b16(uint32_t& a, uint32_t& b, uint32_t at) {
  uint32_t unused[2];
  uint32_t* to[4] = {&a, &b, &unused[0], &unused[1]};
  load_matrices(to, at, false);
}
inline void ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d,
                                                           uint32_t at) {
  uint32_t* to[4] = {&a, &b, &c, &d};
  load_matrices(to, at, true);
}
uint32_t transposed(uint32_t x);
inline void movmatrix_sync_aligned_m8n8_trans_b16(uint32_t& to, uint32_t from) { to = transposed(from); }

enum class Numbers : uint8_t { bf16, f16, tf32, bytes, bytes_unsigned };  // of the first operand, where they differ
// d [16, 8] = a [16, k] b [k, 8] + c; results are floats or integers.
void multiply(Numbers numbers, void* const* d, const uint32_t* a, const uint32_t* b, const void* c);
#define SWY_MMA(name, numbers, depth, Sum)                                                                        \
  template <uint32_t M, uint32_t N, uint32_t K>                                                                   \
  void mma_sync_aligned_row_col_##name(Sum& d0, Sum& d1, Sum& d2, Sum& d3, uint32_t a0, uint32_t a1, uint32_t a2, \
                                       uint32_t a3, uint32_t b0, uint32_t b1, Sum c0, Sum c1, Sum c2, Sum c3) {   \
    static_assert(M == 16 && N == 8 && K == depth);                                                               \
    void* d[4] = {&d0, &d1, &d2, &d3};                                                                            \
    const uint32_t a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};                                                      \
    const Sum c[4] = {c0, c1, c2, c3};                                                                            \
    multiply(Numbers::numbers, d, a, b, c);                                                                       \
  }
SWY_MMA(f32_bf16_bf16_f32, bf16, 16, float)
SWY_MMA(f32_f16_f16_f32, f16, 16, float)
SWY_MMA(f32_tf32_tf32_f32, tf32, 8, float)
SWY_MMA(s32_u8_s8_s32, bytes_unsigned, 32, int)
SWY_MMA(s32_s8_s8_s32, bytes, 32, int)
#undef SWY_MMA
// The same of 8 elements: the first half of what 16 take.
#define SWY_MMA_HALF(name, numbers)                                                                          \
  template <uint32_t M, uint32_t N, uint32_t K>                                                              \
  void mma_sync_aligned_row_col_##name(float& d0, float& d1, float& d2, float& d3, uint32_t a0, uint32_t a1, \
                                       uint32_t b, float c0, float c1, float c2, float c3) {                 \
    static_assert(M == 16 && N == 8 && K == 8);                                                              \
    void* d[4] = {&d0, &d1, &d2, &d3};                                                                       \
    const uint32_t halves_a[4] = {a0, a1, 0, 0}, halves_b[2] = {b, 0};                                       \
    const float c[4] = {c0, c1, c2, c3};                                                                     \
    multiply(Numbers::numbers, d, halves_a, halves_b, c);                                                    \
  }
SWY_MMA_HALF(f32_bf16_bf16_f32, bf16)
SWY_MMA_HALF(f32_f16_f16_f32, f16)
#undef SWY_MMA_HALF

// ---- products of a warpgroup

template <class T>
void setmaxnreg_dec_sync_aligned_u32(T) {}
template <class T>
void setmaxnreg_inc_sync_aligned_u32(T) {}
void wgmma_fence_sync_aligned();
void wgmma_commit_group_sync_aligned();
void wgmma_wait_group_sync_aligned(uint32_t left);

struct GroupProduct {
  Numbers numbers;
  uint32_t columns;
  void* d[128];
  uint32_t a[4];
  uint64_t a_at, b_at;  // descriptors; the first operand is in registers where a_at is 0
  bool add, b_transposed;
};
void multiply_group(const GroupProduct& p);

template <class T, size_t... I, class Tuple>
void take_sums(GroupProduct& p, std::index_sequence<I...>, Tuple& t) {
  ((p.d[I] = static_cast<T*>(&std::get<I>(t))), ...);
}
// The first operand from registers: a0, a1, a2, a3, descriptor of the second, whether to add.
template <size_t First, class Tuple>
void take_registers(GroupProduct& p, Tuple& t) {
  p.a[0] = std::get<First>(t), p.a[1] = std::get<First + 1>(t), p.a[2] = std::get<First + 2>(t);
  p.a[3] = std::get<First + 3>(t), p.b_at = std::get<First + 4>(t), p.add = std::get<First + 5>(t);
}
// d..., a0, a1, a2, a3, descriptor, p, 1, 1, transposed; or d..., descriptor, descriptor, p, 1, 1, 0, 0
template <uint32_t M, uint32_t N, uint32_t K, class... T>
void wgmma_mma_async_sync_aligned_f32_bf16_bf16(T&&... all) {
  static_assert(M == 64 && K == 16);
  auto t = std::tie(all...);
  GroupProduct p{};
  p.numbers = Numbers::bf16, p.columns = N;
  take_sums<float>(p, std::make_index_sequence<N / 2>(), t);
  constexpr size_t kFirst = N / 2;
  if constexpr (sizeof...(T) == kFirst + 9) {
    take_registers<kFirst>(p, t);
    p.b_transposed = std::get<kFirst + 8>(t) != 0;
  } else {
    static_assert(sizeof...(T) == kFirst + 7);
    p.a_at = std::get<kFirst>(t), p.b_at = std::get<kFirst + 1>(t), p.add = std::get<kFirst + 2>(t);
    p.b_transposed = std::get<kFirst + 6>(t) != 0;
  }
  multiply_group(p);
}
template <uint32_t M, uint32_t N, uint32_t K, class... T>
void wgmma_mma_async_sync_aligned_s32_s8_s8(T&&... all) {
  static_assert(M == 64 && K == 32 && sizeof...(T) == N / 2 + 6);
  auto t = std::tie(all...);
  GroupProduct p{};
  p.numbers = Numbers::bytes, p.columns = N;
  take_sums<uint32_t>(p, std::make_index_sequence<N / 2>(), t);
  take_registers<N / 2>(p, t);
  multiply_group(p);
}

}  // namespace emulated::ptx
