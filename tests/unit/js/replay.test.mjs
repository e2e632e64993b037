import assert from "node:assert/strict";
import { test } from "node:test";

import {
  assistant,
  connect,
  connected,
  frame,
  frames,
  greet,
  none,
  offer,
  reply,
  texts,
  transcript,
  user,
} from "./support.mjs";

const WORDS = ["one ", "two ", "three ", "four ", "five"];
const CHUNKS = reply(WORDS);
const SUBMIT = "cf_agent_use_chat_request";
const ACK = "cf_agent_stream_resume_ack";

const settled = () => new Promise((resolve) => setImmediate(resolve));

const submitted = (socket) =>
  socket.got(SUBMIT).map(({ id, init }) => ({ id, ...JSON.parse(init.body) }));

test("a reload shows a running reply in one step", () => {
  const { chat, sockets, changes } = connect();
  const socket = sockets.last;
  socket.accept();
  socket.say(transcript([user("u1", "hi")], { connect: true }), offer("r1"));
  socket.say(offer("r1", socket));
  assert.deepEqual(socket.got(ACK).map(({ id }) => id), ["r1"]);
  assert.equal(chat.thinking, false);
  changes.length = 0;
  socket.say(...frames("r1", CHUNKS, { to: 6, replay: true }));
  assert.deepEqual(changes, []);
  socket.say(frame("r1", { replay: true, replayComplete: true }));
  assert.deepEqual(changes, [["hi", "one two three "]]);
  socket.say(...frames("r1", CHUNKS, { from: 6 }), frame("r1", { done: true }));
  assert.deepEqual(texts(chat), ["hi", "one two three four five"]);
  assert.equal(chat.status, "ready");
});

test("a replay that the end cuts short counts as far as it came", () => {
  const { chat, sockets } = connect();
  const socket = sockets.last;
  socket.accept();
  socket.say(offer("r1", socket), ...frames("r1", CHUNKS, { replay: true }));
  socket.say(frame("r1", { done: true, replay: true }));
  assert.deepEqual(texts(chat), ["one two three four five"]);
  assert.equal(chat.status, "ready");
});

test("a replay that nobody asked for is left out", () => {
  const { chat, sockets } = connected();
  sockets.last.say(...frames("r1", CHUNKS, { replay: true }));
  assert.deepEqual(texts(chat), []);
});

test("a replay is left out where the reply is followed live", () => {
  const { chat, sockets } = connected();
  const id = chat.send("hi");
  sockets.last.say(...frames(id, CHUNKS, { to: 5 }));
  sockets.last.say(...frames(id, reply(["other"], "a2"), { replay: true }));
  sockets.last.say(frame(id, { replay: true, replayComplete: true }));
  assert.deepEqual(texts(chat), ["hi", "one two "]);
});

test("a replayed chunk that comes twice is applied once", () => {
  const { chat, sockets } = connect();
  const socket = sockets.last;
  socket.accept();
  socket.say(offer("r1", socket));
  const replay = frames("r1", CHUNKS, { to: 6, replay: true });
  socket.say(...replay, ...replay.slice(3), frame("r1", { done: true, replay: true }));
  assert.deepEqual(texts(chat), ["one two three "]);
});

test("a replay that starts again counts once", () => {
  const { chat, sockets } = connect();
  const socket = sockets.last;
  socket.accept();
  socket.say(offer("r1", socket));
  const replay = frames("r1", CHUNKS, { to: 6, replay: true });
  socket.say(...replay, ...replay, frame("r1", { replay: true, replayComplete: true }));
  assert.deepEqual(texts(chat), ["one two three "]);
});

test("a dropped connection keeps what was shown and takes the reply up again", () => {
  const { chat, clock, sockets, changes } = connected();
  const id = chat.send("hi");
  sockets.last.say(...frames(id, CHUNKS, { to: 5 }));
  sockets.last.drop();
  assert.equal(chat.connection, "reconnecting");
  assert.deepEqual(texts(chat), ["hi", "one two "]);
  clock.pass(1000);
  const socket = sockets.last;
  socket.accept();
  socket.say(transcript([chat.messages[0]], { connect: true }), offer(id));
  socket.say(offer(id, socket));
  changes.length = 0;
  socket.say(...frames(id, CHUNKS, { to: 7, replay: true }));
  socket.say(frame(id, { replay: true, replayComplete: true }));
  socket.say(...frames(id, CHUNKS, { from: 7 }), frame(id, { done: true }));
  assert.deepEqual(texts(chat), ["hi", "one two three four five"]);
  assert.ok(changes.every(([, text]) => text.startsWith("one two ")));
  assert.equal(socket.got(SUBMIT).length, 0);
});

test("a reply that ended while the connection was gone is the stored one", () => {
  const { chat, clock, sockets, fetched } = connected();
  const id = chat.send("hi");
  sockets.last.say(...frames(id, CHUNKS, { to: 5 }));
  sockets.last.drop();
  clock.pass(1000);
  greet(sockets.last, [chat.messages[0], assistant("a1", WORDS.join(""))]);
  assert.deepEqual(texts(chat), ["hi", "one two three four five"]);
  assert.equal(chat.status, "ready");
  assert.equal(fetched.length, 1);
});

