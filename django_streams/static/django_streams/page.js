/**
 * Brings every `[data-ds-chat]` of a page to life. The element gets a property
 * `chat`, its {@link ChatConnection}.
 */

import { ChatConnection, messageText } from "./chat.js";
import { copyText } from "./clipboard.js";
import { Composer } from "./composer.js";
import { MessageList } from "./messages.js";
import { Scroller } from "./scroller.js";

/** Milliseconds for which "resumed" and "copied" are shown. */
const SHORTLY = 3000;
/** A longer reply is not read out at its end. */
const READ_OUT = 1500;

class ChatPage {
  #root;
  #strings;
  #chat;
  #list;
  #composer;
  #scroller;
  #scheduled = false;
  #busy = false;
  #resumed = null;
  /** The turn that ended since the last render. */
  #ended = null;

  constructor(root) {
    const { path, resume } = root.dataset;
    this.#root = root;
    this.#strings = JSON.parse(root.querySelector("script[type$=json]").textContent);
    this.#chat = new ChatConnection({
      path,
      resume: resume !== "false",
      storage: sessionStorageOrNull(),
    });
    root.chat = this.#chat;
    this.#list = new MessageList(this.#part("messages"), this.#strings);
    this.#scroller = new Scroller(this.#part("scroll"), this.#part("latest"));
    this.#composer = new Composer(this.#part("composer"), {
      key: path,
      storage: sessionStorageOrNull(),
      onsend: (text) => {
        this.#scroller.follow();
        this.#chat.send(text);
      },
    });
    this.#listen();
    this.#chat.open();
  }

  #part(name) {
    return this.#root.querySelector(`[data-ds="${name}"]`);
  }

  #listen() {
    const chat = this.#chat;
    chat.addEventListener("change", () => this.#schedule());
    chat.addEventListener("refused", ({ detail: { parts } }) =>
      this.#composer.giveBack(parts.map(({ text = "" }) => text).join("")),
    );
    chat.addEventListener("connection", () => this.#showConnection());
    chat.addEventListener("resumed", () => this.#showResumed());
    chat.addEventListener("ended", ({ detail }) => {
      this.#ended = detail;
      this.#schedule();
    });
    this.#root.addEventListener("click", (event) => this.#clicked(event));
    this.#root.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.#busy && !event.defaultPrevented) this.#stop();
    });
    const dialog = this.#part("clear-dialog");
    dialog.addEventListener("close", () => {
      if (dialog.returnValue === "clear") chat.clear();
      dialog.returnValue = "";
      this.#composer.focus();
    });
    this.#showConnection();
  }

  #clicked({ target }) {
    const button = target.closest("button");
    const { dsAction: action, dsCopyCode: code } = button?.dataset ?? {};
    if (code !== undefined) {
      this.#copy(button, button.closest("figure").querySelector("code").textContent);
    } else if (action === "copy") {
      const { id } = button.closest("li[data-id]").dataset;
      const message = this.#chat.messages.find((known) => known.id === id);
      if (message) this.#copy(button, messageText(message));
    } else if (action === "regenerate") {
      this.#scroller.follow();
      this.#chat.regenerate();
      this.#composer.focus();
    } else if (action === "stop") {
      this.#stop();
    } else if (action === "clear") {
      this.#part("clear-dialog").showModal();
    }
  }

  #stop() {
    for (const message of this.#chat.stop()) this.#composer.giveBack(messageText(message));
    this.#composer.focus();
  }

  async #copy(button, text) {
    const done = await copyText(text, this.#root.ownerDocument);
    const { copy, copied, copyFailed } = this.#strings;
    button.textContent = done ? copied : copyFailed;
    this.#announce(button.textContent);
    setTimeout(() => {
      button.textContent = copy;
    }, SHORTLY);
  }

  /** Many frames, one render: at the next frame of the screen. */
  #schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      this.#render();
    });
  }

  #render() {
    const chat = this.#chat;
    const { messages, status, unsent } = chat;
    const busy = status === "submitted" || status === "streaming";
    this.#list.render(messages, {
      writing: chat.writing,
      unsent: chat.connection === "open" ? new Set() : unsent,
      idle: status === "ready" && unsent.size === 0,
    });
    this.#part("empty").hidden = messages.length > 0 || busy;
    this.#part("thinking").hidden = !chat.thinking;
    this.#part("stop").hidden = !busy && unsent.size === 0;
    this.#part("clear").disabled = messages.length === 0;
    this.#showError(status === "error" ? chat.error : null);
    if (busy && !this.#busy) this.#announce(this.#strings.replying);
    this.#busy = busy;
    if (this.#ended) this.#announceEnd(this.#ended);
    this.#ended = null;
    this.#scroller.rendered();
  }

  #showError(error) {
    const alert = this.#part("error");
    alert.hidden = error === null;
    const text = error === null ? "" : error || this.#strings.failed;
    const shown = this.#part("error-text");
    if (shown.textContent !== text) shown.textContent = text;
  }

  #showConnection() {
    const { connection, refusal } = this.#chat;
    const { signIn, forbidden } = this.#strings;
    const refused = refusal?.code === 4401 ? signIn : forbidden;
    clearTimeout(this.#resumed);
    this.#root.dataset.connection = connection;
    this.#part("state").textContent =
      connection === "refused" ? refused : this.#strings[connection];
  }

  #showResumed() {
    this.#part("state").textContent = this.#strings.resumed;
    this.#resumed = setTimeout(() => this.#showConnection(), SHORTLY);
  }

  /** Said once, when a reply is whole; nothing is read out while it grows. */
  #announceEnd({ message, outcome, error }) {
    const { stopped, replyIs, replyLong } = this.#strings;
    if (error !== null || outcome === "skipped") return;
    if (outcome === "aborted") this.#announce(stopped);
    else if (message) {
      const text = this.#list.textOf(message.id);
      this.#announce(text.length > READ_OUT ? replyLong : `${replyIs} ${text}`);
    }
  }

  #announce(text) {
    this.#part("announce").textContent = text;
  }
}

/** The tab's storage, or null where the browser forbids it. */
function sessionStorageOrNull() {
  try {
    return globalThis.sessionStorage;
  } catch {
    return null;
  }
}

for (const root of document.querySelectorAll("[data-ds-chat]")) new ChatPage(root);
