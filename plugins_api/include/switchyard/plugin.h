// SPDX-License-Identifier: Apache-2.0
/* The plugin ABI: how the host and a backend's shared object talk. C11, self-contained. ABI 1.
 *
 * Rules that hold for everything here
 *  - A struct with a `struct_size` grows, at its end only. Whoever fills it sets the size. A reader uses min(theirs,
 * its own sizeof); what lies beyond is absent, and means the same as 0 or NULL (SWY_HAS). So a struct is copied by the
 *    smaller size into one that is 0. Whoever fills a struct of the other side's (swy_device_info, swy_prepared,
 *    swy_state_layout, swy_negotiate_out) writes no more than the size that it finds there, and never raises it.
 *  - A struct without a `struct_size` never changes: swy_binding, swy_timeline_point, swy_setting, swy_sample_slot, ….
 *    Only such structs lie in arrays or in other structs. Of structs that grow, an array holds pointers; the one
 *    exception has its stride beside it (swy_step.sample_params_size).
 *  - Each growth raises SWY_ABI_MINOR. Host and plugin tell each other theirs when they negotiate; nobody is refused
 *    because of it. Minor version 1 added swy_bucket.seq_rows, swy_kernel.op_name and encodings, swy_tensor.encoding,
 *    swy_op.name and swy_negotiate_out.abi_minor; and, where 0 was reserved, swy_negotiate_in.abi_minor,
 *    swy_step.seq_kept_at and swy_sample_slot.verify.
 *    Minor version 2 added the second revisions, MLP and SWY_MXFP4 (ops.h).
 *    Minor version 3 added GATED_DELTA r2, and the meaning of swy_step.seq_kept_at (step.h).
 *  - A flag bit that the reader does not know is ignored. What must not be ignored is a revision of its operation, or
 *    an extension.
 *  - "Reserved: no host calls it yet." marks what has its place and meaning, and which no host uses so far: entries,
 *    fields, flags. Fill in 0, or nothing, unless it is mandatory.
 *  - A function that can fail returns a swy_status and, where it takes a swy_error, writes one line there: what is
 * wrong, with the value. The buffer is the caller's, so that an error can be reported when memory is gone.
 *  - No exception, signal, exit or output crosses the boundary: a plugin logs through the host.
 *  - Every function leaves the floating-point environment of its thread as it found it: how it rounds, and whether it
 *    flushes subnormal numbers.
 *  - Threads: each entry carries a tag.
 *      [thread-safe]    any thread, at any time
 *      [device-serial]  one call at a time per device
 *      [recording]      between list_begin and list_finalize of that list, one call at a time
 *      [no-alloc]       allocates nothing; part of the hot path
 *  - Strings are UTF-8, NUL-terminated, and live as long as the object that they belong to; a plugin's tables live for
 *    ever (plugins are never unloaded).
 *
 * Life of a plugin: the host reads the ELF note (below) without running anything, opens the library, calls
 * switchyard_plugin_negotiate, enumerates devices, opens one, asks each kernel about each operation, packs weights,
 * records command lists, and then only rewrites steps (step.h) and submits.
 */
#ifndef SWITCHYARD_PLUGIN_H_
#define SWITCHYARD_PLUGIN_H_

#include "switchyard/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SWY_ABI_VERSION 1u
#define SWY_ABI_MINOR 3u                          /* 0: the headers before minor versions were told */
#define SWY_NEGOTIATE_MAGIC 0x4452415948435753ull /* "SWCHYARD" */
#define SWY_NEGOTIATE_SYMBOL "switchyard_plugin_negotiate"
#if defined(__GNUC__)
#define SWY_EXPORT __attribute__((visibility("default")))
#else
#define SWY_EXPORT
#endif

/* Whether `p`, a pointer to a `type`, is long enough to hold `field`. */
#define SWY_HAS(type, p, field) ((p)->struct_size >= offsetof(type, field) + sizeof(((type*)0)->field))

/* ---- errors ----------------------------------------------------------------------------------------------------- */

typedef int32_t swy_status;
enum {
  SWY_OK = 0,
  SWY_UNSUPPORTED = 1, /* with the reason in swy_error.reason */
  SWY_OUT_OF_HOST_MEMORY = 2,
  SWY_OUT_OF_DEVICE_MEMORY = 3,
  SWY_DEVICE_LOST = 4,
  SWY_INVALID_ARGUMENT = 5,
  SWY_INTERNAL = 6,
  SWY_CANCELLED = 7,
  SWY_ABI_MISMATCH = 8,
};

