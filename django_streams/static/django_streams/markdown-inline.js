/**
 * The inside of a paragraph: emphasis, code, links, breaks. Pure; the result is
 * a list of nodes and never HTML. Linear in the length of the text but for
 * bounded look-ahead, so that no reply can freeze the page.
 *
 * Nodes: `{ type, text }` for "text" and "code", `{ type, children }` for "strong",
 * "em" and "del", `{ type: "link", href, children }`, `{ type: "break" }`.
 */

/** Emphasis deeper than this stays text: deep trees are slow to lay out. */
const MAX_DEPTH = 24;
const SCHEMES = new Set(["http:", "https:", "mailto:", "tel:"]);
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'", nbsp: "\u00a0" };

const SPECIAL = /[\\`*_~[\]<&\n]|https?:\/\//g;
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const ENTITY = /&(amp|lt|gt|quot|#39|nbsp);/y;
const LINE_BREAK = /<br {0,3}\/?>/iy;
const AUTOLINK = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/iy;
const BARE_LINK = /https?:\/\/[^\s<>"`|]{1,2000}/y;
const TARGET =
  /\(\s{0,9}(?:<([^<>\n]{0,2000})>|((?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.){0,2000}\)){0,2000}))(?:\s{1,9}(?:"(?:[^"\\]|\\.){0,500}"|'(?:[^'\\]|\\.){0,500}'))?\s{0,9}\)/y;

/** The address if it may be a link, else null. */
export function safeHref(address) {
  let url;
  try {
    url = new URL(address, "https://relative.invalid");
  } catch {
    return null;
  }
  return SCHEMES.has(url.protocol) ? address.trim() : null;
}

/**
 * The nodes of `text`. `open`: more is to come, so that what was opened and not
 * closed yet is shown as if it were, and half a marker is not shown.
 */
export function parseInline(text, { open = false } = {}) {
  return new Scanner(open ? withoutHalfMarker(text) : text, open).nodes();
}

class Scanner {
  #text;
  #open;
  #at = 0;
  /** Text, finished nodes, delimiter runs, and brackets that may become links. */
  #entries = [];
  #brackets = [];
  #ticks = null;
  /** Behind this no link target can be complete. */
  #lastEnd;

  constructor(text, open) {
    this.#text = text;
    this.#open = open;
    this.#lastEnd = Math.max(text.lastIndexOf(")"), text.lastIndexOf("\n"));
  }

  nodes() {
    const text = this.#text;
    while (this.#at < text.length) {
      SPECIAL.lastIndex = this.#at;
      const found = SPECIAL.exec(text);
      const next = found?.index ?? text.length;
      this.#addText(text.slice(this.#at, next));
      this.#at = next;
      if (found) this.#special(found[0]);
    }
    return resolve(this.#entries, this.#open);
  }

  #addText(text) {
    if (text === "") return;
    const last = this.#entries.at(-1);
    if (last?.type === "text") last.text += text;
    else this.#entries.push({ type: "text", text });
  }

