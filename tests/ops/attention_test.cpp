#include "tests/ops/op_test.h"

namespace switchyard::check {

SWITCHYARD_OP_TEST(Attention, SWY_OP_ATTENTION, SWY_OP_HEAD_SPLIT, SWY_OP_ROPE, SWY_OP_KV_APPEND, SWY_OP_ATTEND);

}  // namespace switchyard::check
