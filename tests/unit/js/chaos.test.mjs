import assert from "node:assert/strict";
import { test } from "node:test";

import { answer, Server } from "./server.mjs";
import { connect, numbers, Storage, textOf } from "./support.mjs";

const ROUNDS = 150;
const STEPS = 300;

/** A page with its tab's storage, seen by a reader who never blinks. */
class Reader {
  storage = new Storage();
  asked = [];
  #shown = new Map();

  constructor() {
    this.load();
  }

  load() {
    this.all?.chat.close();
    this.all = connect({ storage: this.storage });
    this.#shown.clear();
    this.all.chat.addEventListener("change", () => this.#look());
  }

  ask(text) {
    this.asked.push(text);
    this.all.chat.send(text);
  }

  /** What is on the screen only grows and is never anything but the reply. */
  #look() {
    const ids = this.all.chat.messages.map(({ id }) => id);
    assert.equal(new Set(ids).size, ids.length, "a message is shown twice");
    for (const message of this.all.chat.messages) {
      if (message.role !== "assistant") continue;
      const text = textOf(message);
      const before = this.#shown.get(message.id) ?? "";
      assert.ok(text.startsWith(before), `${before} | ${text}`);
      this.#shown.set(message.id, text);
    }
  }
}

function world(next) {
  const server = new Server();
  const readers = [new Reader(), new Reader()];
  const links = new Map();
  const link = (reader) => {
    const known = links.get(reader);
    return server.links.includes(known) ? known : undefined;
  };
  const connectOne = (reader) => {
    const { last } = reader.all.sockets;
    if (last.readyState === 0) links.set(reader, server.accept(last));
  };
  const deliver = (reader, direction, times = 1) => {
    for (let time = 0; time < times; time += 1) {
      const found = link(reader);
      if (found) server.deliver(found, direction);
    }
  };
  let questions = 0;
  const step = (reader) => {
    const what = next(100);
    if (what < 30) deliver(reader, "toClient", 1 + next(6));
    else if (what < 55) deliver(reader, "toServer", 1 + next(3));
    else if (what < 80) server.work();
    else if (what < 88) connectOne(reader);
    else if (what < 91 && questions < 5) {
      questions += 1;
      reader.ask(`question number ${questions}`);
    } else if (what < 95) {
      const found = link(reader);
      if (found) server.drop(found);
    } else if (what < 97) {
      reader.load();
      const found = link(reader);
      if (found) server.drop(found);
    } else reader.all.clock.pass(next(4000));
  };
  /** The network holds from now on: everything comes to its end. */
  const settle = () => {
    for (let time = 0; time < 400; time += 1) {
      for (const reader of readers) {
        if (!link(reader)) {
          if (reader.all.sockets.last.readyState === 3) reader.all.clock.pass(500);
          connectOne(reader);
        }
        deliver(reader, "toServer", 50);
        deliver(reader, "toClient", 500);
      }
      server.work();
    }
  };
  return { server, readers, step, settle };
}

test("whatever breaks and whenever, every question is answered once and word for word", () => {
  for (let seed = 1; seed <= ROUNDS; seed += 1) {
    const next = numbers(seed);
    const { server, readers, step, settle } = world(next);
    try {
      for (let time = 0; time < STEPS; time += 1) step(readers[next(readers.length)]);
      settle();
      const asked = readers.flatMap((reader) => reader.asked).sort();
      const answers = asked.map((question) => answer(question).join("")).sort();
      assert.deepEqual([...server.runs.values()], asked.map(() => 1));
      for (const { all } of readers) {
        const { messages, status } = all.chat;
        const said = (role) =>
          messages.filter((message) => message.role === role).map(textOf).sort();
        assert.equal(status, "ready");
        assert.deepEqual(said("user"), asked);
        assert.deepEqual(said("assistant"), answers);
      }
    } catch (error) {
      error.message = `seed ${seed}: ${error.message}`;
      throw error;
    } finally {
      for (const { all } of readers) all.chat.close();
    }
  }
});
