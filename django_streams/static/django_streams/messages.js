/**
 * The list of messages. Elements are kept by message and part, and only what
 * changed is touched.
 */

import { messageText } from "./message.js";
import { build, kindOf, newPartView } from "./parts.js";

export class MessageList {
  #element;
  #strings;
  #items = new Map();

  /** Shows in `element`, a list; `strings`: the page's words. */
  constructor(element, strings) {
    this.#element = element;
    this.#strings = strings;
  }

  /**
   * `writing`, `unsent`: ids of messages that are being written, and that wait for
   * a connection. `idle`: nothing is under way, so the last reply can be redone.
   */
  render(messages, { writing, unsent, idle }) {
    const last = messages.at(-1);
    const ids = new Set(messages.map(({ id }) => id));
    for (const [id, item] of this.#items) {
      if (ids.has(id)) continue;
      item.element.remove();
      this.#items.delete(id);
    }
    let at = this.#element.firstElementChild;
    for (const message of messages) {
      const item = this.#item(message);
      item.update(message, {
        writing: writing.has(message.id),
        unsent: unsent.has(message.id),
        redo: idle && message === last,
      });
      if (item.element === at) at = at.nextElementSibling;
      else this.#element.insertBefore(item.element, at);
    }
  }

  /** The text of a message as it is shown, without its reasoning. */
  textOf(id) {
    const texts = this.#items.get(id)?.element.querySelectorAll(
      ".ds-message__body > .ds-text",
    );
    return Array.from(texts ?? [], ({ textContent }) => textContent).join("\n");
  }

  #item({ id, role }) {
    let item = this.#items.get(id);
    if (!item) {
      item = new MessageView(role, this.#element.ownerDocument, this.#strings);
      item.element.dataset.id = id;
      this.#items.set(id, item);
    }
    return item;
  }
}

class MessageView {
  #document;
  #strings;
  #role;
  #body;
  #note;
  #copy;
  #redo;
  /** `{ kind, view }` of each part that is shown, in order. */
  #parts = [];
  #message = null;
  #state = "";

  constructor(role, document, strings) {
    this.#document = document;
    this.#strings = strings;
    this.#role = role;
    const who = role === "user" ? strings.you : strings.agent;
    this.#body = build(document, "div", "ds-message__body");
    this.#note = build(document, "p", "ds-message__note", { hidden: "" });
    this.#copy = this.#button("copy", strings.copy);
    this.#redo = this.#button("regenerate", strings.regenerate);
    this.element = build(
      document,
      "li",
      `ds-message ds-message--${role === "user" ? "user" : "agent"}`,
      {},
      build(document, "h2", "ds-hidden", {}, who),
      this.#body,
      this.#note,
      build(document, "div", "ds-message__actions", {}, this.#copy, this.#redo),
    );
  }

  update(message, { writing, unsent, redo }) {
    const state = `${writing} ${unsent} ${redo}`;
    // A message that is being written is changed in place.
    if (message === this.#message && state === this.#state && !writing) return;
    this.#message = message;
    this.#state = state;
    this.element.setAttribute("aria-busy", String(writing));
    this.#note.hidden = !unsent;
    this.#note.textContent = unsent ? this.#strings.unsent : "";
    this.#copy.hidden = writing || messageText(message) === "";
    this.#redo.hidden = !(redo && this.#role === "assistant");
    this.#update(message, writing);
  }

  #update(message, writing) {
    const parts = message.parts.filter((part) => kindOf(part) !== null);
    parts.forEach((part, index) => {
      const kind = kindOf(part);
      const known = this.#parts[index];
      if (known?.kind !== kind) {
        const view = newPartView(kind, this.#document, this.#strings);
        if (known) known.view.element.replaceWith(view.element);
        else this.#body.append(view.element);
        this.#parts[index] = { kind, view };
      }
      const ended = part.state === "done" || index < parts.length - 1;
      this.#parts[index].view.update(part, {
        open: writing && (kind === "tool" || !ended),
        markdown: this.#role !== "user",
      });
    });
    for (const { view } of this.#parts.splice(parts.length)) view.element.remove();
  }

  #button(action, label) {
    const attributes = { type: "button", "data-ds-action": action };
    return build(this.#document, "button", "ds-action", attributes, label);
  }
}
