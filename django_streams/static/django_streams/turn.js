/**
 * One run of the agent as this page sees it: what was asked, how far it is, and
 * the reply as far as it has arrived. No I/O.
 *
 * A chunk is applied exactly once. Live chunks carry their position (`seq`) and
 * are taken only in order; a replay is built aside from chunk 0 and takes the
 * place of what was there in one step, when it is complete.
 */

import { MessageBuilder, messageWeight } from "./message.js";

/**
 * unsent: typed here, not handed to a socket that answered
 * sent: handed over, no sign of it yet
 * waiting: the server has it
 * offered: its reply is about to be replayed
 * streaming: its reply arrives
 * ended: nothing more will come
 */
const LIVE = new Set(["sent", "waiting", "offered", "streaming"]);

export class Turn {
  state = "waiting";
  /** The user's message, when this page sent it. */
  user = null;
  /** Whether `user` is shown though no transcript holds it yet. */
  pinned = false;
  trigger = "submit-message";
  body = null;
  /** Id of the message after which the reply stands; null: at the end. */
  anchor = null;
  /** Whether what follows the anchor is hidden: it is being regenerated. */
  cut = false;
  /** Cleared meanwhile: it must still end, but shows nothing. */
  muted = false;
  /** Number of the frame that submitted it, counted over the page's life. */
  sentAs = 0;
  tries = 0;
  /** Whether this page asked to stop it. */
  cancelled = false;
  /** Whether it may have ended without this page having seen it. */
  doubtful = false;
  /** The server's copy of the reply from the last transcript. */
  snapshot = null;
  outcome = null;
  error = null;
  /** Whether the server said that it ended (and not only that it is gone). */
  settled = false;

  #base;
  #builder = null;
  #next = 0;
  #replay = null;
  #gap = false;

  /** `base`: the message that a continuation appends to. */
  constructor(id, { base = null } = {}) {
    this.id = id;
    this.#base = base;
  }

  get live() {
    return LIVE.has(this.state);
  }

  /** The reply to show, or null while there is nothing to see of it. */
  get message() {
    if (this.muted) return null;
    const built = this.#builder?.message ?? null;
    const { snapshot } = this;
    if (!built || !visible(built)) return snapshot;
    if (snapshot && messageWeight(snapshot) >= messageWeight(built)) return snapshot;
    return built;
  }

  /** Id of the reply; the server's own once its `start` chunk has come. */
  get messageId() {
    return this.#builder?.message.id ?? null;
  }

  /** Whether a replay is under way of which nothing is shown yet. */
  get replaying() {
    return this.#replay !== null;
  }

  /** Whether a replay has brought at least one chunk. */
  get replayed() {
    return (this.#replay?.next ?? 0) > 0;
  }

  /** A replay was asked for: it will start at chunk 0. */
  expectReplay() {
    this.#replay = { builder: this.#newBuilder(), next: 0 };
    this.#gap = false;
    if (this.state !== "streaming") this.state = "offered";
  }

  /**
   * Take a chunk in. Returns "shown" when the reply changed, "held" when it
   * waits for the rest of a replay, "dropped" when it was applied before or
   * belongs to a replay nobody asked for, "gap" when chunks before it are
   * missing (once; the rest of the gap is dropped).
   */
  take(chunk, { seq, replay }) {
    if (replay) return this.#takeReplayed(chunk, seq);
    if (this.replayed) this.finishReplay();
    if (Number.isInteger(seq)) {
      if (seq === 0 && this.#isRestart(chunk)) this.#next = 0;
      if (seq < this.#next) return "dropped";
      if (seq > this.#next) {
        const known = this.#gap || this.#replay !== null;
        this.#gap = true;
        return known ? "dropped" : "gap";
      }
      this.#next = seq + 1;
    }
    this.#builder ??= this.#newBuilder();
    this.#builder.apply(chunk);
    this.state = "streaming";
    return "shown";
  }

  /** The replay is complete: show it in place of what was there. */
  finishReplay() {
    if (!this.#replay) return;
    this.#builder = this.#replay.builder;
    this.#next = this.#replay.next;
    this.#replay = null;
    this.#gap = false;
    // A replay is the log itself: a copy from before it may be of a dropped try.
    if (this.snapshot && this.snapshot.id !== this.messageId) this.snapshot = null;
    this.state = "streaming";
  }

  /** The connection is gone, and with it the rest of a replay. */
  dropped() {
    this.#replay = null;
    this.doubtful = true;
    if (this.state === "offered") this.state = "waiting";
  }

  /** Nothing more will come. Chunks of an unfinished replay count. */
  end(outcome, { error = null, settled = true } = {}) {
    if (this.replayed) this.finishReplay();
    this.#replay = null;
    this.#builder?.finish();
    this.state = "ended";
    this.outcome = outcome;
    this.error = error;
    this.settled = settled;
  }

  #takeReplayed(chunk, seq) {
    if (!this.#replay) return "dropped";
    if (seq === 0 && this.#replay.next > 0) this.expectReplay();
    const replay = this.#replay;
    if (Number.isInteger(seq)) {
      if (seq < replay.next) return "dropped";
      replay.next = seq + 1;
    } else {
      replay.next += 1;
    }
    replay.builder.apply(chunk);
    return "held";
  }

  #newBuilder() {
    return new MessageBuilder({ base: this.#base, id: `reply-${this.id}` });
  }

  #isRestart(chunk) {
    return (
      chunk?.type === "start" &&
      typeof chunk.messageId === "string" &&
      this.messageId !== null &&
      chunk.messageId !== this.messageId
    );
  }
}

/** Whether there is anything to see of a message. */
export function visible(message) {
  return message.parts.some(
    (part) => part.type !== "step-start" && (part.text === undefined || part.text !== ""),
  );
}
