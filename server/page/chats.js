// Conversations and settings, kept in the browser.
const store = (() => {
  const read = (key, otherwise) => {
    try { return JSON.parse(localStorage.getItem(key)) ?? otherwise; } catch { return otherwise; }
  };
  const state = {
    chats: read("switchyard.chats", []),      // {id, title, messages: [{role, content, reasoning, stats, error}]}
    settings: read("switchyard.settings", {}),
    theme: read("switchyard.theme", null),
    current: null,
  };
  const write = (key, value) => {
    try { localStorage.setItem(key, JSON.stringify(value)); } catch { return false; }
    return true;
  };
  return {
    state,
    chat: () => state.chats.find(c => c.id === state.current),
    begin() {
      const chat = { id: crypto.randomUUID?.() ?? String(Math.random()), title: "New conversation", messages: [] };
      state.chats.unshift(chat);
      state.current = chat.id;
      return chat;
    },
    remove(id) {
      state.chats = state.chats.filter(c => c.id !== id);
      if (state.current === id) state.current = null;
      this.save();
    },
    // False: the browser has no room left.
    save: () => write("switchyard.chats", state.chats.filter(c => c.messages.length)) &
      write("switchyard.settings", state.settings) & write("switchyard.theme", state.theme),
  };
})();

const settingNames = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "seed"];

// The body of a request for the next answer.
function requestBody(messages, settings) {
  const body = { stream: true, stream_options: { include_usage: true }, messages: [] };
  if (settings.system) body.messages.push({ role: "system", content: settings.system });
  for (const m of messages) body.messages.push({ role: m.role, content: m.content });
  for (const name of settingNames) {
    if (settings[name] !== undefined && settings[name] !== "") body[name] = Number(settings[name]);
  }
  if (settings.thinking) body.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
  return body;
}

// Streams an answer. `on` gets each event's JSON. Throws what went wrong.
async function streamAnswer(body, key, signal, on) {
  const headers = { "Content-Type": "application/json" };
  if (key) headers.Authorization = "Bearer " + key;
  const reply = await fetch("v1/chat/completions", { method: "POST", headers, body: JSON.stringify(body), signal });
  if (!reply.ok) {
    const error = await reply.json().then(r => r.error.message, () => reply.statusText);
    throw new Error(error);
  }
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const events = held.split("\n\n");
    held = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: ") || event === "data: [DONE]") continue;
      const data = JSON.parse(event.slice(6));
      if (data.error) throw new Error(data.error.message);
      on(data);
    }
  }
}
