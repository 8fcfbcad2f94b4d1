// SPDX-License-Identifier: Apache-2.0
// A session file: a TextThread with its session's states, and the messages of a conversation. Little-endian: a header
// of lengths, the parts in its order, a checksum of all. Such files are untrusted: every length is checked against the
// file, the states by Session::restore, and nothing is read beyond what the model's context can need.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/os.h"
#include "core/generate/text_thread.h"

namespace switchyard {

struct Message {
  std::string role, content;
};

struct SessionFile {
  enum class Kind : uint32_t { text = 1, conversation = 2 };

  Kind kind = Kind::text;
  uint64_t model = 0;  // Model::fingerprint
  std::string text;
  std::vector<int32_t> seen, owed;
  std::vector<Message> messages;
  std::string states;  // Session::snapshot

  std::string encode() const;
  // Errors: invalid_data, for bytes that are no such file, are cut off or changed; unsupported, for one of another
  // version.
  static Result<SessionFile> decode(std::string_view bytes);
};

// Writes the thread to `path`, atomically, readable by the owner alone. Errors: io.
Status save_session(Os& os, const std::string& path, SessionFile::Kind kind, TextThread& thread,
                    const std::vector<Message>& messages = {});
// Replaces the thread by what `path` holds; returns its messages. Errors: not_found; as SessionFile::decode; usage, for
// a file of another model, of another kind or that does not fit the context: all leave the thread as it was. Those of
// the devices leave it empty.
Result<std::vector<Message>> load_session(Os& os, const std::string& path, SessionFile::Kind kind, TextThread& thread);

}  // namespace switchyard
