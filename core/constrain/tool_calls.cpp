// SPDX-License-Identifier: Apache-2.0
// The calls of tools as Qwen's models write them. The constraint's text is JSON:
//
//   tools     a list of {"name", "parameters"}, or of {"type": "function", "function": {...}}; `parameters` is a
//   schema.
//             With "strict": false, the arguments are any object.
//   choice    "auto": text, which may end in calls; "required" (the default): calls; {"name": ...}: calls of this tool
//   format    "json" (the default): <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>
//             "xml": <tool_call>\n<function=f>\n<parameter=x>\nvalue\n</parameter>\n</function>\n</tool_call>,
//             where texts are written as they are, and other values as JSON
//   parallel  whether there may be several calls; true if it is not there
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/base/printable.h"
#include "core/constrain/front_ends.h"
#include "core/constrain/json_schema.h"

namespace switchyard::constrain {
namespace {

using nlohmann::json;

struct Tool {
  std::string name;
  json parameters = {{"type", "object"}};
};

Result<std::vector<Tool>> read_tools(const json& list) {
  if (!list.is_array() || list.empty()) return error(Code::usage, "'tools' is no list of tools");
  std::vector<Tool> tools;
  for (const json& entry : list) {
    const json& f = entry.is_object() && entry.contains("function") ? entry["function"] : entry;
    if (!f.is_object() || !f.contains("name") || !f["name"].is_string() || f["name"].get<std::string>().empty()) {
      return error(Code::usage, "tool {} has no 'name'", brief(entry));
    }
    Tool tool{f["name"].get<std::string>()};
    const auto allowed = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
             c == '.' || c == ':' || c == '/';
    };
    if (!std::all_of(tool.name.begin(), tool.name.end(), allowed)) {
      return error(Code::usage, "tool name '{}' has characters other than letters, digits and _-.:/",
                   printable(tool.name));
    }
    const bool strict = !f.contains("strict") || f["strict"] != false;
    if (strict && f.contains("parameters") && !f["parameters"].is_null()) {
      if (!f["parameters"].is_object())
        return error(Code::usage, "the parameters of tool '{}' are no schema", tool.name);
      json own = f["parameters"];
      if (!own.contains("type")) own["type"] = "object";
      tool.parameters = std::move(own);
    }
    tools.push_back(std::move(tool));
  }
  return tools;
}

class Calls {
 public:
  explicit Calls(Grammar& grammar) : g_(grammar), x_(grammar.expressions) {}

  Result<NodeId> json_call(const Tool& tool) {
    SWY_LET(SchemaDocument document, SchemaDocument::create(tool.parameters));
    JsonGrammar grammar(g_, document);
    SWY_LET(const NodeId arguments, grammar.schema(document.root()));
    SWY_TRY(grammar.finish());
    const Expr space = grammar.space(), name = x_.literal(json(tool.name).dump());
    const Expr head =
        x_.concat({x_.literal("<tool_call>\n{"), space, x_.literal("\"name\""), space, x_.literal(":"), space, name,
                   space, x_.literal(","), space, x_.literal("\"arguments\""), space, x_.literal(":"), space});
    return g_.sequence({g_.leaf(head), arguments, g_.leaf(x_.concat(space, x_.literal("}\n</tool_call>")))});
  }

  Result<NodeId> xml_call(const Tool& tool) {
    SWY_LET(SchemaDocument document, SchemaDocument::create(tool.parameters));
    JsonGrammar grammar(g_, document);
    SWY_LET(const Shape* shape, grammar.shapes().shape(grammar.shapes().of_schema(document.root())));
    const Shape whole = *shape;
    const Expr head = x_.literal("<tool_call>\n<function=" + tool.name + ">\n");
    std::vector<NodeId> ways;
    for (const ObjectShape& object : whole.objects) {
      ObjectSpec spec;
      spec.open = head;
      spec.close = x_.literal("</function>\n</tool_call>");
      const JsonGrammar::Style style{
          [&](Expr name) {
            return x_.concat({x_.literal("<parameter="), plain_name(name), x_.literal(">\n")});
          },
          [&](SchemaSet s) { return xml_value(grammar, s); }};
      SWY_TRY(grammar.members(object, spec, style));
      ways.push_back(g_.object(std::move(spec)));
    }
    SWY_TRY(grammar.finish());
    return g_.either(ways);
  }

