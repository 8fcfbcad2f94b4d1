// SPDX-License-Identifier: Apache-2.0
#include "bench/ops.h"

#include <algorithm>
#include <cmath>

#include "bench/clock.h"
#include "bench/op_cases.h"

namespace switchyard::bench {
namespace {

constexpr size_t kLeastSamples = 5, kMostSamples = 500;

Result<Samples> time_case(OpCases& cases, const OpCase& c) {
  SWY_LET(const auto run, cases.record(c, kLeastOps));
  SWY_TRY(run->run());
  Samples samples;
  const double begin = now(), seconds = cases.request().seconds;
  for (double spent = 0; samples.seconds.size() < kMostSamples;) {
    const double start = now();
    SWY_TRY(run->run());
    samples.seconds.push_back((now() - start) / run->ops());
    spent = now() - begin;
    const bool enough = samples.seconds.size() >= kLeastSamples && spent >= seconds;
    if (enough || spent >= kPatience * seconds) break;
  }
  return samples;
}

Result<OpTime> measure_case(OpCases& cases, const OpCase& c) {
  OpTime t;
  t.device = cases.device(c).name;
  t.op = c.op();
  t.shape = c.shape->text;
  t.kernel = c.kernel->name;
  t.rows = c.bucket.rows;
  t.count = c.shape->ops.size();
  t.chosen = c.chosen;
  t.estimate_us = c.estimate_us;
  SWY_LET(t.work, cases.workload(c));
  SWY_LET(t.samples, time_case(cases, c));
  SWY_LET(t.errors, cases.errors(c));
  return t;
}

}  // namespace

RowErrors row_errors(std::span<const float> got, std::span<const float> want, uint64_t width) {
  RowErrors all;
  double square = 0, size = 0;
  const uint64_t rows = width == 0 ? 0 : want.size() / width;
  for (uint64_t r = 0; r < rows; ++r) {
    double difference = 0, norm = 0, largest = 0;
    for (uint64_t i = r * width; i < (r + 1) * width; ++i) {
      const double w = static_cast<double>(want[i]), d = std::fabs(static_cast<double>(got[i]) - w);
      difference += d * d;
      norm += w * w;
      largest = std::max(largest, d);
    }
    const double alone = largest * largest * static_cast<double>(width) / 64;
    double error = difference == 0 ? 0 : std::sqrt(std::max(difference, alone) / std::max(norm, 1e-60));
    if (!std::isfinite(difference)) error = INFINITY;
    all.worst = std::max(all.worst, error);
    all.mean += error / static_cast<double>(rows);
    square += difference;
    size += norm;
  }
  all.rms = size > 0 ? std::sqrt(square / size) : std::sqrt(square);
  return all;
}

Result<OpTimes> measure_ops(std::shared_ptr<const Program> program, const std::vector<std::shared_ptr<Device>>& devices,
                            const PlanPolicy& policy, const OpRequest& request, const OpProgress& progress) {
  OpCases cases(std::move(program), devices, policy, request);
  SWY_TRY(cases.collect());
  OpTimes out;
  out.refusals = cases.refusals();
  for (size_t i = 0; i < cases.all().size(); ++i) {
    if (!progress(i, cases.all().size())) {
      out.interrupted = true;
      break;
    }
    const OpCase& c = cases.all()[i];
    if (auto t = measure_case(cases, c); t.ok()) {
      out.times.push_back(std::move(*t));
    } else {
      out.refusals.push_back({c.op(), c.shape->text, c.kernel->name, t.status().message(), c.bucket.rows, true});
    }
  }
  return out;
}

}  // namespace switchyard::bench
