#include "tests/ops/op_test.h"

namespace switchyard::check {

SWITCHYARD_OP_TEST(GatedDelta, SWY_OP_GATED_DELTA, SWY_OP_CAUSAL_CONV, SWY_OP_DELTA_GATES, SWY_OP_DELTA_RULE);

}  // namespace switchyard::check
