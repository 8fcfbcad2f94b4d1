const at = id => document.getElementById(id);
let running = null;  // the AbortController of the answer that comes

function element(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}
function button(label, act) {
  const node = element("button", "", label);
  node.type = "button";
  node.onclick = act;
  return node;
}
function say(text, bad = false) {
  at("status").textContent = text;
  at("status").classList.toggle("bad", bad);
}
function save() {
  if (!store.save()) say("The browser has no room left for conversations; delete some.", true);
}

function statsText(s) {
  const parts = [];
  if (s.rate) parts.push(s.rate.toFixed(1) + " tok/s");
  if (s.first) parts.push("first token after " + (s.first < 1 ? Math.round(s.first * 1000) + " ms" : s.first.toFixed(1) + " s"));
  if (s.tokens) parts.push(s.tokens + " tokens");
  if (s.cached) parts.push(s.cached + " of " + s.prompt + " prompt tokens from the cache");
  if (s.reason === "length") parts.push("cut at the limit of tokens");
  return parts.join(" · ");
}

function fill(node, message, index) {
  const body = element("div", "body");
  if (message.role === "user") {
    body.textContent = message.content;
  } else {
    if (message.reasoning) {
      const details = element("details", "", element("summary", "", "Thinking"), element("div", "", message.reasoning));
      details.open = !message.content && running !== null;
      body.append(details);
    }
    body.append(markdown(message.content));
    if (message.error) body.append(element("p", "bad", message.error));
  }
  const tools = element("div", "tools");
  if (message.role === "user") tools.append(button("Edit", () => edit(index)));
  else tools.append(button("Retry", () => retry(index)), button("Copy", () => navigator.clipboard.writeText(message.content)),
    element("span", "small", message.stats ? statsText(message.stats) : ""));
  node.replaceChildren(body, tools);
}

function showMessage(message, index) {
  const node = element("article", "message " + message.role);
  node.setAttribute("aria-label", message.role === "user" ? "You" : "Answer");
  fill(node, message, index);
  at("log").append(node);
  return node;
}

function show() {
  const chat = store.chat();
  at("log").replaceChildren();
  (chat?.messages ?? []).forEach(showMessage);
  at("title").textContent = chat?.title ?? "New conversation";
  at("log").scrollTop = at("log").scrollHeight;
  at("chats").replaceChildren(...store.state.chats.map(c => {
    const open = button(c.title, () => { select(c.id); });
    open.className = "open";
    open.setAttribute("aria-current", c.id === store.state.current);
    const remove = button("✕", () => { if (confirm("Delete “" + c.title + "”?")) { stop(); store.remove(c.id); show(); } });
    remove.setAttribute("aria-label", "Delete " + c.title);
    return element("li", "", open, remove);
  }));
}

function select(id) {
  stop();
  store.state.current = id;
  closeMenu();
  show();
  at("text").focus();
}

function stop() { running?.abort(); }

function setRunning(controller) {
  running = controller;
  at("send").hidden = controller !== null;
  at("stop").hidden = controller === null;
}

