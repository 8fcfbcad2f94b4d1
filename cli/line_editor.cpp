// SPDX-License-Identifier: Apache-2.0
#include "cli/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <atomic>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "cli/terminal_input.h"
#include "core/text/utf8.h"

namespace switchyard::cli {
namespace {

constexpr int kHistoryShown = 1000;
constexpr size_t kMostPasted = size_t{1} << 20;  // characters
constexpr std::wstring_view kPasteEnd = L"\033[201~";

std::atomic<bool> resized = false, continued = false;
extern "C" void on_resize(int) { resized.store(true); }
extern "C" void on_continue(int) { continued.store(true); }

void on_signal(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  ::sigaction(number, &action, nullptr);
}

}  // namespace

struct LineEditor::Impl {
  TerminalInput input;
  std::FILE* screen = nullptr;
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string prompt;
  bool interrupted = false;

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (editor != nullptr) el_end(editor);
    if (history != nullptr) history_end(history);
    if (screen != nullptr) std::fclose(screen);
  }

  static Impl& of(EditLine* editor) {
    void* data = nullptr;
    el_get(editor, EL_CLIENTDATA, &data);
    return *static_cast<Impl*>(data);
  }

  // What signals have asked for. The library's own handling of them would signal the whole process group.
  void idle() {
    if (resized.exchange(false)) el_resize(editor);
    if (!continued.exchange(false)) return;
    el_set(editor, EL_PREP_TERM, 1);
    paste_mode(true);
    el_set(editor, EL_REFRESH);
  }

  void paste_mode(bool on) const {
    std::fputs(on ? "\033[?2004h" : "\033[?2004l", screen);
    std::fflush(screen);
  }

  // One character, of UTF-8. Returns as the library's reader does: 1, or 0 at the end.
  int get(wchar_t* to) {
    std::string bytes;
    for (bool incomplete = true; incomplete && bytes.size() < 4;) {
      const int byte = input.next([this] { idle(); });
      if (byte < 0) {
        interrupted = byte == TerminalInput::interrupt;
        return 0;
      }
      bytes += static_cast<char>(byte);
      if (utf8_length(bytes, &incomplete) == 0) continue;
      *to = static_cast<wchar_t>(code_point(bytes));
      return 1;
    }
    *to = L'\uFFFD';
    return 1;
  }

  static uint32_t code_point(const std::string& character) {
    const auto first = static_cast<unsigned char>(character[0]);
    if (character.size() == 1) return first;
    uint32_t value = first & (0x7Fu >> character.size());
    for (size_t i = 1; i < character.size(); ++i)
      value = value << 6 | (static_cast<unsigned char>(character[i]) & 0x3F);
    return value;
  }

  // After the terminal's mark that a paste begins: everything up to the mark of its end goes into the line.
  unsigned char paste() {
    std::wstring text;
    wchar_t c = 0;
    while (!text.ends_with(kPasteEnd) && get(&c) == 1) {
      if (text.size() < kMostPasted || c == kPasteEnd.back()) text += c;
    }
    if (text.ends_with(kPasteEnd)) text.resize(text.size() - kPasteEnd.size());
    std::wstring kept;
    for (size_t i = 0; i < text.size(); ++i) {
      const wchar_t t = text[i];
      if (t == L'\r' && i + 1 < text.size() && text[i + 1] == L'\n') continue;
      if (t == L'\r' || t == L'\n') {
        kept += L'\n';
      } else if (t == L'\t' || (t >= L' ' && t != 0x7F)) {
        kept += t;
      }
    }
    if (!kept.empty() && el_winsertstr(editor, kept.c_str()) != 0) return CC_ERROR;
    return CC_REFRESH;
  }
};

namespace {

char* show_prompt(EditLine* editor) { return LineEditor::Impl::of(editor).prompt.data(); }
int get_character(EditLine* editor, wchar_t* to) { return LineEditor::Impl::of(editor).get(to); }
unsigned char insert_paste(EditLine* editor, wint_t) { return LineEditor::Impl::of(editor).paste(); }
unsigned char insert_line_end(EditLine* editor, wint_t) {
  return el_winsertstr(editor, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
}

void bind_keys(EditLine* editor) {
  el_set(editor, EL_EDITOR, "emacs");
  el_wset(editor, EL_ADDFN, L"sw-paste", L"Insert what is pasted", insert_paste);
  el_wset(editor, EL_ADDFN, L"sw-newline", L"Insert a line end", insert_line_end);
  const std::pair<const wchar_t*, const wchar_t*> keys[] = {
      {L"\\e[200~", L"sw-paste"},     {L"\\e\\r", L"sw-newline"},     {L"\\e\\n", L"sw-newline"},
      {L"\\e[1;5C", L"em-next-word"}, {L"\\e[1;5D", L"ed-prev-word"}, {L"\\e[3~", L"ed-delete-next-char"},
      {L"\\e[H", L"ed-move-to-beg"},  {L"\\e[F", L"ed-move-to-end"},  {L"\\e[1~", L"ed-move-to-beg"},
      {L"\\e[4~", L"ed-move-to-end"}, {L"^R", L"em-inc-search-prev"},
  };
  for (const auto& [key, function] : keys) el_wset(editor, EL_BIND, key, function, nullptr);
  el_source(editor, nullptr);  // the user's ~/.editrc
}

}  // namespace

std::unique_ptr<LineEditor> LineEditor::create(const std::vector<std::string>& lines) {
  const char* terminal = std::getenv("TERM");
  if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDERR_FILENO) != 1) return nullptr;
  if (terminal == nullptr || *terminal == '\0' || std::string_view(terminal) == "dumb") return nullptr;
  auto impl = std::make_unique<Impl>();
  impl->screen = ::fdopen(::dup(STDERR_FILENO), "w");
  if (impl->screen == nullptr) return nullptr;
  impl->editor = el_init("switchyard", stdin, impl->screen, impl->screen);
  impl->history = history_init();
  if (impl->editor == nullptr || impl->history == nullptr) return nullptr;
  std::unique_ptr<LineEditor> editor(new LineEditor(std::move(impl)));
  for (const std::string& line : lines) editor->remember(line);
  return editor;
}

LineEditor::LineEditor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  on_signal(SIGWINCH, on_resize);
  on_signal(SIGCONT, on_continue);
  el_set(impl_->editor, EL_CLIENTDATA, impl_.get());
  el_set(impl_->editor, EL_PROMPT, show_prompt);
  el_set(impl_->editor, EL_GETCFN, get_character);
  HistEvent event{};
  ::history(impl_->history, &event, H_SETSIZE, kHistoryShown);
  ::history(impl_->history, &event, H_SETUNIQUE, 1);
  el_set(impl_->editor, EL_HIST, ::history, impl_->history);
  bind_keys(impl_->editor);
}

LineEditor::~LineEditor() = default;

LineEditor::Got LineEditor::read(const std::string& prompt, std::string& line) {
  impl_->prompt = prompt;
  impl_->interrupted = false;
  impl_->paste_mode(true);
  int count = 0;
  const char* got = el_gets(impl_->editor, &count);
  impl_->paste_mode(false);
  if (got == nullptr || count <= 0) {
    std::fputs("\n", impl_->screen);
    std::fflush(impl_->screen);
    return impl_->interrupted ? Got::interrupt : Got::end;
  }
  line = got;
  if (line.ends_with('\n')) line.pop_back();
  return Got::line;
}

void LineEditor::remember(const std::string& line) {
  HistEvent event{};
  ::history(impl_->history, &event, H_ENTER, line.c_str());
}

void use_utf8_locale() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(::nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace switchyard::cli
