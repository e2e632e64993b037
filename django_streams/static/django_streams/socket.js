/**
 * A WebSocket that comes back: jittered delays that grow, a limit for the
 * handshake, and an end for good where the server says so.
 */

/** Milliseconds. Jitter: each delay is between half of it and all of it. */
export const TIMING = Object.freeze({
  firstDelay: 1000,
  growth: 1.6,
  maxDelay: 10_000,
  connectTimeout: 8000,
  minUptime: 5000,
});

/** Policy violation and the application's own codes: trying again is no use. */
export function isRefusal(code) {
  return code === 1008 || (code >= 4000 && code <= 4999);
}

export class ReconnectingSocket {
  #options;
  #timing;
  #socket = null;
  #timer = null;
  #uptime = null;
  #attempts = 0;
  #closed = true;

  /**
   * `url`: asked before each attempt. `onopen()`, `onmessage(text)`,
   * `ondrop()` when a connection or an attempt ended and another will be made,
   * `onrefuse({ code, reason })` when none will.
   */
  constructor({
    url,
    onopen,
    onmessage,
    ondrop,
    onrefuse,
    WebSocket = globalThis.WebSocket,
    clock = globalThis,
    random = Math.random,
    timing = {},
  }) {
    this.#options = { url, onopen, onmessage, ondrop, onrefuse, WebSocket, clock, random };
    this.#timing = { ...TIMING, ...timing };
  }

  get isOpen() {
    return this.#socket?.readyState === 1;
  }

  open() {
    this.#closed = false;
    this.#connect();
  }

  /** Returns whether the text was handed to an open socket. */
  send(text) {
    if (!this.isOpen) return false;
    this.#socket.send(text);
    return true;
  }

  /** Try now instead of at the end of the delay; nothing if one is connected. */
  hurry() {
    if (this.#closed || this.#socket) return;
    this.#attempts = 0;
    this.#connect();
  }

  /** Give this connection up for dead and make another at once. */
  replace() {
    if (this.#closed) return;
    this.#abandon();
    this.#options.ondrop();
    this.#connect();
  }

  /** No more connections until {@link open}. */
  close() {
    this.#closed = true;
    this.#abandon();
  }

  #connect() {
    const { url, WebSocket, clock } = this.#options;
    this.#stopTimer();
    const socket = new WebSocket(url());
    this.#socket = socket;
    this.#timer = clock.setTimeout(
      () => this.#dropped(socket),
      this.#timing.connectTimeout,
    );
    socket.onopen = () => {
      if (socket !== this.#socket) return;
      this.#stopTimer();
      this.#uptime = clock.setTimeout(() => {
        this.#attempts = 0;
      }, this.#timing.minUptime);
      this.#options.onopen();
    };
    socket.onmessage = ({ data }) => {
      if (socket === this.#socket && typeof data === "string") {
        this.#options.onmessage(data);
      }
    };
    socket.onclose = ({ code, reason }) => this.#dropped(socket, code, reason);
  }

  #dropped(socket, code = 1006, reason = "") {
    if (socket !== this.#socket) return;
    this.#abandon();
    if (isRefusal(code)) {
      this.#closed = true;
      this.#options.onrefuse({ code, reason });
      return;
    }
    const { firstDelay, growth, maxDelay } = this.#timing;
    const full = Math.min(maxDelay, firstDelay * growth ** this.#attempts);
    this.#attempts += 1;
    this.#timer = this.#options.clock.setTimeout(
      () => this.#connect(),
      full * (0.5 + this.#options.random() / 2),
    );
    this.#options.ondrop();
  }

  /** Let go of the socket; nothing it does later is heard. */
  #abandon() {
    this.#stopTimer();
    const socket = this.#socket;
    this.#socket = null;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }

  #stopTimer() {
    const { clock } = this.#options;
    clock.clearTimeout(this.#timer);
    clock.clearTimeout(this.#uptime);
    this.#timer = this.#uptime = null;
  }
}
