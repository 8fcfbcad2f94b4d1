// SPDX-License-Identifier: Apache-2.0
// Fields: reads the fields of a request's JSON object. A field of the wrong type or out of range refuses the request,
// naming the field; the first one counts. A field that is null counts as absent.
#pragma once

#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/protocol/api_error.h"

namespace switchyard::server {

class Fields {
 public:
  // `path` names the object in messages: "", "stream_options", "messages[3]". All arguments outlive it. An `object`
  // that is none refuses the request.
  Fields(const nlohmann::ordered_json& object, std::string path, Refusal& refusal);

  // The field as it is; NULL: absent.
  const nlohmann::ordered_json* find(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  std::optional<double> number(std::string_view name, double low, double high);
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high);
  std::optional<std::string> text(std::string_view name);
  const nlohmann::ordered_json* list(std::string_view name);
  const nlohmann::ordered_json* object(std::string_view name);

  // Known fields that change nothing here, and need no mention.
  void pass_over(std::initializer_list<std::string_view> names);
  // Fields that nothing has read, by their paths.
  std::vector<std::string> unread() const;

  void refuse(std::string_view name, const std::string& must_be, const nlohmann::ordered_json& value);
  std::string path_of(std::string_view name) const;

 private:
  const nlohmann::ordered_json& object_;
  std::string path_;
  Refusal& refusal_;
  std::set<std::string, std::less<>> read_;
};

// A value in a message.
std::string shown(const nlohmann::ordered_json& value);

}  // namespace switchyard::server
