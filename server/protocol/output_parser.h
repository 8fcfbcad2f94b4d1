// SPDX-License-Identifier: Apache-2.0
// OutputParser: takes a model's text apart, as it comes, into reasoning, answer and tool calls.
//
//   reasoning</think>answer<tool_call>
//   <function=NAME>
//   <parameter=KEY>
//   value
//   </parameter>
//   </function>
//   </tool_call>
//
// This is the form of Qwen3-Coder and Qwen3.5; a call may also be the JSON object {"name", "arguments"} between the
// same tags, which is the form of Qwen3. Text that may be the beginning of a tag is held back until it is decided, so
// that no part of a tag is ever given out, and it does not matter in which pieces a text comes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/protocol/tool_schema.h"

namespace switchyard::server {

struct Delta {
  enum class Kind { reasoning, content, call, arguments, call_end };
  Kind kind = Kind::content;
  uint32_t call = 0;  // of the last three kinds: its index
  std::string text;   // the text; the function's name; a piece of the arguments' JSON text
};

struct OutputForm {
  bool reasoning = false;  // the text begins within the reasoning
  bool thinks = false;     // <think> at the beginning opens reasoning
  bool tools = false;      // there are tools that could be called
  ToolSchemas schemas = {};
};

class OutputParser {
 public:
  explicit OutputParser(OutputForm form);

  void push(std::string_view text, std::vector<Delta>& out);
  // The end of the text. A call that is not complete has no call_end.
  void flush(std::vector<Delta>& out);
  uint32_t completed_calls() const { return completed_; }
  bool reasons() const { return state_ == State::reasoning; }

 private:
  enum class State { start, reasoning, content, preamble, json_call, name, arguments, value, between };
  using Tags = std::vector<std::string_view>;

  bool advance(std::vector<Delta>& out);  // one state's work; false: more text is needed
  bool in_start();
  bool in_text(std::vector<Delta>& out);
  bool in_preamble(std::vector<Delta>& out);
  bool in_json_call(std::vector<Delta>& out);
  bool in_name(std::vector<Delta>& out);
  bool in_arguments(std::vector<Delta>& out);
  bool in_value(std::vector<Delta>& out);
  bool in_between(std::vector<Delta>& out);

  void open(std::string_view tag);
  void give(std::string_view text, std::vector<Delta>& out);
  void give_value(std::string_view text, std::vector<Delta>& out);
  void end_value(std::vector<Delta>& out);
  void end_call(std::vector<Delta>& out);
  void skip_space();
  bool may_begin_tag(const Tags& tags) const;

  OutputForm form_;
  State state_;
  bool fresh_ = false;  // nothing was given out since a tag: line ends at the beginning are the tag's
  std::string held_;    // not yet taken apart
  std::string space_;   // line ends that are dropped if a tag follows, and given out if text does
  std::string function_, value_;
  std::string raw_;  // the beginning of what may turn out to be no call
  ParameterType type_;
  bool value_begun_ = false;
  uint32_t calls_ = 0, completed_ = 0, parameters_ = 0;
};

}  // namespace switchyard::server