typedef uint32_t swy_reason;
enum {
  SWY_REASON_NONE = 0,
  SWY_REASON_DTYPE = 1,
  SWY_REASON_SHAPE = 2,
  SWY_REASON_LAYOUT = 3,
  SWY_REASON_ARCH = 4, /* the processor or device lacks a feature */
  SWY_REASON_REVISION = 5,
  SWY_REASON_ATTRIBUTE = 6,
  SWY_REASON_FLAGS = 7, /* e.g. not batch-invariant, which was required */
};

/* Owned by the caller. `message` may be NULL; a text longer than capacity - 1 is cut and still ends in NUL. */
typedef struct swy_error {
  uint32_t struct_size;
  uint32_t capacity;
  char* message;
  swy_reason reason;
  uint32_t reserved;
} swy_error;
SWY_AT(swy_error, message, 8);
SWY_SIZE(swy_error, 24);

/* ---- what the host offers --------------------------------------------------------------------------------------- */

typedef uint32_t swy_log_level;
enum { SWY_LOG_DEBUG = 0, SWY_LOG_INFO = 1, SWY_LOG_WARNING = 2, SWY_LOG_ERROR = 3 };

/* One member of a running team. */
typedef struct swy_team {
  uint32_t struct_size;
  uint32_t size; /* members */
  uint32_t rank; /* 0 .. size - 1 */
  uint32_t reserved;
  void* ctx;
  void (*barrier)(const struct swy_team* self); /* [no-alloc] returns when every member has called it */
} swy_team;
SWY_AT(swy_team, ctx, 16);
SWY_SIZE(swy_team, 32);

typedef void (*swy_team_fn)(void* arg, const swy_team* member);

/* The host's thread pool. A plugin that computes on the CPU runs here and starts no thread of its own: one call of
 * `run` carries a whole command list, with barriers between its operations. */
typedef struct swy_executor {
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  uint32_t (*width)(void* ctx); /* [thread-safe, no-alloc] members that `run` uses */
  /* [thread-safe, no-alloc] Calls fn once per member, all at the same time; returns when all have returned. Calls from
   * several threads are served one after the other. Called by a member of a running team, it calls fn at once, on this
   * thread alone, as a team of one. fn must not throw. After fn the host restores how its threads round. */
  void (*run)(void* ctx, swy_team_fn fn, void* arg);
} swy_executor;
SWY_SIZE(swy_executor, 32);

/* Lives until the process ends, with everything that it points to. */
typedef struct swy_host {
  uint32_t struct_size;
  uint32_t abi;
  const char* version; /* of the runtime */
  void* ctx;
  /* [thread-safe] One line; the host shows control characters as \x1B, and cuts a text of more than 1,000 bytes. */
  void (*log)(void* ctx, swy_log_level level, const char* message);
  /* [thread-safe, no-alloc] One kernel of a running list, by CLOCK_MONOTONIC. NULL: not tracing; the host sets it only
   * while no list runs. */
  void (*trace)(void* ctx, const char* name, uint64_t begin_ns, uint64_t end_ns);
  /* [thread-safe] Zero-filled, `alignment` at most 4096. NULL when memory is gone. Use it for the buffers of a device
   * in host memory: large blocks lie in huge pages, and the conformance kit can put guard pages around them. All other
   * memory may come from anywhere. A host may lack `alloc`; then do not call `free`. */
  void* (*alloc)(void* ctx, uint64_t bytes, uint64_t alignment);
  void (*free)(void* ctx, void* p, uint64_t bytes, uint64_t alignment); /* [thread-safe] */
  const swy_executor* executor;
  const void* (*get_extension)(void* ctx, const char* name); /* [thread-safe] NULL: the host does not have it */
} swy_host;
SWY_AT(swy_host, log, 24);
SWY_AT(swy_host, executor, 56);
SWY_SIZE(swy_host, 72);

/* ---- devices, memory, queues ------------------------------------------------------------------------------------ */

typedef struct swy_device swy_device;     /* opaque, the plugin's */
typedef struct swy_buffer swy_buffer;     /* opaque, the plugin's */
typedef struct swy_list swy_list;         /* a command list, recorded or being recorded; opaque, the plugin's */
typedef struct swy_timeline swy_timeline; /* a counter that a device raises; opaque, the plugin's */

