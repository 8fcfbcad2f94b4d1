#include "tests/ops/op_test.h"

namespace switchyard::check {

SWITCHYARD_OP_TEST(Sample, SWY_OP_SAMPLE, SWY_OP_TOP_CANDIDATES, SWY_OP_LM_HEAD_SAMPLE);

}  // namespace switchyard::check
