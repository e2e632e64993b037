/**
 * A server as the wire's description has it, over links that lose what is on its
 * way when they break. It moves only when the test says so.
 */

import { reply } from "./support.mjs";

/** What the model says to a question. */
export const answer = (question) => [`You `, `asked: `, ...question.split(/(?<= )/), "."];

class Link {
  toClient = [];
  toServer = [];
  /** Turns whose live chunks go to this connection. */
  follows = new Set();

  constructor(socket) {
    this.socket = socket;
  }

  say(frame) {
    this.toClient.push(frame);
  }
}

export class Server {
  messages = [];
  turns = [];
  links = [];
  /** How often each request id was run. */
  runs = new Map();

  get active() {
    return this.turns.find((turn) => !turn.done);
  }

  accept(socket) {
    const link = new Link(socket);
    socket.accept();
    socket.send = (text) => link.toServer.push(JSON.parse(text));
    // What the page said while the connection was made.
    for (const frame of socket.sent.splice(0)) link.toServer.push(frame);
    this.links.push(link);
    link.say(this.#transcript({ connect: true }));
    if (this.active?.log.length) this.#offer(link);
    return link;
  }

  drop(link) {
    this.links.splice(this.links.indexOf(link), 1);
    link.socket.drop();
  }

  /** Deliver one frame in one direction, if there is one. */
  deliver(link, direction) {
    const frame = link[direction].shift();
    if (!frame) return;
    if (direction === "toClient") link.socket.say(frame);
    else this.#receive(link, frame);
  }

  /** The running turn goes one chunk further, or ends. */
  work() {
    const turn = this.active;
    if (!turn) return;
    const seq = turn.log.length;
    if (seq < turn.chunks.length) {
      turn.log.push(turn.chunks[seq]);
      for (const link of this.links) {
        if (link.follows.has(turn.id)) link.say(chunkFrame(turn, seq));
        else if (seq === 0) this.#offer(link);
      }
      return;
    }
    turn.done = true;
    const text = turn.words.join("");
    this.messages.push({
      id: turn.chunks[0].messageId,
      role: "assistant",
      parts: [{ type: "step-start" }, { type: "text", text, state: "done" }],
    });
    for (const link of this.links) {
      if (!link.follows.has(turn.id) || turn.owner !== link) link.say(this.#transcript());
      link.say(response(turn, { done: true }));
    }
  }

  #receive(link, frame) {
    switch (frame.type) {
      case "cf_agent_stream_resume_request":
        if (this.active?.log.length) this.#offer(link, frame.probeId);
        else if (this.active) {
          link.say({ ...about("pending", this.active), probeId: frame.probeId });
        } else {
          const none = { type: "cf_agent_stream_resume_none", reason: "idle" };
          link.say({ ...none, probeId: frame.probeId });
        }
        break;
      case "cf_agent_stream_resume_ack":
        this.#replay(link, this.turns.find(({ id }) => id === frame.id));
        break;
      case "cf_agent_use_chat_request":
        this.#submit(link, frame);
        break;
    }
  }

  #offer(link, probeId) {
    link.follows.delete(this.active.id);
    link.say({ ...about("resuming", this.active), ...(probeId && { probeId }) });
  }

  #replay(link, turn) {
    turn.log.forEach((_, seq) => link.say(chunkFrame(turn, seq, { replay: true })));
    if (turn.done) link.say(response(turn, { done: true, replay: true }));
    else {
      link.say(response(turn, { replay: true, replayComplete: true }));
      link.follows.add(turn.id);
    }
  }

  #submit(link, { id, init }) {
    const known = this.turns.find((turn) => turn.id === id);
    if (known) {
      if (known.done) link.say(this.#transcript());
      if (known.done) link.say(response(known, { done: true }));
      return;
    }
    const { messages } = JSON.parse(init.body);
    const question = messages.at(-1);
    for (const message of messages) {
      const ids = this.messages.map((stored) => stored.id);
      if (message.role === "user" && !ids.includes(message.id)) this.messages.push(message);
    }
    const words = answer(question.parts[0].text);
    const chunks = reply(words, `reply-to-${question.id}`);
    this.turns.push({ id, words, chunks, log: [], done: false, owner: link });
    this.runs.set(id, (this.runs.get(id) ?? 0) + 1);
    link.follows.add(id);
    for (const other of this.links) if (other !== link) other.say(this.#transcript());
  }

  #transcript(extra = {}) {
    return { type: "cf_agent_chat_messages", messages: structuredClone(this.messages), ...extra };
  }
}

const about = (what, { id }) => ({ type: `cf_agent_stream_${what}`, id });

const response = ({ id }, extra) => ({
  type: "cf_agent_use_chat_response",
  id,
  body: "",
  done: false,
  ...extra,
});

const chunkFrame = (turn, seq, extra = {}) =>
  response(turn, { body: JSON.stringify(turn.log[seq]), seq, ...extra });
