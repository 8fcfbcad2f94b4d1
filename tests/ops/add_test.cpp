#include "tests/ops/op_test.h"

namespace switchyard::check {

SWITCHYARD_OP_TEST(Add, SWY_OP_ADD, SWY_OP_SILU_MUL, SWY_OP_SIGMOID_MUL, SWY_OP_SIGMOID_SCALE_ADD);

}  // namespace switchyard::check
