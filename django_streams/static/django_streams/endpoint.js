/** The addresses of a conversation, and its stored messages. */

import { newUuid } from "./ids.js";

export class Endpoint {
  #options;
  /** Names this page to the server over all its connections. */
  #pageId = newUuid();

  /** `query`: added to both addresses; those without a value are left out. */
  constructor({ path, origin, query, fetch }) {
    this.#options = { path, origin, query, fetch };
  }

  /** The address of the socket. */
  get socket() {
    return this.#url("", { _pk: this.#pageId }).replace(/^http/, "ws");
  }

  /** The stored messages, or null where they cannot be had. */
  async history() {
    try {
      const response = await this.#options.fetch(this.#url("/get-messages"), {
        credentials: "same-origin",
        headers: { accept: "application/json" },
      });
      const messages = response.ok ? await response.json() : null;
      return Array.isArray(messages) ? messages : null;
    } catch {
      return null;
    }
  }

  #url(tail, extra = {}) {
    const { path, origin, query } = this.#options;
    const url = new URL(path + tail, origin);
    for (const [key, value] of Object.entries({ ...extra, ...query })) {
      if (value !== null && value !== undefined) url.searchParams.set(key, value);
    }
    return url.href;
  }
}
