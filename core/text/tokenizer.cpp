// SPDX-License-Identifier: Apache-2.0
#include "core/text/tokenizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "core/base/json.h"
#include "core/base/printable.h"
#include "core/text/added_tokens.h"
#include "core/text/bpe.h"
#include "core/text/splitter.h"
#include "core/text/utf8.h"

namespace switchyard {
namespace {

using nlohmann::json;

constexpr int32_t kMaxId = 1 << 24;
// Ids index tables, so that they may not be much larger than the number of tokens.
constexpr int64_t kMaxUnusedIds = 4096;
constexpr size_t kMaxSplitters = 64;
// Before a special token that counts as letters: U+FDD0, which Unicode keeps free for uses inside of a program.
constexpr std::string_view kLettersMark = "\xEF\xB7\x90";
constexpr size_t kMaxAddedBytes = 1024;

std::string without_marks(std::string_view text) {
  std::string out(text);
  for (size_t at = 0; (at = out.find(kLettersMark, at)) != std::string::npos;) out.erase(at, kLettersMark.size());
  return out;
}

// The printable stand-ins of byte-level BPE: byte → code point (GPT-2's bytes_to_unicode).
std::array<uint32_t, 256> byte_characters() {
  std::array<uint32_t, 256> out{};
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174);
    out[b] = printable ? b : next++;
  }
  return out;
}

// A token's stand-in text back to bytes; false if it holds a character that is no stand-in.
bool to_bytes(std::string_view text, const std::unordered_map<uint32_t, uint8_t>& bytes, std::string& out) {
  while (!text.empty()) {
    utf8proc_int32_t c = 0;
    const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                    static_cast<utf8proc_ssize_t>(text.size()), &c);
    const auto it = n > 0 ? bytes.find(static_cast<uint32_t>(c)) : bytes.end();
    if (it == bytes.end()) return false;
    out.push_back(static_cast<char>(it->second));
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

std::string compose(std::string_view text) {
  utf8proc_uint8_t* out = nullptr;
  const auto n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &out, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (n < 0) return std::string(text);
  std::string result(reinterpret_cast<const char*>(out), static_cast<size_t>(n));
  std::free(out);
  return result;
}

// utf8proc 2.8 composes a Hangul syllable with U+11A7, which the Unicode Standard's algorithm excludes. U+11A7 begins a
// character, so the text can be split before it.
std::string nfc(std::string_view text) {
  constexpr std::string_view kExcluded = "\xE1\x86\xA7";
  std::string out;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(kExcluded, 1));
    out += compose(part);
    text.remove_prefix(part.size());
  }
  return out;
}

std::string text_of(const json& object, const char* name) {
  return object.is_object() && object.contains(name) && object[name].is_string() ? object[name].get<std::string>()
                                                                                 : "?";
}

std::string type_of(const json& component) { return text_of(component, "type"); }

bool flag(const json& object, const char* name) {
  return object.contains(name) && object[name].is_boolean() && object[name].get<bool>();
}

Status refuse(const char* what, const std::string& name) {
  return error(Code::unsupported, "tokenizer.json: {} '{}' is not supported", what, printable(name));
}

}  // namespace

struct Tokenizer::Impl {
  std::vector<std::string> pieces;               // by id: raw bytes
  std::vector<bool> special;                     // by id
  std::unordered_map<std::string, int32_t> ids;  // raw bytes → id
  AddedTokens added;
  std::vector<Splitter> splitters;
  Bpe bpe;
  bool normalise = false;
  bool ignore_merges = false;
  int64_t id_bound = 0;  // the smallest id that is refused
  std::mutex trie_mutex;
  std::shared_ptr<const TokenTrie> trie;  // of the last vocabulary size that was asked for

  Status read_model(const json& model);
  Status read_added(const json& list);
  Status read_normalizer(const json& normalizer);
  Status read_pre_tokenizer(const json& pre);
  Status read_split(const json& split);
  Status read_vocab(const json& vocab, std::unordered_map<std::string_view, int32_t>& by_text);
  Status read_merges(const json& merges, const std::unordered_map<std::string_view, int32_t>& by_text);
  Status add_splitter(const std::string& pattern);
  void set_piece(int32_t id, std::string bytes);

