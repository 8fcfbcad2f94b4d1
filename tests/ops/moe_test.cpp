#include "tests/ops/op_test.h"

namespace switchyard::check {

SWITCHYARD_OP_TEST(Moe, SWY_OP_MOE, SWY_OP_MOE_ADD, SWY_OP_ROUTER_TOPK, SWY_OP_EXPERTS);

}  // namespace switchyard::check