typedef uint32_t swy_device_type;
enum { SWY_DEVICE_CPU = 1, SWY_DEVICE_GPU = 2, SWY_DEVICE_ACCELERATOR = 3 };

enum { /* swy_device_info.flags */
       SWY_DEVICE_SYNCHRONOUS =
           1u << 0, /* submit and copies return when done; timelines are absent and the host emulates them */
       SWY_DEVICE_HOST_MEMORY = 1u << 1, /* buffer_map works for every buffer, and host memory can be imported */
       SWY_DEVICE_NATIVE_REPLAY =
           1u << 2, /* a finalized list is replayed by the device (a graph); else the plugin re-issues it */
};

enum {                                         /* swy_device_info.sampling */
       SWY_SAMPLING_LOGITS = 1u << 0,          /* LM_HEAD. A device without that kernel leaves it out */
       SWY_SAMPLING_TOPK_CANDIDATES = 1u << 1, /* TOP_CANDIDATES */
       SWY_SAMPLING_TOKEN = 1u << 2,           /* SAMPLE, or LM_HEAD_SAMPLE */
};
enum { /* swy_device_info.sampling_steps: which parts of the chain SAMPLE covers */
       SWY_SAMPLES_GREEDY = 1u << 0,
       SWY_SAMPLES_SEEDED = 1u << 1,
       SWY_SAMPLES_TEMPERATURE = 1u << 2,
       SWY_SAMPLES_TOP_K = 1u << 3,
       SWY_SAMPLES_TOP_P = 1u << 4,
       SWY_SAMPLES_MIN_P = 1u << 5,
       SWY_SAMPLES_MASK = 1u << 6,
       SWY_SAMPLES_PENALTIES = 1u << 7,
       SWY_SAMPLES_BIAS = 1u << 8,
       SWY_SAMPLES_LOGPROBS = 1u << 9,
       SWY_SAMPLES_STOP_IDS = 1u << 10,
};

typedef struct swy_device_info {
  uint32_t struct_size;
  swy_device_type type;
  const char* name; /* "Intel Xeon …", "NVIDIA H200" */
  const char* arch; /* "x86-64", "sm_90a": key for thresholds and tuning */
  uint64_t memory_bytes;
  uint64_t memory_free_bytes;
  uint64_t max_buffer_bytes;
  uint32_t buffer_alignment; /* of offsets bound to operands; a power of two, at most 4096 */
  uint32_t flags;
  uint32_t sampling;
  uint32_t sampling_steps;
} swy_device_info;
SWY_AT(swy_device_info, name, 8);
SWY_AT(swy_device_info, buffer_alignment, 48);
SWY_SIZE(swy_device_info, 64);

typedef uint32_t swy_memory_type;
enum {
  SWY_MEMORY_DEVICE = 1,   /* fastest for kernels */
  SWY_MEMORY_UPLOAD = 2,   /* host writes, device reads: steps */
  SWY_MEMORY_READBACK = 3, /* device writes, host reads: tokens, logits */
};

typedef struct swy_binding {
  swy_buffer* buffer;
  uint64_t offset;
  uint64_t bytes;
} swy_binding;
SWY_SIZE(swy_binding, 24);

typedef struct swy_timeline_point {
  swy_timeline* timeline;
  uint64_t value;
} swy_timeline_point;

/* A value above every real one: a timeline that reaches it has failed, and everything that waits for it fails too. */
#define SWY_TIMELINE_FAILED UINT64_MAX

/* What a copy or a list waits for and signals. The arrays live as long as the call: a device that needs them later
 * copies them. Hosts so far give no waits and at most one signal; the conformance kit also gives one wait. A NULL
 * swy_submit has no points. */
typedef struct swy_submit {
  uint32_t struct_size;
  uint32_t wait_count; /* points of this plugin's devices to reach before it begins; no host sets it yet */
  const swy_timeline_point* waits;
  uint32_t signal_count;
  uint32_t reserved;
  const swy_timeline_point* signals;
} swy_submit;
SWY_SIZE(swy_submit, 32);

/* ---- buckets and recording -------------------------------------------------------------------------------------- */

