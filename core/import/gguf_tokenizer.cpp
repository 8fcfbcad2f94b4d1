// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a GGUF file as the tokenizer.json that it was made from.
#include <nlohmann/json.hpp>

#include "core/base/printable.h"
#include "core/import/gguf_model.h"

namespace switchyard {
namespace {

using nlohmann::json;

// What splits a text into words, by the name that llama.cpp gives to it.
struct PreTokenizer {
  std::string_view name;
  const char* pattern;
  bool composes = true;  // characters and their marks, before all else: the file does not say so
};
constexpr PreTokenizer kPreTokenizers[] = {
    {"qwen35",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|"
     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {"qwen2",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
     "\\s+(?!\\S)|\\s+"},
    {"gpt-4o",
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'"
     "ll|'d)?|"
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'"
     "ll|'d)?|"
     "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     false},
};

std::string_view text_or(const GgufFile& file, const char* key, std::string_view otherwise) {
  const GgufValue* v = file.find(key);
  return v == nullptr ? otherwise : v->text().value_or(otherwise);
}

// Kinds of tokens, as tokenizer.ggml.token_type has them.
enum : uint64_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };

}  // namespace

Result<std::string> GgufModel::tokenizer_json() const {
  const GgufValue* listed = file_.find("tokenizer.ggml.tokens");
  if (listed == nullptr) return std::string();
  const auto texts = listed->texts();
  const GgufValue *types_value = file_.find("tokenizer.ggml.token_type"),
                  *merges_value = file_.find("tokenizer.ggml.merges");
  const auto types = types_value == nullptr ? std::nullopt : types_value->wholes();
  const auto merges = merges_value == nullptr ? std::nullopt : merges_value->texts();
  const std::string_view model = text_or(file_, "tokenizer.ggml.model", "?"),
                         pre = text_or(file_, "tokenizer.ggml.pre", "?");
  if (model != "gpt2") {
    return error(Code::unsupported, "the tokenizer is of kind '{}'; 'gpt2' (byte-level BPE) is read", printable(model));
  }
  const PreTokenizer* words = nullptr;
  for (const PreTokenizer& p : kPreTokenizers) {
    if (p.name == pre) words = &p;
  }
  if (words == nullptr) {
    return error(Code::unsupported, "the pre-tokenizer '{}' is not known; qwen35, qwen2 and gpt-4o are",
                 printable(pre));
  }
  if (!texts || !types || !merges || types->size() != texts->size()) {
    return error(Code::invalid_data, "the tokenizer has no tokens, no merges, or not a type for each token");
  }
  json vocab = json::object(), added = json::array();
  for (size_t i = 0; i < texts->size(); ++i) {
    const std::string text((*texts)[i]);
    if ((*types)[i] == kUnused) continue;
    if ((*types)[i] == kControl || (*types)[i] == kUserDefined) {
      added.push_back({{"id", i}, {"content", text}, {"special", (*types)[i] == kControl}, {"normalized", false}});
    } else if (!vocab.emplace(text, i).second) {
      return error(Code::invalid_data, "the token '{}' is there twice", printable(text));
    }
  }
  const json split = {
      {"type", "Split"}, {"pattern", {{"Regex", words->pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  const json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  const json out = {{"version", "1.0"},
                    {"added_tokens", std::move(added)},
                    {"normalizer", words->composes ? json{{"type", "NFC"}} : json()},
                    {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}},
                    {"decoder", {{"type", "ByteLevel"}}},
                    {"model", {{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", *merges}}}};
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace switchyard
