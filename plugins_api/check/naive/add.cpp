// SPDX-License-Identifier: Apache-2.0
#include "plugins_api/check/naive.h"
#include "plugins_api/check/naive/activation.h"

namespace switchyard::check::naive {
namespace {

using Add = swy::Operands<SWY_OP_ADD>;
using SiluMul = swy::Operands<SWY_OP_SILU_MUL>;
using SigmoidMul = swy::Operands<SWY_OP_SIGMOID_MUL>;
using SigmoidScaleAdd = swy::Operands<SWY_OP_SIGMOID_SCALE_ADD>;

// out[r][i] = f(a, b), element by element.
template <class F>
void elements(const Values& a, const Values& b, Matrix& out, F f) {
  for (size_t i = 0; i < out.values.size(); ++i) out.values[i] = f(a.floats[i], b.floats[i]);
}

}  // namespace

void add(const Case&, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  elements(step.inputs[Add::input("x")], step.inputs[Add::input("residual")], outputs[Add::output("y")],
           [](double x, double y) { return x + y; });
}
void silu_mul(const Case& c, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  elements(step.inputs[SiluMul::input("gate")], step.inputs[SiluMul::input("up")], outputs[SiluMul::output("y")],
           [a = c.attributes<swy_activation_attrs>()](double gate, double up) { return act(a, gate, up); });
}
void sigmoid_mul(const Case&, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  elements(step.inputs[SigmoidMul::input("x")], step.inputs[SigmoidMul::input("gate")],
           outputs[SigmoidMul::output("y")], [](double x, double gate) { return x * sigmoid(gate); });
}
void sigmoid_scale_add(const Case&, const Step& step, Outcome&, std::vector<Matrix>& outputs) {
  using Op = SigmoidScaleAdd;
  const std::vector<float>&routed = step.inputs[Op::input("routed")].floats,
        &shared = step.inputs[Op::input("shared")].floats;
  Matrix& out = outputs[Op::output("y")];
  for (uint64_t r = 0; r < out.rows; ++r) {
    const double g = sigmoid(step.inputs[Op::input("gate")].floats[r]);
    for (uint64_t i = r * out.width; i < (r + 1) * out.width; ++i) {
      out.values[i] = routed[i] + g * shared[i];
    }
  }
}

}  // namespace switchyard::check::naive
