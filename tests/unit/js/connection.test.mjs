import assert from "node:assert/strict";
import { test } from "node:test";

import {
  assistant,
  chunk,
  connect,
  connected,
  frame,
  frames,
  greet,
  none,
  offer,
  reply,
  Storage,
  texts,
  transcript,
  user,
} from "./support.mjs";

const WORDS = ["one ", "two ", "three ", "four ", "five"];
const CHUNKS = reply(WORDS);
const SUBMIT = "cf_agent_use_chat_request";

const submitted = (socket) =>
  socket.got(SUBMIT).map(({ id, init }) => ({ id, ...JSON.parse(init.body) }));

test("the urls of socket and history are made from the path", () => {
  const { sockets, fetched } = connect({ query: { token: "T", none: null } });
  const url = new URL(sockets.last.url);
  assert.equal(url.origin + url.pathname, "ws://chat.example/agents/demo-agent/room1");
  assert.match(url.searchParams.get("_pk"), /^[0-9a-f-]{36}$/);
  assert.equal(url.searchParams.get("token"), "T");
  assert.equal(
    fetched[0],
    "http://chat.example/agents/demo-agent/room1/get-messages?token=T",
  );
});

test("what no server would take is not sent, and says so", () => {
  const { chat, sockets } = connected();
  const before = sockets.last.sent.length;
  const refused = [];
  chat.addEventListener("refused", ({ detail }) => refused.push(detail.parts[0].text));
  const long = "é".repeat(500_001);
  chat.send(long);
  assert.deepEqual(refused, [long]);
  assert.equal(sockets.last.sent.length, before);
  assert.match(chat.error ?? "", /too long/);
  chat.send("short");
  assert.equal(submitted(sockets.last).length, 1);
});

test("the first frame of a connection is the probe", () => {
  const { sockets } = connect();
  sockets.last.accept();
  assert.deepEqual(
    sockets.last.sent.map(({ type }) => type),
    ["cf_agent_stream_resume_request"],
  );
});

test("a question waits for the answer to the probe, and then goes with the newest transcript", () => {
  const { chat, sockets } = connect();
  chat.send("mine");
  sockets.last.accept();
  assert.equal(sockets.last.got(SUBMIT).length, 0);
  sockets.last.say(transcript([user("u0", "theirs")], { connect: true }));
  sockets.last.say(none(sockets.last));
  const [{ messages, trigger }] = submitted(sockets.last);
  assert.deepEqual(messages.map(({ parts }) => parts[0].text), ["theirs", "mine"]);
  assert.equal(trigger, "submit-message");
});

test("a reply is shown chunk by chunk and ends ready", () => {
  const { chat, sockets, changes } = connected();
  const id = chat.send("hi");
  assert.equal(chat.status, "submitted");
  assert.equal(chat.thinking, true);
  sockets.last.say(...frames(id, CHUNKS));
  assert.equal(chat.status, "streaming");
  assert.equal(chat.thinking, false);
  sockets.last.say(transcript([chat.messages[0], assistant("a1", WORDS.join(""))]));
  sockets.last.say(frame(id, { done: true }));
  assert.equal(chat.status, "ready");
  assert.deepEqual(texts(chat), ["hi", "one two three four five"]);
  const shown = changes.map((texts) => texts[1] ?? "");
  for (const partial of ["one ", "one two ", "one two three "]) {
    assert.ok(shown.includes(partial), partial);
  }
});

test("without a transcript the reply stays when it has ended", () => {
  const { chat, sockets } = connected();
  const id = chat.send("hi");
  sockets.last.say(...frames(id, CHUNKS), frame(id, { done: true }));
  assert.deepEqual(texts(chat), ["hi", "one two three four five"]);
});

test("a chunk that arrives twice is applied once", () => {
  const { chat, sockets } = connected();
  const id = chat.send("hi");
  const all = frames(id, CHUNKS);
  sockets.last.say(...all.slice(0, 5), ...all.slice(2, 5), ...all.slice(5));
  assert.deepEqual(texts(chat), ["hi", "one two three four five"]);
});

test("what is written without a connection stays in sight and is sent once", () => {
  const { chat, clock, sockets } = connected();
  sockets.last.drop();
  const first = chat.send("first");
  const second = chat.send("second");
  assert.deepEqual(texts(chat), ["first", "second"]);
  assert.equal(chat.unsent.size, 2);
  clock.pass(1000);
  const socket = sockets.last;
  greet(socket, [user("u0", "older")]);
  assert.deepEqual(texts(chat), ["older", "first", "second"]);
  assert.equal(chat.unsent.size, 0);
  const sent = submitted(socket);
  assert.deepEqual(sent.map(({ id }) => id), [first, second]);
  assert.deepEqual(
    sent.map(({ messages }) => messages.map(({ parts }) => parts[0].text)),
    [
      ["older", "first"],
      ["older", "first", "second"],
    ],
  );
});

