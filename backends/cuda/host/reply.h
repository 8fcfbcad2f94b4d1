// SPDX-License-Identifier: Apache-2.0
// What a step gives the host, such as its ids or some of its rows, copied by a kernel: the copy engine takes the device
// from its kernels and back, which takes longer than a small copy.
#pragma once

#include "device.h"

namespace gpu {

// Once for each device, which is current.
swy_status prepare_replies(swy_error* error);

// Whether a kernel can copy so many bytes from this place in the device's memory: whole words, at most 64 KiB.
bool can_reply(const void* from, uint64_t bytes);

// Puts a copy to page-locked memory on the device's stream, and raises `timeline` to `value` when it is there.
swy_status reply(swy_device& device, void* page_locked, const void* from, uint64_t bytes, swy_timeline& timeline,
                 uint64_t value, swy_error* error);

}  // namespace gpu
