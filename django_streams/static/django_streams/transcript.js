/**
 * The conversation as this page knows it: the stored messages, the turns that
 * are under way, and how frames from the server change both. No I/O.
 */

import { Turn } from "./turn.js";

/** Ended turns whose ids are remembered, so that late frames change nothing. */
const REMEMBERED = 50;

const NOTHING = Object.freeze({});

export class Transcript {
  /** Request id to turn, in the order in which they were first seen. */
  turns = new Map();
  /** The last failure, until something new is asked: `{ text, turn }`. */
  error = null;
  recovering = false;
  /** Grows with each transcript from the server and each ended turn. */
  version = 0;

  #stored = [];
  /** After a clear, until the server has answered behind it. */
  #deaf = false;

  /** What to show, oldest first. */
  get messages() {
    let list = [...this.#stored];
    for (const turn of this.#underWay()) {
      if (turn.cut) list = upTo(list, turn.anchor);
      pin(list, turn);
    }
    for (const turn of this.#underWay()) place(list, turn);
    return list;
  }

  /** "ready", "submitted", "streaming" or "error". */
  get status() {
    const live = this.live();
    if (live.some(({ state }) => state === "streaming" || state === "offered")) {
      return "streaming";
    }
    if (live.length > 0) return "submitted";
    return this.error ? "error" : "ready";
  }

  /** Whether the agent works on a reply of which nothing is to be seen yet. */
  get thinking() {
    const live = this.live();
    return (
      live.length > 0 &&
      live.every((turn) => !turn.replaying && turn.state !== "offered") &&
      live.every((turn) => turn.message === null || turn.state !== "streaming")
    );
  }

  /** Turns that are under way on the server, as far as this page knows. */
  live() {
    return [...this.turns.values()].filter((turn) => turn.live && !turn.muted);
  }

  /** Whether a turn that seems to be under way may have ended unseen. */
  get doubtful() {
    return this.live().some(({ doubtful }) => doubtful);
  }

  /** Turns that the server has shown no sign of, in the order they were made. */
  unconfirmed() {
    return [...this.turns.values()].filter(
      ({ state }) => state === "unsent" || state === "sent",
    );
  }

  /** Ids of the replies that are being written. */
  writing() {
    const ids = this.live().map((turn) => turn.message?.id);
    return new Set(ids.filter((id) => id !== undefined));
  }

  /** A new turn of this page; nothing is sent here. */
  ask(id, { user = null, trigger, anchor, body = null, cut = false }) {
    const turn = new Turn(id);
    Object.assign(turn, { user, trigger, body, cut, state: "unsent" });
    turn.pinned = user !== null;
    turn.anchor = user ? user.id : anchor;
    this.error = null;
    this.turns.set(id, turn);
    return turn;
  }

  /** The messages to submit with a turn: all that stand before its reply. */
  submission(turn) {
    return upTo(this.messages, turn.anchor);
  }

  /** Forget a turn that was never sent. */
  withdraw(turn) {
    this.turns.delete(turn.id);
  }

  /** Forget a turn that cannot be sent, and say why. */
  refuse(turn, text) {
    this.withdraw(turn);
    this.error = { text, turn: turn.id };
    this.version += 1;
  }

  /** Give up on a turn whose submission got no answer. */
  fail(turn, text) {
    this.#end(turn, "error", { error: text, settled: false });
  }

  /** Empty everything; transcripts are ignored until {@link listen}. */
  clear() {
    this.#wipe();
    this.#deaf = true;
  }

  /** The server has answered to something that was sent behind the clear. */
  listen() {
    this.#deaf = false;
  }

  /**
   * The transcript as the server has it. A reply that is being written here
   * keeps the later of the two copies; messages of this page that the server
   * has not shown yet stay.
   */
  replace(messages) {
    if (this.#deaf) return;
    this.#stored = messages.filter(isMessage);
    this.version += 1;
    const ids = new Map(this.#stored.map((message) => [message.id, message]));
    for (const turn of this.#underWay()) {
      turn.snapshot = ids.get(turn.messageId) ?? null;
      if (turn.user && ids.has(turn.user.id)) {
        turn.pinned = false;
        if (turn.state !== "unsent" && turn.state !== "sent") continue;
        // The server has the question; whether it is answered is not said here.
        turn.state = "waiting";
        turn.doubtful = true;
      }
    }
  }

  /** The history that was asked for when the transcript had version `since`. */
  merge(messages, since) {
    if (this.version === since) {
      this.replace(messages);
      return true;
    }
    return false;
  }

  /** The reply of a request will be replayed. */
  expectReplay(id) {
    let turn = this.turns.get(id);
    if (!turn || (turn.state === "ended" && !turn.settled)) {
      turn = this.#observe(id, false);
    }
    // The end of this turn is known; what is replayed would only repeat it.
    if (turn.state === "ended") return;
    this.#confirm(turn);
    turn.expectReplay();
  }

  /** A turn was accepted and has no reply yet. */
  pending(id) {
    if (id === undefined) return;
    const turn = this.turns.get(id) ?? this.#observe(id, false);
    if (turn.state === "unsent" || turn.state === "sent") turn.state = "waiting";
    this.#confirm(turn);
  }

  /**
   * The server has nothing under way. `sentBefore`: the number of the probe it
   * answers; what was submitted after it is not meant. Returns whether a reply
   * ended without its end having been seen.
   */
  idle(sentBefore) {
    let lost = false;
    for (const turn of this.live()) {
      if (turn.sentAs >= sentBefore) continue;
      if (turn.state === "sent") {
        turn.state = "unsent";
        continue;
      }
      lost ||= turn.snapshot === null;
      this.#end(turn, "completed", { settled: false });
    }
    return lost;
  }

  /**
   * A frame about a turn. Returns `{ changed, gap, ended, bare }`: whether
   * there is something new to show, whether chunks are missing, the turn that
   * ended, and whether it ended in a way that does not tell what it said.
   */
  response(frame) {
    let turn = this.turns.get(frame.id);
    if (turn?.state === "ended") return NOTHING;
    // Its process died, and it is begun anew: the replay of the new one, which
    // is offered next, takes the place of what is shown.
    if (frame.done && frame.outcome === "recovering") return NOTHING;
    if (!turn) {
      if (frame.replay) return NOTHING;
      if (frame.done || frame.error) {
        return frame.error ? this.#failedElsewhere(frame) : NOTHING;
      }
      turn = this.#observe(frame.id, frame.continuation === true);
    }
    this.#confirm(turn);
    if (frame.error) {
      this.#end(turn, "error", { error: frame.body ?? "" });
      return { changed: true, ended: turn };
    }
    const chunk = frame.body ? parse(frame.body) : null;
    const fate = chunk ? turn.take(chunk, frame) : "dropped";
    if (frame.done) {
      const bare = !turn.replayed && (frame.replay === true || turn.message === null);
      this.#end(turn, frame.outcome ?? "completed");
      return { changed: true, ended: turn, bare };
    }
    if (frame.replayComplete) turn.finishReplay();
    return {
      changed: fate === "shown" || frame.replayComplete === true,
      gap: fate === "gap",
    };
  }

  /**
   * Only the turn `id` is running: whatever else was being written has ended.
   * Arguments and result as in {@link idle}.
   */
  only(id, sentBefore) {
    let lost = false;
    for (const turn of this.live()) {
      const written = turn.state === "streaming" || turn.state === "offered";
      if (turn.id === id || !written || turn.sentAs >= sentBefore) continue;
      lost ||= turn.snapshot === null;
      this.#end(turn, "completed", { settled: false });
    }
    return lost;
  }

  /** The connection is gone: what got no sign of it will be handed over again. */
  dropped() {
    for (const turn of this.unconfirmed()) turn.state = "unsent";
    for (const turn of this.#underWay()) if (turn.live) turn.dropped();
  }

  /** What the server had accepted has ended without a reply. */
  release() {
    for (const turn of this.live()) {
      const own = turn.sentAs > 0;
      if (turn.state === "waiting" && !own) {
        this.#end(turn, "skipped", { settled: false });
      }
    }
  }

  /** A stored message changed, e.g. the output of a tool call in it arrived. */
  update(message) {
    if (!isMessage(message)) return;
    const calls = new Set(callIds(message));
    const index = this.#stored.findIndex(
      (known) =>
        known.id === message.id || callIds(known).some((call) => calls.has(call)),
    );
    if (index < 0) return;
    this.#stored[index] = { ...message, id: this.#stored[index].id };
  }

  /** Another page emptied the conversation; what this page just asked stays. */
  cleared() {
    this.#wipe({ keepUnconfirmed: true });
  }

  #wipe({ keepUnconfirmed = false } = {}) {
    this.#stored = [];
    this.error = null;
    this.version += 1;
    for (const turn of this.turns.values()) {
      const unconfirmed = turn.state === "unsent" || turn.state === "sent";
      if (unconfirmed && turn.user && keepUnconfirmed) continue;
      if (turn.state === "unsent") {
        this.turns.delete(turn.id);
      } else {
        turn.muted = true;
        turn.pinned = false;
      }
    }
  }

  #underWay() {
    return [...this.turns.values()].filter(({ state }) => state !== "ended");
  }

  #observe(id, continuation) {
    const messages = this.messages;
    const base = continuation
      ? messages.findLast(({ role }) => role === "assistant")
      : null;
    const turn = new Turn(id, { base });
    turn.anchor = messages.at(-1)?.id ?? null;
    this.turns.set(id, turn);
    return turn;
  }

  /** The server knows this turn: it is neither sent again nor cut any longer. */
  #confirm(turn) {
    if (turn.state === "unsent" || turn.state === "sent") turn.state = "waiting";
    turn.doubtful = false;
    if (turn.cut) {
      this.#stored = upTo(this.#stored, turn.anchor);
      turn.cut = false;
    }
    if (!turn.muted) this.error = null;
  }

