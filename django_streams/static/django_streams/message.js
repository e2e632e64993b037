/**
 * From the chunks of one reply to a message with parts.
 *
 * The rules are those by which the server makes the message it stores, so that
 * a reply that was watched and one that was read later look the same. A chunk
 * never throws: what cannot be placed is left out.
 */

const SETTLED = new Set(["output-available", "output-error", "output-denied"]);
const AWAITING_APPROVAL = new Set(["approval-requested", "approval-responded"]);

/** What is kept of the parts that come whole. */
const WHOLE = {
  file: ["mediaType", "url", "filename", "providerMetadata"],
  "reasoning-file": ["mediaType", "url", "filename", "providerMetadata"],
  "source-url": ["sourceId", "url", "title", "providerMetadata"],
  "source-document": ["sourceId", "mediaType", "title", "filename", "providerMetadata"],
  custom: ["kind", "providerMetadata"],
  "steering-message": ["id", "parts"],
};

/** What belongs to a state of a call and goes when the call leaves it. */
const RESULT_KEYS = ["output", "errorText", "preliminary"];

/** Members of an approval request, and what they are called in the part. */
const REQUEST_KEYS = {
  approvalDescriptor: "descriptor",
  inputSchemaInput: "inputSchemaInput",
  reason: "requestReason",
  isAutomatic: "isAutomatic",
  signature: "signature",
};

