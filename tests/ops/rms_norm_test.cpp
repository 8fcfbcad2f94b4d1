#include "tests/ops/op_test.h"

namespace switchyard::check {

SWITCHYARD_OP_TEST(RmsNorm, SWY_OP_RMS_NORM, SWY_OP_ADD_RMS_NORM, SWY_OP_HEAD_RMS_NORM, SWY_OP_GATED_RMS_NORM);

}  // namespace switchyard::check