  Status encode_part(std::string_view text, Specials specials, bool inside_normalized, SplitBudget& budget,
                     std::vector<int32_t>& out) const;
  Status encode_words(std::string_view text, size_t splitter, SplitBudget& budget, std::vector<int32_t>& out) const;
};

void Tokenizer::Impl::set_piece(int32_t id, std::string bytes) {
  if (static_cast<size_t>(id) >= pieces.size()) {
    pieces.resize(static_cast<size_t>(id) + 1);
    special.resize(pieces.size());
  }
  pieces[static_cast<size_t>(id)] = std::move(bytes);
}

Status Tokenizer::Impl::read_model(const json& model) {
  if (type_of(model) != "BPE") return refuse("model", type_of(model));
  for (const char* name : {"byte_fallback", "fuse_unk"}) {
    if (flag(model, name)) return refuse("model option", name);
  }
  const json nothing = "";
  for (const char* name : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model.contains(name) && !model[name].is_null() && model[name] != nothing) return refuse("model option", name);
  }
  ignore_merges = flag(model, "ignore_merges");
  if (!model.contains("vocab") || !model["vocab"].is_object() || !model.contains("merges") ||
      !model["merges"].is_array()) {
    return error(Code::invalid_data, "tokenizer.json: the model has no vocab or no merges");
  }
  std::unordered_map<std::string_view, int32_t> by_text;
  SWY_TRY(read_vocab(model["vocab"], by_text));
  return read_merges(model["merges"], by_text);
}

Status Tokenizer::Impl::read_vocab(const json& vocab, std::unordered_map<std::string_view, int32_t>& by_text) {
  const auto characters = byte_characters();
  std::unordered_map<uint32_t, uint8_t> bytes;
  for (uint32_t b = 0; b < 256; ++b) bytes[characters[b]] = static_cast<uint8_t>(b);
  for (const auto& [text, id] : vocab.items()) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= id_bound) {
      return error(Code::invalid_data, "tokenizer.json: token '{}' has the id {}, in a vocabulary of {} tokens",
                   printable(text), brief(id), vocab.size());
    }
    std::string raw;
    if (!to_bytes(text, bytes, raw)) raw = text;  // not byte-level: it can be decoded, and no merge leads to it
    by_text[text] = id.get<int32_t>();
    ids[raw] = id.get<int32_t>();
    set_piece(id.get<int32_t>(), std::move(raw));
  }
  for (uint32_t b = 0; b < 256; ++b) {
    const auto it = ids.find(std::string(1, static_cast<char>(b)));
    bpe.set_byte(static_cast<uint8_t>(b), it == ids.end() ? -1 : it->second);
  }
  return {};
}

// A merge is a pair of texts, or one text with a blank between them.
Status Tokenizer::Impl::read_merges(const json& merges, const std::unordered_map<std::string_view, int32_t>& by_text) {
  const auto find = [&](std::string_view text) {
    const auto it = by_text.find(text);
    return it == by_text.end() ? -1 : it->second;
  };
  for (const json& merge : merges) {
    std::string_view left, right;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
    } else if (merge.is_string()) {
      left = merge.get_ref<const std::string&>();
      const size_t blank = left.find(' ');
      if (blank == std::string_view::npos || left.find(' ', blank + 1) != std::string_view::npos) {
        return error(Code::invalid_data, "tokenizer.json: merge {} is not two tokens with a blank between them",
                     brief(merge));
      }
      right = left.substr(blank + 1);
      left = left.substr(0, blank);
    }
    const int32_t l = find(left), r = find(right), m = find(std::string(left).append(right));
    if (l < 0 || r < 0 || m < 0) {
      return error(Code::invalid_data, "tokenizer.json: merge {} names a token that is not in the vocabulary",
                   brief(merge));
    }
    bpe.add_merge(l, r, m);
  }
  return {};
}

