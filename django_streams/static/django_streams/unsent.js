/**
 * What was asked and got no sign from the server yet, kept over a reload of the
 * page. Sent again under the same request id, it still runs once.
 */

const PREFIX = "django_streams.unsent:";

export class UnsentStore {
  #storage;
  #key;
  #empty = false;

  /** `storage`: a Web Storage, or null to keep nothing. */
  constructor(storage, path) {
    this.#storage = storage;
    this.#key = PREFIX + path;
  }

  /** Keep the user's messages among these turns, and nothing else. */
  keep(turns) {
    const asked = turns.filter(({ user }) => user !== null);
    if (!this.#storage || (asked.length === 0 && this.#empty)) return;
    this.#empty = asked.length === 0;
    const kept = asked.map(({ id, user, body }) => ({ id, user, body }));
    try {
      if (this.#empty) this.#storage.removeItem(this.#key);
      else this.#storage.setItem(this.#key, JSON.stringify(kept));
    } catch {
      // Full or forbidden: then this page alone keeps what was typed.
    }
  }

  /** `{ id, user, body }` of what an earlier page left, oldest first. */
  kept() {
    try {
      const kept = JSON.parse(this.#storage?.getItem(this.#key) ?? "[]");
      return Array.isArray(kept) ? kept.filter(({ id, user }) => id && user?.id) : [];
    } catch {
      return [];
    }
  }
}
