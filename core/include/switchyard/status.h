// SPDX-License-Identifier: Apache-2.0
// Status and Result<T>: how Switchyard reports failure.
//
// Every function that can fail returns one of the two; no exception crosses a public boundary. A message is one line
// for a person: what is wrong, with the value, and what to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace switchyard {

enum class Code : int32_t {
  ok = 0,
  usage,         // the request itself is wrong: a flag, a name, a parameter out of range
  invalid_data,  // a file, checkpoint, template or plugin breaks its format
  not_found,     // a file, backend or kernel that was named does not exist
  unsupported,   // well-formed, but nothing here can run it
  out_of_host_memory,
  out_of_device_memory,
  device_lost,
  io,  // the operating system refused a read or a write
  cancelled,
  internal,  // a bug of ours
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::ok; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same failure with a prefix that says where it happened: "prefix: message".
  Status in(const std::string& prefix) const { return ok() ? *this : Status(code_, prefix + ": " + message_); }

 private:
  Code code_ = Code::ok;
  std::string message_;
};

// A value or the Status that says why there is none. T may be move-only; it need not be default constructible.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace switchyard
