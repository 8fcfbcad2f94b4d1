// SPDX-License-Identifier: Apache-2.0
/* Extensions whose names and structs are fixed, so that nothing breaks when hosts begin to use them. C11,
 * self-contained. Reserved: no host calls it yet. That holds for everything in this file. */
#ifndef SWITCHYARD_EXTENSIONS_RESERVED_H_
#define SWITCHYARD_EXTENSIONS_RESERVED_H_

#include "switchyard/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* swy.group/1 (plugin): devices of one backend, in one process or several, as a group with collectives. Reserved: no
 * host calls it yet. */
#define SWY_EXT_GROUP "swy.group/1"
typedef struct swy_group swy_group;
typedef struct swy_group_id { /* unique over all processes of all machines; its bytes are the backend's */
  unsigned char bytes[128];
} swy_group_id;
typedef uint32_t swy_sum_order;
enum {
  SWY_SUM_ANY = 0,     /* every rank gets the same bits, which may differ from run to run */
  SWY_SUM_BY_RANK = 1, /* ((r0 + r1) + r2) + … in fp32, however the ranks are connected */
  SWY_SUM_PAIRS = 2,   /* neighbours first: (r0 + r1) + (r2 + r3), and so on, in fp32; a lone last one is carried up */
};
typedef struct swy_group_info {
  uint32_t struct_size;
  uint32_t rank; /* of the device, 0 .. size - 1 */
  uint32_t size;
  swy_sum_order order;
  const swy_group_id* id; /* the same on all ranks */
} swy_group_info;
SWY_SIZE(swy_group_info, 24);
/* Collectives are recorded by all ranks in the same order. Buffers are [elements] of dtype; `from` and `to` may be one.
 */
typedef struct swy_groups {
  uint32_t struct_size;
  uint32_t reserved;
  /* [thread-safe] A new id. Rank 0 makes it, and the host carries it to the others. */
  swy_status (*make_id)(swy_device* device, swy_group_id* out, swy_error* error);
  /* [device-serial] Returns when all ranks have called it, or with SWY_CANCELLED after timeout_ns. */
  swy_status (*create)(swy_device* device, const swy_group_info* info, uint64_t timeout_ns, swy_group** out,
                       swy_error* error);
  void (*free)(swy_group* group);
  /* [recording] to = the sum of all ranks' from, in the group's order. */
  swy_status (*all_reduce)(swy_list* list, swy_group* group, const swy_binding* from, const swy_binding* to,
                           swy_dtype dtype, uint64_t elements, swy_error* error);
  /* [recording] to [size, elements] = every rank's from [elements], by rank. */
  swy_status (*all_gather)(swy_list* list, swy_group* group, const swy_binding* from, const swy_binding* to,
                           swy_dtype dtype, uint64_t elements, swy_error* error);
  /* [recording] Part i of from [size, elements] goes to rank i, which has it as part `rank` of its to. */
  swy_status (*all_to_all)(swy_list* list, swy_group* group, const swy_binding* from, const swy_binding* to,
                           swy_dtype dtype, uint64_t elements, swy_error* error);
  /* [recording] Between two ranks. */
  swy_status (*send)(swy_list* list, swy_group* group, uint32_t to_rank, const swy_binding* from, swy_dtype dtype,
                     uint64_t elements, swy_error* error);
  swy_status (*receive)(swy_list* list, swy_group* group, uint32_t from_rank, const swy_binding* to, swy_dtype dtype,
                        uint64_t elements, swy_error* error);
} swy_groups;
SWY_SIZE(swy_groups, 72);

/* swy.loop/1 (plugin): a list that is submitted several times at once, while the device itself advances the step: per
 * step number + 1; per active sequence its row positions, draw positions and max_context + 1, and its read slot becomes
 * its write slot. Every row reads its token from the token buffer. Reserved: no host calls it yet. */
#define SWY_EXT_LOOP "swy.loop/1"
typedef struct swy_loop_info {
  uint32_t struct_size;
  uint32_t times;      /* at least 1 */
  swy_binding results; /* gets swy_sample_result [times, sample_rows] */
  swy_binding ran;     /* gets one u32: how many times it ran. It ends early once all sequences have stopped. */
} swy_loop_info;
SWY_SIZE(swy_loop_info, 56);
typedef struct swy_loop {
  uint32_t struct_size;
  uint32_t reserved;
  /* [device-serial, no-alloc] As list_submit; the signals come after the last time. */
  swy_status (*submit)(swy_list* list, const swy_loop_info* info, const swy_submit* submit, swy_error* error);
} swy_loop;
SWY_SIZE(swy_loop, 16);

