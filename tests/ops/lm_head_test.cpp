#include "tests/ops/op_test.h"

namespace switchyard::check {

SWITCHYARD_OP_TEST(LmHead, SWY_OP_LM_HEAD, SWY_OP_GATHER_ROWS);

}  // namespace switchyard::check
