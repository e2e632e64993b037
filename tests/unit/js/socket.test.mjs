import assert from "node:assert/strict";
import { test } from "node:test";

import { ReconnectingSocket } from "../../../django_streams/static/django_streams/socket.js";
import {
  Clock,
  connected,
  frames,
  greet,
  none,
  reply,
  Sockets,
  texts,
  transcript,
  user,
} from "./support.mjs";

const PROBE = "cf_agent_stream_resume_request";

function socket({ random = () => 1 } = {}) {
  const clock = new Clock();
  const sockets = new Sockets();
  const events = [];
  const made = new ReconnectingSocket({
    url: () => `ws://chat.example/${sockets.all.length}`,
    onopen: () => events.push("open"),
    onmessage: (text) => events.push(text),
    ondrop: () => events.push("drop"),
    onrefuse: ({ code, reason }) => events.push(`refused ${code} ${reason}`),
    WebSocket: sockets.WebSocket,
    clock,
    random,
  });
  made.open();
  return { made, clock, sockets, events };
}

/** How long it takes until the next attempt. */
function delay({ clock, sockets }) {
  const { length } = sockets.all;
  const [milliseconds] = clock.pending;
  clock.pass(milliseconds);
  assert.equal(sockets.all.length, length + 1);
  return Math.round(milliseconds);
}

test("the delay grows up to a limit", () => {
  const all = socket();
  const delays = Array.from({ length: 8 }, () => {
    all.sockets.last.drop();
    return delay(all);
  });
  assert.deepEqual(delays, [1000, 1600, 2560, 4096, 6554, 10_000, 10_000, 10_000]);
});

test("two pages do not come back at the same moment", () => {
  const early = socket({ random: () => 0 });
  const late = socket({ random: () => 1 });
  early.sockets.last.drop();
  late.sockets.last.drop();
  assert.deepEqual([delay(early), delay(late)], [500, 1000]);
});

test("a connection that lasted begins the delays anew, one that did not does not", () => {
  const all = socket();
  for (const [lasted, expected] of [[0, 1000], [4999, 1600], [5000, 1000]]) {
    all.sockets.last.accept();
    all.clock.pass(lasted);
    all.sockets.last.drop();
    assert.equal(delay(all), expected);
  }
});

test("an attempt that gets no answer is given up", () => {
  const { clock, sockets, events } = socket();
  clock.pass(8000);
  assert.deepEqual(events, ["drop"]);
  assert.equal(sockets.last.readyState, 3);
  clock.pass(1000);
  assert.equal(sockets.all.length, 2);
});

test("where the server refuses for good there is no other attempt", () => {
  for (const code of [1008, 4000, 4401, 4429, 4999]) {
    const { clock, sockets, events, made } = socket();
    sockets.last.drop(code, "why");
    assert.deepEqual(events, [`refused ${code} why`]);
    assert.deepEqual(clock.pending, []);
    made.hurry();
    assert.equal(sockets.all.length, 1);
  }
});

test("every other end is followed by another attempt", () => {
  for (const code of [1000, 1001, 1006, 1011, 1012, 1013, 3000, 3011, 5000]) {
    const all = socket();
    all.sockets.last.drop(code);
    delay(all);
  }
});

test("what a socket says after it was given up is not heard", () => {
  const { made, sockets, events } = socket();
  const [old] = sockets.all;
  const { onmessage, onclose } = old;
  old.accept();
  made.replace();
  onmessage({ data: "late" });
  onclose({ code: 4401, reason: "" });
  assert.deepEqual(events, ["open", "drop"]);
  assert.equal(sockets.all.length, 2);
  assert.equal(old.readyState, 3);
});

test("a closed one stays closed", () => {
  const { made, clock, sockets } = socket();
  sockets.last.accept();
  made.close();
  made.replace();
  made.hurry();
  assert.equal(made.send("x"), false);
  assert.deepEqual(clock.pending, []);
  assert.equal(sockets.all.length, 1);
});

