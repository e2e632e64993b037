/**
 * A conversation with an agent over a connection that may break.
 *
 *     import { ChatConnection } from "django_streams/chat.js";
 *     const chat = new ChatConnection({ path: "/agents/support-agent/room1" });
 *     chat.addEventListener("change", () => show(chat.messages, chat.status));
 *     chat.open();
 *     chat.send("Hello");
 *
 * Needs no page: it keeps the transcript, finds a running reply again after a
 * reload or a lost connection, applies each chunk once, and hands over what was
 * written while there was no connection. Events: "change" (something new to
 * show), "connection" (see {@link ChatConnection#connection}), "resumed" (the
 * connection is back), "ended" (`detail`: the turn that ended) and "refused"
 * (`detail`: a user's message that is too long to be sent).
 */

import { Endpoint } from "./endpoint.js";
import { newId } from "./ids.js";
import { ReconnectingSocket } from "./socket.js";
import { Transcript } from "./transcript.js";
import { UnsentStore } from "./unsent.js";

export { messageText } from "./message.js";

const PROBE_TIMEOUT = 5000;
/** A running turn is asked about after this long without a frame. */
const QUIET = 30_000;
/** A page that comes back to the front asks after this long without one. */
const STALE = 10_000;
/** A submission that this many connections swallowed without a sign is given up. */
const MAX_TRIES = 5;

/** Bytes of a frame that every server takes; Daphne drops the socket at 1 MiB. */
const MAX_FRAME = 1_000_000;

const TOO_LONG =
  "This is too long to be sent. Ask something shorter, or start a new conversation.";

export class ChatConnection extends EventTarget {
  /** "closed", "connecting", "open", "reconnecting" or "refused". */
  connection = "closed";
  /** Why the server refused this page: `{ code, reason }`. */
  refusal = null;

  #transcript = new Transcript();
  #unsent;
  #options;
  #endpoint;
  #socket;
  /** The probe that waits for its answer: `{ id, sent, barrier, timer, heard }`. */
  #probe = null;
  /** Whether this connection has told what is going on; submissions wait for it. */
  #ready = false;
  #everReady = false;
  /** Requests whose replay was asked for on this connection and is not over. */
  #acknowledged = new Set();
  /** Submissions and probes handed over so far. */
  #handed = 0;
  #clearing = false;
  #quiet = null;
  #heardAt = 0;
  #wake = () => this.#awake();