/* What a list is recorded for: no step submitted to it has more than this. */
typedef struct swy_bucket {
  uint32_t struct_size;
  uint32_t rows;
  uint32_t seqs;
  uint32_t logit_rows;
  uint32_t sample_rows;
  uint32_t context; /* largest position + 1 */
  uint32_t pages;   /* of the session pool, for every paged state */
  uint32_t slots;   /* of the session pool, for every slotted state */
  uint32_t page_size;
  uint32_t flags;    /* SWY_BUCKET_* */
  uint32_t seq_rows; /* the most rows of one sequence; 0: any number. Reserved: no host calls it yet. */
  uint32_t reserved;
} swy_bucket;
SWY_AT(swy_bucket, seq_rows, 40);
SWY_SIZE(swy_bucket, 48);
enum {
  SWY_BUCKET_DECODE = 1u << 0,        /* every sequence has at most one row */
  SWY_BUCKET_DETERMINISTIC = 1u << 1, /* only DETERMINISTIC and BATCH_INVARIANT kernels may serve */
  /* Sequences may have several draws (step.h). */
  SWY_BUCKET_DRAFTS = 1u << 2,
};

/* Where an operation's operands are, in the order of its lists. A state's binding is the whole state: slot or page i
 * begins at i * swy_state_layout.unit_bytes. */
typedef struct swy_bindings {
  uint32_t struct_size;
  uint32_t reserved;
  const swy_binding* inputs;
  const swy_binding* weights;
  const swy_binding* states;
  const swy_binding* outputs;
  swy_binding workspace; /* of the size that prepare returned; undefined content */
} swy_bindings;
SWY_SIZE(swy_bindings, 64);

typedef struct swy_list_info {
  uint32_t struct_size;
  uint32_t reserved;
  const swy_bucket* bucket;
  swy_binding step;   /* the step's block, rewritten before each submission */
  swy_binding tokens; /* i32: the device's token buffer, written by SAMPLE, read by EMBEDDING */
} swy_list_info;
SWY_SIZE(swy_list_info, 64);

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

enum {                                       /* swy_kernel.flags */
       SWY_KERNEL_CAPTURE_SAFE = 1u << 0,    /* may be replayed with changed steps */
       SWY_KERNEL_DETERMINISTIC = 1u << 1,   /* the same inputs give the same bits */
       SWY_KERNEL_BATCH_INVARIANT = 1u << 2, /* a row's bits depend on its own sequence only */
       /* Output 0 may be the same memory as input 0. Reserved: no host calls it yet. */
       SWY_KERNEL_IN_PLACE = 1u << 3,
};

typedef struct swy_prepared {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t workspace_bytes;
  uint32_t weight_layouts[16]; /* per weight: the packed layout that record wants; 0: canonical */
} swy_prepared;
SWY_AT(swy_prepared, weight_layouts, 16);
SWY_SIZE(swy_prepared, 80);

typedef struct swy_kernel swy_kernel;

/* A kernel and what it can do. The constraints given as data let the host rule it out, and say why, without a call; a
 * zero mask or limit means no constraint. `supports` then answers for the exact instance. */
struct swy_kernel {
  uint32_t struct_size;
  uint32_t flags;
  const char* name; /* "linear.vnni": unique in the backend; what --variant names */
  uint32_t op;
  uint32_t op_revision; /* the newest that it implements; it implements all before */
  /* SWY_DTYPE_BIT masks over activations that are f32 or bf16. Inputs and outputs of i32 do not count: a kernel without
   * others has 0 or any of these bits, but not SWY_I32 alone. */
  uint32_t input_dtypes;
  uint32_t output_dtypes;
  /* Mask over quantizable weights (ops.h), but those of SWY_ENCODED. 0 is all types up to SWY_I4A: a kernel that takes
   * SWY_MXFP4 says so. */
  uint32_t weight_dtypes;
  uint32_t min_rows; /* of the bucket */
  uint32_t max_rows;
  swy_dtype activations; /* products and states round to: SWY_F32 (or 0), SWY_F16, SWY_BF16, SWY_I8. The error budget */
  const void* user;      /* the plugin's */

