// SPDX-License-Identifier: Apache-2.0
#include "core/generate/session_file.h"

#include <cstring>
#include <span>

#include "core/program/checksum.h"
#include "core/text/utf8.h"

namespace switchyard {
namespace {

constexpr std::string_view kSessionMagic = "SWYSESS";
constexpr char kSessionVersion = '1';
constexpr uint64_t kMostText = uint64_t{64} << 20;  // of the text, and of the messages
constexpr size_t kMostMessages = 65536;
constexpr size_t kMostOwed = 1;  // a session has seen all that was drawn but the last token

struct SessionHeader {
  char magic[7];
  char version;
  uint64_t model;
  uint32_t kind, messages;
  uint64_t text_bytes, message_bytes, seen, owed, state_bytes;
};

void append_bytes(std::string& to, const void* from, size_t bytes) { to.append(static_cast<const char*>(from), bytes); }

void append_text(std::string& to, const std::string& text) {
  const uint64_t bytes = text.size();
  append_bytes(to, &bytes, sizeof bytes);
  to += text;
}

uint64_t session_checksum(std::string_view bytes) {
  Checksum sum;
  sum.add(std::as_bytes(std::span(bytes)));
  return sum.value();
}

std::string encode_messages(const std::vector<Message>& messages) {
  std::string out;
  for (const Message& m : messages) {
    append_text(out, m.role);
    append_text(out, m.content);
  }
  return out;
}

Status damaged() { return error(Code::invalid_data, "the session file is damaged; delete it to start a new session"); }

// Takes the front of `bytes`, whose size the header's lengths have been compared with.
std::string_view take(std::string_view& bytes, uint64_t n) {
  const std::string_view front = bytes.substr(0, n);
  bytes.remove_prefix(front.size());
  return front;
}

Result<std::string> take_text(std::string_view& bytes) {
  uint64_t n = 0;
  if (bytes.size() < sizeof n) return damaged();
  std::memcpy(&n, take(bytes, sizeof n).data(), sizeof n);
  if (n > bytes.size()) return damaged();
  return std::string(take(bytes, n));
}

std::vector<int32_t> take_ids(std::string_view& bytes, uint64_t count) {
  std::vector<int32_t> ids(count);
  if (count != 0) std::memcpy(ids.data(), take(bytes, count * sizeof(int32_t)).data(), count * sizeof(int32_t));
  return ids;
}

Result<std::vector<Message>> take_messages(std::string_view bytes, uint32_t count) {
  std::vector<Message> messages;  // not reserved: the count is the file's word
  while (!bytes.empty() && messages.size() < kMostMessages) {
    Message m;
    SWY_LET(m.role, take_text(bytes));
    SWY_LET(m.content, take_text(bytes));
    messages.push_back(std::move(m));
  }
  if (messages.size() != count || !bytes.empty()) return damaged();
  return messages;
}

// The file's size as its lengths say; none where they cannot be true.
bool lengths_agree(const SessionHeader& h, uint64_t rest) {
  for (const auto& [count, bytes] : {std::pair(h.text_bytes, uint64_t{1}),
                                     {h.message_bytes, 1},
                                     {h.seen, sizeof(int32_t)},
                                     {h.owed, sizeof(int32_t)},
                                     {h.state_bytes, 1}}) {
    if (count > rest / bytes) return false;
    rest -= count * bytes;
  }
  return rest == 0;
}

}  // namespace

std::string SessionFile::encode() const {
  const std::string message_bytes = encode_messages(messages);
  SessionHeader h{};
  kSessionMagic.copy(h.magic, sizeof h.magic);
  h.version = kSessionVersion;
  h.model = model;
  h.kind = static_cast<uint32_t>(kind);
  h.messages = static_cast<uint32_t>(messages.size());
  h.text_bytes = text.size();
  h.message_bytes = message_bytes.size();
  h.seen = seen.size();
  h.owed = owed.size();
  h.state_bytes = states.size();
  std::string out;
  out.reserve(sizeof h + text.size() + message_bytes.size() + (seen.size() + owed.size()) * sizeof(int32_t) +
              states.size() + sizeof(uint64_t));
  append_bytes(out, &h, sizeof h);
  out += text;
  out += message_bytes;
  append_bytes(out, seen.data(), seen.size() * sizeof(int32_t));
  append_bytes(out, owed.data(), owed.size() * sizeof(int32_t));
  out += states;
  const uint64_t sum = session_checksum(out);
  append_bytes(out, &sum, sizeof sum);
  return out;
}

Result<SessionFile> SessionFile::decode(std::string_view bytes) {
  if (!bytes.starts_with(kSessionMagic))
    return error(Code::invalid_data, "this is not a session file; name another file");
  SessionHeader h{};
  uint64_t sum = 0;
  if (bytes.size() < sizeof h + sizeof sum) return error(Code::invalid_data, "the session file is cut off");
  std::memcpy(&h, bytes.data(), sizeof h);
  if (h.version != kSessionVersion) {
    return error(Code::unsupported,
                 "another version of switchyard wrote this session file; delete it to start a new session");
  }
  std::memcpy(&sum, bytes.data() + bytes.size() - sizeof sum, sizeof sum);
  bytes.remove_suffix(sizeof sum);
  if (!lengths_agree(h, bytes.size() - sizeof h)) {
    return error(Code::invalid_data, "the session file is cut off or damaged; delete it to start a new session");
  }
  if (session_checksum(bytes) != sum) return damaged();
  bytes.remove_prefix(sizeof h);
  SessionFile f;
  if (h.kind != static_cast<uint32_t>(Kind::text) && h.kind != static_cast<uint32_t>(Kind::conversation)) {
    return damaged();
  }
  f.kind = static_cast<Kind>(h.kind);
  f.model = h.model;
  f.text = take(bytes, h.text_bytes);
  SWY_LET(f.messages, take_messages(take(bytes, h.message_bytes), h.messages));
  f.seen = take_ids(bytes, h.seen);
  f.owed = take_ids(bytes, h.owed);
  f.states = bytes;
  return f;
}

Status save_session(Os& os, const std::string& path, SessionFile::Kind kind, TextThread& thread,
                    const std::vector<Message>& messages) {
  SessionFile f{kind, thread.session().model().fingerprint(), thread.text(), thread.seen(), thread.owed(), messages,
                {}};
  SWY_LET(f.states, thread.session().snapshot());
  if (f.text.size() > kMostText || encode_messages(messages).size() > kMostText || messages.size() > kMostMessages) {
    return error(Code::usage, "{}: a session of more than {} MiB of text or {} messages cannot be saved", path,
                 kMostText >> 20, kMostMessages);
  }
  SWY_LET(auto file, os.create(path));
  file->keep_private();
  const std::string bytes = f.encode();
  SWY_TRY(file->append(std::as_bytes(std::span(bytes))));
  return file->commit();
}

namespace {

constexpr const char* kind_name(SessionFile::Kind kind) {
  return kind == SessionFile::Kind::text ? "switchyard run --session" : "switchyard chat --session";
}

// What the file says must be what its states have seen, in tokens that the model has.
Status check_contents(const SessionFile& f, const Model& model) {
  if (f.owed.size() > kMostOwed || f.text.size() > kMostText) return damaged();
  SWY_TRY(check_utf8(f.text));
  for (const Message& m : f.messages) {
    SWY_TRY(check_utf8(m.role));
    SWY_TRY(check_utf8(m.content));
  }
  SWY_TRY(model.check_tokens(f.seen));
  return model.check_tokens(f.owed);
}

Result<std::vector<Message>> take_on(SessionFile f, SessionFile::Kind kind, TextThread& thread) {
  Model& model = thread.session().model();
  if (f.kind != kind) {
    return error(Code::usage, "another command saved this session; open it with {}", kind_name(f.kind));
  }
  if (f.model != model.fingerprint()) {
    return error(Code::usage, "this session belongs to another model; give that model with -m, or name another file");
  }
  if (!check_contents(f, model).ok()) return damaged();
  SWY_LET(const uint32_t position, Session::snapshot_position(f.states));
  if (position != f.seen.size()) return damaged();
  Status restored = thread.session().restore(f.states);
  if (!restored.ok()) {
    if (thread.session().position() != thread.seen().size()) thread.clear();  // the devices have failed half-way
    return restored;
  }
  thread.resume(std::move(f.text), std::move(f.seen), std::move(f.owed));
  return std::move(f.messages);
}

}  // namespace

Result<std::vector<Message>> load_session(Os& os, const std::string& path, SessionFile::Kind kind, TextThread& thread) {
  const uint64_t tokens = thread.session().model().context();
  const uint64_t most = sizeof(SessionHeader) + 2 * kMostText + tokens * sizeof(int32_t) + kMostOwed * sizeof(int32_t) +
                        thread.session().largest_snapshot() + sizeof(uint64_t);
  SWY_LET(const std::string bytes, os.read(path, most));
  Result<SessionFile> file = SessionFile::decode(bytes);
  if (!file.ok()) return file.status().in(path);
  auto messages = take_on(*std::move(file), kind, thread);
  if (!messages.ok()) return messages.status().in(path);
  return messages;
}

}  // namespace switchyard
