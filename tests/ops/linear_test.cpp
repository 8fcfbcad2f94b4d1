#include "tests/ops/op_test.h"

namespace switchyard::check {

SWITCHYARD_OP_TEST(Linear, SWY_OP_LINEAR, SWY_OP_LINEAR_ADD, SWY_OP_RMS_NORM_LINEAR);

}  // namespace switchyard::check