  /* [thread-safe] SWY_OK, or SWY_UNSUPPORTED with reason and text. NULL: the masks say it all. */
  swy_status (*supports)(swy_device* device, const swy_kernel* self, const swy_op* op, const swy_bucket* bucket,
                         swy_error* error);
  /* [thread-safe] An estimate in microseconds, for ranking. NULL: the kernel counts as free, and the conformance kit
   * objects. */
  swy_status (*cost)(swy_device* device, const swy_kernel* self, const swy_op* op, const swy_bucket* bucket,
                     double* microseconds, swy_error* error);
  /* [thread-safe] What recording will need. NULL: nothing, canonical weights. */
  swy_status (*prepare)(swy_device* device, const swy_kernel* self, const swy_op* op, const swy_bucket* bucket,
                        swy_prepared* out, swy_error* error);
  /* [recording] Adds the operation to the list. The pointers in `op` and `bindings` die with the call. */
  swy_status (*record)(swy_list* list, const swy_kernel* self, const swy_op* op, const swy_bindings* bindings,
                       swy_error* error);

  const char* op_name; /* `op` is SWY_OP_NAMED: the operation's name. Otherwise not read. */
  /* The names of the encodings that its weights may have besides those of weight_dtypes; ends with NULL. NULL: none. A
   * weight of another encoding is decoded to bf16 or fp32 first, whichever weight_dtypes and `supports` allow. */
  const char* const* encodings;
};
SWY_AT(swy_kernel, name, 8);
SWY_AT(swy_kernel, user, 48);
SWY_AT(swy_kernel, record, 80);
SWY_AT(swy_kernel, op_name, 88);
SWY_SIZE(swy_kernel, 104);

/* ---- states ----------------------------------------------------------------------------------------------------- */

/* How a backend stores one state. All its kernels share it. */
typedef struct swy_state_layout {
  uint32_t struct_size;
  uint32_t layout;     /* 0: canonical, i.e. the dims of the state row-major */
  uint64_t unit_bytes; /* of one slot, or of one page of page_size tokens; units lie one after another */
} swy_state_layout;
SWY_SIZE(swy_state_layout, 16);

/* ---- options ---------------------------------------------------------------------------------------------------- */

typedef uint32_t swy_option_type;
enum { SWY_OPTION_BOOL = 1, SWY_OPTION_INT = 2, SWY_OPTION_FLOAT = 3, SWY_OPTION_STRING = 4 };

typedef struct swy_option {
  uint32_t struct_size;
  swy_option_type type;
  const char* name; /* "exact": the user writes --set ID.exact=1 */
  const char* default_value;
  const char* help;
} swy_option;
SWY_SIZE(swy_option, 32);

typedef struct swy_setting {
  const char* name;
  const char* value; /* already checked against the option's type by the host */
} swy_setting;

/* ---- the plugin's tables ---------------------------------------------------------------------------------------- */

