// The projections behind a mixture, in its launch (moe_resident.comp).
#ifndef SWITCHYARD_MOE_RESIDENT_AFTER_GLSL_
#define SWITCHYARD_MOE_RESIDENT_AFTER_GLSL_

// Two rows of a projection each.
#define FOR_TYPE_OF_AFTER(DO)                        \
  if (after_uses(F32) && after_type == F32) DO(F32)    \
  if (after_uses(BF16) && after_type == BF16) DO(BF16) \
  if (after_uses(I8) && after_type == I8) DO(I8)       \
  if (after_uses(I4) && after_type == I4) DO(I4)       \
  if (after_uses(I4A) && after_type == I4A) DO(I4A)
#define FETCH_AFTER(type) fetch_two(type, kHidden / piece_elements(type), gl_SubgroupInvocationID);
#define MULTIPLY_AFTER(type) multiply_two(type, kHidden / piece_elements(type), 0);
uint after_form(uint i) { return i == 0 ? kAfterForm0 : i == 1 ? kAfterForm1 : i == 2 ? kAfterForm2 : kAfterForm3; }
bool after_uses(uint dtype) {
  return (kAfterForm0 & 0xff) == dtype || (kAfterForm1 & 0xff) == dtype || (kAfterForm2 & 0xff) == dtype || (kAfterForm3 & 0xff) == dtype;
}
shared uint64_t after_data[4], after_y[4];
shared uint after_rows[4];
uint after_index, after_row, after_type;
uint after_tasks(uint i) { return (after_rows[i] + 1) / 2; }
void begin_after(uint task) {
  after_index = 0;
  while (task >= after_tasks(after_index)) task -= after_tasks(after_index++);
  after_row = task * 2;
  Weight w = weight_of(after_data[after_index], after_rows[after_index], kHidden, after_form(after_index));
  after_type = w.dtype;
  scale_shift = group_shift(w);
  [[unroll]] for (uint r = 0; r < 2; ++r) take_row(r, w, min(after_row + r, after_rows[after_index] - 1));
  FOR_TYPE_OF_AFTER(FETCH_AFTER)
}
void finish_after(float inverse, bool wanted) {
  clear_sums();
  FOR_TYPE_OF_AFTER(MULTIPLY_AFTER)
  [[unroll]] for (uint r = 0; r < 2; ++r) {
    float sum = subgroupAdd(vector_acc[r]) * inverse;
    bool mine = gl_SubgroupInvocationID == r && after_row + r < after_rows[after_index];
    if (mine && wanted) Floats(after_y[after_index]).at[after_row + r] = sum;
  }
}

void run_after(bool wanted) {
  arrive(counter);
  uint tasks = after_tasks(0) + after_tasks(1) + after_tasks(2) + after_tasks(3), task = first_task();
  if (task < tasks) begin_after(task);
  Beside b = Beside(more);
  uint64_t weight = b.after_norm;
  float eps_after = b.after_eps, bias_after = b.after_bias;
  await(counter);
  float inverse = stage_row(y, true, true, weight, kAfterNormType, eps_after, bias_after);
  barrier();
  while (task < tasks) {
    finish_after(inverse, wanted);
    task += all_tasks();
    if (task < tasks) begin_after(task);
  }
}

#endif
