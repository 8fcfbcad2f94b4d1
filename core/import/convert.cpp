// SPDX-License-Identifier: Apache-2.0
#include "core/import/convert.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/base/thread_pool.h"
#include "core/import/gguf_model.h"
#include "core/import/model_folder.h"
#include "core/import/recommended.h"
#include "core/import/safetensors.h"
#include "core/import/shortlist.h"
#include "core/models/registry.h"
#include "core/program/op_names.h"
#include "core/program/output.h"
#include "core/program/quantize.h"
#include "core/program/writer.h"
#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"
#include "switchyard/weights.h"

namespace switchyard {
namespace {

constexpr uint64_t kBatchElements = uint64_t{4} << 20;  // rows are read and encoded in batches of about this size
constexpr uint64_t kMaxTextBytes = uint64_t{256} << 20;

// Reads a text that a checkpoint may lack.
Result<std::string> read_optional(Os& os, const std::string& path) {
  if (!os.exists(path)) return std::string();
  return os.read(path, kMaxTextBytes);
}

// The chat template: a file of its own, or a field of tokenizer_config.json.
Result<std::string> read_chat_template(Os& os, const std::string& folder) {
  SWY_LET(std::string text, read_optional(os, folder + "/chat_template.jinja"));
  if (!text.empty()) return text;
  SWY_LET(const std::string config, read_optional(os, folder + "/tokenizer_config.json"));
  if (config.empty()) return std::string();
  SWY_LET(const nlohmann::json parsed, read_json(config, folder + "/tokenizer_config.json"));
  if (parsed.is_object() && parsed.contains("chat_template") && parsed["chat_template"].is_string()) {
    return parsed["chat_template"].get<std::string>();
  }
  return std::string();
}

// Writes the weights of one tensor, batch by batch, over a team of threads.
class TensorWriter {
 public:
  TensorWriter(ProgramWriter& writer, ThreadPool& pool, const ConvertOptions& options, uint64_t total)
      : writer_(writer), pool_(pool), options_(options), total_(total) {}

  Status write(size_t index, const ProgramSpec::Tensor& tensor, const std::vector<SourceRows>& parts) {
    desc_ = {};
    desc_.struct_size = sizeof desc_;
    desc_.dtype = tensor.dtype;
    desc_.group = tensor.group;
    desc_.rank = static_cast<uint32_t>(tensor.dims.size());
    std::fill_n(desc_.dims, 4, 1);
    std::copy(tensor.dims.begin(), tensor.dims.end(), desc_.dims);
    if (swy_weight_planes_of(&desc_, &planes_) != 0) return error(Code::internal, "{}: no such weight", tensor.name);
    width_ = tensor.dims.back();
    scales_.clear();
    offsets_.clear();
    SWY_TRY(writer_.begin_segment(index));
    const uint64_t batch = std::max<uint64_t>(1, kBatchElements / width_);
    for (const SourceRows& part : parts) {
      for (uint64_t row = 0; row < part.count; row += batch) {
        SWY_TRY(write_batch(tensor.name, *part.tensor, part.first + row, std::min(batch, part.count - row)));
      }
    }
    if (planes_.groups != 0) {
      SWY_TRY(writer_.pad_to(planes_.scales));
      SWY_TRY(write_scales());
      if (!offsets_.empty()) {
        SWY_TRY(writer_.pad_to(planes_.offsets));
        SWY_TRY(writer_.append(std::as_bytes(std::span(offsets_))));
      }
    }
    return writer_.end_segment();
  }

 private:
  Status write_scales() {
    if (planes_.scale_bytes != 1) return writer_.append(std::as_bytes(std::span(scales_)));
    std::vector<std::byte> narrow(scales_.size());
    std::transform(scales_.begin(), scales_.end(), narrow.begin(),
                   [](uint16_t s) { return static_cast<std::byte>(s); });
    return writer_.append(narrow);
  }
  Status write_batch(const std::string& name, const SourceTensor& part, uint64_t row, uint64_t rows) {
    batch_ = {&part, row, rows};
    first_scale_ = scales_.size();
    bytes_.resize(rows * planes_.row_bytes);
    scales_.resize(first_scale_ + rows * planes_.groups);
    if (desc_.dtype == SWY_I4A) offsets_.resize(scales_.size());
    status_ = {};
    pool_.run([](void* self, const swy_team* team) { static_cast<TensorWriter*>(self)->encode(*team); }, this);
    SWY_TRY(status_.in("tensor " + name));
    SWY_TRY(writer_.append(bytes_));
    part.release_rows(row, rows);
    done_ += bytes_.size();
    if (options_.progress && !options_.progress(done_, total_)) {
      return error(Code::cancelled, "conversion stopped; nothing was written to {}", options_.output);
    }
    return {};
  }