test("a question without a sign from the server is sent again under the same id", () => {
  const { chat, clock, sockets } = connected();
  const id = chat.send("hi");
  sockets.last.drop();
  clock.pass(1000);
  greet(sockets.last);
  assert.deepEqual(submitted(sockets.last).map((sent) => sent.id), [id]);
});

test("a question without a sign is sent again beside a reply that runs", () => {
  const { chat, clock, sockets } = connected();
  const id = chat.send("hi");
  sockets.last.drop();
  clock.pass(1000);
  sockets.last.accept();
  sockets.last.say(offer("r1", sockets.last));
  assert.deepEqual(submitted(sockets.last).map((sent) => sent.id), [id]);
});

test("a question that the transcript shows is not sent again", () => {
  const { chat, clock, sockets } = connected();
  const id = chat.send("hi");
  const [question] = chat.messages;
  sockets.last.drop();
  clock.pass(1000);
  const socket = sockets.last;
  socket.accept();
  socket.say(transcript([question], { connect: true }));
  socket.say({ type: "cf_agent_stream_pending", id, probeId: socket.probe });
  assert.equal(socket.got(SUBMIT).length, 0);
  assert.equal(chat.status, "submitted");
});

test("a question that five connections swallowed is given up as failed", () => {
  const { chat, clock, sockets } = connected();
  chat.send("hi");
  for (let time = 1; time <= 5; time += 1) {
    sockets.last.drop();
    while (sockets.last.readyState === 3) clock.pass(1000);
    greet(sockets.last);
  }
  assert.equal(sockets.all.filter((socket) => socket.got(SUBMIT).length > 0).length, 5);
  assert.equal(chat.status, "error");
  assert.deepEqual(texts(chat), ["hi"]);
});

test("what was not sent survives a reload of the page", () => {
  const storage = new Storage();
  const first = connect({ storage });
  const id = first.chat.send("hi");
  first.chat.close();
  const { chat, sockets } = connected({ storage });
  assert.deepEqual(texts(chat), ["hi"]);
  assert.deepEqual(submitted(sockets.last).map((sent) => sent.id), [id]);
  sockets.last.say({ type: "cf_agent_stream_pending", id });
  assert.equal(storage.items.size, 0);
});

test("another page's question and reply are followed live", () => {
  const { chat, sockets } = connected();
  sockets.last.say(transcript([user("u1", "theirs")]), ...frames("r1", CHUNKS));
  assert.equal(chat.status, "streaming");
  sockets.last.say(frame("r1", { done: true }));
  assert.deepEqual(texts(chat), ["theirs", "one two three four five"]);
});

test("a reply stands below its question, above one that was asked meanwhile", () => {
  const { chat, sockets } = connected();
  const id = chat.send("first");
  sockets.last.say(...frames(id, CHUNKS, { to: 5 }));
  chat.send("second");
  assert.deepEqual(texts(chat), ["first", "one two ", "second"]);
  const [, { messages }] = submitted(sockets.last);
  assert.deepEqual(messages.map(({ role }) => role), ["user", "assistant", "user"]);
});

test("a transcript without the running reply leaves it where it is", () => {
  const { chat, sockets } = connected();
  const id = chat.send("hi");
  sockets.last.say(...frames(id, CHUNKS, { to: 5 }), transcript([chat.messages[0]]));
  assert.deepEqual(texts(chat), ["hi", "one two "]);
});

test("a failed reply keeps its text, tells why, and can be asked for again", () => {
  const { chat, sockets } = connected();
  const id = chat.send("hi");
  sockets.last.say(...frames(id, CHUNKS, { to: 5 }));
  sockets.last.say(frame(id, { body: "kaput", error: true, done: true }));
  assert.equal(chat.status, "error");
  assert.equal(chat.error, "kaput");
  assert.deepEqual(texts(chat), ["hi", "one two "]);
  chat.regenerate();
  assert.equal(chat.error, null);
  assert.deepEqual(texts(chat), ["hi"]);
  const { messages, trigger } = submitted(sockets.last).at(-1);
  assert.equal(trigger, "regenerate-message");
  assert.deepEqual(messages.map(({ role }) => role), ["user"]);
});

test("an error that was told in two frames is one error", () => {
  const { chat, sockets } = connected();
  const id = chat.send("hi");
  sockets.last.say(frame(id, { body: "boom", error: true }));
  sockets.last.say(frame(id, { done: true, outcome: "error" }));
  assert.equal(chat.error, "boom");
  assert.equal(chat.status, "error");
});

