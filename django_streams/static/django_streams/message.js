/**
 * From the chunks of one reply to a message with parts.
 *
 * The rules are those by which the server makes the message it stores, so that
 * a reply that was watched and one that was read later look the same. A chunk
 * never throws: what cannot be placed is left out.
 */

const SETTLED = new Set(["output-available", "output-error", "output-denied"]);
const ANSWERED = new Set([...SETTLED, "approval-responded"]);

/** What is kept of the parts that come whole. */
const PASSED_ON = {
  file: ["mediaType", "url", "filename", "providerMetadata"],
  "source-url": ["sourceId", "url", "title", "providerMetadata"],
  "source-document": ["sourceId", "mediaType", "title", "filename", "providerMetadata"],
};

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
    if (isToolPart(part)) weight += SETTLED.has(part.state) ? 2 : 1;
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
    const { parts } = this.message;
    if (type === "start") this.#start(chunk);
    else if (type === "start-step" || type === "step-start") {
      parts.push({ type: "step-start" });
    } else if (type === "finish-step") this.#open.clear();
    else if (/^(?:text|reasoning)-(?:start|delta|end)$/.test(type)) {
      this.#prose(chunk, ...type.split("-"));
    } else if (type.startsWith("tool-")) this.#tool(chunk);
    else if (type.startsWith("data-")) this.#data(chunk);
    else if (Object.hasOwn(PASSED_ON, type)) {
      parts.push({ type, ...pick(chunk, PASSED_ON[type]) });
    } else if (type === "message-metadata" || type === "finish") {
      this.#metadata(chunk.messageMetadata);
    }
  }

  /** No more chunks will come: nothing is being written any longer. */
  finish() {
    for (const part of this.message.parts) {
      if (part.state === "streaming") part.state = "done";
    }
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
    if (!isObject(metadata)) return;
    this.message.metadata = merged(this.message.metadata ?? {}, metadata);
  }

  #prose(chunk, kind, step) {
    const key = `${kind}:${chunk.id}`;
    let part = step === "start" ? null : (this.#open.get(key) ?? this.#last(kind));
    if (step === "delta" && typeof chunk.delta !== "string") return;
    if (!part) {
      if (step === "end") return;
      part = { type: kind, text: "", state: "streaming" };
      this.message.parts.push(part);
      this.#open.set(key, part);
    }
    if (step === "delta") part.text += chunk.delta;
    if (step === "end") {
      part.state = "done";
      this.#open.delete(key);
    }
    if (isObject(chunk.providerMetadata)) {
      part.providerMetadata = { ...part.providerMetadata, ...chunk.providerMetadata };
    }
  }

  #last(kind) {
    return this.message.parts.findLast((part) => part.type === kind);
  }

  #tool(chunk) {
    const { type, toolCallId: id } = chunk;
    if (typeof id !== "string" || id === "") return;
    if (type === "tool-input-delta") {
      const known = this.#rawInput.get(id) ?? "";
      this.#rawInput.set(id, known + (chunk.inputTextDelta ?? ""));
      return;
    }
    const known = this.message.parts.findLast((part) => part.toolCallId === id);
    if (type.startsWith("tool-input-")) this.#toolInput(chunk, known);
    else if (known) this.#toolAnswer(chunk, known);
  }

  #toolInput(chunk, known) {
    const { type } = chunk;
    const call = known ?? this.#newCall(chunk);
    if (type === "tool-input-available" && call.state === "input-streaming") {
      call.state = "input-available";
      call.input = toolInput(chunk.input);
      Object.assign(call, pick(chunk, ["providerExecuted", "title"]));
    } else if (type === "tool-input-error" && !SETTLED.has(call.state)) {
      call.state = "output-error";
      call.errorText = String(chunk.errorText ?? "");
      if ("input" in chunk) call.input = toolInput(chunk.input);
    }
  }

  #newCall(chunk) {
    const toolName = String(chunk.toolName ?? "");
    const call = {
      type: chunk.dynamic === true ? "dynamic-tool" : `tool-${toolName}`,
      toolCallId: chunk.toolCallId,
      toolName,
      state: "input-streaming",
      ...pick(chunk, ["providerExecuted", "title"]),
    };
    if (isObject(chunk.providerMetadata)) {
      call.callProviderMetadata = chunk.providerMetadata;
    }
    this.message.parts.push(call);
    return call;
  }

  #toolAnswer(chunk, call) {
    switch (chunk.type) {
      case "tool-output-available":
        delete call.preliminary;
        call.state = "output-available";
        call.output = chunk.output ?? null;
        Object.assign(call, pick(chunk, ["preliminary", "providerExecuted"]));
        break;
      case "tool-output-error":
        call.state = "output-error";
        call.errorText = String(chunk.errorText ?? "");
        break;
      case "tool-output-denied":
        if (!ANSWERED.has(call.state)) call.state = "output-denied";
        break;
      case "tool-approval-request":
        if (ANSWERED.has(call.state)) break;
        call.state = "approval-requested";
        call.approval = { id: chunk.approvalId ?? null };
        if ("approvalDescriptor" in chunk) {
          call.approval.descriptor = chunk.approvalDescriptor;
        }
        call.input ??= toolInput(this.#rawInput.get(chunk.toolCallId));
        break;
    }
  }

  #data({ type, id = null, data = null, transient }) {
    if (transient === true) return;
    const known =
      id === null
        ? undefined
        : this.message.parts.find((part) => part.type === type && part.id === id);
    if (known) known.data = data;
    else this.message.parts.push(id === null ? { type, data } : { type, id, data });
  }
}

function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/** Those of the keys that have a value. */
function pick(source, keys) {
  const found = keys.filter((key) => (source[key] ?? null) !== null);
  return Object.fromEntries(found.map((key) => [key, source[key]]));
}

/** `known` with `fresh` in it, objects merged key by key. */
function merged(known, fresh) {
  const result = { ...known };
  for (const [key, value] of Object.entries(fresh)) {
    const both = isObject(result[key]) && isObject(value);
    result[key] = both ? merged(result[key], value) : value;
  }
  return result;
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
  return isObject(value) ? value : {};
}
