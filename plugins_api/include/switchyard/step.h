// SPDX-License-Identifier: Apache-2.0
/* A step: what changes from one submission of a recorded command list to the next. C11, self-contained.
 *
 * A step lives in one block of device memory, rewritten before every submission: a swy_step followed by the arrays that
 * it points to. Every `*_at` is an offset in bytes from the start of the block, a multiple of 16; 0 means absent.
 * Kernels are launched for the bucket they were recorded for and leave early beyond the counts.
 *
 * Steps are ragged: sequence s owns the rows row_start[s] .. row_start[s + 1] - 1, in order of position. A decoding
 * sequence has one row, a prefill chunk has many, and both may stand in one step. Rows of an inactive sequence may be
 * computed but change no state.
 *
 * States. A slotted state is read from seq_read_slot[s] and written to seq_write_slot[s]; the two may be equal. A step
 * whose row 0 of a sequence has position 0 reads zeros instead of the read slot. Token position p of a paged state lies
 * in page block_table[s * block_table_stride + p / page_size], at p % page_size. A slot that is written belongs to one
 * sequence (or sampling row) of the step alone; several may read one.
 *
 * Several draws. A sequence may have several sampling slots, as a step that verifies drafted tokens does. The slots of
 * a sequence follow one another in `sample_at`, with rising positions and logit rows; sequences come in their order in
 * the step. Row r's draft is the token that row r + 1 of the sequence was given. A row stands if every draw of the
 * sequence's rows before it gave that row's draft. Each slot draws with the noise of its own position, whether its row
 * stands or not. Each has an entry of its own in the token buffer. Reserved, no host calls it yet: counts of such
 * slots. A slot reads the counts that the slot before it wrote (both name the same counts slots), and draws of rows
 * that do not stand are not counted.
 *
 * Pending rows. An operation with a `pending` state (ops.h, GATED_DELTA r2) can leave rows pending until it is known
 * how many of them stand. seq_kept_at has a word per sequence:
 *  - The count, in the low bits: so many of the rows that are pending in the read slot stand, the first ones. They are
 *    applied before anything else, as if the step that brought them had ended with them. At most as many as are
 *    pending; 0 at position 0. Positions count them: the step's first row follows the last row that stands.
 *  - SWY_KEPT_PENDING: the step's own rows stay pending. The write slot gets the states without them, with what was
 *    applied before them, and beside the states what it takes to apply each. There is room for all of them.
 *  - Without SWY_KEPT_PENDING the step's rows are applied, and none is pending in the write slot.
 * With seq_kept_at 0 every word is 0, as in a step that knows nothing of all this. Rows of any number may follow rows
 * that stand, those of a prompt, too. A read slot that no sequence writes stays as it is, with its pending rows:
 * several sequences may go on from it, in one step or in several, each with a count of its own. Of an inactive sequence
 * nothing is applied and no row becomes pending. Paged states need nothing: positions are overwritten.
 */
#ifndef SWITCHYARD_STEP_H_
#define SWITCHYARD_STEP_H_

#include "switchyard/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct swy_step {
  uint32_t struct_size;
  uint32_t total_bytes; /* of the block in use */
  uint64_t number;      /* counts up by one per step of a device */
  uint32_t rows;
  uint32_t seqs;
  uint32_t logit_rows;
  uint32_t sample_rows;
  uint32_t page_size; /* tokens per page */
  uint32_t block_table_stride;
  uint32_t max_context;        /* the largest position + 1 of the step */
  uint32_t sample_params_size; /* stride of the parameters, sizeof(swy_sample_params) of the host */
  /* per row */
  uint32_t row_token_at;    /* i32 [rows]: a token id, or -1 - i for entry i of the device's token buffer */
  uint32_t row_position_at; /* u32 [rows] */
  uint32_t row_seq_at;      /* u32 [rows] */
  /* per sequence */
  uint32_t row_start_at;      /* u32 [seqs + 1] */
  uint32_t seq_active_at;     /* u32 [seqs]: 0 or 1; SWY_SEQ_MAY_STAND beside it: extensions_ahead.h */
  uint32_t seq_read_slot_at;  /* u32 [seqs] */
  uint32_t seq_write_slot_at; /* u32 [seqs] */
  uint32_t block_table_at;    /* u32 [seqs, block_table_stride] */
  /* rows whose logits are wanted */
  uint32_t logit_row_at; /* u32 [logit_rows]: a row of the step */
  /* sampling rows */
  uint32_t sample_at;        /* swy_sample_slot [sample_rows] */
  uint32_t sample_params_at; /* swy_sample_params (sampling_math.h) [sample_rows] */
  uint32_t seq_kept_at;      /* u32 [seqs]: which pending rows stand, and what becomes of the step's own */
} swy_step;
SWY_AT(swy_step, rows, 16);
SWY_AT(swy_step, row_token_at, 48);
SWY_AT(swy_step, block_table_at, 76);
SWY_AT(swy_step, sample_at, 84);
SWY_AT(swy_step, seq_kept_at, 92);
SWY_SIZE(swy_step, 96);

#define SWY_NO_SLOT 0xffffffffu
#define SWY_KEPT_COUNT(word) ((word)&0x3fffffffu)
#define SWY_KEPT_PENDING 0x40000000u
/* The count is in entry i of the device's token buffer. Reserved: no host calls it yet. */
#define SWY_KEPT_ENTRY(i) (0x80000000u | (i))

/* One row that is sampled on the device. Fixed size: a version that needs more adds a second array. */
typedef struct swy_sample_slot {
  uint32_t logit_row;   /* which row of the logits */
  uint32_t token_entry; /* where the token goes in the device's token buffer */
  uint64_t position;    /* index of the token being drawn, in its sequence */
  uint32_t mask_at;     /* u32 [ceil(vocab / 32)], bit set: allowed; 0: no mask */
  uint32_t bias_at;     /* swy_logit_bias (sampling_math.h) [bias_count], ids strictly rising */
  uint32_t bias_count;
  uint32_t stop_at; /* i32 [stop_count], ids that end the sequence */
  uint32_t stop_count;
  uint32_t counts_read_slot; /* of the counts state (ops.h, SAMPLE); SWY_NO_SLOT: nothing was seen */
  /* Gets the counts read, with the drawn token counted; if the row fails, it stays as it was. SWY_NO_SLOT: no slot. */
  uint32_t counts_write_slot;
  /* Not 0: the sequence's draws verify drafts on the device, and entry verify - 1 of its token buffer gets the number
   * of rows that stand; all slots of the sequence say the same. Reserved: no host calls it yet. */
  uint32_t verify;
} swy_sample_slot;
SWY_AT(swy_sample_slot, position, 8);
SWY_SIZE(swy_sample_slot, 48);

/* What SAMPLE writes per row. `status` is what swy_sample_row (sampling_row.h) returns. */
typedef struct swy_sample_result {
  int32_t token; /* -1 with a status other than SWY_SAMPLE_OK */
  int32_t status;
  float logprob;    /* with SWY_SAMPLE_LOGPROB, else 0 */
  uint32_t stopped; /* 1: the token is one of the row's stop ids */
} swy_sample_result;
SWY_SIZE(swy_sample_result, 16);

/* Reads an array of the step: SWY_STEP_ARRAY(step, int32_t, row_token_at)[row]. */
#define SWY_STEP_ARRAY(step, type, field) ((const type*)(const void*)((const char*)(step) + (step)->field))

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* SWITCHYARD_STEP_H_ */
