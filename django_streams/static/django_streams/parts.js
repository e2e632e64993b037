/**
 * One view for each kind of message part. A view has an `element` and takes each
 * newer state of its part with `update(part, { open, markdown })`: `open` while the
 * part is being written, `markdown` where its text is formatted.
 */

import { MarkdownView } from "./markdown-dom.js";
import { safeHref } from "./markdown-inline.js";
import { isToolPart, toolName } from "./message.js";

/** The kind of view for a part; parts of which there is nothing to see: null. */
export function kindOf(part) {
  if (part.type === "text" || part.type === "reasoning") {
    return part.text ? part.type : null;
  }
  if (isToolPart(part)) return "tool";
  if (part.type === "file") return "file";
  if (part.type === "source-url" || part.type === "source-document") return "source";
  return null;
}

/** A view for a part of this kind. */
export function newPartView(kind, document, strings) {
  return new VIEWS[kind](document, strings);
}

/** An element with a class, attributes and children. */
export function build(document, name, className = "", attributes = {}, ...children) {
  const element = document.createElement(name);
  if (className) element.className = className;
  for (const [key, value] of Object.entries(attributes)) {
    element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

class TextView {
  #markdown = null;
  #strings;

  constructor(document, strings) {
    this.#strings = strings;
    this.element = build(document, "div", "ds-text", { dir: "auto" });
  }

  update({ text }, { open, markdown }) {
    if (!markdown) {
      if (this.element.textContent !== text) this.element.textContent = text;
      return;
    }
    this.#markdown ??= new MarkdownView(this.element, { copy: this.#strings.copy });
    this.#markdown.update(text, { open });
  }
}

/** What the model thought, folded; it stays as the reader left it. */
class ReasoningView {
  #summary;
  #text;
  #strings;

  constructor(document, strings) {
    this.#strings = strings;
    this.#summary = build(document, "summary");
    this.#text = new TextView(document, strings);
    this.element = build(
      document,
      "details",
      "ds-reasoning",
      {},
      this.#summary,
      this.#text.element,
    );
  }

  update(part, { open, markdown }) {
    const { reasoningNow, reasoning } = this.#strings;
    setText(this.#summary, open ? reasoningNow : reasoning);
    this.element.classList.toggle("ds-active", open);
    this.#text.update(part, { open, markdown });
  }
}

/** A tool call: its name, how far it is, and on demand what went in and came out. */
class ToolView {
  #strings;
  #name;
  #state;
  #input;
  #output;

  constructor(document, strings) {
    this.#strings = strings;
    this.#name = build(document, "span", "ds-tool__name", { dir: "auto" });
    this.#state = build(document, "span", "ds-tool__state");
    this.#input = new ValueView(document, strings.toolInput);
    this.#output = new ValueView(document, strings.toolOutput);
    this.element = build(
      document,
      "details",
      "ds-tool",
      {},
      build(document, "summary", "", {}, this.#name, this.#state),
      this.#input.element,
      this.#output.element,
    );
  }

  update(part, { open }) {
    setText(this.#name, part.title ?? toolName(part));
    setText(this.#state, this.#describe(part.state, open));
    this.element.dataset.state = part.state;
    this.element.classList.toggle("ds-active", open && part.state.startsWith("input"));
    this.#input.update(part.input);
    this.#output.update(part.errorText ?? part.output);
  }

  #describe(state, open) {
    const { toolDone, toolFailed, toolDenied, toolAsks, toolRuns, toolCut } =
      this.#strings;
    switch (state) {
      case "output-available":
        return toolDone;
      case "output-error":
        return toolFailed;
      case "output-denied":
        return toolDenied;
      case "approval-requested":
        return toolAsks;
      default:
        return open ? toolRuns : toolCut;
    }
  }
}

/** A value under its title: text as it is, anything else as JSON. */
class ValueView {
  #code;

  constructor(document, title) {
    this.#code = build(document, "code");
    this.element = build(
      document,
      "div",
      "ds-tool__value",
      {},
      build(document, "span", "ds-tool__title", {}, title),
      build(document, "pre", "", { tabindex: "0", dir: "ltr" }, this.#code),
    );
  }

  update(value) {
    this.element.hidden = value === undefined;
    const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
    setText(this.#code, text ?? "");
  }
}

/** A file: an image is shown, anything else can be fetched. */
class FileView {
  #document;

  constructor(document) {
    this.#document = document;
    this.element = build(document, "p", "ds-file");
  }

  update({ url, mediaType = "", filename }) {
    const href = fileAddress(url, mediaType);
    const name = filename ?? mediaType;
    if (this.element.dataset.url === url) return;
    this.element.dataset.url = url;
    if (href === null) {
      this.element.replaceChildren(name);
    } else if (mediaType.startsWith("image/")) {
      const image = { src: href, alt: filename ?? "", loading: "lazy" };
      this.element.replaceChildren(build(this.#document, "img", "", image));
    } else {
      const link = { href, download: filename ?? "" };
      this.element.replaceChildren(build(this.#document, "a", "ds-chip", link, name));
    }
  }
}

class SourceView {
  #document;

  constructor(document) {
    this.#document = document;
    this.element = build(document, "p", "ds-source");
  }

  update({ url, title, filename }) {
    const href = url === undefined ? null : safeHref(url);
    const name = title ?? filename ?? url ?? "";
    const link = { href, target: "_blank", rel: "noopener noreferrer nofollow" };
    this.element.replaceChildren(
      href === null
        ? build(this.#document, "span", "ds-chip", {}, name)
        : build(this.#document, "a", "ds-chip", link, name),
    );
  }
}

const VIEWS = {
  text: TextView,
  reasoning: ReasoningView,
  tool: ToolView,
  file: FileView,
  source: SourceView,
};

/** The address of a file if it may be shown or fetched, else null. */
function fileAddress(url, mediaType) {
  if (typeof url !== "string") return null;
  if (/^data:/i.test(url)) {
    const harmless = /^image\/(png|jpeg|gif|webp|avif)$/.test(mediaType);
    return harmless && url.toLowerCase().startsWith(`data:${mediaType}`) ? url : null;
  }
  return /^(?:https?:|blob:|\/)/i.test(url) ? url : null;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
