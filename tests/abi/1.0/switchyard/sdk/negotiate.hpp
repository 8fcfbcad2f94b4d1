// SPDX-License-Identifier: Apache-2.0
// C++ SDK: the first question to every plugin: which ABI versions it speaks.
#pragma once

#include "switchyard/sdk/error.hpp"

#pragma GCC visibility push(hidden)  // so that two plugins with this code share none of it

namespace swy {

// Whether host and plugin can work together; otherwise a status for the host, with a message if the host has room for
// one.
inline swy_status check_negotiation(const swy_negotiate_in* in, swy_negotiate_out* out) {
  if (in == nullptr || out == nullptr || in->struct_size < sizeof(swy_negotiate_in) ||
      out->struct_size < sizeof(swy_negotiate_out) || in->magic != SWY_NEGOTIATE_MAGIC) {
    return SWY_INVALID_ARGUMENT;
  }
  if (in->abi_min <= SWY_ABI_VERSION && in->abi_max >= SWY_ABI_VERSION) return SWY_OK;
  return fail(out->error, SWY_ABI_MISMATCH, SWY_REASON_NONE, "this plugin speaks ABI %u, the host speaks %u to %u",
              SWY_ABI_VERSION, in->abi_min, in->abi_max);
}

inline swy_status agree(swy_negotiate_out* out, const char* id, const char* version, const swy_plugin& plugin) {
  out->abi = SWY_ABI_VERSION;
  out->id = id;
  out->version = version;
  out->plugin = &plugin;
  return SWY_OK;
}

}  // namespace swy

#pragma GCC visibility pop