test("where no transcript tells what a lost reply said, the history is asked", async () => {
  const stored = [user("u1", "hi"), assistant("a1", "whole")];
  const { chat, clock, sockets } = connect({
    history: async (time) => (time === 1 ? [] : stored),
  });
  const first = sockets.last;
  first.accept();
  first.say(none(first));
  await settled();
  first.say(...frames("r1", reply(["who"])));
  first.drop();
  clock.pass(1000);
  sockets.last.accept();
  sockets.last.say(none(sockets.last));
  await settled();
  assert.deepEqual(texts(chat), ["hi", "whole"]);
});

test("an end that does not tell what was said makes the page ask the history", async () => {
  const stored = [user("u1", "hi"), assistant("a1", "whole")];
  const { chat, clock, sockets } = connect({
    history: async (time) => (time === 1 ? [] : stored),
  });
  sockets.last.accept();
  sockets.last.say(none(sockets.last));
  await settled();
  sockets.last.say(...frames("r1", reply(["who"])));
  sockets.last.drop();
  clock.pass(1000);
  sockets.last.accept();
  sockets.last.say(offer("r1", sockets.last), frame("r1", { done: true, replay: true }));
  await settled();
  assert.deepEqual(texts(chat), ["hi", "whole"]);
});

test("a missing chunk makes the page ask for the whole reply once", () => {
  const { chat, sockets } = connected();
  const id = chat.send("hi");
  const socket = sockets.last;
  const all = frames(id, CHUNKS);
  socket.say(...all.slice(0, 4), all[5], all[6]);
  assert.deepEqual(texts(chat), ["hi", "one "]);
  assert.equal(socket.got("cf_agent_stream_resume_request").length, 2);
  socket.say(offer(id, socket), ...frames(id, CHUNKS, { to: 7, replay: true }));
  socket.say(frame(id, { replay: true, replayComplete: true }), ...all.slice(7));
  assert.deepEqual(texts(chat), ["hi", "one two three four five"]);
});

test("a replay that the connection cut short does not shorten the stored reply", () => {
  const { clock, chat, sockets } = connect();
  sockets.last.accept();
  sockets.last.say(offer("r1", sockets.last));
  sockets.last.say(...frames("r1", CHUNKS, { to: 5, replay: true }));
  sockets.last.drop();
  clock.pass(1000);
  greet(sockets.last, [user("u1", "hi"), assistant("a1", WORDS.join(""))]);
  assert.deepEqual(texts(chat), ["hi", "one two three four five"]);
  assert.equal(chat.status, "ready");
});

test("a turn that ended unseen is asked about when another one has ended", () => {
  const { chat, clock, sockets } = connected();
  const id = chat.send("hi");
  const [question] = chat.messages;
  sockets.last.drop();
  clock.pass(1000);
  const socket = sockets.last;
  socket.accept();
  const stored = [question, assistant("a1", "hello"), user("u2", "theirs")];
  socket.say(transcript(stored, { connect: true }), offer("r2", socket));
  socket.say(...frames("r2", reply(["two"], "a2"), { replay: true }));
  socket.say(frame("r2", { done: true }));
  assert.equal(chat.status, "submitted");
  socket.say(none(socket));
  assert.equal(chat.status, "ready");
  assert.deepEqual(texts(chat), ["hi", "hello", "theirs", "two"]);
  assert.ok(!socket.sent.some((sent) => sent.id === id));
});

test("a reply that is begun anew takes the place of what was shown", () => {
  const { chat, sockets } = connected();
  const socket = sockets.last;
  const id = chat.send("hi");
  socket.say(...frames(id, CHUNKS, { to: 5 }));
  assert.deepEqual(texts(chat), ["hi", "one two "]);
  socket.say(frame(id, { done: true, outcome: "recovering" }), offer(id));
  assert.deepEqual(socket.got(ACK).map((ack) => ack.id), [id]);
  assert.notEqual(chat.status, "ready");
  const anew = reply(["another ", "answer"]);
  socket.say(...frames(id, anew, { to: 1, replay: true }));
  socket.say(frame(id, { replay: true, replayComplete: true }));
  assert.deepEqual(texts(chat), ["hi"]);
  socket.say(...frames(id, anew, { from: 1 }), frame(id, { done: true }));
  assert.deepEqual(texts(chat), ["hi", "another answer"]);
  assert.equal(chat.status, "ready");
});

test("a reply that is begun anew is watched from its start in a second tab", () => {
  const { chat, sockets } = connected();
  const socket = sockets.last;
  socket.say(transcript([user("u1", "hi")]), ...frames("r1", CHUNKS, { to: 5 }));
  socket.say(frame("r1", { done: true, outcome: "recovering" }), offer("r1"));
  const anew = reply(["another ", "answer"]);
  socket.say(...frames("r1", anew, { to: 4, replay: true }));
  socket.say(frame("r1", { replay: true, replayComplete: true }));
  socket.say(...frames("r1", anew, { from: 4 }), frame("r1", { done: true }));
  assert.deepEqual(texts(chat), ["hi", "another answer"]);
});
