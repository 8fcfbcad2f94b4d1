// SPDX-License-Identifier: Apache-2.0
/* The types of the op table (op_table.h): what it says of an operation, its attributes and its operands. C11,
 * self-contained. */
#ifndef SWITCHYARD_OP_SPEC_H_
#define SWITCHYARD_OP_SPEC_H_

#include "switchyard/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An operand's list and its place there. A decomposition has temporaries besides. */
typedef uint32_t swy_ref;
enum { SWY_REF_INPUT = 0, SWY_REF_WEIGHT = 1, SWY_REF_STATE = 2, SWY_REF_OUTPUT = 3, SWY_REF_TEMP = 4 };
#define SWY_REF(kind, index) (((uint32_t)(kind) << 16) | (uint32_t)(index))
#define SWY_REF_KIND(ref) ((ref) >> 16)
#define SWY_REF_INDEX(ref) ((ref)&0xffffu)
#define SWY_REF_NONE 0xffffffffu

/* ---- what an entry says ----------------------------------------------------------------------------------------- */

/* The values that a field may have. */
enum {
  SWY_ATTR_U32 = 0,      /* least to most; a multiple of `multiple_of`; a divisor of `divides` */
  SWY_ATTR_FINITE = 1,   /* f32, finite */
  SWY_ATTR_POSITIVE = 2, /* f32, finite, above 0 */
  SWY_ATTR_EPSILON = 3,  /* f32, at least 0 and below 1 */
};

/* A field of the attribute struct that the operation reads. */
typedef struct swy_attr_spec {
  const char* name;
  uint32_t offset;
  uint32_t kind; /* SWY_ATTR_* */
  uint32_t least;
  uint32_t reserved;
  const char* most;        /* this and the next two are expressions over fields; SWY_ATTR_U32 needs `most` */
  const char* multiple_of; /* NULL: of anything */
  const char* divides;     /* NULL: need not divide anything */
} swy_attr_spec;

/* Whether an operand is there: where this field (its offset) of the attributes is not 0, or as follows. An operand that
 * is absent takes no place in its list. */
enum {
  SWY_ALWAYS = 0,
  SWY_GIVEN = 1, /* optional: such operands end their list, and all of them are there or none */
};

typedef struct swy_operand_spec {
  const char* name; /* unique in the operation */
  const char* shape;
  uint32_t list;   /* SWY_REF_INPUT, _WEIGHT, _STATE or _OUTPUT */
  uint32_t dtypes; /* bits */
  uint32_t when;
  uint32_t most; /* 1. More: it is repeated, as often as the operation has outputs, one after the other in its list */
  swy_state_kind state;
  uint32_t only_read; /* states: the operation does not write it */
} swy_operand_spec;

enum { SWY_ROWS_SAME = 3 }; /* of swy_op_spec: any rows, and all operands' alike */

typedef struct swy_op_spec {
  swy_op_id id;
  uint32_t revision;
  const char* name; /* as in SWY_OP_*, in lower case */
  uint32_t attrs_size;
  uint32_t attr_count;
  const swy_attr_spec* attrs;
  uint32_t operand_count;
  uint32_t in_files; /* a program may have it: 0 where the runtime makes it, as operations that sample */
  const swy_operand_spec* operands;
  swy_rows rows_in, rows_out; /* of inputs and outputs */
  /* A fused composite: the operation and the one that reads its output, each at the highest revision up to this one.
   * Its operands are theirs in this order, less the value between, which stays the first output if `keeps` is 1. */
  swy_op_id first, second;
  uint32_t keeps;
  uint32_t reserved;
  const char* summary; /* for people, with fields in braces; "" for none */
} swy_op_spec;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* SWITCHYARD_OP_SPEC_H_ */
