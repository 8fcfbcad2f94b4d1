#include "tests/ops/op_test.h"

namespace switchyard::check {

SWITCHYARD_OP_TEST(Cast, SWY_OP_CAST);

}  // namespace switchyard::check
