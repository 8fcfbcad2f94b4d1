// SPDX-License-Identifier: Apache-2.0
// Which of a row's ids are kept, by one workgroup. Nothing is sorted: thresholds are found digit by digit over order
// keys; only over those of ids with a weight, where that is enough.
shared uint found;
shared uint histogram[4 * 256];  // counts, and sums of the low, middle and high 10 bits of weights
uint thread;
uint64_t row_keys, row_kept;
float top_value;

uint weight_of(uint key) { return weight_of_distance(add(float_of_key(key), negate(top_value))); }

// Below e^-20.8 the weight of an id is 0; 21 leaves room for rounding.
uint least_weighing() { return float_key(clamp_value(add(top_value, -21.0))); }

// Writes the order keys of live ids that are at least `least` to row_kept, and returns how many.
uint gather(uint least) {
  barrier();
  if (thread == 0) found = 0;
  barrier();
  for (uint id = thread; id < vocab; id += 256) {
    uint key = Words(row_keys).at[id];
    if (key != 0 && key >= least) Keys(row_kept).at[atomicAdd(found, 1)] = order_key(key, id);
  }
  memoryBarrierBuffer();
  barrier();
  return found;
}

// The key by which an id is ranked: its own, or that of its weight.
uint64_t ranked(uint64_t key, bool by_weight) {
  return by_weight ? order_key(weight_of(uint(key >> 32)), id_of(key)) : key;
}

// The least ranked key of the shortest prefix, by rank descending, whose sum of counts or weights reaches `need`, among
// the n ids in row_kept whose own key is at least `floor_key`. 0: all of them.
uint64_t cut(uint n, bool by_weight, uint64_t floor_key, uint64_t need) {
  uint64_t prefix = 0, mask = 0;
  for (int shift = 56; shift >= 0; shift -= 8) {
    barrier();
    for (uint i = thread; i < 4 * 256; i += 256) histogram[i] = 0;
    barrier();
    for (uint i = thread; i < n; i += 256) {
      uint64_t key = Keys(row_kept).at[i];
      if (key < floor_key) continue;
      uint64_t rank = ranked(key, by_weight);
      if ((rank & mask) != prefix || (by_weight && rank >> 32 == 0)) continue;
      uint digit = uint(rank >> shift) & 255u;
      atomicAdd(histogram[digit], 1);
      if (!by_weight) continue;
      uint w = uint(rank >> 32);
      atomicAdd(histogram[256 + digit], w & 1023);
      atomicAdd(histogram[512 + digit], w >> 10 & 1023);
      atomicAdd(histogram[768 + digit], w >> 20);
    }
    barrier();
    uint digit = 256;
    uint64_t sum = 0, before = 0;
    do {  // every thread comes to the same
      --digit;
      before = sum;
      sum += by_weight ? uint64_t(histogram[256 + digit]) + (uint64_t(histogram[512 + digit]) << 10) +
                             (uint64_t(histogram[768 + digit]) << 20)
                       : uint64_t(histogram[digit]);
    } while (sum < need && digit > 0);
    if (sum < need) return 0;
    need -= before;
    prefix |= uint64_t(digit) << shift;
    mask |= uint64_t(255) << shift;
    // All ids of the bucket are kept: nothing within it has to be told apart.
    if (sum - before == need || histogram[digit] == 1) return prefix;
  }
  return prefix;
}

// The sum of the weights of those of n ids in row_kept whose own key is at least `floor_key`.
uint64_t total_weight(uint n, uint64_t floor_key) {
  uint64_t total = 0;
  for (uint i = thread; i < n; i += 256) {
    uint64_t key = Keys(row_kept).at[i];
    if (key >= floor_key) total += weight_of(uint(key >> 32));
  }
  return workgroup_total(total);
}

// The divisor of log-probabilities.
uint64_t total_of(uint64_t from, float highest) {
  uint64_t total = 0;
  for (uint id = thread; id < vocab; id += 256) {
    float logit = Floats(from).at[id];
    if (floatBitsToUint(logit) != kNegInf) total += logprob_weight(add(clamp_value(logit), negate(highest)));
  }
  return workgroup_total(total);
}
