// SPDX-License-Identifier: Apache-2.0
/* Optional features, found by name and revision through get_extension. C11, self-contained. A reader that does not find
 * an extension goes on without it. */
#ifndef SWITCHYARD_EXTENSIONS_H_
#define SWITCHYARD_EXTENSIONS_H_

#include "switchyard/extensions_reserved.h"
#include "switchyard/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* swy.range/1 (plugin): a run of operations that the backend compiles as one: a whole layer, a whole step. Its result
 * is tested against the operations one by one. It may contain the head and the sampler. A step whose masks arrive late
 * has two parts, and then a range ends before LM_HEAD, or begins there. */
#define SWY_EXT_RANGE "swy.range/1"
/* Which activations of a range's operations are one value, and which of the values that they make are kept, that is,
 * read after the range or by the host: those must be written. The others may be left unwritten. */
typedef struct swy_range_values {
  uint32_t struct_size;
  uint32_t value_count;
  const uint32_t* const* inputs;  /* per op: the value of each input, below value_count */
  const uint32_t* const* outputs; /* per op: likewise */
  const uint32_t* kept;           /* per value: 1 or 0; of values that are made outside 0 */
} swy_range_values;
SWY_SIZE(swy_range_values, 32);
typedef struct swy_range_operands { /* in the order of `claim` */
  uint32_t struct_size;
  uint32_t op_count;
  const swy_op* const* ops;
  const swy_bindings* const* bindings; /* per op; values that are not kept are bound, too */
  const swy_range_values* values;      /* as given to `accept` */
} swy_range_operands;
SWY_AT(swy_range_operands, values, 24);
SWY_SIZE(swy_range_operands, 32);
typedef struct swy_range {
  uint32_t struct_size;
  uint32_t reserved;
  /* [thread-safe] How many of the n ops, from the first, it takes (0: none; else at least 2), at what cost, and in
   * `error` why, or why not. A range gets its inputs in the types of `ops`. */
  swy_status (*claim)(swy_device* device, const swy_op* const* ops, uint32_t n, const swy_bucket* bucket,
                      uint32_t* accepted, double* microseconds, swy_error* error);
  /* [thread-safe] Workspace, and the layouts of the weights of all its ops in order (at most `capacity`). */
  swy_status (*prepare)(swy_device* device, const swy_op* const* ops, uint32_t n, const swy_bucket* bucket,
                        uint64_t* workspace_bytes, uint32_t* weight_layouts, uint32_t capacity, swy_error* error);
  /* [recording] */
  swy_status (*record)(swy_list* list, const swy_range_operands* operands, const swy_binding* workspace,
                       swy_error* error);
  /* [thread-safe] Whether it takes a range that it has claimed, now that the values are known: SWY_OK, or
   * SWY_UNSUPPORTED, with the reason, if they flow otherwise than it computes, or one is kept that it does not write.
   * NULL: it takes every range in which the last operation alone makes values that are kept, and the host gives it no
   * other. */
  swy_status (*accept)(swy_device* device, const swy_op* const* ops, uint32_t n, const swy_bucket* bucket,
                       const swy_range_values* values, swy_error* error);
} swy_range;
SWY_AT(swy_range, accept, 32);
SWY_SIZE(swy_range, 40);

/* swy.range/2 (plugin): ranges for a backend that compiles whole graphs. A device that offers both revisions is asked
 * by this one. What differs from swy.range/1:
 *
 * States. The backend may keep states without a kernel for their operations (`keeps`).
 *
 * Asking. The host asks at operations that no accepted range of the device covers, so its ranges never overlap. `claim`
 * and `accept` compile nothing. If `accept` refuses, the host asks again with fewer operations, a few times.
 *
 * Compiling. Only ranges of a plan that was chosen are compiled, once for each key. The host stores what `store` gives,
 * and passes it to `compile` when the same key comes up in a later run.
 *
 * Memory. Values that are not kept have no memory: their bindings have no buffer, wherever they occur. The workspace is
 * the place for them. */
