#include "bench/workload.h"

#include <cmath>

namespace switchyard::bench {
namespace {

double elements(const Tensor& t) {
  double n = 1;
  for (uint32_t i = 0; i < t.rank; ++i) n *= static_cast<double>(t.dims[i]);
  return n;
}
double bytes(const Tensor& t) { return static_cast<double>(t.segments[0].bytes); }

void add_experts(const Program& p, const Op& op, double rows, Workload& w) {
  const auto a = op.attrs_as<swy_moe_attrs>();
  // Uniform routing: an expert is left out by all rows with probability (1 - top_k / experts) ^ rows.
  const double touched = 1 - std::pow(1 - static_cast<double>(a.top_k) / a.experts, rows);
  for (size_t i = 0; i < op.weights.size(); ++i) {
    const Tensor& t = p.tensors[op.weights[i]];
    const bool expert = i == 1 || i == 2;  // gate_up, down
    w.weight_bytes += bytes(t) * (expert ? touched : 1);
    w.products += elements(t) * rows * (expert ? static_cast<double>(a.top_k) / a.experts : 1);
  }
}

}  // namespace

Workload workload_of(const Program& p, uint32_t rows, uint32_t context) {
  Workload w;
  const double n = rows;
  for (const Op& op : p.main().ops) {
    switch (op.id) {
      case SWY_OP_EMBEDDING: {
        const Tensor& t = p.tensors[op.weights[0]];
        w.weight_bytes += bytes(t) / static_cast<double>(t.dims[0]) * n;
        break;
      }
      case SWY_OP_MOE:
        add_experts(p, op, n, w);
        break;
      case SWY_OP_LM_HEAD:
        w.weight_bytes += bytes(p.tensors[op.weights[0]]);
        w.products += elements(p.tensors[op.weights[0]]);
        break;
      case SWY_OP_ATTENTION: {
        const auto a = op.attrs_as<swy_attention_attrs>();
        const double seen = context - (n - 1) / 2;  // positions that a row sees, on average
        w.mixing += 2 * n * seen * a.heads * a.head_dim;
        w.state_bytes += (context + n) * 2 * a.kv_heads * a.head_dim * 4;
        break;
      }
      case SWY_OP_GATED_DELTA: {
        const auto a = op.attrs_as<swy_gated_delta_attrs>();
        const double state = static_cast<double>(a.value_heads) * a.key_dim * a.value_dim;
        w.mixing += 4 * n * state;
        w.state_bytes += 2 * 4 * state;
        break;
      }
      default:
        for (const uint32_t t : op.weights) {
          w.weight_bytes += bytes(p.tensors[t]);
          w.products += elements(p.tensors[t]) * n;
        }
    }
  }
  return w;
}

}  // namespace switchyard::bench