/* swy.peer/1 (plugin): copies between devices without the host's memory, and waits of one device for another without
 * the host. Reserved: no host calls it yet. */
#define SWY_EXT_PEER "swy.peer/1"
typedef struct swy_external { /* a buffer or timeline as another backend of the same process can open it */
  uint32_t struct_size;
  uint32_t kind; /* 1: a file descriptor of Linux, which the receiver closes */
  int64_t handle;
  uint64_t bytes; /* of a buffer */
} swy_external;
SWY_SIZE(swy_external, 24);
typedef struct swy_peer {
  uint32_t struct_size;
  uint32_t reserved;
  /* [thread-safe] SWY_OK if `device` can copy from `other`, a device of the same backend, and wait for its timelines in
   * swy_submit.waits; otherwise SWY_UNSUPPORTED with the reason. */
  swy_status (*reaches)(swy_device* device, swy_device* other, swy_error* error);
  /* [device-serial, no-alloc] to.bytes bytes from a device that `device` reaches, as swy_plugin.write. */
  swy_status (*copy)(swy_device* device, const swy_binding* to, const swy_binding* from, const swy_submit* submit,
                     swy_error* error);
  /* [thread-safe] Between backends. What was imported is freed as any other. */
  swy_status (*export_buffer)(swy_device* device, swy_buffer* buffer, swy_external* out, swy_error* error);
  swy_status (*import_buffer)(swy_device* device, const swy_external* from, swy_buffer** out, swy_error* error);
  swy_status (*export_timeline)(swy_device* device, swy_timeline* timeline, swy_external* out, swy_error* error);
  swy_status (*import_timeline)(swy_device* device, const swy_external* from, swy_timeline** out, swy_error* error);
} swy_peer;
SWY_SIZE(swy_peer, 56);

/* swy.profile.parts/1 (plugin, with swy.profile/1): what a range's span consists of. Reserved: no host calls it yet. */
#define SWY_EXT_PROFILE_PARTS "swy.profile.parts/1"
typedef struct swy_profile_part {
  uint32_t op; /* index in the range; UINT32_MAX: of no operation, such as a wait between two */
  uint32_t reserved;
  uint64_t begin_ticks;
  uint64_t end_ticks;
} swy_profile_part;
SWY_SIZE(swy_profile_part, 24);
typedef struct swy_profile_parts {
  uint32_t struct_size;
  uint32_t reserved;
  /* [device-serial] Parts of the range spans that the last `collect` gave, in their order. *count is the capacity, then
   * the number written. */
  swy_status (*collect)(swy_device* device, swy_profile_part* parts, uint32_t* count, swy_error* error);
} swy_profile_parts;
SWY_SIZE(swy_profile_parts, 16);

/* swy.derived/1 (plugin): a packed weight made of several tensors of one operation, such as three projections in one.
 * Reserved: no host calls it yet. */
#define SWY_EXT_DERIVED "swy.derived/1"
typedef struct swy_derived {
  uint32_t struct_size;
  uint32_t reserved;
  /* [thread-safe] leaders[i]: the weight whose packed form contains weight i too; i itself where it stands alone. A
   * leader's layout is the one of `prepare`. The others are bound with a NULL buffer. */
  swy_status (*leaders)(swy_device* device, const swy_kernel* kernel, const swy_op* op, const swy_bucket* bucket,
                        uint32_t* leaders, swy_error* error);
  /* [thread-safe] As swy_plugin.packed_bytes and pack, of n tensors, the leader first. */
  swy_status (*packed_bytes)(const swy_tensor* const* tensors, uint32_t n, uint32_t layout, uint64_t* bytes,
                             swy_error* error);
  swy_status (*pack)(const swy_tensor* const* tensors, uint32_t n, uint32_t layout, const void* const* canonical,
                     void* packed, swy_error* error);
} swy_derived;
SWY_SIZE(swy_derived, 32);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* SWITCHYARD_EXTENSIONS_RESERVED_H_ */