  // One member's rows of the batch.
  void encode(const swy_team& team) {
    const uint64_t first = batch_.rows * team.rank / team.size, last = batch_.rows * (team.rank + 1) / team.size;
    std::vector<float> row(width_);
    for (uint64_t r = first; r < last; ++r) {
      std::byte* out = bytes_.data() + r * planes_.row_bytes;
      if (as_it_is(r, out)) continue;
      batch_.part->read_row(batch_.row + r, row);
      if (desc_.dtype == SWY_F32) {
        std::memcpy(out, row.data(), width_ * 4);
      } else if (desc_.dtype == SWY_BF16) {
        auto* h = reinterpret_cast<uint16_t*>(out);
        for (uint64_t i = 0; i < width_; ++i) h[i] = swy_f32_to_bf16(row[i]);
      } else if (Status s = quantize(row, r, out); !s.ok()) {
        const std::lock_guard lock(mutex_);
        if (status_.ok()) status_ = s.in(fmt::format("row {}", batch_.row + r));
        return;
      }
    }
  }

  QuantizedRows quantized_row(uint64_t r, std::byte* out) {
    const uint64_t at = first_scale_ + r * planes_.groups;
    QuantizedRows q{{out, planes_.row_bytes}, std::span(scales_).subspan(at, planes_.groups), {}};
    if (!offsets_.empty()) q.offsets = std::span(offsets_).subspan(at, planes_.groups);
    return q;
  }
  Status quantize(const std::vector<float>& row, uint64_t r, std::byte* out) {
    if (desc_.dtype == SWY_MXFP4) return error(Code::invalid_data, "a scale is 255, which stands for no number");
    return quantize_rows(row.data(), 1, desc_, quantized_row(r, out));
  }
  // Whether the source has the row in the encoding that is wanted; then it was copied.
  bool as_it_is(uint64_t r, std::byte* out) {
    if (planes_.groups == 0 || batch_.part->encoding() != WeightEncoding{desc_.dtype, desc_.group}) return false;
    const QuantizedRows q = quantized_row(r, out);
    return batch_.part->encode_row(batch_.row + r, q.quants, q.scales, q.offsets);
  }

  struct Batch {
    const SourceTensor* part = nullptr;
    uint64_t row = 0, rows = 0;
  };

