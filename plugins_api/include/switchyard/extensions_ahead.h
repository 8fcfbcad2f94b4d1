// SPDX-License-Identifier: Apache-2.0
/* swy.ahead/1, an extension (extensions.h): steps that are submitted before the host knows the results of those before
 * them. C11, self-contained. */
#ifndef SWITCHYARD_EXTENSIONS_AHEAD_H_
#define SWITCHYARD_EXTENSIONS_AHEAD_H_

#include "switchyard/plugin.h"
#include "switchyard/step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* swy.ahead/1 (plugin). Kernels of a device that has it accept SWY_SEQ_MAY_STAND, and may ignore it. */
#define SWY_EXT_AHEAD "swy.ahead/1"
typedef struct swy_ahead {
  uint32_t struct_size;
  uint32_t reserved;
  /* [device-serial] Between list_begin and list_finalize: what is recorded from here on is of another step, as in a
   * list of its own that is submitted right after this one. `info` is as for list_begin, with a block and a bucket of
   * its own. The step before has drawn (SAMPLE); behind the draw it has at most GATHER_ROWS. The blocks of all steps
   * are written before the list is submitted. Errors: as list_begin; SWY_UNSUPPORTED: the host submits the steps one by
   * one. After an error the list can only be freed. */
  swy_status (*next_step)(swy_list* list, const swy_list_info* info, swy_error* error);
} swy_ahead;
SWY_SIZE(swy_ahead, 16);

/* A bit of seq_active, in a step of one active sequence: not all its rows may stand. The list was submitted before it
 * was known which ones do; their tokens and drafts were drawn by lists submitted before this one, not by earlier steps
 * of the same list. Behind the tokens, row_token_at has what was guessed to come after each row but the last, in the
 * same form, and a zero: [2 * rows]. A row stands if each row before it has the token that was guessed to come after
 * it. Of what the step makes, except states, only the last row that stands is read, by this list or a later one. The
 * host sets the bit only where no operation that changes a state reads what a MOE has made. So in the domain of the
 * step's rows kernels may leave out the others, or ignore this. */
#define SWY_SEQ_MAY_STAND 2u

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* SWITCHYARD_EXTENSIONS_AHEAD_H_ */
