/**
 * A plain stream of server-sent events, followed to its end.
 *
 *     import { StreamConnection } from "django_streams/stream.js";
 *     const stream = new StreamConnection("/streams/report/events");
 *     stream.addEventListener("chunk", ({ detail }) => show(detail.chunk));
 *     stream.addEventListener("reset", () => clear());
 *     stream.addEventListener("done", () => finish());
 *     stream.addEventListener("failed", ({ detail }) => explain(detail.reason));
 *
 * The browser's own EventSource does the work: it reconnects by itself and says
 * which event it saw last. This class adds what it cannot know: that "done" is
 * the end (EventSource would come back for ever), that a server's "error" is not
 * a lost connection, that a "reset" begins anew, and that a 503 during a deploy
 * passes while a 404 does not.
 *
 * Events: "chunk" (`detail`: `{ seq, chunk }`), "reset" (what was shown is
 * another stream's; `detail.cursor`: how much there is), "up-to-date" (all that
 * was stored has been shown), "done", "failed" (`detail.reason`, the producer's
 * text or null), and "state" (see {@link StreamConnection#state}).
 */

/** Milliseconds between two tries while the server answers with an error. */
const RETRY = Object.freeze({ first: 1000, growth: 2, max: 15_000 });

export class StreamConnection extends EventTarget {
  /**
   * "connecting", "open", "reconnecting"; and at the end "done", "failed",
   * "gone" (the server does not know the stream, or not for this user), or
   * "closed" (by {@link StreamConnection#close}).
   */
  state = "connecting";
  /** Seq of the next chunk: what to give as `from` to go on here later. */
  next;

  #url;
  #withCredentials;
  #retry;
  #source = null;
  #timer = null;
  #probe = null;
  #tries = 0;
  /** As EventSource keeps it; it is lost with the EventSource. */
  #lastEventId = "";

  /**
   * `from`: seq of the first chunk wanted. `withCredentials`: send cookies to
   * another origin. Connects at once.
   */
  constructor(url, { from = 0, withCredentials = false, retry = RETRY } = {}) {
    super();
    this.#url = new URL(url, document.baseURI);
    this.#withCredentials = withCredentials;
    this.#retry = { ...RETRY, ...retry };
    this.next = from;
    this.#connect();
  }

  /** Whether no more events will come. */
  get ended() {
    return ["done", "failed", "gone", "closed"].includes(this.state);
  }

  /** Stop following. The stream itself goes on. */
  close() {
    if (!this.ended) this.#end("closed");
  }

  #connect() {
    const source = new EventSource(this.#address(), {
      withCredentials: this.#withCredentials,
    });
    this.#source = source;
    source.onopen = () => {
      this.#tries = 0;
      this.#become("open");
    };
    source.onmessage = (event) => this.#chunk(event);
    source.addEventListener("reset", (event) => {
      this.next = 0;
      this.#lastEventId = "";
      this.#tell("reset", JSON.parse(event.data));
    });
    source.addEventListener("up-to-date", () => this.#tell("up-to-date"));
    source.addEventListener("done", () => this.#end("done"));
    source.addEventListener("error", (event) => {
      // A lost connection and the server's own "error" share this name; only
      // the latter has data.
      if (event.data !== undefined) {
        this.#end("failed", JSON.parse(event.data));
      } else if (source.readyState === EventSource.CLOSED) {
        this.#refused();
      } else {
        this.#become("reconnecting");
      }
    });
  }

  #address() {
    const address = new URL(this.#url);
    if (this.next > 0) address.searchParams.set("from", String(this.next));
    return address;
  }

  #chunk(event) {
    const seq = Number(event.lastEventId);
    // After a gap in the middle nothing could be trusted; the server never
    // sends one, and a repeat is harmless.
    if (seq < this.next) return;
    this.next = seq + 1;
    this.#lastEventId = event.lastEventId;
    this.#tell("chunk", { seq, chunk: JSON.parse(event.data) });
  }

  /** The browser has given up, and does not say at which answer: ask again. */
  async #refused() {
    this.#source.close();
    this.#become("reconnecting");
    this.#probe = new AbortController();
    let status = 0;
    try {
      const answer = await fetch(this.#url, {
        method: "HEAD",
        cache: "no-store",
        credentials: this.#withCredentials ? "include" : "same-origin",
        headers: this.#lastEventId ? { "Last-Event-ID": this.#lastEventId } : {},
        signal: this.#probe.signal,
      });
      status = answer.status;
    } catch {
      // No answer at all is no refusal.
    }
    if (this.ended) return;
    if (status === 204) this.#end("done");
    else if (status >= 400 && status < 500 && status !== 429) this.#end("gone");
    else this.#timer = setTimeout(() => this.#connect(), this.#delay());
  }

  #delay() {
    const { first, growth, max } = this.#retry;
    const full = Math.min(max, first * growth ** this.#tries);
    this.#tries += 1;
    // Random, or all pages come back at the same moment.
    return full * (0.5 + Math.random() / 2);
  }

  #end(state, detail) {
    this.#source?.close();
    this.#probe?.abort();
    clearTimeout(this.#timer);
    this.#become(state);
    if (state === "done" || state === "failed") this.#tell(state, detail);
  }

  #become(state) {
    if (this.state === state || this.ended) return;
    this.state = state;
    this.#tell("state", { state });
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