/** Keys that are never merged: they would reach the prototype. */
const REFUSED_KEYS = new Set(["__proto__", "constructor", "prototype"]);

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
  /** Calls whose input was put together from that, not given. */
  #provisional = new Set();
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
    } else if (type === "reset-step") this.#resetStep();
    else if (/^(?:text|reasoning)-(?:start|delta|end)$/.test(type)) {
      this.#prose(chunk, ...type.split("-"));
    } else if (type.startsWith("tool-")) this.#tool(chunk);
    else if (type.startsWith("data-")) this.#data(chunk);
    else if (Object.hasOwn(WHOLE, type)) {
      parts.push({ type, ...pick(chunk, WHOLE[type]) });
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
        this.#provisional.clear();
      }
    }
    this.#metadata(messageMetadata);
  }

  #metadata(metadata) {
    if (!isObject(metadata)) return;
    const known = this.message.metadata;
    this.message.metadata = isObject(known) ? merged(known, metadata) : metadata;
  }

  /** The model begins the step anew: its parts go. */
  #resetStep() {
    const { parts } = this.message;
    const begun = parts.findLastIndex((part) => part.type === "step-start");
    for (const part of parts.splice(begun + 1)) {
      this.#rawInput.delete(part.toolCallId);
      this.#provisional.delete(part.toolCallId);
    }
    this.#open.clear();
  }

  #prose(chunk, kind, step) {
    const key = `${kind}:${chunk.id}`;
    let part = step === "start" ? null : (this.#open.get(key) ?? this.#last(kind));
    if (step === "delta" && typeof chunk.delta !== "string") return;
    if (!part) {
      if (step === "end") return;
      part = { type: kind, text: "", state: "streaming" };
      if (kind === "reasoning") Object.assign(part, pick(chunk, ["id"]));
      this.message.parts.push(part);
      this.#open.set(key, part);
    }
    if (step === "delta") part.text += chunk.delta;
    if (step === "end") {
      part.state = "done";
      this.#open.delete(key);
      if (kind === "text") Object.assign(part, pick(chunk, ["citations"]));
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
    if (type === "tool-approval-response") return this.#approvalResponse(chunk);
    if (typeof id !== "string" || id === "") return;
    const known = this.message.parts.findLast(
      (part) => isToolPart(part) && part.toolCallId === id,
    );
    if (!known && !(typeof chunk.toolName === "string" && chunk.toolName !== "")) return;
    if (type === "tool-input-delta") {
      if (known?.state === "input-streaming" && typeof chunk.inputTextDelta === "string") {
        this.#rawInput.set(id, (this.#rawInput.get(id) ?? "") + chunk.inputTextDelta);
      }
    } else if (type.startsWith("tool-input-")) this.#toolInput(chunk, known);
    else if (known) this.#toolAnswer(chunk, known);
  }

  #toolInput(chunk, known) {
    const id = chunk.toolCallId;
    switch (chunk.type) {
      case "tool-input-start":
        if (!known) this.#newCall(chunk, "input-streaming");
        break;
      case "tool-input-available": {
        const call = known ?? this.#newCall(chunk, "input-streaming");
        if (call.state === "input-streaming") {
          call.state = "input-available";
          rename(call, chunk, call.type === "dynamic-tool");
        } else if (!AWAITING_APPROVAL.has(call.state) || !this.#wantsInput(call)) break;
        call.input = toolInput(chunk.input);
        this.#rawInput.delete(id);
        this.#provisional.delete(id);
        describe(call, chunk, "callProviderMetadata", "title");
        break;
      }
      case "tool-input-error": {
        if (SETTLED.has(known?.state)) break;
        const call = known ?? this.#newCall({ ...chunk, providerMetadata: null }, "");
        rename(call, chunk, call.type === "dynamic-tool");
        if ("input" in chunk) call.input = toolInput(chunk.input);
        this.#settle(call, "output-error", chunk);
        call.errorText = errorText(chunk);
      }
    }
  }

  #newCall(chunk, state) {
    const call = { toolCallId: chunk.toolCallId, state };
    rename(call, chunk, Boolean(chunk.dynamic));
    describe(call, chunk, "callProviderMetadata", "title");
    this.message.parts.push(call);
    return call;
  }

  #toolAnswer(chunk, call) {
    switch (chunk.type) {
      case "tool-output-available":
        this.#settle(call, "output-available", chunk);
        call.output = chunk.output ?? null;
        Object.assign(call, pick(chunk, ["preliminary"]));
        break;
      case "tool-output-error":
        this.#settle(call, "output-error", chunk);
        call.errorText = errorText(chunk);
        break;
      case "tool-output-denied":
        if (SETTLED.has(call.state)) break;
        if (call.state === "approval-responded" && call.approval?.approved !== false) break;
        this.#fill(call);
        call.state = "output-denied";
        break;
      case "tool-approval-request":
        if (SETTLED.has(call.state) || call.state === "approval-responded") break;
        this.#fill(call);
        call.state = "approval-requested";
        call.approval = { id: chunk.approvalId ?? null };
        for (const [key, name] of Object.entries(REQUEST_KEYS)) {
          const value = chunk[key] ?? null;
          if (value === null || (key === "isAutomatic" && value === false)) continue;
          call.approval[name] = value;
        }
        break;
    }
  }

  #approvalResponse(chunk) {
    const { approvalId: id } = chunk;
    const call = this.message.parts.find(
      (part) => isToolPart(part) && typeof id === "string" && part.approval?.id === id,
    );
    if (!call || SETTLED.has(call.state)) return;
    call.state = "approval-responded";
    const approved = chunk.approved ?? null;
    call.approval = { ...call.approval, approved, ...pick(chunk, ["reason"]) };
    Object.assign(call, pick(chunk, ["providerExecuted"]));
    if (isObject(chunk.providerMetadata)) {
      call.callProviderMetadata = chunk.providerMetadata;
    }
  }

  #settle(call, state, chunk) {
    this.#fill(call);
    call.state = state;
    for (const key of RESULT_KEYS) delete call[key];
    describe(call, chunk, "resultProviderMetadata");
  }

  /** Take the text that was streamed for the input that was never given. */
  #fill(call) {
    const raw = this.#rawInput.get(call.toolCallId) ?? "";
    this.#rawInput.delete(call.toolCallId);
    if (raw.trim() === "" || "input" in call) return;
    call.input = toolInput(raw);
    this.#provisional.add(call.toolCallId);
  }

  #wantsInput(call) {
    return !("input" in call) || this.#provisional.has(call.toolCallId);
  }

  #data({ type, id = null, data = null, transient }) {
    if (transient) return;
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
    if (REFUSED_KEYS.has(key)) continue;
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

/** What a chunk says of its call besides its state. */
function describe(call, chunk, metadataKey, ...keys) {
  Object.assign(call, pick(chunk, ["providerExecuted", "toolMetadata", ...keys]));
  if (isObject(chunk.providerMetadata)) call[metadataKey] = chunk.providerMetadata;
}

function rename(call, chunk, dynamic) {
  const name = typeof chunk.toolName === "string" ? chunk.toolName : calledName(call);
  call.type = dynamic ? "dynamic-tool" : `tool-${name}`;
  call.toolName = name;
}

function calledName(call) {
  return call.type === undefined ? "" : toolName(call);
}

function errorText({ errorText: text }) {
  return typeof text === "string" ? text : "";
}
