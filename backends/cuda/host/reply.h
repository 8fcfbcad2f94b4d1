// SPDX-License-Identifier: Apache-2.0
// Small copies by kernels: of what a step needs, such as its block, and of what it gives the host, such as its ids or
// some of its rows. The copy engine takes the device from its kernels and back, which takes longer than such a copy.
#pragma once

#include "device.h"

namespace gpu {

// Once for each device, which is current.
swy_status prepare_small_copies(swy_error* error);

// Whether kernels bring so many bytes in their parameters: whole pieces of 16 bytes, less than 16 KiB.
bool can_bring(const void* to, uint64_t bytes);

// Puts a copy of the host's memory, which may change at once, on the device's stream.
swy_status bring(swy_device& device, void* to, const void* from, uint64_t bytes, swy_error* error);

// Whether a kernel can copy so many bytes from this place in the device's memory: whole words, at most 64 KiB.
bool can_reply(const void* from, uint64_t bytes);

// Puts a copy to page-locked memory on the device's stream, and raises `timeline` to `value` when it is there.
swy_status reply(swy_device& device, void* page_locked, const void* from, uint64_t bytes, swy_timeline& timeline,
                 uint64_t value, swy_error* error);

}  // namespace gpu
