import assert from "node:assert/strict";
import { test } from "node:test";

import { MessageBuilder } from "../../../django_streams/static/django_streams/message.js";

function parts(...chunks) {
  const builder = new MessageBuilder();
  for (const chunk of chunks) builder.apply(chunk);
  return builder.message.parts;
}

const call = { toolCallId: "c1", toolName: "search" };
const started = { type: "tool-input-start", ...call };
const asked = { type: "tool-input-available", ...call, input: { q: 1 } };
const answered = { type: "tool-output-available", toolCallId: "c1", output: 7 };
const tool = (state, rest = {}) => ({ type: "tool-search", ...call, state, ...rest });

const CASES = {
  "text is opened, extended and closed": [
    [
      { type: "text-start", id: "t" },
      { type: "text-delta", id: "t", delta: "a" },
      { type: "text-delta", id: "t", delta: "b" },
      { type: "text-end", id: "t" },
    ],
    [{ type: "text", text: "ab", state: "done" }],
  ],
  "text that was never opened is kept": [
    [{ type: "text-delta", id: "t", delta: "a" }],
    [{ type: "text", text: "a", state: "streaming" }],
  ],
  "two texts grow side by side": [
    [
      { type: "text-start", id: "1" },
      { type: "text-start", id: "2" },
      { type: "text-delta", id: "1", delta: "a" },
      { type: "text-delta", id: "2", delta: "b" },
    ],
    [
      { type: "text", text: "a", state: "streaming" },
      { type: "text", text: "b", state: "streaming" },
    ],
  ],
  "an end that belongs to nothing ends nothing": [[{ type: "text-end", id: "t" }], []],
  "reasoning is a part of its own": [
    [
      { type: "reasoning-start", id: "r" },
      { type: "reasoning-delta", id: "r", delta: "hm" },
      { type: "reasoning-end", id: "r" },
    ],
    [{ type: "reasoning", id: "r", text: "hm", state: "done" }],
  ],
  "steps are kept": [
    [{ type: "start-step" }, { type: "finish-step" }, { type: "step-start" }],
    [{ type: "step-start" }, { type: "step-start" }],
  ],
  "a tool call goes from input to output": [
    [started, { type: "tool-input-delta", toolCallId: "c1", inputTextDelta: "{" }, asked, answered],
    [tool("output-available", { input: { q: 1 }, output: 7 })],
  ],
  "an output without its call is left out": [[answered], []],
  "an input that comes again does not undo an output": [
    [started, asked, answered, started, asked],
    [tool("output-available", { input: { q: 1 }, output: 7 })],
  ],
  "an input that is no object is an empty one": [
    [{ ...asked, input: [1] }],
    [tool("input-available", { input: {} })],
  ],
  "an input that is the text of an object is that object": [
    [{ ...asked, input: ' {"q": 1}' }],
    [tool("input-available", { input: { q: 1 } })],
  ],
  "a failed tool says why": [
    [started, asked, { type: "tool-output-error", toolCallId: "c1", errorText: "no" }],
    [tool("output-error", { input: { q: 1 }, errorText: "no" })],
  ],
  "a question for approval knows its input": [
    [
      started,
      { type: "tool-input-delta", toolCallId: "c1", inputTextDelta: '{"q":' },
      { type: "tool-input-delta", toolCallId: "c1", inputTextDelta: "1}" },
      { type: "tool-approval-request", toolCallId: "c1", approvalId: "p" },
    ],
    [tool("approval-requested", { approval: { id: "p" }, input: { q: 1 } })],
  ],
  "a denied call is denied": [
    [started, asked, { type: "tool-output-denied", toolCallId: "c1" }],
    [tool("output-denied", { input: { q: 1 } })],
  ],
  "data of the same id takes the place of the earlier": [
    [
      { type: "data-x", id: "1", data: 1 },
      { type: "data-x", data: 2 },
      { type: "data-x", id: "1", data: 3 },
      { type: "data-x", data: 4, transient: true },
    ],
    [
      { type: "data-x", id: "1", data: 3 },
      { type: "data-x", data: 2 },
    ],
  ],
  "sources and files are kept as they are": [
    [
      { type: "source-url", sourceId: "s", url: "https://a.example/" },
      { type: "file", mediaType: "image/png", url: "/a.png" },
    ],
    [
      { type: "source-url", sourceId: "s", url: "https://a.example/" },
      { type: "file", mediaType: "image/png", url: "/a.png" },
    ],
  ],
  "what is unknown or broken is left out": [
    [null, 7, {}, { type: 7 }, { type: "abort" }, { type: "what" }, { type: "tool-what" }],
    [],
  ],
};

for (const [name, [chunks, expected]] of Object.entries(CASES)) {
  test(name, () => assert.deepEqual(parts(...chunks), expected));
}

test("the start names the message, and another name starts it anew", () => {
  const builder = new MessageBuilder({ id: "provisional" });
  builder.apply({ type: "start", messageId: "a1", messageMetadata: { a: 1 } });
  builder.apply({ type: "text-delta", id: "t", delta: "a" });
  builder.apply({ type: "start", messageId: "a1" });
  assert.equal(builder.message.parts.length, 1);
  builder.apply({ type: "start", messageId: "a2" });
  assert.deepEqual(builder.message, { id: "a2", role: "assistant", parts: [] });
});

test("metadata is merged from wherever it comes", () => {
  const builder = new MessageBuilder();
  builder.apply({ type: "start", messageMetadata: { a: 1, b: 1 } });
  builder.apply({ type: "message-metadata", messageMetadata: { b: 2 } });
  builder.apply({ type: "finish", messageMetadata: { c: 3 } });
  assert.deepEqual(builder.message.metadata, { a: 1, b: 2, c: 3 });
});

test("a continuation leaves its base as it was and keeps its id", () => {
  const base = { id: "a1", role: "assistant", parts: [{ type: "text", text: "a" }] };
  const builder = new MessageBuilder({ base });
  builder.apply({ type: "start", messageId: "a2" });
  builder.apply({ type: "text-start", id: "t" });
  builder.apply({ type: "text-delta", id: "t", delta: "b" });
  assert.equal(base.parts.length, 1);
  assert.deepEqual(
    builder.message.parts.map(({ text }) => text),
    ["a", "b"],
  );
  assert.equal(builder.message.id, "a1");
});

test("what was being written is done when nothing more comes", () => {
  const builder = new MessageBuilder();
  builder.apply({ type: "text-start", id: "t" });
  builder.finish();
  assert.equal(builder.message.parts[0].state, "done");
});
