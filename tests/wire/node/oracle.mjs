/**
 * What the official packages make of a value: one JSON request a line on
 * standard input, one JSON answer a line on standard output.
 */

import { createInterface } from "node:readline";
import { convertToModelMessages, readUIMessageStream } from "ai";
import {
  hasIncompleteToolBatch,
  normalizeToolInput,
  partAwaitsClientInteraction,
  reconcileMessages,
  repairInterruptedToolParts,
  sanitizeMessage,
  toolApprovalUpdate,
  toolResultUpdate,
  applyToolUpdate,
} from "agents/chat";

const LAST = "data-last";

/** The message that the AI SDK builds of the chunks, or where it throws. */
async function build({ id, base, chunks }) {
  // Some chunks change the message without telling; this one tells.
  const list = [...chunks, { type: LAST, data: null }];
  let pulled = 0;
  const stream = new ReadableStream(
    {
      pull(controller) {
        if (pulled === list.length) return controller.close();
        controller.enqueue(list[pulled++]);
      },
    },
    { highWaterMark: 0 },
  );
  const message = structuredClone(base ?? { id, role: "assistant", parts: [] });
  let built;
  let thrown = null;
  const snapshots = readUIMessageStream({
    stream,
    message,
    onError: (error) => (thrown ??= String(error.message)),
  });
  for await (const snapshot of snapshots) built = snapshot;
  const part = built?.parts.pop();
  if (part?.type === LAST) return { message: built, failed: null };
  return { message: null, failed: pulled - 1, thrown };
}

const operations = {
  async message({ id, base, chunks }) {
    const whole = await build({ id, base, chunks });
    if (whole.failed === null) return whole;
    const before = await build({ id, base, chunks: chunks.slice(0, whole.failed) });
    if (before.failed !== null) throw new Error("the chunks before it throw, too");
    return { message: before.message, failed: whole.failed, thrown: whole.thrown };
  },
  reconcile: ({ incoming, server }) =>
    reconcileMessages(incoming, server, sanitizeMessage),
  sanitize: ({ message }) => sanitizeMessage(message),
  input: ({ input }) => normalizeToolInput(input).input,
  result: ({ parts, id, output, state, errorText }) =>
    applyToolUpdate(parts, toolResultUpdate(id, output, state, errorText))?.parts ?? null,
  approval: ({ parts, id, approved }) =>
    applyToolUpdate(parts, toolApprovalUpdate(id, approved))?.parts ?? null,
  incomplete: ({ messages }) => hasIncompleteToolBatch(messages),
  repair({ messages, clientTools, continuation }) {
    const names = new Set(clientTools);
    const repaired = repairInterruptedToolParts(messages, {
      repairPart: (part) => ({
        ...part,
        state: "output-error",
        errorText:
          part.state === "approval-responded"
            ? "The tool call was approved but did not run before the next turn started."
            : "The tool call was interrupted before a result was recorded.",
      }),
      shouldRepair: (part) => !partAwaitsClientInteraction(part, names),
      repairApprovalResponded: !continuation,
    });
    return repaired.messages;
  },
  modelMessages: ({ messages }) => convertToModelMessages(messages),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { operation, ...args } = JSON.parse(line);
  let answer;
  try {
    answer = { value: (await operations[operation](args)) ?? null };
  } catch (error) {
    answer = { error: String(error?.stack ?? error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
