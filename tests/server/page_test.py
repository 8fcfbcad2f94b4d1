#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The web page in headless Chromium, against `switchyard serve` with the demo model.

    page_test.py SWITCHYARD SCREENSHOTS

Drives the browser through the DevTools protocol on a pipe, with nothing but Python's library. Exits with 77 where no
Chromium is installed.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import base64


class Browser:
    """One page, over --remote-debugging-pipe: messages are JSON texts that end in NUL."""

    def __init__(self, program, folder):
        to_browser, from_us = os.pipe()
        to_us, from_browser = os.pipe()

        def connect():
            os.dup2(to_browser, 100)
            os.dup2(from_browser, 101)
            os.dup2(100, 3)
            os.dup2(101, 4)
            os.close(100)
            os.close(101)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
             "--user-data-dir=" + folder, "--disable-dev-shm-usage", "--no-first-run", "about:blank"],
            close_fds=False, preexec_fn=connect, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.out, self.input = os.fdopen(from_us, "wb", 0), os.fdopen(to_us, "rb", 0)
        self.held, self.number, self.session, self.problems = b"", 0, None, []
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.out.write(json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.held:
                more = self.input.read(1 << 16)
                if not more:
                    raise SystemExit("the browser ended")
                self.held += more
            text, self.held = self.held.split(b"\0", 1)
            reply = json.loads(text)
            if reply.get("method") == "Runtime.exceptionThrown":
                self.problems.append(json.dumps(reply["params"])[:400])
            if reply.get("method") == "Log.entryAdded" and reply["params"]["entry"]["level"] == "error":
                self.problems.append(reply["params"]["entry"]["text"])
            if reply.get("id") == self.number:
                if "error" in reply:
                    raise SystemExit(f"{method}: {reply['error']}")
                return reply["result"]

    def js(self, text):
        result = self.call("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise SystemExit(f"{text}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, text, seconds=60):
        until = time.time() + seconds
        while not self.js(text):
            if time.time() > until:
                raise SystemExit(f"after {seconds} s still not: {text}\n{self.js('document.body.innerText')}")
            time.sleep(0.05)

    def key(self, key, code=None, modifiers=0, text=None):
        code = code or key
        numbers = {"Enter": 13, "Escape": 27, "Tab": 9}
        for kind in ("keyDown", "keyUp"):
            event = {"type": kind, "key": key, "code": code, "modifiers": modifiers,
                     "windowsVirtualKeyCode": numbers.get(key, ord(key[0].upper()))}
            if text and kind == "keyDown":
                event["text"] = text
            self.call("Input.dispatchKeyEvent", **event)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def size(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))


class Server:
    def __init__(self, program, folder):
        self.log = open(os.path.join(folder, "server.log"), "w+")
        self.process = subprocess.Popen([program, "serve", "--port", "0", "--json"], stderr=self.log,
                                        stdout=subprocess.DEVNULL)
        until = time.time() + 120
        while True:
            with open(self.log.name) as file:
                found = re.search(r'"url":"([^"]+)"', file.read())
            if found:
                self.url = found.group(1)
                return
            if self.process.poll() is not None or time.time() > until:
                raise SystemExit("the server does not listen: " + open(self.log.name).read())
            time.sleep(0.05)


def check(condition, what):
    if not condition:
        raise SystemExit("failed: " + what)
    print("ok:", what)


def last(field):
    return f"store.chat().messages.at(-1).{field}"


IDLE = "running === null"


def chats(b):
    """Sends by keyboard, streams, stops, edits, retries."""
    check(b.js("document.activeElement.id") == "text", "the message has the focus at the start")
    b.type("Hello there")
    b.key("Enter", text="\r")
    b.wait(f"store.chat() && {last('content')}.length > 20")
    b.wait("!document.getElementById('stop').hidden")
    b.key("Escape")
    b.wait(IDLE)
    cut = b.js(last("content"))
    time.sleep(0.5)
    check(b.js(last("content")) == cut, "Escape stops the answer")
    b.js("store.state.settings.max_tokens = 40; store.state.settings.seed = 1; save()")
    b.js("[...document.querySelectorAll('.assistant .tools button')].find(n => n.textContent === 'Retry').click()")
    b.wait(f"{IDLE} && {last('stats')}.reason")
    stats = b.js("document.querySelector('.assistant .tools .small').textContent")
    check(re.search(r"[\d.]+ tok/s · first token after \d+.* · 40 tokens", stats), "an answer has its numbers: " + stats)
    check(b.js("store.chat().messages.length") == 2, "Retry replaces the answer")
    b.js("[...document.querySelectorAll('.user .tools button')][0].click()")
    check(b.js("document.getElementById('text').value") == "Hello there", "Edit brings the message back")
    b.type(" again")
    b.key("Enter", text="\r")
    b.wait(f"store.chat().messages.length === 2 && {IDLE} && {last('stats')}.reason")
    check(b.js("store.chat().messages[0].content") == "Hello there again", "the edited message was sent")