  #end(turn, outcome, { error = null, settled = true } = {}) {
    turn.end(outcome, { error, settled });
    if (!turn.muted) {
      pin(this.#stored, turn);
      place(this.#stored, turn);
      if (error !== null) this.error = { text: error, turn: turn.id };
    }
    this.version += 1;
    const ended = [...this.turns.values()].filter(({ state }) => state === "ended");
    for (const old of ended.slice(0, -REMEMBERED)) this.turns.delete(old.id);
  }

  #failedElsewhere({ id, body }) {
    const turn = this.#observe(id, false);
    this.#end(turn, "error", { error: body ?? "" });
    return { changed: true, ended: turn };
  }
}

/** Show the user's message of a turn that no transcript holds yet. */
function pin(list, turn) {
  if (turn.pinned && !list.some(({ id }) => id === turn.user.id)) {
    list.push(turn.user);
  }
}

/** Put the reply of a turn where it belongs. */
function place(list, turn) {
  const { message } = turn;
  if (!message) return;
  const known = list.findIndex(({ id }) => id === message.id);
  if (known >= 0) {
    list[known] = message;
    return;
  }
  const anchor = list.findIndex(({ id }) => id === turn.anchor);
  list.splice(anchor < 0 ? list.length : anchor + 1, 0, message);
}

/** The messages up to and including the one with this id; all if it is absent. */
function upTo(list, id) {
  const index = list.findIndex((message) => message.id === id);
  return index < 0 ? [...list] : list.slice(0, index + 1);
}

function callIds(message) {
  return message.parts.map((part) => part.toolCallId).filter((id) => id !== undefined);
}

function isMessage(message) {
  return (
    typeof message?.id === "string" &&
    typeof message.role === "string" &&
    Array.isArray(message.parts)
  );
}

function parse(body) {
  try {
    return JSON.parse(body);
  } catch {
    return null;
  }
}
