/**
 * From the chunks of one reply to a message with parts.
 *
 * The rules are those by which the server makes the message it stores, so that
 * a reply that was watched and one that was read later look the same. A chunk
 * never throws: what cannot be placed is left out.
 */

const FINAL_TOOL_STATES = new Set([
  "output-available",
  "output-error",
  "output-denied",
]);

/** Whether a part is a tool call. */
export function isToolPart(part) {
  return part.type === "dynamic-tool" || part.type.startsWith("tool-");
}

/** The name of the tool that a part calls. */
export function toolName(part) {
  return part.toolName ?? part.type.replace(/^tool-/, "");
}

/** All text of a message, without reasoning; paragraphs between its parts. */
export function messageText(message) {
  return message.parts
    .filter((part) => part.type === "text")
    .map((part) => part.text)
    .join("\n\n");
}

/** How much a message holds; of two copies the heavier one is the later one. */
export function messageWeight(message) {
  let weight = 0;
  for (const part of message.parts) {
    weight += 1 + (part.text?.length ?? 0);
    if (isToolPart(part)) weight += FINAL_TOOL_STATES.has(part.state) ? 2 : 1;
  }
  return weight;
}

/** Builds one assistant message, chunk by chunk. */
export class MessageBuilder {
  /** Open text and reasoning parts by kind and id. */
  #open = new Map();
  /** What `tool-input-delta` has brought, by call. */
  #rawInput = new Map();
  #continuation;

  /**
   * `base`: the message that a continuation goes on with; it is not changed.
   * `id`: what the message is called until its `start` chunk names it.
   */
  constructor({ base = null, id = "" } = {}) {
    this.#continuation = base !== null;
    this.message = base ? structuredClone(base) : { id, role: "assistant", parts: [] };
  }

  /** Take one UI message chunk in. */
  apply(chunk) {
    if (typeof chunk?.type !== "string") return;
    const { type } = chunk;
    if (type === "start") this.#start(chunk);
    else if (type === "start-step" || type === "step-start") {
      this.message.parts.push({ type: "step-start" });
    } else if (/^(text|reasoning)-(start|delta|end)$/.test(type)) {
      this.#prose(chunk, ...type.split("-"));
    } else if (type.startsWith("tool-")) this.#tool(chunk);
    else if (type.startsWith("data-")) this.#data(chunk);
    else if (type === "source-url" || type === "source-document" || type === "file") {
      this.message.parts.push(chunk);
    } else if (type === "message-metadata" || type === "finish") {
      this.#metadata(chunk.messageMetadata);
    }
  }

  /** No more chunks will come: nothing is being written any longer. */
  finish() {
    for (const part of this.#open.values()) part.state = "done";
    this.#open.clear();
  }

  #start({ messageId, messageMetadata }) {
    if (typeof messageId === "string" && !this.#continuation) {
      // Another id under the same request is a restart: the partial is dropped.
      if (this.message.id !== messageId) {
        this.message = { id: messageId, role: "assistant", parts: [] };
        this.#open.clear();
        this.#rawInput.clear();
      }
    }
    this.#metadata(messageMetadata);
  }

  #metadata(metadata) {
    if (metadata && typeof metadata === "object") {
      this.message.metadata = { ...this.message.metadata, ...metadata };
    }
  }

  #prose(chunk, kind, step) {
    const key = `${kind}:${chunk.id}`;
    if (step === "start") {
      const part = { type: kind, text: "", state: "streaming" };
      this.message.parts.push(part);
      this.#open.set(key, part);
      return;
    }
    let part = this.#open.get(key) ?? this.#last(kind);
    if (step === "end") {
      if (part) part.state = "done";
      this.#open.delete(key);
      return;
    }
    if (!part) {
      part = { type: kind, text: "", state: "streaming" };
      this.message.parts.push(part);
      this.#open.set(key, part);
    }
    if (typeof chunk.delta === "string") part.text += chunk.delta;
  }

  #last(kind) {
    return this.message.parts.findLast((part) => part.type === kind);
  }

  #call(toolCallId) {
    return this.message.parts.findLast(
      (part) => isToolPart(part) && part.toolCallId === toolCallId,
    );
  }

  #tool(chunk) {
    const { type, toolCallId } = chunk;
    let part = this.#call(toolCallId);
    if (type === "tool-input-delta") {
      const known = this.#rawInput.get(toolCallId) ?? "";
      this.#rawInput.set(toolCallId, known + (chunk.inputTextDelta ?? ""));
      return;
    }
    if (!part) {
      if (typeof chunk.toolName !== "string") return;
      part = {
        type: `tool-${chunk.toolName}`,
        toolCallId,
        toolName: chunk.toolName,
        state: "input-streaming",
      };
      for (const key of ["title", "providerExecuted"]) {
        if (chunk[key] !== undefined) part[key] = chunk[key];
      }
      this.message.parts.push(part);
    }
    if (type === "tool-output-available") {
      part.state = "output-available";
      part.output = chunk.output;
      if (chunk.preliminary !== undefined) part.preliminary = chunk.preliminary;
      return;
    }
    if (FINAL_TOOL_STATES.has(part.state)) return;
    if (type === "tool-input-available") {
      if (part.state !== "input-streaming") return;
      part.state = "input-available";
      part.input = toolInput(chunk.input);
    } else if (type === "tool-input-error" || type === "tool-output-error") {
      part.state = "output-error";
      part.errorText = chunk.errorText;
    } else if (part.state === "approval-responded") {
      return;
    } else if (type === "tool-approval-request") {
      part.state = "approval-requested";
      part.approval = { id: chunk.approvalId };
      part.input ??= toolInput(this.#rawInput.get(toolCallId));
    } else if (type === "tool-output-denied") {
      part.state = "output-denied";
    }
  }

  #data(chunk) {
    if (chunk.transient) return;
    const { type, id, data } = chunk;
    const known =
      id === undefined
        ? undefined
        : this.message.parts.find((part) => part.type === type && part.id === id);
    if (known) known.data = data;
    else this.message.parts.push(id === undefined ? { type, data } : { type, id, data });
  }
}

/** A tool's input is an object; a string that holds one is read, the rest is {}. */
function toolInput(input) {
  let value = input;
  if (typeof value === "string" && value.trimStart().startsWith("{")) {
    try {
      value = JSON.parse(value);
    } catch {
      return {};
    }
  }
  const object = value !== null && typeof value === "object" && !Array.isArray(value);
  return object ? value : {};
}
