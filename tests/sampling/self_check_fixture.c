// SPDX-License-Identifier: Apache-2.0
// The self-check as one plugin's compiler settings make it; FIXTURE names the function.
#include "switchyard/sampling_row.h"

int FIXTURE(void);
int FIXTURE(void) { return swy_sampling_self_check(); }