  #special(mark) {
    switch (mark) {
      case "\\":
        return this.#escape();
      case "`":
        return this.#code();
      case "*":
      case "_":
      case "~":
        return this.#delimiter(mark);
      case "[":
        this.#brackets.push(this.#entries.length);
        this.#entries.push({ type: "text", text: "[" });
        this.#entries.push({ type: "text", text: "" });
        this.#at += 1;
        return undefined;
      case "]":
        return this.#closeBracket();
      case "<":
        return this.#angle();
      case "&":
        return this.#entity();
      case "\n":
        return this.#newline();
      default:
        return this.#bareLink();
    }
  }

  #match(pattern) {
    pattern.lastIndex = this.#at;
    return pattern.exec(this.#text);
  }

  #plain(length) {
    this.#addText(this.#text.slice(this.#at, this.#at + length));
    this.#at += length;
  }

  #escape() {
    const next = this.#text[this.#at + 1];
    if (next === "\n") {
      this.#entries.push({ type: "break" });
      this.#at += 2;
    } else if (next !== undefined && ESCAPABLE.test(next)) {
      this.#addText(next);
      this.#at += 2;
    } else {
      this.#plain(1);
    }
  }

  #code() {
    const text = this.#text;
    const start = this.#at;
    const length = runLength(text, start);
    const from = start + length;
    const end = this.#closingTicks(length, from);
    if (end === undefined && !(this.#open && from < text.length)) {
      this.#plain(length);
      return;
    }
    let code = text.slice(from, end).replaceAll("\n", " ");
    if (/^ .*[^ ].* $/s.test(code)) code = code.slice(1, -1);
    this.#entries.push({ type: "code", text: code });
    this.#at = end === undefined ? text.length : end + length;
  }

  /** Where the next run of exactly `length` backticks starts. */
  #closingTicks(length, from) {
    if (!this.#ticks) {
      this.#ticks = new Map();
      for (const { index, 0: run } of this.#text.matchAll(/`+/g)) {
        const known = this.#ticks.get(run.length) ?? [];
        known.push(index);
        this.#ticks.set(run.length, known);
      }
    }
    const starts = this.#ticks.get(length) ?? [];
    while (starts.length > 0 && starts[0] < from) starts.shift();
    return starts[0];
  }

  #delimiter(mark) {
    const text = this.#text;
    const count = runLength(text, this.#at);
    const before = classOf(text[this.#at - 1]);
    const after = classOf(text[this.#at + count]);
    let canOpen = after === "letter" || (after === "mark" && before !== "letter");
    let canClose = before === "letter" || (before === "mark" && after !== "letter");
    if (mark === "_" && canOpen && canClose) {
      canOpen = before === "mark";
      canClose = after === "mark";
    } else if (mark === "*" && count >= 2) {
      // Without spaces between words (Chinese, Japanese) the strict rule fails.
      canOpen = after !== "space";
      canClose = before !== "space";
    }
    const atWord = before !== "letter";
    this.#entries.push({ type: "delimiter", mark, count, canOpen, canClose, atWord });
    this.#at += count;
  }

  #closeBracket() {
    const opener = this.#brackets.pop();
    this.#at += 1;
    if (opener === undefined) {
      this.#addText("]");
      return;
    }
    const target = this.#match(TARGET);
    const begun = this.#open && !target && this.#text[this.#at] === "(";
    const half = begun && this.#at > this.#lastEnd;
    if (!target && !half) {
      this.#addText("]");
      return;
    }
    const children = unlinked(resolve(this.#entries.splice(opener).slice(1), false));
    if (half) {
      this.#entries.push(...children);
      this.#at = this.#text.length;
      return;
    }
    this.#at += target[0].length;
    const href = safeHref(unescape(target[1] ?? target[2]));
    if (href === null) this.#entries.push(...children);
    else this.#entries.push({ type: "link", href, children });
    // A link holds no link: brackets that are still open stay text.
    this.#brackets.length = 0;
  }

  #angle() {
    const lineBreak = this.#match(LINE_BREAK);
    const link = lineBreak ? null : this.#match(AUTOLINK);
    if (lineBreak) this.#entries.push({ type: "break" });
    else if (link) this.#link(link[1]);
    else return this.#plain(1);
    this.#at += (lineBreak ?? link)[0].length;
    return undefined;
  }

  #bareLink() {
    const before = this.#text[this.#at - 1];
    const found = classOf(before) === "letter" ? null : this.#match(BARE_LINK);
    if (!found) return this.#plain(4);
    const address = withoutPunctuation(found[0]);
    this.#link(address);
    this.#at += address.length;
    return undefined;
  }

  #link(address) {
    const href = safeHref(address);
    const text = { type: "text", text: address };
    this.#entries.push(href === null ? text : { type: "link", href, children: [text] });
  }

  #entity() {
    const found = this.#match(ENTITY);
    if (!found) return this.#plain(1);
    this.#addText(ENTITIES[found[1]]);
    this.#at += found[0].length;
    return undefined;
  }

  #newline() {
    const last = this.#entries.at(-1);
    const hard = last?.type === "text" && last.text.endsWith("  ");
    if (hard) {
      last.text = last.text.trimEnd();
      this.#entries.push({ type: "break" });
    } else {
      this.#addText("\n");
    }
    this.#at += 1;
  }
}

