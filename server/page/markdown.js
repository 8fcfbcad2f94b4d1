// Markdown to DOM nodes. A model's text never becomes HTML: only text nodes and the elements made here.
const markdown = (() => {
  const make = (tag, ...children) => {
    const node = document.createElement(tag);
    node.append(...children);
    return node;
  };

  // `code`, **strong**, *emphasis*, ~~struck~~, [text](https://…); in this order, without nesting in code.
  const marks = [
    [/`+/, null],
    [/\*\*(?=\S)([^]*?\S)\*\*/, "strong"],
    [/\*(?=\S)([^*]*?\S)\*/, "em"],
    [/~~(?=\S)([^]*?\S)~~/, "s"],
    [/\[([^\]\n]*)\]\((https?:\/\/[^\s)]+)\)/, "a"],
  ];
  function inline(text, depth = 0) {
    const out = document.createDocumentFragment();
    while (text) {
      let first = null;
      for (const [pattern, tag] of marks) {
        const found = pattern.exec(text);
        if (found && (!first || found.index < first.found.index)) first = { found, tag };
      }
      if (!first || depth > 8) break;
      const { found, tag } = first;
      let end = found.index + found[0].length;
      let node;
      if (tag === null) {
        const close = text.indexOf(found[0], end);
        if (close < 0) {
          out.append(text.slice(0, end));
          text = text.slice(end);
          continue;
        }
        node = make("code", text.slice(end, close).replace(/^ (.*) $/, "$1"));
        end = close + found[0].length;
      } else {
        node = make(tag, inline(found[1], depth + 1));
        if (tag === "a") Object.assign(node, { href: found[2], target: "_blank", rel: "noopener noreferrer" });
      }
      out.append(text.slice(0, found.index), node);
      text = text.slice(end);
    }
    out.append(text);
    return out;
  }

  function codeBlock(lines, language) {
    const text = lines.join("\n");
    const copy = make("button", "Copy");
    copy.className = "copy";
    copy.type = "button";
    copy.onclick = () => navigator.clipboard.writeText(text).then(() => { copy.textContent = "Copied"; });
    const code = make("code", text);
    if (language) code.dataset.language = language;
    const block = make("div", copy, make("pre", code));
    block.className = "block";
    return block;
  }

  const cells = line => line.trim().replace(/^\||\|$/g, "").split("|").map(c => c.trim());
  function table(lines) {
    const row = (line, tag) => make("tr", ...cells(line).map(c => make(tag, inline(c))));
    return make("table", make("thead", row(lines[0], "th")), make("tbody", ...lines.slice(2).map(l => row(l, "td"))));
  }

  const item = /^(\s*)(?:[-*+]|\d{1,9}[.)])\s+(.*)$/;
  function list(lines, depth) {
    const ordered = /^\s*\d/.test(lines[0]);
    const out = make(ordered ? "ol" : "ul");
    const indent = item.exec(lines[0])[1].length;
    if (ordered) out.start = parseInt(lines[0], 10);
    for (let i = 0; i < lines.length;) {
      const first = item.exec(lines[i]);
      const inner = [];
      for (++i; i < lines.length; ++i) {
        const next = item.exec(lines[i]);
        if (next && next[1].length <= indent) break;
        inner.push(lines[i].slice(Math.min(indent + 2, lines[i].search(/\S|$/))));
      }
      const node = make("li", inline(first ? first[2] : lines[i - 1]));
      if (inner.some(l => l.trim())) node.append(blocks(inner, depth + 1));
      out.append(node);
    }
    return out;
  }

  function blocks(lines, depth = 0) {
    const out = document.createDocumentFragment();
    const take = (from, test) => {
      let to = from;
      while (to < lines.length && test(lines[to])) ++to;
      return to;
    };
    for (let i = 0; i < lines.length;) {
      const line = lines[i];
      const fence = /^\s*(```+|~~~+)\s*([\w+#-]*)/.exec(line);
      const heading = /^(#{1,6})\s+(.*)/.exec(line);
      let to = i + 1;
      if (fence) {
        const close = take(i + 1, l => !l.trim().startsWith(fence[1]));
        out.append(codeBlock(lines.slice(i + 1, close), fence[2]));
        to = close + 1;
      } else if (!line.trim()) {
      } else if (heading) {
        out.append(make("h" + Math.min(6, heading[1].length + 2), inline(heading[2])));
      } else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
        out.append(make("hr"));
      } else if (line.startsWith(">") && depth < 8) {
        to = take(i, l => l.startsWith(">"));
        out.append(make("blockquote", blocks(lines.slice(i, to).map(l => l.replace(/^> ?/, "")), depth + 1)));
      } else if (item.test(line) && depth < 8) {
        to = take(i + 1, l => item.test(l) || /^\s+\S/.test(l));
        out.append(list(lines.slice(i, to), depth));
      } else if (line.includes("|") && /^\s*\|?[\s:|-]*-[\s:|-]*$/.test(lines[i + 1] || "")) {
        to = take(i, l => l.includes("|"));
        out.append(table(lines.slice(i, to)));
      } else {
        to = take(i + 1, l => l.trim() && !/^\s*(```|~~~|#{1,6}\s|>)/.test(l) && !item.test(l));
        out.append(make("p", inline(lines.slice(i, to).join("\n"))));
      }
      i = to;
    }
    return out;
  }
  return text => blocks(text.split("\n"));
})();
