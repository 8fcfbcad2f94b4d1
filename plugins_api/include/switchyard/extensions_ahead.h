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

/* swy.ahead/1 (plugin). A device that has it also knows SWY_SEQ_MAY_STAND. */
#define SWY_EXT_AHEAD "swy.ahead/1"
typedef struct swy_ahead {
  uint32_t struct_size;
  uint32_t reserved;
  /* [recording] What is recorded from here on is of another step, as in a list of its own that is submitted right after
   * this one. What was recorded before ends with a draw (SAMPLE). The blocks of all steps are written before the list
   * is submitted. */
  swy_status (*next_step)(swy_list* list, const swy_list_info* info, swy_error* error);
} swy_ahead;
SWY_SIZE(swy_ahead, 16);

/* A bit of seq_active, in a step of one active sequence: not all its rows may stand. The list was submitted before it
 * was known which ones do; their tokens and drafts have been drawn by earlier lists. Behind the tokens, row_token_at
 * has the draft after each row in the same form: [2 * rows]. A row stands if every row before it has the token that its
 * draft says. Of what the step makes, except states, only the last row that stands is read. So kernels may leave out
 * the others, or ignore this. */
#define SWY_SEQ_MAY_STAND 2u

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* SWITCHYARD_EXTENSIONS_AHEAD_H_ */
