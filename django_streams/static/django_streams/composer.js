/**
 * The form in which a question is written. What was not sent is kept over a
 * reload. Enter sends and Shift+Enter begins a line; where there is no real
 * keyboard Enter begins a line.
 */

const PREFIX = "django_streams.draft:";

export class Composer {
  #text;
  #send;
  #storage;
  #key;

  /** `form` holds a textarea and a submit button; `onsend(text)` takes it. */
  constructor(form, { key, storage, onsend }) {
    this.#text = form.querySelector("textarea");
    this.#send = form.querySelector("button[type=submit]");
    this.#storage = storage;
    this.#key = PREFIX + key;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const text = this.#text.value.trim();
      if (text === "") return;
      this.#set("");
      onsend(text);
    });
    this.#text.addEventListener("input", () => this.#changed());
    this.#text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      if (matchMedia("(pointer: coarse)").matches) return;
      event.preventDefault();
      form.requestSubmit();
    });
    this.#set(this.#text.value || this.#kept());
  }

  focus() {
    if (!matchMedia("(pointer: coarse)").matches) this.#text.focus();
  }

  /** Put back what was taken and not sent, before what is there now. */
  giveBack(text) {
    const { value } = this.#text;
    this.#set(value === "" ? text : `${text}\n${value}`);
  }

  #set(text) {
    this.#text.value = text;
    this.#changed();
  }

  #changed() {
    const { value } = this.#text;
    this.#send.disabled = value.trim() === "";
    // An empty field reads as the page does, whose words are in it.
    this.#text.dir = value === "" ? "" : "auto";
    this.#grow();
    try {
      if (value === "") this.#storage?.removeItem(this.#key);
      else this.#storage?.setItem(this.#key, value);
    } catch {
      // Full or forbidden: a reload then loses what was not sent.
    }
  }

  /** As high as its text; the style sheet sets the limit. */
  #grow() {
    if (CSS.supports("field-sizing", "content")) return;
    this.#text.style.blockSize = "auto";
    this.#text.style.blockSize = `${this.#text.scrollHeight}px`;
  }

  #kept() {
    try {
      return this.#storage?.getItem(this.#key) ?? "";
    } catch {
      return "";
    }
  }
}
