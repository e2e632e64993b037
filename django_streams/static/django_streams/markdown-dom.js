/**
 * Shows Markdown that is still being written. Elements are made from the parsed
 * tree, never from HTML, and what has not changed is not touched: a selection in
 * what stands above, the scroll position of a code block and the reading position
 * of a screen reader stay.
 */

import { parseInline } from "./markdown-inline.js";
import { parseMarkdown } from "./markdown.js";

/** Headings of a reply stand below the page's own. */
const HEADING_SHIFT = 2;

export class MarkdownView {
  #container;
  #factory;
  #parsed = null;
  #shown = [];

  /** Shows in `container`; `copy`: label of the button at a code block. */
  constructor(container, { copy = "Copy" } = {}) {
    this.#container = container;
    this.#factory = new Factory(container.ownerDocument, copy);
  }

  /** Show `text`; `open`: more of it is to come. */
  update(text, { open = false } = {}) {
    this.#parsed = parseMarkdown(text, this.#parsed);
    this.#shown = this.#factory.reconcile(
      this.#container,
      this.#shown,
      this.#parsed.blocks,
      { open, wrap: (block, options) => this.#factory.block(block, options) },
    );
  }
}

/**
 * One shown thing: its source, whether more was to come, its element, and what
 * `patch` needs to change it in place.
 */
class Factory {
  #document;
  #copy;

  constructor(document, copy) {
    this.#document = document;
    this.#copy = copy;
  }

  /**
   * Make `parent` show `sources` where it shows `shown`; the last one is open when
   * the whole is. `wrap(source, options)` makes one; returns what is shown now.
   */
  reconcile(parent, shown, sources, { open, wrap }) {
    const now = sources.map((source, index) => {
      const last = open && index === sources.length - 1;
      const known = shown[index];
      if (known && known.source.raw === source.raw && known.open === last) return known;
      if (known?.patch?.(source, last)) {
        known.source = source;
        known.open = last;
        return known;
      }
      const made = { source, open: last, ...wrap(source, { open: last }) };
      if (known) known.element.replaceWith(made.element);
      else parent.append(made.element);
      return made;
    });
    for (const { element } of shown.slice(now.length)) element.remove();
    return now;
  }

  /** `{ element, patch }` of a block; `tight`: without a paragraph around text. */
  block(block, { open, tight = false }) {
    switch (block.type) {
      case "heading": {
        const level = Math.min(6, block.level + HEADING_SHIFT);
        return { element: this.#element(`h${level}`, this.#inline(block.text, open)) };
      }
      case "code":
        return this.#code(block);
      case "quote":
        return this.#holder(this.#element("blockquote"), block, { open });
      case "list":
        return this.#list(block, { open });
      case "table":
        return { element: this.#table(block, open) };
      case "rule":
        return { element: this.#element("hr") };
      default:
        return {
          element: this.#element(tight ? "span" : "p", this.#inline(block.text, open)),
        };
    }
  }

  #element(name, children = [], attributes = {}) {
    const element = this.#document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      element.setAttribute(key, value);
    }
    element.append(...children);
    return element;
  }

  /** An element that holds blocks and can take more of them. */
  #holder(element, block, { open, tight = false }) {
    const wrap = (inner, options) => this.block(inner, { ...options, tight });
    let shown = this.reconcile(element, [], block.blocks, { open, wrap });
    const patch = (next, nextOpen) => {
      if (next.type !== block.type || next.checked !== block.checked) return false;
      shown = this.reconcile(element, shown, next.blocks, { open: nextOpen, wrap });
      return true;
    };
    return { element, patch };
  }

  #list(list, { open }) {
    const element = this.#element(list.ordered ? "ol" : "ul");
    if (list.ordered && list.start !== 1) element.setAttribute("start", list.start);
    const wrap = (item, options) =>
      this.#holder(this.#item(item), item, { ...options, tight: !list.loose });
    let shown = this.reconcile(element, [], list.items, { open, wrap });
    const same = ({ type, ordered, start, loose }) =>
      type === "list" &&
      ordered === list.ordered &&
      start === list.start &&
      loose === list.loose;
    const patch = (next, nextOpen) => {
      if (!same(next)) return false;
      shown = this.reconcile(element, shown, next.items, { open: nextOpen, wrap });
      return true;
    };
    return { element, patch };
  }

  #item({ checked }) {
    if (checked === null) return this.#element("li");
    const box = this.#element("input", [], { type: "checkbox", disabled: "" });
    if (checked) box.setAttribute("checked", "");
    return this.#element("li", [box], { class: "ds-task" });
  }

  #code({ language, text }) {
    const content = this.#document.createTextNode(text);
    const code = this.#element("code", [content]);
    const name = this.#element("span", [language]);
    const copy = this.#element("button", [this.#copy], {
      type: "button",
      class: "ds-code__copy",
      "data-ds-copy-code": "",
    });
    const element = this.#element(
      "figure",
      [
        this.#element("figcaption", [name, copy]),
        this.#element("pre", [code], { tabindex: "0", dir: "ltr" }),
      ],
      { class: "ds-code" },
    );
    const patch = (next) => {
      if (next.type !== "code" || next.language !== language) return false;
      if (next.text.startsWith(content.data)) {
        content.appendData(next.text.slice(content.data.length));
      } else {
        content.data = next.text;
      }
      return true;
    };
    return { element, patch };
  }

  #table({ header, aligns, rows }, open) {
    const row = (texts, name, extra, last) => {
      const made = texts.map((text, column) =>
        this.#element(name, this.#inline(text, last), {
          ...extra,
          ...(aligns[column] && { class: `ds-align-${aligns[column]}` }),
        }),
      );
      return this.#element("tr", made);
    };
    const head = row(header, "th", { scope: "col" }, false);
    const body = rows.map((texts, index) =>
      row(texts, "td", {}, open && index === rows.length - 1),
    );
    const table = this.#element("table", [
      this.#element("thead", [head]),
      this.#element("tbody", body),
    ]);
    return this.#element("div", [table], { class: "ds-table", tabindex: "0" });
  }

  #inline(text, open) {
    return parseInline(text, { open }).map((node) => this.#node(node));
  }

  #node(node) {
    const children = () => node.children.map((child) => this.#node(child));
    switch (node.type) {
      case "text":
        return node.text;
      case "break":
        return this.#element("br");
      case "code":
        return this.#element("code", [node.text]);
      case "link":
        return this.#element("a", children(), {
          href: node.href,
          target: "_blank",
          rel: "noopener noreferrer nofollow",
        });
      default:
        return this.#element(node.type, children());
    }
  }
}