Status Tokenizer::Impl::read_added(const json& list) {
  if (!list.is_array()) return error(Code::invalid_data, "tokenizer.json: added_tokens is not a list");
  std::vector<AddedToken> found;
  for (const json& entry : list) {
    AddedToken t;
    if (!entry.is_object() || !entry.contains("id") || !entry["id"].is_number_unsigned() ||
        entry["id"].get<uint64_t>() >= static_cast<uint64_t>(id_bound) || !entry.contains("content") ||
        !entry["content"].is_string() || entry["content"].get<std::string>().empty()) {
      return error(Code::invalid_data, "tokenizer.json: a broken entry in added_tokens");
    }
    t.id = entry["id"].get<int32_t>();
    t.content = entry["content"].get<std::string>();
    if (t.content.size() > kMaxAddedBytes) {
      return error(Code::unsupported, "tokenizer.json: added token '{}' has {} bytes; at most {} are supported",
                   printable(t.content), t.content.size(), kMaxAddedBytes);
    }
    t.special = flag(entry, "special");
    t.normalized = flag(entry, "normalized");
    for (const char* name : {"lstrip", "rstrip", "single_word"}) {
      if (flag(entry, name)) return refuse("added-token option", name);
    }
    set_piece(t.id, t.content);
    special[static_cast<size_t>(t.id)] = t.special;
    ids[t.content] = t.id;
    if (t.normalized && normalise) t.content = nfc(t.content);
    found.push_back(std::move(t));
  }
  added = AddedTokens(std::move(found));
  return {};
}

Status Tokenizer::Impl::read_normalizer(const json& normalizer) {
  if (normalizer.is_null()) return {};
  const std::string type = type_of(normalizer);
  if (type == "Sequence" && normalizer.contains("normalizers") && normalizer["normalizers"].is_array()) {
    for (const json& n : normalizer["normalizers"]) SWY_TRY(read_normalizer(n));
    return {};
  }
  if (type != "NFC") return refuse("normalizer", type);
  normalise = true;
  return {};
}

Status Tokenizer::Impl::read_split(const json& split) {
  if (!split.contains("pattern") || !split["pattern"].is_object() || !split["pattern"].contains("Regex") ||
      !split["pattern"]["Regex"].is_string()) {
    return refuse("pre-tokenizer", "Split without a Regex");
  }
  if (text_of(split, "behavior") != "Isolated" || flag(split, "invert")) {
    return refuse("Split behavior", text_of(split, "behavior"));
  }
  return add_splitter(split["pattern"]["Regex"].get<std::string>());
}

Status Tokenizer::Impl::add_splitter(const std::string& pattern) {
  if (splitters.size() == kMaxSplitters) {
    return error(Code::unsupported, "tokenizer.json: the pre-tokenizer splits by more than {} patterns", kMaxSplitters);
  }
  SWY_LET(Splitter splitter, Splitter::compile(pattern));
  splitters.push_back(std::move(splitter));
  return {};
}

Status Tokenizer::Impl::read_pre_tokenizer(const json& pre) {
  const std::string type = type_of(pre);
  if (type == "Sequence" && pre.contains("pretokenizers") && pre["pretokenizers"].is_array()) {
    for (const json& p : pre["pretokenizers"]) SWY_TRY(read_pre_tokenizer(p));
    return {};
  }
  if (type == "Split") return read_split(pre);
  if (type != "ByteLevel") return refuse("pre-tokenizer", type);
  if (flag(pre, "add_prefix_space")) return refuse("ByteLevel option", "add_prefix_space");
  if (!pre.contains("use_regex") || flag(pre, "use_regex")) {
    return add_splitter("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+");
  }
  return {};
}