typedef struct swy_plugin {
  uint32_t struct_size;
  uint32_t option_count;
  const swy_option* const* options;

  /* devices: [thread-safe]; a count of 0 comes with its reason; `sampling` may lack flags until the device is open */
  swy_status (*device_count)(uint32_t* count, swy_error* error);
  swy_status (*device_info)(uint32_t index, swy_device_info* out, swy_error* error);
  swy_status (*device_open)(uint32_t index, const swy_setting* settings, uint32_t setting_count, swy_device** out,
                            swy_error* error);
  void (*device_close)(swy_device* device); /* every buffer, list and timeline has been freed */

  /* kernels: [thread-safe]; the list is fixed once the device is open */
  uint32_t (*kernel_count)(swy_device* device);
  const swy_kernel* (*kernel_at)(swy_device* device, uint32_t index);

  /* memory: [thread-safe] */
  swy_status (*buffer_alloc)(swy_device* device, swy_memory_type type, uint64_t bytes, swy_buffer** out,
                             swy_error* error); /* zero-filled */
  /* Reads memory that the host keeps alive and unchanged (a mapped file). SWY_UNSUPPORTED: the host copies instead. */
  swy_status (*buffer_import)(swy_device* device, const void* memory, uint64_t bytes, swy_buffer** out,
                              swy_error* error);
  void (*buffer_free)(swy_device* device, swy_buffer* buffer);
  void* (*buffer_map)(swy_device* device, swy_buffer* buffer); /* [no-alloc] NULL: not visible to the host */

  /* copies: [device-serial, no-alloc], ordered after earlier submissions of the device. With `submit` NULL the call
   * returns when the copy is done; of a lost device, when nothing of what was submitted touches host memory any more.
   *
   * With `submit` it may return earlier. The host keeps `from` unchanged until the copy is done: until timeline_wait
   * has returned for a point that this or a later submission of the device signals, or a later copy without `submit`
   * has returned. It keeps `to` until timeline_wait has returned for a point that the read signals, or for a later
   * value of that timeline, and looks at `to` only then. So timeline_wait may be what fills it; timeline_free gives it
   * up. */
  swy_status (*write)(swy_device* device, swy_buffer* to, uint64_t offset, const void* from, uint64_t bytes,
                      const swy_submit* submit, swy_error* error);
  swy_status (*read)(swy_device* device, void* to, swy_buffer* from, uint64_t offset, uint64_t bytes,
                     const swy_submit* submit, swy_error* error);
  /* Ordered as the copies are; it may return before it is done. */
  swy_status (*fill_zero)(swy_device* device, swy_buffer* buffer, uint64_t offset, uint64_t bytes, swy_error* error);

  /* packing: [thread-safe], pure functions of (tensor, layout), callable without a device of the right kind */
  swy_status (*packed_bytes)(const swy_tensor* tensor, uint32_t layout, uint64_t* bytes, swy_error* error);
  swy_status (*pack)(const swy_tensor* tensor, uint32_t layout, const void* canonical, void* packed, swy_error* error);
  const char* (*layout_name)(uint32_t layout); /* stable id for files, e.g. "cpu.tile16x64"; NULL: unknown */

  /* states: [thread-safe] except the copies, which are [device-serial] */
  swy_status (*state_layout)(swy_device* device, const swy_op* op, uint32_t state_index, const swy_bucket* pool,
                             swy_state_layout* out, swy_error* error);
  /* Between a unit (slot or page) of the backend's layout and the canonical form: the state's dims, row-major, a page
   * being [page_size, dims]. */
  swy_status (*state_export)(swy_device* device, const swy_tensor* state, uint32_t page_size, const swy_binding* unit,
                             void* canonical, uint64_t bytes, swy_error* error);
  swy_status (*state_import)(swy_device* device, const swy_tensor* state, uint32_t page_size, const swy_binding* unit,
                             const void* canonical, uint64_t bytes, swy_error* error);

  /* command lists: begin -> kernels' record -> finalize -> submit, many times -> free. [device-serial] */
  swy_status (*list_begin)(swy_device* device, const swy_list_info* info, swy_list** out, swy_error* error);
  swy_status (*list_finalize)(swy_list* list, swy_error* error);
  /* [no-alloc] Returns when the list is done on a synchronous device; otherwise it may return earlier, also with
   * `submit` NULL. */
  swy_status (*list_submit)(swy_list* list, const swy_submit* submit, swy_error* error);
  void (*list_free)(swy_list* list);

  /* timelines: NULL on a synchronous device. [thread-safe] timeline_value waits for no large copy of another thread. */
  swy_status (*timeline_create)(swy_device* device, swy_timeline** out, swy_error* error);
  void (*timeline_free)(swy_device* device, swy_timeline* timeline);
  /* [no-alloc] SWY_TIMELINE_FAILED once failed. Reserved: no host calls it yet. */
  uint64_t (*timeline_value)(swy_timeline* timeline);
  /* SWY_OK: the value is reached. SWY_CANCELLED, with a line: not within timeout_ns (UINT64_MAX: any time), or the
   * submission was cancelled. Otherwise why the timeline failed, mostly SWY_DEVICE_LOST. */
  swy_status (*timeline_wait)(swy_timeline* timeline, uint64_t value, uint64_t timeout_ns, swy_error* error);

  /* Extensions (extensions.h) by name and revision: "swy.range/1". [thread-safe] NULL: absent. */
  const void* (*get_extension)(swy_device* device, const char* name);
} swy_plugin;
SWY_AT(swy_plugin, options, 8);
SWY_AT(swy_plugin, device_count, 16);
SWY_AT(swy_plugin, buffer_alloc, 64);
SWY_AT(swy_plugin, packed_bytes, 120);
SWY_AT(swy_plugin, list_begin, 168);
SWY_AT(swy_plugin, get_extension, 232);
SWY_SIZE(swy_plugin, 240);