  ProgramWriter& writer_;
  ThreadPool& pool_;
  const ConvertOptions& options_;
  uint64_t total_, done_ = 0;
  swy_tensor desc_{};
  swy_weight_planes planes_{};
  uint64_t width_ = 0, first_scale_ = 0;
  Batch batch_;
  std::vector<std::byte> bytes_;
  std::vector<uint16_t> scales_, offsets_;
  std::mutex mutex_;
  Status status_;
};

// A model as it was found, before its tensors are read.
struct Opened {
  std::unique_ptr<TensorSource> tensors;
  const Family* family = nullptr;
  std::optional<Config> config;
  std::string source_config, tokenizer_json, chat_template;
  std::string quantization;  // where the weights keep their encodings
  Recommended recommended;
};

Result<Opened> open_folder(Os& os, const std::string& folder) {
  const std::string config_path = folder + "/config.json";
  if (!os.exists(config_path)) {
    return error(Code::not_found, "{} has no config.json; name the folder of a Hugging Face checkpoint, or a GGUF file",
                 folder);
  }
  Opened o;
  SWY_LET(o.source_config, os.read(config_path, kMaxTextBytes));
  SWY_LET(const std::string generation, read_optional(os, folder + "/generation_config.json"));
  SWY_LET(o.recommended, recommended_by(generation));
  Result<Config> config = Config::parse(o.source_config, generation);
  if (!config.ok()) return config.status().in(folder);
  const Result<const Family*> family = family_of(*config);
  if (!family.ok()) return family.status().in(folder);
  o.family = *family;
  o.config = std::move(*config);
  SWY_LET(Checkpoint checkpoint, Checkpoint::open(os, folder));
  o.tensors = std::make_unique<Checkpoint>(std::move(checkpoint));
  SWY_LET(o.tokenizer_json, read_optional(os, folder + "/tokenizer.json"));
  SWY_LET(o.chat_template, read_chat_template(os, folder));
  o.quantization = "as in the checkpoint";
  return o;
}

Result<Opened> open_gguf(Os& os, const std::string& path) {
  SWY_LET(GgufFile file, GgufFile::open(os, path));
  Result<GgufModel> model = GgufModel::create(std::move(file));
  if (!model.ok()) return model.status().in(path);
  Opened o;
  Result<std::string> tokenizer = model->tokenizer_json();
  if (!tokenizer.ok()) return tokenizer.status().in(path);
  o.tokenizer_json = std::move(*tokenizer);
  o.chat_template = model->chat_template();
  o.family = &model->family();
  o.config = model->config();
  o.quantization = model->quantization();
  o.recommended = recommended_by(model->file());
  o.tensors = std::make_unique<GgufModel>(std::move(*model));
  return o;
}

// The texts beside the weights are checked now, so that a program that loads also runs.
Status take_texts(const Opened& model, const std::string& where, ModelPlan& plan) {
  plan.spec.tokenizer_json = model.tokenizer_json;
  plan.spec.chat_template = model.chat_template;
  if (plan.spec.tokenizer_json.empty()) {
    plan.notes.push_back("no tokenizer: the program takes token ids only (logits, plan, inspect)");
  } else if (auto tokenizer = Tokenizer::parse(plan.spec.tokenizer_json); !tokenizer.ok()) {
    return tokenizer.status().in(where + ": tokenizer");
  } else if (tokenizer->vocab_size() > static_cast<int64_t>(plan.vocab)) {
    return error(Code::invalid_data, "{}: the tokenizer has ids up to {}, and the model's vocabulary is {}", where,
                 tokenizer->vocab_size() - 1, plan.vocab);
  }
  if (plan.spec.chat_template.empty()) {
    plan.notes.push_back("no chat template: switchyard chat cannot use this program");
  } else if (auto chat = ChatTemplate::parse(plan.spec.chat_template); !chat.ok()) {
    return chat.status().in(where + ": chat template");
  }
  return {};
}

}  // namespace

Result<WeightEncoding> parse_encoding(const std::string& quant, const std::string& group) {
  WeightEncoding e;
  if (quant == "i8") e.dtype = SWY_I8;
  if (quant == "i4") e.dtype = SWY_I4;
  if (quant == "i4a") e.dtype = SWY_I4A;
  if (e.dtype == SWY_BF16 && quant != "bf16") {
    return error(Code::usage, "--quant {} is unknown; choose bf16, i8, i4 or i4a", quant);
  }
  if (group == "row") return e;
  for (const uint32_t known : kWeightGroups) {
    if (group != std::to_string(known)) continue;
    if (e.dtype != SWY_BF16) e.group = known;
    return e;
  }
  return error(Code::usage, "--group {} is unknown; choose 16, 32, 64, 128 or row", group);
}

std::string encoding_name(const std::optional<WeightEncoding>& e) {
  if (!e) return "as in the source";
  if (e->dtype == SWY_BF16) return "bf16";
  return fmt::format("{} group {}", dtype_name(e->dtype),
                     e->group == 0 ? std::string("row") : std::to_string(e->group));
}

bool is_gguf(Os& os, const std::string& path) {
  constexpr uint64_t kMagicBytes = 4;
  const auto begin = os.map(path);
  return begin.ok() && (*begin)->bytes().size() >= kMagicBytes && std::memcmp((*begin)->bytes().data(), "GGUF", 4) == 0;
}

Result<ConvertReport> convert(Os& os, const ConvertOptions& options) {
  SWY_TRY(check_program_output(os, options.output));
  SWY_LET(const Opened model,
          is_gguf(os, options.source) ? open_gguf(os, options.source) : open_folder(os, options.source));
  const Shortlist shortlist = [&](uint32_t vocab) {
    return make_shortlist(os, options.mtp_shortlist, model.tokenizer_json, vocab);
  };
  Result<ModelPlan> planned =
      plan_model(*model.family, *model.config, model.tensors.get(), options.encoding, shortlist);
  if (!planned.ok()) return planned.status().in(options.source);
  ModelPlan& plan = *planned;
  plan.spec.source_config = model.source_config;
  plan.spec.quantization = options.encoding ? encoding_name(options.encoding) : model.quantization;
  SWY_TRY(take_texts(model, options.source, plan));
  const auto& recommended = model.recommended.entries;
  plan.spec.metadata.insert(plan.spec.metadata.begin(), recommended.begin(), recommended.end());
  plan.notes.insert(plan.notes.end(), model.recommended.notes.begin(), model.recommended.notes.end());
  if (!options.origin.empty()) plan.spec.metadata.emplace_back(kOriginKey, options.origin);

  SWY_LET(ProgramWriter writer, ProgramWriter::create(os, options.output, plan.spec));
  SWY_TRY(check_space(os, options.output, writer.file_bytes()));
  if (options.begin) options.begin(writer.file_bytes());
  ThreadPool pool(options.threads);
  TensorWriter tensors(writer, pool, options, writer.file_bytes());
  ConvertReport report{writer.file_bytes(), 0, std::move(plan.notes)};
  for (size_t i = 0; i < plan.spec.tensors.size(); ++i) {
    SWY_TRY(tensors.write(i, plan.spec.tensors[i], plan.weights[i].parts));
    uint64_t elements = 1;
    for (const uint64_t d : plan.spec.tensors[i].dims) elements *= d;
    report.parameters += elements;
  }
  SWY_TRY(writer.finish());
  return report;
}

}  // namespace switchyard