/** Pair the delimiter runs of `entries`; what finds no partner is text. */
function resolve(entries, open) {
  const result = [];
  const openers = [];
  /** Below these heights of `openers` there is no partner for such a closer. */
  const bottoms = new Map();
  for (const entry of entries) {
    if (entry.type !== "delimiter") {
      if (entry.type !== "text" || entry.text !== "") result.push(entry);
      continue;
    }
    const run = { ...entry };
    while (run.canClose && run.count > 0) {
      const kind = `${run.mark}${run.canOpen}${run.count % 3}`;
      const index = partner(openers, run, bottoms.get(kind) ?? 0);
      if (index < 0) {
        bottoms.set(kind, openers.length);
        break;
      }
      if (!wrap(result, openers, index, run)) break;
    }
    if (run.count > 0) {
      result.push(run);
      if (run.canOpen) openers.push(run);
    }
  }
  if (open) closeAll(result, openers);
  return result.map((node) =>
    node.type === "delimiter"
      ? { type: "text", text: node.mark.repeat(node.count) }
      : node,
  );
}

function partner(openers, closer, bottom) {
  for (let index = openers.length - 1; index >= bottom; index -= 1) {
    const opener = openers[index];
    if (opener.mark !== closer.mark) continue;
    if (opener.mark === "~") {
      if (opener.count === 2 && closer.count === 2) return index;
      continue;
    }
    // The rule of three: `***a** b*` must not pair one and two.
    const either = opener.canClose || closer.canOpen;
    const sum = opener.count + closer.count;
    const odd = sum % 3 === 0 && !(opener.count % 3 === 0 && closer.count % 3 === 0);
    if (!either || !odd) return index;
  }
  return -1;
}

/** Put what stands behind an opener into a node; false when that is too deep. */
function wrap(result, openers, index, closer) {
  const opener = openers[index];
  const size = opener.count >= 2 && closer.count >= 2 ? 2 : 1;
  const at = result.lastIndexOf(opener);
  const children = result.slice(at + 1).map((node) =>
    node.type === "delimiter"
      ? { type: "text", text: node.mark.repeat(node.count) }
      : node,
  );
  const depth = 1 + children.reduce((most, node) => Math.max(most, node.depth ?? 0), 0);
  if (depth > MAX_DEPTH) return false;
  openers.length = index + 1;
  result.length = at + 1;
  opener.count -= size;
  closer.count -= size;
  if (opener.count === 0) {
    openers.pop();
    result.pop();
  }
  const type = opener.mark === "~" ? "del" : size === 2 ? "strong" : "em";
  result.push({ type, children, depth });
  return true;
}

/** More text is to come: take the end of the text for the end of what is open. */
function closeAll(result, openers) {
  while (openers.length > 0) {
    const opener = openers.at(-1);
    const last = result.at(-1) === opener;
    const likely = opener.count >= 2 || (opener.atWord && opener.mark !== "~");
    const closer = { mark: opener.mark, count: opener.count };
    if (last || !likely || !wrap(result, openers, openers.length - 1, closer)) {
      openers.pop();
    }
  }
}

/** Without links: what they said is kept. */
function unlinked(nodes) {
  return nodes.flatMap((node) => {
    if (node.type === "link") return unlinked(node.children);
    return node.children ? [{ ...node, children: unlinked(node.children) }] : [node];
  });
}

function runLength(text, at) {
  let end = at;
  while (text[end] === text[at]) end += 1;
  return end - at;
}

function classOf(character) {
  if (character === undefined || /\s/.test(character)) return "space";
  return /[\p{P}\p{S}]/u.test(character) ? "mark" : "letter";
}

function unescape(text) {
  return text.replace(/\\([!-/:-@[-`{-~])/g, "$1");
}

/** A sentence's own punctuation does not belong to the address that ends it. */
function withoutPunctuation(address) {
  let end = address.length;
  for (;;) {
    const last = address[end - 1];
    const closes = last === ")" && !address.slice(0, end).includes("(");
    if (!closes && !".,;:!?'*_~]".includes(last)) break;
    end -= 1;
  }
  return address.slice(0, end);
}

/** Without the markers at the end that may only be half there. */
function withoutHalfMarker(text) {
  let end = text.length;
  while (end > 0 && "*_~`".includes(text[end - 1])) end -= 1;
  return text[end - 1] === "\\" ? text : text.slice(0, end);
}
