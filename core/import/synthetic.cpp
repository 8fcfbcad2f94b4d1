// SPDX-License-Identifier: Apache-2.0
#include "core/import/synthetic.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>

#include "core/base/threads.h"
#include "core/import/convert.h"
#include "core/import/random_weights.h"
#include "core/import/shortlist.h"
#include "core/models/published.h"
#include "core/models/registry.h"
#include "core/program/decode.h"
#include "core/program/encode.h"
#include "core/program/file_header.h"
#include "core/program/writer.h"

namespace switchyard {
namespace {

constexpr uint64_t kChunk = uint64_t{4} << 20;

// Calls f(i) for i in [0, n) on some threads.
template <class Body>
void parallel(uint64_t n, uint32_t threads, Body f) {
  std::atomic<uint64_t> next{0};
  on_threads(std::min<uint64_t>(threads, n), [&] {
    for (uint64_t i; (i = next.fetch_add(1)) < n;) f(i);
  });
}

struct Synthesis {
  ProgramSpec spec;
  std::vector<Spread> spreads;                // per tensor
  std::vector<std::vector<std::byte>> given;  // per tensor; empty: random numbers
  uint64_t seed = 0;

  void fill(size_t tensor, uint64_t begin, std::span<std::byte> out) const {
    const std::vector<std::byte>& values = given[tensor];
    if (!values.empty()) {
      std::copy_n(values.begin() + static_cast<ptrdiff_t>(begin), out.size(), out.begin());
      return;
    }
    random_weights(spec.tensors[tensor], spreads[tensor], seed, begin, out);
  }
};

// With another number of layers: the pattern of the first ones, repeated where there are more.
Config resized(const Config& config, uint32_t layers, uint32_t vocab) {
  Config c = config;
  if (vocab != 0) c = c.with("vocab_size", vocab);
  if (layers == 0) return c;
  if (const nlohmann::json* types = c.find("layer_types"); types != nullptr && types->is_array() && !types->empty()) {
    nlohmann::json pattern = nlohmann::json::array();
    for (uint32_t l = 0; l < layers; ++l) pattern.push_back((*types)[l % types->size()]);
    c = c.with("layer_types", pattern);
  }
  return c.with("num_hidden_layers", layers);
}

// The bytes of a tensor that follows from the configuration, which is in fp32.
std::vector<std::byte> given_bytes(const std::vector<SourceRows>& parts) {
  std::vector<std::byte> bytes;
  for (const SourceRows& part : parts) {
    std::vector<float> row(part.tensor->width());
    part.tensor->read_row(part.first, row);
    const auto more = std::as_bytes(std::span(row));
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  return bytes;
}

Result<Synthesis> make_synthesis(Os& os, const SyntheticRequest& r) {
  std::string text(published_config(r.config));
  if (text.empty()) {
    if (!os.exists(r.config)) {
      return error(Code::usage, "no configuration '{}'; give the path of a config.json, or one of {}", r.config,
                   fmt::join(published_configs(), ", "));
    }
    SWY_LET(text, os.read(r.config, uint64_t{16} << 20));
  }
  SWY_LET(const Config config, Config::parse(text, ""));
  SWY_LET(const Family* family, family_of(config));
  Config sized = resized(config, r.layers, r.vocab);
  if (r.mtp) sized = sized.with("mtp_num_hidden_layers", 1);
  const Shortlist shortlist = [&](uint32_t vocab) {
    return make_shortlist(os, r.shortlist == 0 ? "off" : std::to_string(r.shortlist), r.tokenizer_json, vocab);
  };
  SWY_LET(ModelPlan plan, plan_model(*family, sized, nullptr, r.encoding, shortlist));
  if (r.mtp && plan.spec.functions.size() == 1) {
    return error(Code::usage, "mtp=1: models of type '{}' have no multi-token prediction layer", family->model_type);
  }
  plan.spec.source_config = text;
  plan.spec.quantization = encoding_name(r.encoding);
  plan.spec.metadata.push_back({"synthetic", fmt::format("seed {}", r.seed)});
  if (!r.tokenizer_json.empty() && plan.vocab >= r.tokenizer_vocab) {
    plan.spec.eos_ids = r.eos_ids;
    plan.spec.tokenizer_json = r.tokenizer_json;
    plan.spec.chat_template = r.chat_template;
  }
  std::erase_if(plan.spec.eos_ids, [&](uint32_t id) { return id >= plan.vocab; });
  std::vector<Spread> spreads;
  std::vector<std::vector<std::byte>> given;
  for (size_t t = 0; t < plan.weights.size(); ++t) {
    const ProgramSpec::Tensor& tensor = plan.spec.tensors[t];
    spreads.push_back(spread_of(tensor.name, tensor.dims, plan.weights[t].centre, plan.layers));
    given.push_back(given_bytes(plan.weights[t].parts));
  }
  return Synthesis{std::move(plan.spec), std::move(spreads), std::move(given), r.seed};
}

// A program file that exists only in address space: header and description as in a real one; weights are generated when
// they are read.
class SyntheticFile final : public MappedFile {
 public:
  static Result<std::shared_ptr<SyntheticFile>> create(Synthesis plan, uint32_t threads) {
    std::shared_ptr<SyntheticFile> f(new SyntheticFile(std::move(plan), threads));
    SWY_LET(const std::vector<std::byte> flatbuffer, encode_program(f->plan_.spec));
    SWY_LET(f->layout_, decode_program(flatbuffer));
    f->size_ = kHeaderBytes + flatbuffer.size();
    for (const Segment& s : f->layout_.segments) f->size_ = std::max(f->size_, s.offset + s.bytes);
    void* data = ::mmap(nullptr, f->size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return error(Code::out_of_host_memory, "no address space for {} bytes", f->size_);
    f->data_ = static_cast<std::byte*>(data);
    const HeaderBytes header = make_header(flatbuffer, f->size_);
    std::memcpy(f->data_, header.data(), header.size());
    std::memcpy(f->data_ + kHeaderBytes, flatbuffer.data(), flatbuffer.size());
    f->made_ = std::vector<std::atomic<bool>>(f->layout_.segments.size());
    f->layout_ = {};  // its views end with `flatbuffer`
    SWY_LET(f->layout_, decode_program({f->data_ + kHeaderBytes, flatbuffer.size()}));
    return f;
  }
  ~SyntheticFile() override {
    if (data_ != nullptr) ::munmap(data_, size_);
  }

  std::span<const std::byte> bytes() const override { return {data_, size_}; }

  void require(size_t offset, size_t) const override {
    const size_t i = find(offset);
    if (i == made_.size() || made_[i].load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex_);
    if (made_[i].load(std::memory_order_relaxed)) return;
    const Segment& s = layout_.segments[i];
    parallel((s.bytes + kChunk - 1) / kChunk, threads_, [&](uint64_t c) {
      const uint64_t begin = c * kChunk, n = std::min(kChunk, s.bytes - begin);
      plan_.fill(i, begin, {data_ + s.offset + begin, n});
    });
    made_[i].store(true, std::memory_order_release);
  }

  void release(size_t offset, size_t) const override {
    const size_t i = find(offset);
    if (i == made_.size()) return;
    const std::lock_guard lock(mutex_);
    constexpr uint64_t kPage = 4096;
    const Segment& s = layout_.segments[i];
    const uint64_t begin = (s.offset + kPage - 1) / kPage * kPage, end = (s.offset + s.bytes) / kPage * kPage;
    if (begin < end) ::madvise(data_ + begin, end - begin, MADV_DONTNEED);
    made_[i].store(false, std::memory_order_release);
  }

 private:
  SyntheticFile(Synthesis plan, uint32_t threads) : plan_(std::move(plan)), threads_(threads) {}
  // The segment that begins at `offset`: one per tensor, in their order.
  size_t find(uint64_t offset) const {
    const auto& all = layout_.segments;
    const auto it =
        std::lower_bound(all.begin(), all.end(), offset, [](const Segment& s, uint64_t at) { return s.offset < at; });
    return it != all.end() && it->offset == offset ? static_cast<size_t>(it - all.begin()) : made_.size();
  }

  Synthesis plan_;
  Program layout_;
  uint32_t threads_;
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<std::atomic<bool>> made_;
};

template <class T>
bool read_number(std::string_view text, T& out) {
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), out);
  return ec == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<SyntheticRequest> parse_synthetic(const std::string& text) {
  SyntheticRequest r;
  std::string quant = "i4", group = "32";
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, comma - at);
    const size_t eq = part.find('=');
    const std::string name = part.substr(0, eq), value = eq == std::string::npos ? "" : part.substr(eq + 1);
    const bool ok = at == 0               ? (r.config = part, !part.empty())
                    : name == "layers"    ? read_number(value, r.layers) && r.layers >= 1 && r.layers <= 4096
                    : name == "vocab"     ? read_number(value, r.vocab) && r.vocab >= 2 && r.vocab <= (1u << 24)
                    : name == "mtp"       ? (r.mtp = value == "1", value == "0" || value == "1")
                    : name == "shortlist" ? read_number(value, r.shortlist) && r.shortlist >= 1
                    : name == "seed"      ? read_number(value, r.seed)
                    : name == "quant"     ? (quant = value, true)
                    : name == "group"     ? (group = value, true)
                                          : false;
    if (!ok) {
      return error(Code::usage,
                   "'{}' is not part of a synthetic model's name; write "
                   "synth:CONFIG[,layers=N][,vocab=N][,mtp=1][,shortlist=N][,seed=S][,quant=Q][,group=G]",
                   part);
    }
    at = comma + 1;
  }
  if (quant == "mxfp4") {  // which no converter makes, so that --quant has no word for it
    r.encoding = {SWY_MXFP4, 32};
    return r;
  }
  SWY_LET(r.encoding, parse_encoding(quant, group));
  return r;
}

Result<Program> synthetic_program(Os& os, const SyntheticRequest& request, uint32_t threads) {
  SWY_LET(Synthesis plan, make_synthesis(os, request));
  SWY_LET(auto file, SyntheticFile::create(std::move(plan), threads));
  return Program::parse(std::move(file));
}

Result<uint64_t> write_synthetic(Os& os, const SyntheticRequest& request, const std::string& output, uint32_t threads,
                                 const std::function<bool(uint64_t done, uint64_t total)>& progress) {
  SWY_LET(const Synthesis plan, make_synthesis(os, request));
  SWY_LET(ProgramWriter writer, ProgramWriter::create(os, output, plan.spec));
  const uint64_t total = writer.file_bytes();
  uint64_t done = 0;
  std::vector<std::byte> buffer(kChunk * threads * 2);
  for (size_t t = 0; t < plan.spec.tensors.size(); ++t) {
    SWY_TRY(writer.begin_segment(t));
    for (uint64_t left = writer.segment_bytes(t), begin = 0; left != 0;) {
      const uint64_t n = std::min<uint64_t>(left, buffer.size());
      parallel((n + kChunk - 1) / kChunk, threads, [&](uint64_t c) {
        plan.fill(t, begin + c * kChunk, std::span(buffer).subspan(c * kChunk, std::min(kChunk, n - c * kChunk)));
      });
      SWY_TRY(writer.append(std::span(buffer).first(n)));
      begin += n, left -= n, done += n;
      if (progress && !progress(done, total)) return error(Code::cancelled, "stopped; {} was not written", output);
    }
    SWY_TRY(writer.end_segment());
  }
  SWY_TRY(writer.finish());
  return total;
}

}  // namespace switchyard