test("a page that comes back does not wait for the delay", () => {
  const { made, sockets } = socket();
  sockets.last.drop();
  made.hurry();
  assert.equal(sockets.all.length, 2);
  made.hurry();
  assert.equal(sockets.all.length, 2);
});

test("a running turn without news is asked about, and a silent server replaced", () => {
  const { chat, clock, sockets } = connected();
  const id = chat.send("hi");
  const [first] = sockets.all;
  first.say(...frames(id, reply(["one"]), { to: 4 }));
  clock.pass(29_999);
  assert.equal(first.got(PROBE).length, 1);
  clock.pass(1);
  assert.equal(first.got(PROBE).length, 2);
  clock.pass(5000);
  assert.equal(sockets.all.length, 2);
  assert.equal(chat.connection, "reconnecting");
  assert.deepEqual(texts(chat), ["hi", "one"]);
});

test("a server that answers is kept", () => {
  const { chat, clock, sockets } = connected();
  chat.send("hi");
  const [first] = sockets.all;
  first.say({ type: "cf_agent_stream_pending", id: first.sent.at(-1).id });
  clock.pass(30_000);
  first.say({ type: "cf_agent_stream_pending", probeId: first.probe });
  clock.pass(5000);
  assert.equal(sockets.all.length, 1);
});

test("a clear is over when a later probe is answered, or none ever is", () => {
  const { chat, clock, sockets } = connected();
  const socket = sockets.last;
  chat.clear();
  // A chunk is missing: the page asks again before the first answer has come.
  socket.say(...frames("r1", reply(["one"]), { from: 2 }));
  socket.say(none(socket), transcript([user("u1", "after")]));
  assert.deepEqual(texts(chat), ["after"]);
  chat.clear();
  socket.say(transcript([user("u2", "still on its way")]));
  assert.deepEqual(texts(chat), []);
  clock.pass(5000);
  socket.say(transcript([user("u3", "later")]));
  assert.deepEqual(texts(chat), ["later"]);
});

test("nothing is asked while nothing runs", () => {
  const { clock, sockets } = connected();
  clock.pass(600_000);
  assert.equal(sockets.last.got(PROBE).length, 1);
});

test("a server that knows no probes is served all the same", () => {
  const { chat, clock, sockets } = connected();
  sockets.last.drop();
  chat.send("hi");
  clock.pass(1000);
  sockets.last.accept();
  clock.pass(5000);
  assert.equal(sockets.last.got("cf_agent_use_chat_request").length, 1);
  assert.equal(sockets.all.length, 2);
});

test("a closed connection leaves no timer and no socket behind", () => {
  const { chat, clock, sockets } = connected();
  chat.send("hi");
  chat.close();
  assert.deepEqual(clock.pending, []);
  assert.equal(sockets.last.readyState, 3);
  assert.equal(chat.connection, "closed");
});

test("the page tells when it is connected again, not when it first is", () => {
  const { chat, clock, sockets } = connected();
  let times = 0;
  chat.addEventListener("resumed", () => {
    times += 1;
  });
  sockets.last.drop();
  clock.pass(1000);
  sockets.last.accept();
  assert.equal(times, 0);
  sockets.last.say(none(sockets.last));
  assert.equal(times, 1);
});

test("an agent that does not resume is neither probed nor acknowledged", () => {
  const { chat, sockets } = connected({ resume: false });
  chat.send("hi");
  sockets.last.say({ type: "cf_agent_stream_resuming", id: "r1" });
  assert.deepEqual(
    sockets.last.sent.map(({ type }) => type),
    ["cf_agent_use_chat_request"],
  );
});

test("a connection that was closed can be opened again", () => {
  const { chat, sockets } = connected();
  chat.close();
  chat.open();
  greet(sockets.last);
  assert.equal(chat.connection, "open");
});