test("stop asks the server, and the partial reply stays", () => {
  const { chat, sockets } = connected();
  const id = chat.send("hi");
  sockets.last.say(...frames(id, CHUNKS, { to: 5 }));
  chat.stop();
  const cancel = sockets.last.got("cf_agent_chat_request_cancel");
  assert.deepEqual(cancel.map((sent) => sent.id), [id]);
  sockets.last.say(frame(id, { done: true, outcome: "aborted" }));
  assert.equal(chat.status, "ready");
  assert.deepEqual(texts(chat), ["hi", "one two "]);
});

test("a stop without a connection is asked for when there is one", () => {
  const { chat, clock, sockets } = connected();
  const id = chat.send("hi");
  sockets.last.say(...frames(id, CHUNKS, { to: 5 }));
  sockets.last.drop();
  chat.stop();
  clock.pass(1000);
  sockets.last.accept();
  sockets.last.say(offer(id, sockets.last));
  assert.equal(sockets.last.got("cf_agent_chat_request_cancel").length, 1);
});

test("stop takes back what was never sent", () => {
  const { chat, clock, sockets } = connected();
  sockets.last.drop();
  chat.send("never mind");
  assert.deepEqual(chat.stop().map(({ parts }) => parts[0].text), ["never mind"]);
  clock.pass(1000);
  greet(sockets.last);
  assert.deepEqual(texts(chat), []);
  assert.equal(sockets.last.got(SUBMIT).length, 0);
});

test("clear empties the page at once, and no earlier transcript fills it again", () => {
  const { chat, sockets } = connected({ stored: [user("u1", "old")] });
  const socket = sockets.last;
  chat.clear();
  assert.deepEqual(texts(chat), []);
  socket.say(transcript([user("u1", "old")]));
  assert.deepEqual(texts(chat), []);
  assert.equal(socket.got("cf_agent_chat_clear").length, 1);
  socket.say(none(socket), transcript([user("u2", "new")]));
  assert.deepEqual(texts(chat), ["new"]);
});

test("a clear without a connection is carried out before anything else", () => {
  const { chat, clock, sockets } = connected({ stored: [user("u1", "old")] });
  sockets.last.drop();
  chat.clear();
  chat.send("new");
  clock.pass(1000);
  greet(sockets.last, [user("u1", "old")]);
  assert.deepEqual(texts(chat), ["new"]);
  const types = sockets.last.sent.map(({ type }) => type.replace("cf_agent_", ""));
  assert.ok(types.indexOf("chat_clear") < types.indexOf("use_chat_request"));
  assert.equal(submitted(sockets.last)[0].messages.length, 1);
});

test("a reply that was running at the clear ends unseen", () => {
  const { chat, sockets } = connected();
  const id = chat.send("hi");
  sockets.last.say(...frames(id, CHUNKS, { to: 5 }));
  chat.clear();
  sockets.last.say(...frames(id, CHUNKS, { from: 5, to: 7 }));
  sockets.last.say(frame(id, { done: true, outcome: "aborted" }));
  assert.deepEqual(texts(chat), []);
  assert.equal(chat.status, "ready");
});

test("another page's clear empties this one", () => {
  const { chat, sockets } = connected({ stored: [user("u1", "old")] });
  sockets.last.say({ type: "cf_agent_chat_clear" });
  assert.deepEqual(texts(chat), []);
});

test("a stored message that changed is shown as it is now", () => {
  const { chat, sockets } = connected({ stored: [assistant("a1", "before")] });
  sockets.last.say({
    type: "cf_agent_message_updated",
    message: assistant("a1", "after"),
  });
  assert.deepEqual(texts(chat), ["after"]);
});

test("a continuation goes on in the last reply", () => {
  const stored = [user("u1", "hi"), assistant("a1", "first ")];
  const { chat, sockets } = connected({ stored });
  const extra = { continuation: true };
  sockets.last.say(
    chunk("c1", 0, { type: "start" }, extra),
    chunk("c1", 1, { type: "text-start", id: "t2" }, extra),
    chunk("c1", 2, { type: "text-delta", id: "t2", delta: "second" }, extra),
    frame("c1", { done: true, ...extra }),
  );
  assert.deepEqual(texts(chat), ["hi", "first second"]);
});

test("frames that make no sense change nothing", () => {
  const { chat, sockets } = connected({ stored: [user("u1", "hi")] });
  const socket = sockets.last;
  for (const data of ["", "null", "[]", "7", "{}", '{"type":"what"}', "{"]) {
    socket.onmessage({ data });
  }
  socket.say(frame("r1", { body: "no json", seq: 0 }), transcript(null));
  socket.say(transcript([null, { id: 7 }, user("u2", "kept")]));
  assert.deepEqual(texts(chat), ["kept"]);
});
