// SPDX-License-Identifier: Apache-2.0
#include "core/hub/name.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "core/base/printable.h"

namespace switchyard::hub {
namespace {

// The usual compromise first, then what is nearest to it in size and quality.
constexpr std::array kPreference = {"Q4_K_M",     "UD-Q4_K_XL", "Q4_K_S",     "Q4_K_L", "Q4_K_XL",    "Q4_K",
                                    "IQ4_NL",     "IQ4_XS",     "Q4_1",       "Q4_0",   "MXFP4",      "MXFP4_MOE",
                                    "Q5_K_M",     "UD-Q5_K_XL", "Q5_K_S",     "Q6_K",   "UD-Q6_K_XL", "Q8_0",
                                    "UD-Q8_K_XL", "Q3_K_M",     "UD-Q3_K_XL", "BF16",   "F16",        "F32"};

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

bool ends_with_any(const std::string& text, std::initializer_list<const char*> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const char* e) { return text.ends_with(e); });
}

bool is_part_of_name(const std::string& text) {
  constexpr size_t kLongest = 96;
  if (text.empty() || text.size() > kLongest || text.find("..") != std::string::npos) return false;
  if (std::isalnum(static_cast<unsigned char>(text[0])) == 0 && text[0] != '_') return false;
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; });
}

std::string file_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// "x-00002-of-00003.gguf": part 2 of 3 of "x".
struct PartName {
  std::string stem;  // path without the part's number and the extension
  uint32_t part = 1, parts = 1;
};

PartName part_name(const std::string& path, const std::string& extension) {
  constexpr size_t kDigits = 5, kTail = 2 * kDigits + 5;  // "-00002-of-00003"
  PartName n{path.substr(0, path.size() - extension.size()), 1, 1};
  if (n.stem.size() <= kTail) return n;
  const std::string tail = n.stem.substr(n.stem.size() - kTail);
  const std::string first = tail.substr(1, kDigits), second = tail.substr(kTail - kDigits);
  const auto digits = [](const std::string& s) {
    return std::all_of(s.begin(), s.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  };
  if (tail[0] != '-' || tail.substr(1 + kDigits, 4) != "-of-" || !digits(first) || !digits(second)) return n;
  n = {n.stem.substr(0, n.stem.size() - kTail), static_cast<uint32_t>(std::stoul(first)),
       static_cast<uint32_t>(std::stoul(second))};
  return n;
}

// "Q4_K_M", "IQ4_XS", "BF16", "MXFP4_MOE": what quantizers put into the names of files.
bool is_quantization(const std::string& word) {
  for (const char* whole : {"BF16", "F16", "FP16", "F32", "FP32", "MXFP4", "MXFP4_MOE", "NVFP4", "TQ1_0", "TQ2_0"}) {
    if (word == whole) return true;
  }
  const size_t q = word.starts_with("IQ") ? 1 : 0;
  if (word.size() < q + 2 || word[q] != 'Q' || std::isdigit(static_cast<unsigned char>(word[q + 1])) == 0) return false;
  return word.size() == q + 2 || word[q + 2] == '_';
}

bool is_side_car(const std::string& path) {
  const std::string file = file_of(path);
  return file.starts_with("mmproj") || file.find("-mmproj") != std::string::npos || file.starts_with("mtp-") ||
         file.starts_with("imatrix") || file.find(".imatrix") != std::string::npos;
}

// Files whose names differ by the number of the part alone.
struct Parts {
  std::map<uint32_t, NamedFile> by_number;
  uint32_t parts = 1;
  bool whole() const { return by_number.size() == parts && by_number.begin()->first == 1; }
};

std::map<std::string, Parts> group_parts(const std::vector<NamedFile>& files, const std::string& extension) {
  std::map<std::string, Parts> groups;
  for (const NamedFile& f : files) {
    if (!f.path.ends_with(extension) || (extension == ".gguf" && is_side_car(f.path))) continue;
    const PartName n = part_name(f.path, extension);
    if (n.part < 1 || n.part > n.parts) continue;
    Parts& g = groups[fmt::format("{} {}", n.stem, n.parts)];
    g.parts = n.parts;
    g.by_number.emplace(n.part, f);
  }
  return groups;
}

// A checkpoint in the root of the repository, where there is one.
std::optional<Choice> checkpoint_of(const std::vector<NamedFile>& files) {
  std::vector<NamedFile> weights;
  Choice c;
  bool configured = false;
  for (const NamedFile& f : files) {
    if (f.path.find('/') != std::string::npos) continue;
    if (f.path.starts_with("model") && f.path.ends_with(".safetensors")) weights.push_back(f);
    configured |= f.path == "config.json";
    for (const char* name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                             "chat_template.jinja", "model.safetensors.index.json"}) {
      if (f.path != name) continue;
      c.files.push_back(f.path);
      c.bytes += f.bytes;
    }
  }
  if (!configured || weights.empty()) return {};
  for (const auto& [stem, group] : group_parts(weights, ".safetensors")) {
    if (!group.whole()) return {};
    for (const auto& [number, file] : group.by_number) {
      c.files.push_back(file.path);
      c.bytes += file.bytes;
    }
  }
  return c;
}

