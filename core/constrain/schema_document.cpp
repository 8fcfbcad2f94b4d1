// SPDX-License-Identifier: Apache-2.0
#include "core/constrain/schema_document.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/base/printable.h"
#include "core/constrain/text_scanner.h"

namespace switchyard::constrain {
namespace {

using nlohmann::json;

constexpr const char* kSingle[] = {"additionalProperties",
                                   "additionalItems",
                                   "items",
                                   "contains",
                                   "not",
                                   "if",
                                   "then",
                                   "else",
                                   "propertyNames",
                                   "unevaluatedItems",
                                   "unevaluatedProperties",
                                   "contentSchema"};
constexpr const char* kLists[] = {"allOf", "anyOf", "oneOf", "prefixItems", "items"};
constexpr const char* kMaps[] = {"properties",  "patternProperties", "$defs",
                                 "definitions", "dependentSchemas",  "dependencies"};

std::string escaped(std::string_view key) {
  std::string out;
  for (const char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

std::string without_percents(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = i + 2 < text.size() && text[i] == '%' ? hex_digit(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
    out += low >= 0 ? static_cast<char>(high * 16 + low) : text[i];
    if (low >= 0) i += 2;
  }
  return out;
}

// RFC 3986, section 5.2, for references without "." and ".." in them.
std::string joined(const std::string& base, std::string reference) {
  const size_t colon = reference.find_first_of(":/?#");
  if (colon != std::string::npos && colon > 0 && reference[colon] == ':') return reference;
  if (reference.empty()) return base;
  const size_t scheme = base.find(':');
  if (reference.starts_with("//")) return base.substr(0, scheme + 1) + reference;
  const size_t authority = base.compare(scheme == std::string::npos ? 0 : scheme + 1, 2, "//") == 0 ? scheme + 3 : 0;
  const size_t path = base.find('/', authority);
  if (reference.starts_with('/')) return (path == std::string::npos ? base : base.substr(0, path)) + reference;
  const size_t slash = base.rfind('/');
  if (slash == std::string::npos || (authority > 0 && slash < authority)) {
    return authority > 0 ? base + "/" + reference : reference;
  }
  return base.substr(0, slash + 1) + reference;
}

}  // namespace

Result<SchemaDocument> SchemaDocument::parse(std::string_view text) {
  SWY_LET(json schema, read_json(text, "the schema"));
  return create(std::move(schema));
}

Result<SchemaDocument> SchemaDocument::create(json schema) {
  SchemaDocument d;
  d.document_ = std::make_shared<const json>(std::move(schema));
  const json& root = *d.document_;
  if (root.is_object() && root.contains("$schema") && root["$schema"].is_string()) {
    const auto& draft = root["$schema"].get_ref<const std::string&>();
    for (const char* old : {"draft-03", "draft-04", "draft-06", "draft-07"}) {
      d.ref_alone_ = d.ref_alone_ || draft.find(old) != std::string::npos;
    }
  }
  d.resources_.push_back({});
  d.by_uri_[""] = 0;
  d.schemas_.push_back({&root, 0, 0, ""});
  d.index_[&root] = 0;
  SWY_TRY(d.scan());
  return d;
}

// Every schema from the last ones entered on, in the order in which they are found.
Status SchemaDocument::scan() {
  for (Index i = 0; i < schemas_.size(); ++i) SWY_TRY(scan_children(i));
  return {};
}

void SchemaDocument::enter(const json& schema, Index parent, std::string step) {
  if (!schema.is_object() && !schema.is_boolean()) return;
  if (index_.contains(&schema)) return;
  index_[&schema] = static_cast<Index>(schemas_.size());
  schemas_.push_back({&schema, parent, schemas_[parent].resource, std::move(step)});
}

Status SchemaDocument::scan_children(Index i) {
  const json& s = at(i);
  if (!s.is_object()) return {};
  const auto text = [&](const char* key) {
    const auto found = s.find(key);
    return found != s.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const bool alone = ref_alone_ && s.contains("$ref");
  if (std::string id = text("$id"); !id.empty() && !alone) {
    const size_t fragment = id.find('#');
    const std::string base = resources_[schemas_[i].resource].uri;
    if (fragment == 0) {
      by_uri_[base + id] = i;
    } else {
      schemas_[i].resource = static_cast<uint32_t>(resources_.size());
      resources_.push_back({joined(base, id.substr(0, fragment)), i});
      by_uri_[resources_.back().uri] = i;
    }
  }
  for (const char* key : {"$anchor", "$dynamicAnchor"}) {
    if (const std::string name = text(key); !name.empty())
      by_uri_[resources_[schemas_[i].resource].uri + "#" + name] = i;
  }
  for (const char* key : kSingle) {
    if (const auto found = s.find(key); found != s.end()) enter(*found, i, std::string("/") + key);
  }
  for (const char* key : kLists) {
    const auto found = s.find(key);
    if (found == s.end() || !found->is_array()) continue;
    for (size_t n = 0; n < found->size(); ++n) enter((*found)[n], i, fmt::format("/{}/{}", key, n));
  }
  for (const char* key : kMaps) {
    const auto found = s.find(key);
    if (found == s.end() || !found->is_object()) continue;
    for (const auto& [name, value] : found->items()) enter(value, i, fmt::format("/{}/{}", key, escaped(name)));
  }
  return {};
}

std::string SchemaDocument::place(Index i) const {
  std::vector<const std::string*> steps;
  for (Index at = i; at != 0; at = schemas_[at].parent) steps.push_back(&schemas_[at].step);
  std::string out = "#";
  for (size_t n = steps.size(); n-- > 0;) out += *steps[n];
  return printable(out, 120);
}

SchemaDocument::Index SchemaDocument::index(const json& schema, Index inside) {
  const auto found = index_.find(&schema);
  if (found != index_.end()) return found->second;
  const Index i = static_cast<Index>(schemas_.size());
  index_[&schema] = i;
  schemas_.push_back({&schema, inside, schemas_[inside].resource, "/..."});
  return i;
}

SchemaDocument::Index SchemaDocument::add(json schema) {
  added_.push_back(std::make_shared<const json>(std::move(schema)));
  return index(*added_.back(), 0);
}

Result<SchemaDocument::Index> SchemaDocument::resolve(const std::string& reference, Index from) {
  const auto missing = [&] {
    return error(Code::usage, "$ref '{}' at {}: there is no such schema in this document, and none is fetched",
                 printable(reference), place(from));
  };
  const std::string& base = resources_[schemas_[from].resource].uri;
  const size_t hash = reference.find('#');
  const std::string uri = hash == 0 ? base : joined(base, reference.substr(0, hash));
  const std::string fragment = hash == std::string::npos ? "" : without_percents(reference.substr(hash + 1));
  const auto resource = by_uri_.find(uri);
  if (!fragment.empty() && !fragment.starts_with('/')) {
    const auto anchor = by_uri_.find(uri + "#" + fragment);
    if (anchor == by_uri_.end()) return missing();
    return anchor->second;
  }
  if (resource == by_uri_.end()) return missing();
  const json* target = &at(resource->second);
  Index inside = resource->second;
  for (size_t at = 0; at < fragment.size();) {
    const size_t end = std::min(fragment.find('/', at + 1), fragment.size());
    std::string key;
    for (size_t i = at + 1; i < end; ++i) {
      const bool tilde = fragment[i] == '~' && i + 1 < end;
      key += !tilde ? fragment[i] : fragment[i + 1] == '1' ? '/' : '~';
      i += tilde ? 1 : 0;
    }
    at = end;
    if (target->is_object() && target->contains(key)) {
      target = &(*target)[key];
    } else if (target->is_array() && !key.empty() && key.size() < 8 &&
               std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
               std::stoul(key) < target->size()) {
      target = &(*target)[std::stoul(key)];
    } else {
      return missing();
    }
    if (const auto known = index_.find(target); known != index_.end()) inside = known->second;
  }
  if (!target->is_object() && !target->is_boolean()) return missing();
  const Index first = static_cast<Index>(schemas_.size()), found = index(*target, inside);
  for (Index i = first; i < schemas_.size(); ++i) SWY_TRY(scan_children(i));
  return found;
}

}  // namespace switchyard::constrain