 private:
  Expr plain_name(Expr name) {
    const std::pair<uint32_t, uint32_t> allowed[] = {{0x20, '='}, {'?', 0x10FFFF}};
    return x_.both(name, x_.repeat(x_.characters(allowed), 1, kUnbounded));
  }

  Result<NodeId> xml_value(JsonGrammar& grammar, SchemaSet s) {
    SWY_LET(const Shape* shape, grammar.shapes().shape(s));
    const std::string_view kEnd = "\n</parameter>";
    const Expr end = x_.literal(kEnd);
    const Expr text = x_.minus(shape->string, x_.concat({kAllBytes, end, kAllBytes}));
    Shape others = *shape;
    others.string = kNothing;
    std::vector<NodeId> ways = {g_.leaf(text)};
    if (others.arrays.empty() && others.objects.empty()) {
      ways.push_back(g_.leaf(grammar.scalars(others)));
    } else if (shape->string == kNothing) {
      SWY_LET(const NodeId value, grammar.value(s));
      ways.push_back(value);
    } else if (shape->string != x_.characters()) {
      // Lists and objects beside some texts: as JSON, and so are these texts then.
      SWY_LET(const NodeId value, grammar.value(s));
      ways.push_back(value);
    }
    return g_.sequence({g_.either(ways), g_.leaf(x_.concat(end, x_.literal("\n")))});
  }

  Grammar& g_;
  Expressions& x_;
};

}  // namespace

Result<NodeId> tool_calls(Grammar& grammar, std::string_view text) {
  SWY_LET(const json spec, read_json(text, "the tools"));
  if (!spec.is_object()) return error(Code::usage, "{} is no object with 'tools'", brief(spec));
  SWY_LET(const std::vector<Tool> tools, read_tools(spec.contains("tools") ? spec["tools"] : json()));
  const json choice = spec.contains("choice") ? spec["choice"] : json("required");
  const json format = spec.contains("format") ? spec["format"] : json("json");
  if (format != "json" && format != "xml")
    return error(Code::usage, "'format' {} is neither json nor xml", brief(format));
  const bool named = choice.is_object() && choice.contains("name");
  if (!named && choice != "auto" && choice != "required") {
    return error(Code::usage, "'choice' {} is none of auto, required and {{\"name\": ...}}", brief(choice));
  }
  Calls calls(grammar);
  std::vector<NodeId> ways;
  for (const Tool& tool : tools) {
    if (named && choice["name"] != tool.name) continue;
    auto call = format == "json" ? calls.json_call(tool) : calls.xml_call(tool);
    if (!call.ok()) {
      return error(call.status().code(), "the parameters of tool '{}': {}", tool.name, call.status().message());
    }
    ways.push_back(*call);
  }
  if (ways.empty()) return error(Code::usage, "'choice' {} names none of the tools", brief(choice));
  Expressions& x = grammar.expressions;
  const RuleId one = grammar.add_rule("call");
  grammar.set_rule(one, grammar.either(ways));
  const bool parallel = !spec.contains("parallel") || spec["parallel"] != false;
  std::vector<NodeId> parts = {grammar.use(one)};
  if (parallel) {
    parts.push_back(grammar.repeat(grammar.sequence({grammar.leaf(x.literal("\n")), grammar.use(one)}), 0, kUnbounded));
  }
  const NodeId all = grammar.sequence(parts);
  if (choice != "auto") return all;
  const Expr before = x.minus(x.characters(), x.concat({kAllBytes, x.literal("<tool_call>"), kAllBytes}));
  return grammar.sequence({grammar.leaf(before), grammar.repeat(all, 0, 1)});
}

}  // namespace switchyard::constrain
