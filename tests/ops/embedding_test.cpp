#include "tests/ops/op_test.h"

namespace switchyard::check {

SWITCHYARD_OP_TEST(Embedding, SWY_OP_EMBEDDING);

}  // namespace switchyard::check