def markdown(b):
    text = ("# Head\\n\\nSome **strong** and *soft* `code <b>`, [link](https://example.org) <img src=x onerror=boom()>\\n\\n"
            "- one\\n  - two\\n- three\\n\\n1. first\\n\\n> said\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |\\n\\n"
            "```python\\nprint('<hi>')\\n```\\n[bad](javascript:alert(1))")
    b.js(f'store.chat().messages.at(-1).content = "{text}"; show()')
    html = b.js("document.querySelector('.assistant .body').innerHTML")
    for part in ("<h3>Head</h3>", "<strong>strong</strong>", "<em>soft</em>", "<code>code &lt;b&gt;</code>",
                 'href="https://example.org"', "<li>one<ul><li>two</li></ul></li>", "<ol", "<blockquote>", "<td>2</td>",
                 "print('&lt;hi&gt;')", "&lt;img src=x"):
        check(part in html, "markdown has " + part)
    check("href=\"javascript" not in html and "<img" not in html, "a model's text never becomes HTML")


def keeps(b, url):
    b.js("save()")
    before = b.js("store.chat().messages[0].content")
    b.call("Page.navigate", url=url)
    b.wait("document.readyState === 'complete' && typeof store === 'object'")
    check(b.js("store.state.chats[0].messages[0].content") == before, "conversations stay after a reload")
    b.js("document.querySelector('#chats .open').click()")
    b.key("n", code="KeyN", modifiers=1)
    check(b.js("store.state.current") is None, "Alt+N begins a new conversation")
    b.js("document.querySelector('#chats .open').click()")


def looks(b, folder):
    b.size(1200, 800)
    b.js("store.state.theme = 'light'; applyTheme()")
    b.screenshot(os.path.join(folder, "light.png"))
    light = b.js("getComputedStyle(document.body).backgroundColor")
    b.js("document.getElementById('theme').click()")
    check(b.js("getComputedStyle(document.body).backgroundColor") != light, "there is a dark look")
    b.screenshot(os.path.join(folder, "dark.png"))
    b.js("document.getElementById('settings-button').click()")
    check(b.js("document.getElementById('settings').open"), "the settings open")
    b.screenshot(os.path.join(folder, "settings.png"))
    b.key("Escape")
    b.wait("!document.getElementById('settings').open")
    b.size(390, 800, phone=True)
    check(b.js("document.documentElement.scrollWidth <= 390"), "a phone's width is enough")
    check(b.js("getComputedStyle(document.getElementById('side')).display") == "none", "the list is out of the way there")
    b.screenshot(os.path.join(folder, "phone.png"))
    b.js("document.getElementById('menu').click()")
    check(b.js("getComputedStyle(document.getElementById('side')).display") == "flex", "and a button brings it")
    b.screenshot(os.path.join(folder, "phone-menu.png"))
    b.js("closeMenu()")


def keyboard(b):
    b.size(1200, 800)
    b.js("document.getElementById('new').focus()")
    reached = set()
    for _ in range(40):
        b.key("Tab")
        reached.add(b.js("document.activeElement.id || document.activeElement.textContent"))
    missing = {"theme", "settings-button", "log", "text", "send", "Edit", "Retry"} - reached
    check(not missing, f"Tab reaches every control (missing: {missing})")
    unnamed = b.js("[...document.querySelectorAll('button')].filter(n => !n.textContent.trim() && "
                   "!n.getAttribute('aria-label')).length")
    check(unnamed == 0, "every button has a name")


def main():
    switchyard, screenshots = sys.argv[1:]
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        print("not tested: no chromium is installed")
        return 77
    os.makedirs(screenshots, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(switchyard, folder)
        browser = None
        try:
            browser = Browser(chromium, os.path.join(folder, "profile"))
            browser.size(1200, 800)
            browser.call("Page.navigate", url=server.url)
            browser.wait("document.readyState === 'complete' && typeof store === 'object'")
            browser.wait("document.getElementById('model').textContent.includes('demo')")
            chats(browser)
            markdown(browser)
            keeps(browser, server.url)
            looks(browser, screenshots)
            keyboard(browser)
            check(not browser.problems, f"no errors in the browser: {browser.problems}")
        finally:
            if browser:
                browser.process.kill()
                browser.process.wait()
            server.process.terminate()
            server.process.wait()
        check(server.process.returncode == 0, "the server ends well when it is told to")
    return 0


if __name__ == "__main__":
    sys.exit(main())