  /**
   * `path`: of the conversation, `/agents/<agent>/<name>`; `origin`: of the
   * server; `query`: added to both URLs; `body`: custom keys of each
   * submission (an object or a function); `resume`: false leaves running
   * replies alone; `storage`: a Web Storage that keeps what was not sent over a
   * reload. The rest is for tests.
   */
  constructor({
    path,
    origin = globalThis.location?.origin,
    query = {},
    body = {},
    resume = true,
    storage = null,
    fetch = globalThis.fetch?.bind(globalThis),
    clock = globalThis,
    now = () => performance.now(),
    ...socket
  }) {
    super();
    this.#options = { body, resume, clock, now };
    this.#endpoint = new Endpoint({ path, origin, query, fetch });
    this.#unsent = new UnsentStore(storage, path);
    this.#socket = new ReconnectingSocket({
      url: () => this.#endpoint.socket,
      onopen: () => this.#opened(),
      onmessage: (text) => this.#receive(text),
      ondrop: () => this.#dropped(),
      onrefuse: (refusal) => this.#refused(refusal),
      clock,
      ...socket,
    });
  }

  /** UIMessages to show, oldest first; the running reply among them. */
  get messages() {
    return this.#transcript.messages;
  }

  /** "ready", "submitted", "streaming" or "error". */
  get status() {
    return this.#transcript.status;
  }

  /** Whether a reply is on its way of which there is nothing to see yet. */
  get thinking() {
    return this.#transcript.thinking;
  }

  /** Text of the last failure, or null. */
  get error() {
    return this.#transcript.error?.text ?? null;
  }

  /** Whether an interrupted reply is being taken up again by the server. */
  get recovering() {
    return this.#transcript.recovering;
  }

  /** Ids of the messages that are being written. */
  get writing() {
    return this.#transcript.writing();
  }

  /** Ids of the user's messages that wait for a connection. */
  get unsent() {
    const waiting = this.#transcript.unconfirmed();
    const users = waiting.filter(({ state, user }) => state === "unsent" && user);
    return new Set(users.map(({ user }) => user.id));
  }

  /** Load the history, connect, and stay connected until {@link close}. */
  open() {
    for (const { id, user, body } of this.#unsent.kept()) {
      this.#transcript.ask(id, { user, body, trigger: "submit-message" });
    }
    globalThis.addEventListener?.("online", this.#wake);
    globalThis.document?.addEventListener("visibilitychange", this.#wake);
    this.#setConnection("connecting");
    this.#socket.open();
    this.#refresh();
  }

  close() {
    globalThis.removeEventListener?.("online", this.#wake);
    globalThis.document?.removeEventListener("visibilitychange", this.#wake);
    this.#leave();
    this.#socket.close();
    this.#setConnection("closed");
  }

  /**
   * Ask something: a string or a list of message parts. Shown at once, sent as
   * soon as there is a connection, and run once however often it is sent.
   * Returns the request id.
   */
  send(content, { body = null } = {}) {
    const parts =
      typeof content === "string" ? [{ type: "text", text: content }] : content;
    const user = { id: newId(16), role: "user", parts };
    return this.#ask({ user, trigger: "submit-message", body });
  }

  /** Have the last question answered anew; what followed it is dropped. */
  regenerate({ body = null } = {}) {
    const question = this.messages.findLast(({ role }) => role === "user");
    if (!question) return null;
    const anchor = question.id;
    return this.#ask({ anchor, trigger: "regenerate-message", body, cut: true });
  }

  /**
   * Stop the reply that is being written; if there is none, what waits for one.
   * Returns the user's messages that were not sent and are not shown any more.
   */
  stop() {
    const live = this.#transcript.live();
    const written = live.filter(
      ({ state }) => state === "streaming" || state === "offered",
    );
    const withdrawn = [];
    for (const turn of written.length > 0 ? written : live) {
      turn.cancelled = true;
      if (this.#ready) this.#cancel(turn);
    }
    if (live.length === 0) {
      for (const turn of this.#transcript.unconfirmed()) {
        this.#transcript.withdraw(turn);
        if (turn.user) withdrawn.push(turn.user);
      }
    }
    this.#changed();
    return withdrawn;
  }

  /** Empty the conversation, here and for everyone. */
  clear() {
    this.#transcript.clear();
    this.#clearing = true;
    if (this.#ready) this.#sendClear();
    this.#changed();
  }

  #ask(question) {
    const turn = this.#transcript.ask(newId(8), question);
    if (this.#ready) this.#hand(turn);
    this.#changed();
    return turn.id;
  }

  // What goes out ---------------------------------------------------------

  #send(frame) {
    return this.#socket.send(JSON.stringify(frame));
  }

  #hand(turn) {
    if (turn.tries >= MAX_TRIES) {
      this.#transcript.fail(turn, "");
      return;
    }
    const { body: common } = this.#options;
    const body = {
      messages: this.#transcript.submission(turn),
      trigger: turn.trigger,
      ...(typeof common === "function" ? common() : common),
      ...turn.body,
    };
    const frame = {
      type: "cf_agent_use_chat_request",
      id: turn.id,
      init: { method: "POST", body: JSON.stringify(body) },
    };
    if (new TextEncoder().encode(JSON.stringify(frame)).length > MAX_FRAME) {
      this.#transcript.refuse(turn, TOO_LONG);
      if (turn.user) {
        this.dispatchEvent(new CustomEvent("refused", { detail: turn.user }));
      }
      return;
    }
    turn.tries += 1;
    turn.sentAs = this.#handed += 1;
    turn.state = "sent";
    this.#send(frame);
    this.#listenForSilence();
  }

  #cancel({ id }) {
    this.#send({ type: "cf_agent_chat_request_cancel", id });
  }

  /** The answer to the probe behind the clear tells that it was carried out. */
  #sendClear() {
    this.#send({ type: "cf_agent_chat_clear" });
    this.#sendProbe({ barrier: true });
  }

  /** Ask what is going on; the server answers at once. */
  #sendProbe({ barrier = false } = {}) {
    if (!this.#socket.isOpen) return;
    // A later probe stands behind the clear as well as the one it replaces.
    const behind = barrier || this.#probe?.barrier === true;
    this.#endProbe();
    const { clock } = this.#options;
    const probe = { id: newId(8), sent: (this.#handed += 1), heard: false };
    probe.barrier = behind;
    probe.timer = clock.setTimeout(() => this.#unanswered(), PROBE_TIMEOUT);
    this.#probe = probe;
    this.#send({ type: "cf_agent_stream_resume_request", probeId: probe.id });
  }

  #endProbe() {
    this.#options.clock.clearTimeout(this.#probe?.timer);
    this.#probe = null;
  }

  #unanswered() {
    const { heard, barrier } = this.#probe;
    this.#endProbe();
    if (barrier && heard) this.#cleared();
    // A server that knows no probes is served all the same; one that has
    // answered before and is silent now is not there any more.
    if (!this.#ready) this.#becomeReady();
    else if (!heard) this.#socket.replace();
  }

  /** The connection has told what is going on: hand over what waited for that. */
  #becomeReady() {
    if (this.#ready) return;
    this.#ready = true;
    if (this.#clearing) this.#sendClear();
    for (const turn of this.#transcript.live()) {
      if (turn.cancelled) this.#cancel(turn);
    }
    for (const turn of this.#transcript.unconfirmed()) {
      if (turn.state === "unsent") this.#hand(turn);
    }
    if (this.#everReady) this.dispatchEvent(new Event("resumed"));
    this.#everReady = true;
  }

  // The connection --------------------------------------------------------

  #opened() {
    this.#setConnection("open");
    if (this.#options.resume) this.#sendProbe();
    else this.#becomeReady();
    this.#changed();
  }

  #dropped() {
    this.#leave();
    this.#setConnection(this.#everReady ? "reconnecting" : "connecting");
    this.#changed();
  }

  #refused(refusal) {
    this.#leave();
    this.refusal = refusal;
    this.#setConnection("refused");
    this.#changed();
  }

  #leave() {
    this.#endProbe();
    this.#options.clock.clearTimeout(this.#quiet);
    this.#ready = false;
    this.#acknowledged.clear();
    this.#transcript.dropped();
  }

  #setConnection(connection) {
    if (this.connection === connection) return;
    this.connection = connection;
    this.dispatchEvent(new Event("connection"));
  }

  /** The machine or the page came back: the connection may be dead by now. */
  #awake() {
    if (globalThis.document?.visibilityState === "hidden") return;
    if (!this.#socket.isOpen) this.#socket.hurry();
    else if (this.#options.now() - this.#heardAt > STALE) this.#sendProbe();
  }

  #listenForSilence() {
    const { clock, resume } = this.#options;
    clock.clearTimeout(this.#quiet);
    if (!resume || this.#transcript.live().length === 0) return;
    this.#quiet = clock.setTimeout(() => this.#sendProbe(), QUIET);
  }

  // What comes in ---------------------------------------------------------

  #receive(text) {
    let frame;
    try {
      frame = JSON.parse(text);
    } catch {
      return;
    }
    this.#heardAt = this.#options.now();
    if (this.#probe) this.#probe.heard = true;
    const shown = this.#handle(frame);
    this.#listenForSilence();
    if (shown) this.#changed();
  }

  /** Returns whether there is something new to show. */
  #handle(frame) {
    const transcript = this.#transcript;
    switch (frame?.type) {
      case "cf_agent_use_chat_response":
        return this.#response(frame);
      case "cf_agent_chat_messages":
        if (Array.isArray(frame.messages)) transcript.replace(frame.messages);
        return true;
      case "cf_agent_stream_resuming":
        return this.#offered(frame);
      case "cf_agent_stream_pending":
        transcript.pending(frame.id);
        this.#answered(frame);
        return true;
      case "cf_agent_stream_resume_none":
        return this.#nothingRuns(frame);
      case "cf_agent_message_updated":
        transcript.update(frame.message);
        return true;
      case "cf_agent_chat_clear":
        transcript.cleared();
        return true;
      case "cf_agent_chat_recovering":
        transcript.recovering = frame.recovering === true;
        return true;
      default:
        return false;
    }
  }

  #response(frame) {
    const { changed, gap, ended, bare } = this.#transcript.response(frame);
    if (frame.done || frame.error || frame.replayComplete) {
      this.#acknowledged.delete(frame.id);
    }
    if (gap || (ended && this.#transcript.doubtful)) this.#sendProbe();
    if (bare) this.#refresh();
    if (ended) this.dispatchEvent(new CustomEvent("ended", { detail: ended }));
    return changed === true;
  }

  /** A running reply is offered: have it replayed, once for each offer. */
  #offered(frame) {
    const probe = this.#answered(frame);
    if (probe && this.#transcript.only(frame.id, probe.sent)) this.#refresh();
    if (!this.#options.resume || this.#acknowledged.has(frame.id)) return false;
    this.#acknowledged.add(frame.id);
    this.#transcript.expectReplay(frame.id);
    this.#send({ type: "cf_agent_stream_resume_ack", id: frame.id });
    return false;
  }

  #nothingRuns(frame) {
    if (frame.probeId === undefined && frame.reason === undefined) {
      this.#transcript.release();
      this.#becomeReady();
      return true;
    }
    const probe = this.#answered(frame);
    if (probe && frame.reason !== "continuation-owned") {
      if (this.#transcript.idle(probe.sent)) this.#refresh();
      // A submission that the server has no sign of is handed over again.
      for (const turn of this.#transcript.unconfirmed()) {
        if (turn.state === "unsent") this.#hand(turn);
      }
    }
    return true;
  }

  /** Returns the probe that a frame answers, or null. */
  #answered({ probeId }) {
    const probe = this.#probe;
    if (!probe) return null;
    const matches = probeId === probe.id || (probeId === undefined && !probe.barrier);
    if (!matches) return null;
    this.#endProbe();
    if (probe.barrier) this.#cleared();
    this.#becomeReady();
    return probe;
  }

  /** The clear was carried out: transcripts tell the truth again. */
  #cleared() {
    this.#clearing = false;
    this.#transcript.listen();
  }

  /** Ask for the stored messages; a later word over the socket counts more. */
  async #refresh() {
    const since = this.#transcript.version;
    const messages = await this.#endpoint.history();
    if (messages && this.#transcript.merge(messages, since)) this.#changed();
  }

  #changed() {
    this.#unsent.keep(this.#transcript.unconfirmed());
    this.dispatchEvent(new Event("change"));
  }
}