Result<Tokenizer> Tokenizer::parse(std::string_view text) {
  SWY_LET(const json parsed, read_json(text, "tokenizer.json"));
  if (!parsed.is_object() || !parsed.contains("model")) {
    return error(Code::invalid_data, "tokenizer.json is not a tokenizer in JSON");
  }
  auto impl = std::make_unique<Impl>();
  static const json nothing;
  const auto part = [&](const char* name) -> const json& {
    const auto found = parsed.find(name);
    return found == parsed.end() ? nothing : *found;
  };
  const json& model = parsed["model"];
  const size_t tokens =
      (model.is_object() && model.contains("vocab") ? model["vocab"].size() : 0) + part("added_tokens").size();
  impl->id_bound = std::min<int64_t>(2 * static_cast<int64_t>(tokens) + kMaxUnusedIds, kMaxId);
  SWY_TRY(impl->read_model(model));
  SWY_TRY(impl->read_normalizer(part("normalizer")));
  if (parsed.contains("added_tokens")) SWY_TRY(impl->read_added(parsed["added_tokens"]));
  if (part("pre_tokenizer").is_null()) return refuse("pre-tokenizer", "none");
  SWY_TRY(impl->read_pre_tokenizer(part("pre_tokenizer")));
  const json& post = part("post_processor");
  if (!post.is_null() && type_of(post) != "ByteLevel" &&
      !(type_of(post) == "TemplateProcessing" &&
        (!post.contains("special_tokens") || post["special_tokens"].empty()))) {
    return refuse("post-processor", type_of(post));
  }
  return Tokenizer(std::move(impl));
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Status Tokenizer::Impl::encode_words(std::string_view text, size_t splitter, SplitBudget& budget,
                                     std::vector<int32_t>& out) const {
  if (text.empty()) return {};
  if (splitter < splitters.size()) {
    Status inner;
    SWY_TRY(splitters[splitter].split(text, budget, [&](std::string_view piece) {
      if (inner.ok()) inner = encode_words(piece, splitter + 1, budget, out);
    }));
    return inner;
  }
  if (ignore_merges) {
    if (const auto it = ids.find(std::string(text)); it != ids.end()) {
      out.push_back(it->second);
      return {};
    }
  }
  bpe.encode(text, out);
  return {};
}

// Added tokens that are matched before normalisation come first, the others after it. A special token that counts as
// letters is text from its first byte to its last.
Status Tokenizer::Impl::encode_part(std::string_view text, Specials specials, bool inside_normalized,
                                    SplitBudget& budget, std::vector<int32_t>& out) const {
  const auto plain = [&](std::string_view part) -> Status {
    if (part.empty()) return {};
    if (!inside_normalized) return encode_part(normalise ? nfc(part) : std::string(part), specials, true, budget, out);
    return encode_words(specials == Specials::marked ? without_marks(part) : std::string(part), 0, budget, out);
  };
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* t = added.longest_at_front(text.substr(at), inside_normalized);
    if (t == nullptr) {
      ++at;
      continue;
    }
    const bool letters = t->special && (specials == Specials::letters ||
                                        (specials == Specials::marked && text.substr(0, at).ends_with(kLettersMark)));
    if (!letters) {
      SWY_TRY(plain(text.substr(done, at - done)));
      out.push_back(t->id);
      done = at + t->content.size();
    }
    at += t->content.size();
  }
  return plain(text.substr(done));
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, Specials specials) const {
  SWY_TRY(check_utf8(text));
  std::vector<int32_t> out;
  SplitBudget budget(text.size());
  SWY_TRY(impl_->encode_part(text, specials, false, budget, out));
  return out;
}

std::string Tokenizer::quote_specials(std::string_view text) const {
  const std::string clean = without_marks(text);
  const std::string_view rest = clean;
  std::string out;
  for (size_t at = 0; at < clean.size();) {
    const AddedToken* t = nullptr;
    for (const bool normalized : {false, true}) {
      if (t == nullptr) t = impl_->added.longest_at_front(rest.substr(at), normalized);
    }
    if (t != nullptr && t->special) out += kLettersMark;
    const size_t length = t != nullptr ? t->content.size() : 1;
    out += rest.substr(at, length);
    at += length;
  }
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes, out;
  for (const int32_t id : ids) {
    if (!skip_special || !is_special(id)) bytes += piece(id);
  }
  append_utf8_lossy(bytes, true, out);
  return out;
}

std::string_view Tokenizer::piece(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return impl_->pieces[static_cast<size_t>(id)];
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->special[static_cast<size_t>(id)];
}

std::optional<int32_t> Tokenizer::id_of(std::string_view content) const {
  const auto it = impl_->ids.find(std::string(content));
  return it == impl_->ids.end() ? std::nullopt : std::optional<int32_t>(it->second);
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(impl_->pieces.size()); }

Result<std::shared_ptr<const TokenTrie>> Tokenizer::trie(uint32_t vocab) const {
  const std::lock_guard lock(impl_->trie_mutex);
  if (impl_->trie != nullptr && impl_->trie->vocab() == vocab) return impl_->trie;
  SWY_LET(impl_->trie, TokenTrie::create(vocab, [&](uint32_t id) {
            const auto i = static_cast<int32_t>(std::min<uint32_t>(id, INT32_MAX));
            return is_special(i) ? std::string_view() : piece(i);
          }));
  return impl_->trie;
}

}  // namespace switchyard