async function answer() {
  stop();
  const chat = store.chat();
  const message = { role: "assistant", content: "", reasoning: "", stats: {} };
  const body = requestBody(chat.messages, store.state.settings);
  chat.messages.push(message);
  const controller = new AbortController();
  setRunning(controller);
  const index = chat.messages.length - 1;
  const node = showMessage(message, index);
  const begun = performance.now();
  let first = 0, drawn = false;
  const draw = () => {
    drawn = false;
    const log = at("log");
    const below = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
    fill(node, message, index);
    if (below) log.scrollTop = log.scrollHeight;
  };
  say("Waiting for the first token …");
  try {
    await streamAnswer(body, store.state.settings.key, controller.signal, data => {
      const delta = data.choices[0]?.delta;
      if (delta?.content || delta?.reasoning_content) {
        first ||= performance.now();
        message.content += delta.content ?? "";
        message.reasoning += delta.reasoning_content ?? "";
        message.stats.first = (first - begun) / 1000;
        say("");
      }
      if (data.choices[0]?.finish_reason) message.stats.reason = data.choices[0].finish_reason;
      if (data.usage) {
        message.stats.tokens = data.usage.completion_tokens;
        message.stats.prompt = data.usage.prompt_tokens;
        message.stats.cached = data.usage.prompt_tokens_details?.cached_tokens;
        message.stats.rate = data.timings?.predicted_per_second ||
          (data.usage.completion_tokens - 1) / ((performance.now() - first) / 1000);
      }
      if (!drawn) { drawn = true; requestAnimationFrame(draw); }
    });
  } catch (error) {
    if (error.name !== "AbortError") message.error = error.message;
  }
  if (running === controller) { setRunning(null); say(""); }
  draw();
  save();
}

function send(text) {
  const chat = store.chat() ?? store.begin();
  if (!chat.messages.length) chat.title = text.slice(0, 60);
  chat.messages.push({ role: "user", content: text });
  show();
  answer();
}

function edit(index) {
  stop();
  const chat = store.chat();
  at("text").value = chat.messages[index].content;
  chat.messages.length = index;
  save();
  show();
  grow();
  at("text").focus();
}

function retry(index) {
  stop();
  store.chat().messages.length = index;
  show();
  answer();
}

function grow() {
  const text = at("text");
  text.style.height = "auto";
  text.style.height = text.scrollHeight + 2 + "px";
}

function closeMenu() {
  at("side").classList.remove("shown");
  at("menu").setAttribute("aria-expanded", "false");
}

function applyTheme() {
  if (store.state.theme) document.documentElement.dataset.theme = store.state.theme;
}

at("ask").onsubmit = event => {
  event.preventDefault();
  const text = at("text").value.trim();
  if (!text) return;
  at("text").value = "";
  grow();
  send(text);
};
at("text").oninput = grow;
at("text").onkeydown = event => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    at("ask").requestSubmit();
  }
};
at("stop").onclick = stop;
at("new").onclick = () => select(null);
at("menu").onclick = () => at("menu").setAttribute("aria-expanded", String(at("side").classList.toggle("shown")));
at("theme").onclick = () => {
  const dark = store.state.theme ? store.state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  store.state.theme = dark ? "light" : "dark";
  applyTheme();
  save();
};
document.onkeydown = event => {
  if (event.key === "Escape" && running) stop();
  if (event.altKey && event.key === "n") { event.preventDefault(); select(null); }
};
at("log").onclick = closeMenu;

const fields = { system: "", key: "", thinking: "" };
at("settings-button").onclick = () => {
  for (const name of [...settingNames, ...Object.keys(fields)]) at("s-" + name).value = store.state.settings[name] ?? "";
  at("settings").showModal();
};
at("settings").onclose = () => {
  for (const name of [...settingNames, ...Object.keys(fields)]) store.state.settings[name] = at("s-" + name).value;
  save();
  describe();
};
at("export").onclick = () => {
  const link = element("a", "");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(store.state.chats, null, 1)], { type: "application/json" }));
  link.download = "switchyard-conversations.json";
  link.click();
};
at("forget").onclick = () => {
  if (!confirm("Delete all conversations?")) return;
  stop();
  store.state.chats = [];
  store.state.current = null;
  save();
  show();
};

async function describe() {
  const headers = store.state.settings.key ? { Authorization: "Bearer " + store.state.settings.key } : {};
  try {
    const reply = await fetch("v1/models", { headers });
    const models = await reply.json();
    if (!reply.ok) throw new Error(models.error.message);
    at("model").textContent = models.data[0].id + ", " + models.data[0].max_model_len.toLocaleString() + " tokens of context";
  } catch (error) {
    say(error.message, true);
  }
}

applyTheme();
show();
describe();
at("text").focus();
