// SPDX-License-Identifier: Apache-2.0
// A JSON Schema document: its schemas by number, and what its references mean. References to other documents are
// refused: nothing is fetched.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/status.h"

namespace switchyard::constrain {

class SchemaDocument {
 public:
  using Index = uint32_t;

  // Errors: invalid_data or usage, for what is no schema.
  static Result<SchemaDocument> parse(std::string_view text);
  static Result<SchemaDocument> create(nlohmann::json schema);
  SchemaDocument(SchemaDocument&&) = default;
  SchemaDocument& operator=(SchemaDocument&&) = default;

  Index root() const { return 0; }
  const nlohmann::json& at(Index i) const { return *schemas_[i].json; }
  // Where it is in the document, as a JSON pointer, for messages.
  std::string place(Index i) const;
  Index index(const nlohmann::json& schema, Index inside);
  // A schema that is not in the text.
  Index add(nlohmann::json schema);
  Result<Index> resolve(const std::string& reference, Index from);
  // Before 2019-09, keywords beside $ref have no meaning.
  bool ref_alone() const { return ref_alone_; }

 private:
  struct Schema {
    const nlohmann::json* json = nullptr;
    Index parent = 0;
    uint32_t resource = 0;
    std::string step;  // from the parent
  };
  SchemaDocument() = default;
  Status scan();
  Status scan_children(Index i);
  void enter(const nlohmann::json& schema, Index parent, std::string step);

  std::shared_ptr<const nlohmann::json> document_;
  std::vector<std::shared_ptr<const nlohmann::json>> added_;
  std::vector<Schema> schemas_;
  std::unordered_map<const nlohmann::json*, Index> index_;
  struct Resource {
    std::string uri;
    Index root = 0;
  };
  std::vector<Resource> resources_;
  std::map<std::string, Index> by_uri_;  // resources, and anchors as uri#name
  bool ref_alone_ = false;
};

}  // namespace switchyard::constrain
