/** Doubles of what the browser and the server give: a clock and a socket. */

import { ChatConnection } from "../../../django_streams/static/django_streams/chat.js";

/** Time that moves only when told to. */
export class Clock {
  now = 0;
  #timers = new Map();
  #last = 0;

  setTimeout = (callback, delay) => {
    this.#last += 1;
    this.#timers.set(this.#last, { at: this.now + delay, callback });
    return this.#last;
  };

  clearTimeout = (timer) => {
    this.#timers.delete(timer);
  };

  /** Delays of the timers that are set, shortest first. */
  get pending() {
    return [...this.#timers.values()].map(({ at }) => at - this.now).sort((a, b) => a - b);
  }

  pass(milliseconds) {
    const end = this.now + milliseconds;
    for (;;) {
      const due = [...this.#timers]
        .filter(([, { at }]) => at <= end)
        .sort(([, a], [, b]) => a.at - b.at)[0];
      if (!due) break;
      this.#timers.delete(due[0]);
      this.now = due[1].at;
      due[1].callback();
    }
    this.now = end;
  }
}

/** The server's end of each WebSocket that was opened, newest last. */
export class Sockets {
  all = [];

  constructor() {
    const { all } = this;
    this.WebSocket = class {
      readyState = 0;
      sent = [];

      constructor(url) {
        this.url = url;
        all.push(this);
      }

      send(text) {
        this.sent.push(JSON.parse(text));
      }

      close() {
        this.readyState = 3;
      }

      accept() {
        this.readyState = 1;
        this.onopen();
      }

      say(...frames) {
        for (const frame of frames) this.onmessage?.({ data: JSON.stringify(frame) });
      }

      drop(code = 1006, reason = "") {
        this.readyState = 3;
        this.onclose?.({ code, reason });
      }

      /** Frames of one type that the page sent. */
      got(type) {
        return this.sent.filter((frame) => frame.type === type);
      }

      /** The id of the last probe. */
      get probe() {
        return this.got("cf_agent_stream_resume_request").at(-1)?.probeId;
      }
    };
  }

  get last() {
    return this.all.at(-1);
  }
}

/** A Web Storage. */
export class Storage {
  items = new Map();
  getItem = (key) => this.items.get(key) ?? null;
  setItem = (key, value) => this.items.set(key, value);
  removeItem = (key) => this.items.delete(key);
}

/** A connection with its doubles, opened but not yet accepted. */
export function connect({ history = async () => [], ...options } = {}) {
  const clock = new Clock();
  const sockets = new Sockets();
  const fetched = [];
  const chat = new ChatConnection({
    path: "/agents/demo-agent/room1",
    origin: "http://chat.example",
    clock,
    now: () => clock.now,
    random: () => 1,
    WebSocket: sockets.WebSocket,
    fetch: async (url) => {
      fetched.push(url);
      return { ok: true, json: () => history(fetched.length) };
    },
    ...options,
  });
  const changes = [];
  chat.addEventListener("change", () => {
    changes.push(chat.messages.map(textOf));
  });
  chat.open();
  return { chat, clock, sockets, changes, fetched };
}

/** The same, accepted, and told that nothing runs. */
export function connected(options = {}) {
  const all = connect(options);
  greet(all.sockets.last, options.stored ?? []);
  return all;
}

/** Accept a socket: transcript, and the answer that nothing runs. */
export function greet(socket, stored = []) {
  socket.accept();
  socket.say(transcript(stored, { connect: true }), none(socket));
}

export const none = (socket) => ({
  type: "cf_agent_stream_resume_none",
  reason: "idle",
  probeId: socket.probe,
});

export const offer = (id, socket = null) => ({
  type: "cf_agent_stream_resuming",
  id,
  ...(socket && { probeId: socket.probe }),
});

export const transcript = (messages, extra = {}) => ({
  type: "cf_agent_chat_messages",
  messages,
  ...extra,
});

export const frame = (id, extra) => ({
  type: "cf_agent_use_chat_response",
  id,
  body: "",
  done: false,
  ...extra,
});

/** One chunk as the server frames it. */
export const chunk = (id, seq, content, extra = {}) =>
  frame(id, { body: JSON.stringify(content), seq, ...extra });

/** The chunks of a text reply, one delta a word. */
export function reply(words, messageId = "a1") {
  return [
    { type: "start", messageId },
    { type: "start-step" },
    { type: "text-start", id: "t" },
    ...words.map((delta) => ({ type: "text-delta", id: "t", delta })),
    { type: "text-end", id: "t" },
    { type: "finish-step" },
    { type: "finish" },
  ];
}

/** Frames of chunks `from` up to `to`, live or replayed. */
export function frames(id, chunks, { from = 0, to = chunks.length, ...extra } = {}) {
  return chunks.slice(from, to).map((item, index) => chunk(id, from + index, item, extra));
}

export const user = (id, text) => ({
  id,
  role: "user",
  parts: [{ type: "text", text }],
});

export const assistant = (id, text) => ({
  id,
  role: "assistant",
  parts: [{ type: "step-start" }, { type: "text", text, state: "done" }],
});

export const textOf = (message) =>
  message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");

export const texts = (chat) => chat.messages.map(textOf);

/** A small generator of numbers, so that a failure can be had again. */
export function numbers(seed) {
  let state = seed;
  return (below) => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return Math.floor((state / 2147483648) * below);
  };
}