/* The entries that every plugin has; those of timelines are there together or not at all. X(entry) for each. */
#define SWY_MANDATORY_ENTRIES(X) \
  X(device_count)                \
  X(device_info)                 \
  X(device_open)                 \
  X(device_close)                \
  X(kernel_count)                \
  X(kernel_at)                   \
  X(buffer_alloc)                \
  X(buffer_free)                 \
  X(buffer_map)                  \
  X(write)                       \
  X(read)                        \
  X(fill_zero)                   \
  X(packed_bytes)                \
  X(pack)                        \
  X(layout_name)                 \
  X(state_layout)                \
  X(state_export)                \
  X(state_import)                \
  X(list_begin)                  \
  X(list_finalize)               \
  X(list_submit)                 \
  X(list_free)

/* ---- negotiation ------------------------------------------------------------------------------------------------ */

typedef struct swy_negotiate_in {
  uint32_t struct_size;
  uint32_t abi_min; /* the host speaks abi_min .. abi_max */
  uint32_t abi_max;
  uint32_t abi_minor; /* SWY_ABI_MINOR of the host's headers */
  uint64_t magic;     /* SWY_NEGOTIATE_MAGIC */
  const swy_host* host;
} swy_negotiate_in;
SWY_AT(swy_negotiate_in, magic, 16);
SWY_SIZE(swy_negotiate_in, 32);

typedef struct swy_negotiate_out {
  uint32_t struct_size;
  uint32_t abi;        /* chosen by the plugin from the host's range */
  const char* id;      /* "cuda"; [a-z][a-z0-9_-]*, at most 31 bytes */
  const char* version; /* of the plugin */
  const swy_plugin* plugin;
  swy_error* error;   /* given by the host; on refusal the plugin writes the reason */
  uint32_t abi_minor; /* SWY_ABI_MINOR of the plugin's headers */
  uint32_t reserved;
} swy_negotiate_out;
SWY_AT(swy_negotiate_out, plugin, 24);
SWY_AT(swy_negotiate_out, abi_minor, 40);
SWY_SIZE(swy_negotiate_out, 48);

/* The one exported symbol, frozen for ever. Touches no device, and starts no process. Returns SWY_OK; or
 * SWY_ABI_MISMATCH or SWY_UNSUPPORTED with the reason; or SWY_INVALID_ARGUMENT for what is no request of a host:
 * another magic, or structs that lack what minor version 0 had. Any of these refuses the host.
 *
 * One call at a time, but possibly several in a process: each engine that a program loads negotiates, with a host of
 * its own. The answer is the same each time, with the same table. A device keeps the host that was given last when it
 * was opened; so does everything that is made on it. */
typedef swy_status (*swy_negotiate_fn)(const swy_negotiate_in* in, swy_negotiate_out* out);
SWY_EXPORT swy_status switchyard_plugin_negotiate(const swy_negotiate_in* in, swy_negotiate_out* out);

/* ---- metadata that is readable before any code of the plugin runs ----------------------------------------------- */

/* An ELF note in a PT_NOTE segment: name "Switchyard", type 1, this descriptor. Put SWY_PLUGIN_NOTE at file scope once,
 * with the id and version that the plugin answers. The host refuses a plugin that answers another id. */
typedef struct swy_note {
  uint32_t name_bytes; /* 12, with padding the 12 bytes below */
  uint32_t desc_bytes;
  uint32_t type;
  char name[12];
  uint32_t abi_min;
  uint32_t abi_max;
  char id[32];
  char version[32];
  char cpu[64]; /* features that the code needs from the start, by Linux's names: "avx2 fma"; "" for the baseline */
} swy_note;
SWY_AT(swy_note, abi_min, 24);
SWY_AT(swy_note, cpu, 96);
SWY_SIZE(swy_note, 160);
#define SWY_NOTE_NAME "Switchyard"
#define SWY_NOTE_TYPE 1u
#if defined(__GNUC__)
#define SWY_PLUGIN_NOTE(id_, version_, cpu_)                                                                          \
  __attribute__((section(".note.switchyard"), used, aligned(4))) static const swy_note swy_plugin_note =              \
      {                                                                                                               \
          12u, sizeof(swy_note) - 24u, SWY_NOTE_TYPE, SWY_NOTE_NAME, SWY_ABI_VERSION, SWY_ABI_VERSION, id_, version_, \
          cpu_}
#endif

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* SWITCHYARD_PLUGIN_H_ */