size_t rank_of(const std::string& label) {
  return static_cast<size_t>(std::find(kPreference.begin(), kPreference.end(), label) - kPreference.begin());
}

}  // namespace

std::optional<ModelName> parse_name(const std::string& text) {
  constexpr size_t kLongest = 1024;
  ModelName n;
  const size_t slash = text.find('/'), colon = text.find(':', slash == std::string::npos ? 0 : slash);
  if (slash == std::string::npos || text.size() > kLongest || printable(text, kLongest) != text) return {};
  n.repo = text.substr(0, colon);
  if (colon != std::string::npos) {
    n.selector = text.substr(colon + 1);
    if (n.selector.empty()) return {};
  }
  const std::string name = n.repo.substr(slash + 1);
  if (!is_part_of_name(n.repo.substr(0, slash)) || !is_part_of_name(name)) return {};
  if (ends_with_any(name, {".swy", ".gguf", ".safetensors", ".json"})) return {};
  return n;
}

std::string quantization_of(const std::string& path) {
  const std::string stem = upper(file_of(part_name(path, ".gguf").stem));
  std::string before, found;
  for (size_t at = 0; at <= stem.size();) {
    const size_t end = std::min(stem.find_first_of("-. ", at), stem.size());
    const std::string word = stem.substr(at, end - at);
    if (is_quantization(word)) found = before == "UD" ? "UD-" + word : word;
    before = word;
    at = end + 1;
  }
  return found;
}

std::vector<Choice> models_of(const std::vector<NamedFile>& files) {
  std::vector<Choice> all;
  for (const auto& [stem, group] : group_parts(files, ".gguf")) {
    if (!group.whole()) continue;
    Choice c;
    c.gguf = true;
    for (const auto& [number, file] : group.by_number) {
      c.files.push_back(file.path);
      c.bytes += file.bytes;
    }
    c.label = quantization_of(c.files[0]);
    const bool taken = std::any_of(all.begin(), all.end(), [&](const Choice& o) { return o.label == c.label; });
    if (c.label.empty() || taken) c.label = c.files[0];
    all.push_back(std::move(c));
  }
  std::stable_sort(all.begin(), all.end(), [](const Choice& a, const Choice& b) {
    const size_t at_a = rank_of(a.label), at_b = rank_of(b.label);
    return at_a != at_b ? at_a < at_b : a.bytes < b.bytes;
  });
  if (auto checkpoint = checkpoint_of(files)) all.push_back(std::move(*checkpoint));
  return all;
}

bool is_encoding(const std::string& selector) {
  return selector == "bf16" || selector == "i8" || selector == "i4" || selector == "i4a";
}

Result<Choice> choose(const ModelName& name, const std::vector<NamedFile>& files) {
  const std::vector<Choice> all = models_of(files);
  if (all.empty()) {
    return error(Code::not_found,
                 "{} has no model that can be read: neither a whole .gguf file nor config.json with model*.safetensors",
                 name.repo);
  }
  if (name.selector.empty()) return all[0];
  const std::string wanted = upper(name.selector);
  for (const Choice& c : all) {  // a file, by its path or its name; a quantization
    const bool file = std::any_of(c.files.begin(), c.files.end(), [&](const std::string& f) {
      return c.gguf && (f == name.selector || file_of(f) == name.selector);
    });
    if (file || (c.gguf && upper(c.label) == wanted)) return c;
  }
  for (const Choice& c : all) {
    if (c.gguf && upper(c.label) == "UD-" + wanted) return c;
    if (!c.gguf && is_encoding(name.selector)) return c;
  }
  std::vector<std::string> labels;
  for (const Choice& c : all) {
    if (c.gguf) labels.push_back(c.label);
  }
  if (!all.back().gguf) labels.insert(labels.end(), {"bf16", "i8", "i4", "i4a"});
  constexpr size_t kMostShown = 30;
  const bool more = labels.size() > kMostShown;
  labels.resize(std::min(labels.size(), kMostShown));
  return error(Code::not_found, "{} has no model '{}'; it has {}{}", name.repo, printable(name.selector),
               fmt::join(labels, ", "), more ? ", ..." : "");
}

}  // namespace switchyard::hub