#define SWY_EXT_RANGE_2 "swy.range/2"
#define SWY_RANGE_KEY_BYTES 256 /* of a key, with its NUL */
typedef struct swy_range_ops {
  uint32_t struct_size;
  uint32_t op_count;
  const swy_op* const* ops;
  const swy_bucket* bucket;
  const swy_range_values* values; /* NULL in `claim` */
} swy_range_ops;
SWY_AT(swy_range_ops, values, 24);
SWY_SIZE(swy_range_ops, 32);
typedef struct swy_range_prepared { /* filled with 0 by the host */
  uint32_t struct_size;
  uint32_t weight_count; /* of all ops, in order */
  uint32_t* weight_layouts;
  uint64_t workspace_bytes;
} swy_range_prepared;
SWY_SIZE(swy_range_prepared, 24);
typedef struct swy_range_code swy_range_code; /* a compiled range; opaque, the plugin's */
typedef struct swy_range_2 {
  uint32_t struct_size;
  uint32_t reserved;
  /* [thread-safe] As in swy.range/1. */
  swy_status (*claim)(swy_device* device, const swy_range_ops* offered, uint32_t* accepted, double* microseconds,
                      swy_error* error);
  /* [thread-safe] Whether it takes a range that it has claimed, now that the values are known: SWY_OK, or
   * SWY_UNSUPPORTED with the reason; *offer, which is op_count - 1, is then how many operations to offer next. Below 2:
   * the host asks no more. */
  swy_status (*accept)(swy_device* device, const swy_range_ops* range, uint32_t* offer, swy_error* error);
  /* [thread-safe] Whether it runs an operation with states in every step of this bucket as part of a range, and an
   * estimate of what that adds to the range. Then the states may live on this device, as state_layout describes them.
   * NULL: only where it has a kernel for the operation. */
  swy_status (*keeps)(swy_device* device, const swy_op* op, const swy_bucket* bucket, double* microseconds,
                      swy_error* error);
  /* [thread-safe] A text that is not empty: equal keys mean that one compiled form serves both ranges. The host adds
   * the backend, its version, and the name and arch of the device. */
  swy_status (*key)(swy_device* device, const swy_range_ops* range, char key[SWY_RANGE_KEY_BYTES], swy_error* error);
  /* [thread-safe] From what `store` gave for this key in an earlier run, which the host checks for damage only, or anew
   * where `stored` is NULL. If it fails with `stored`, the host tries without. SWY_UNSUPPORTED: the host plans again
   * without this range. */
  swy_status (*compile)(swy_device* device, const swy_range_ops* range, const void* stored, uint64_t stored_bytes,
                        swy_range_code** out, swy_error* error);
  /* [thread-safe] Writes at most *bytes of the stored form, and sets *bytes to its size. NULL: nothing is stored. */
  swy_status (*store)(swy_device* device, swy_range_code* code, void* to, uint64_t* bytes, swy_error* error);
  /* [thread-safe] Workspace, and the layouts of the weights. */
  swy_status (*prepare)(swy_device* device, swy_range_code* code, const swy_range_ops* range, swy_range_prepared* out,
                        swy_error* error);
  /* [recording] */
  swy_status (*record)(swy_list* list, swy_range_code* code, const swy_range_operands* operands,
                       const swy_binding* workspace, swy_error* error);
  void (*code_free)(swy_device* device, swy_range_code* code); /* [thread-safe] no list with it is left */
} swy_range_2;
SWY_AT(swy_range_2, claim, 8);
SWY_AT(swy_range_2, code_free, 72);
SWY_SIZE(swy_range_2, 80);

/* swy.sampling/1 (plugin): limits of the device's sampler beyond the flags of swy_device_info. A plugin without it has
 * none. A request beyond a limit is sampled by the host. The size of a slot of counts comes from state_layout. */
