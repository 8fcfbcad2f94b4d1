// SPDX-License-Identifier: Apache-2.0
// C++ SDK: the first question to every plugin: which ABI versions it speaks.
#pragma once

#include "switchyard/extensions.h"
#include "switchyard/sdk/error.hpp"

#pragma GCC visibility push(hidden)  // so that two plugins with this code share none of it

namespace swy {

// The host that negotiated last, for devices that are opened from then on; NULL: none, or it offers no services. It
// lives until the process ends.
inline const swy_host* the_host = nullptr;
inline uint32_t host_minor = 0;  // SWY_ABI_MINOR of its headers

// An extension of the host; NULL: it does not have it.
template <class T>
const T* host_extension(const swy_host* host, const char* name) {
  if (host == nullptr || host->get_extension == nullptr) return nullptr;
  return static_cast<const T*>(host->get_extension(host->ctx, name));
}

// Whether host and plugin can work together; otherwise a status for the host, with a message if the host has room for
// one. It may be older or newer: what minor version 0 had must be there.
inline swy_status check_negotiation(const swy_negotiate_in* in, swy_negotiate_out* out) {
  if (in == nullptr || out == nullptr || !SWY_HAS(swy_negotiate_out, out, error)) return SWY_INVALID_ARGUMENT;
  if (!SWY_HAS(swy_negotiate_in, in, magic) || in->magic != SWY_NEGOTIATE_MAGIC) return SWY_INVALID_ARGUMENT;
  if (!SWY_HAS(swy_negotiate_in, in, host)) {
    return fail(out->error, SWY_INVALID_ARGUMENT, SWY_REASON_NONE,
                "the host's request has %u bytes, and lacks its host", in->struct_size);
  }
  if (in->host != nullptr && !SWY_HAS(swy_host, in->host, get_extension)) {
    return fail(out->error, SWY_INVALID_ARGUMENT, SWY_REASON_NONE, "the host's services end after %u bytes",
                in->host->struct_size);
  }
  if (in->abi_min <= SWY_ABI_VERSION && in->abi_max >= SWY_ABI_VERSION) return SWY_OK;
  return fail(out->error, SWY_ABI_MISMATCH, SWY_REASON_NONE, "this plugin speaks ABI %u, the host speaks %u to %u",
              SWY_ABI_VERSION, in->abi_min, in->abi_max);
}

// After check_negotiation.
inline swy_status agree(const swy_negotiate_in* in, swy_negotiate_out* out, const char* id, const char* version,
                        const swy_plugin& plugin) {
  the_host = in->host;
  host_minor = in->abi_minor;
  out->abi = SWY_ABI_VERSION;
  out->id = id;
  out->version = version;
  out->plugin = &plugin;
  if (SWY_HAS(swy_negotiate_out, out, abi_minor)) out->abi_minor = SWY_ABI_MINOR;
  return SWY_OK;
}

}  // namespace swy

#pragma GCC visibility pop