#define SWY_EXT_SAMPLING "swy.sampling/1"
typedef struct swy_sampling {
  uint32_t struct_size;
  uint32_t max_top_k;      /* 0: any */
  uint32_t max_bias;       /* biased ids per row; 0: any */
  uint32_t max_stop_ids;   /* per row; 0: any */
  uint32_t max_candidates; /* k of TOP_CANDIDATES; 0: any */
  uint32_t max_logprobs;   /* n of SAMPLE's optional outputs; 0: any */
} swy_sampling;
SWY_SIZE(swy_sampling, 24);

/* swy.profile/1 (plugin): when the kernels of a device ran, and how its clock maps to the host's.
 *
 * Lists. What is recorded while timestamps are on leaves spans each time that it runs. A list of before may leave none,
 * and one of now may carry its timestamps until it is freed: the host records anew after each `enable`.
 *
 * Spans. One per launch, in the order of submission, and within a list in the order of its operations. The first launch
 * of an operation bears the name of its swy_kernel ("moe_add.sorted"); any further one that name, a slash and a word of
 * the backend's ("moe_add.sorted/combine"), so that spans can be assigned to operations. A range's spans begin with
 * one named as its extension. Copies leave none. Names are UTF-8 and live until the device is closed.
 *
 * When. A span is complete when its submission is: a point that it signals is reached, or a blocking read after it has
 * returned. Only complete spans are given, and none is given twice.
 *
 * Room. At least SWY_PROFILE_SPANS wait for `collect`. What does not fit is lost, newest first, and is counted. */
#define SWY_EXT_PROFILE "swy.profile/1"
#define SWY_PROFILE_SPANS 65536
typedef struct swy_profile_span {
  const char* kernel;
  uint64_t begin_ticks;
  uint64_t end_ticks;
} swy_profile_span;
typedef struct swy_profile {
  uint32_t struct_size;
  uint32_t reserved;
  /* [device-serial] Nothing is under way. Switching on forgets spans of before. */
  swy_status (*enable)(swy_device* device, uint32_t on, swy_error* error);
  /* [device-serial] Takes the complete spans since the last call; *count is the capacity, then the number written. As
   * many as fit: there may be more, which the next call gives. It does not wait for what is under way. */
  swy_status (*collect)(swy_device* device, swy_profile_span* spans, uint32_t* count, swy_error* error);
  /* [device-serial] One instant on both clocks, and the device's tick in picoseconds. The instant lies within the call;
   * host_ns is CLOCK_MONOTONIC, and ticks are those of the spans, which do not wrap around while timestamps are on. How
   * far the two readings lie apart is how wrong the host's times are. A tick may be off by some thousandths: the host
   * draws a line through two instants. Called some times a second, with work under way, too. */
  swy_status (*correlate)(swy_device* device, uint64_t* host_ns, uint64_t* device_ticks, uint64_t* tick_ps,
                          swy_error* error);
  /* [device-serial] Spans that were lost since timestamps were switched on. NULL: it does not count them. */
  uint64_t (*dropped)(swy_device* device);
} swy_profile;
SWY_SIZE(swy_profile, 40);

/* swy.cancel/1 (plugin): asks the submissions in flight to end early; their timelines, and blocking calls that wait for
 * them, then fail with SWY_CANCELLED. A device that cannot stop may end the waits for its timelines alone, and compute
 * on. The host calls it when the user stops a program that waits for the device. */
#define SWY_EXT_CANCEL "swy.cancel/1"
typedef struct swy_cancel {
  uint32_t struct_size;
  uint32_t reserved;
  void (*cancel)(swy_device* device); /* [thread-safe, no-alloc] */
} swy_cancel;
SWY_SIZE(swy_cancel, 16);

/* swy.doing/1 (host): where the calling thread says which kernel it runs, for the line that the host writes if the
 * process crashes or hangs there. The SDK's backends in host memory do so. */
#define SWY_EXT_DOING "swy.doing/1"
typedef struct swy_doing {
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  /* [thread-safe, no-alloc] A place of the calling thread's, valid until the entry, or the team's fn, returns: store a
   * name there that lives for ever, at most once per kernel. */
  const char** (*place)(void* ctx);
} swy_doing;
SWY_SIZE(swy_doing, 24);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* SWITCHYARD_EXTENSIONS_H_ */
