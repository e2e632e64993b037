// The page's component: the official hooks, and everything they say is reported.

import { Component, createElement, Suspense, useEffect } from "react";
import { useAgent } from "agents/react";
import { useAgentChat } from "@cloudflare/ai-chat/react";

function Chat({ options, report, give }) {
  const agent = useAgent({
    ...options.agent,
    onMessage: ({ data }) => {
      // Chunks are shown by the view; what else the server says, as it is.
      const { type, messages, ...rest } = JSON.parse(data);
      if (type !== "cf_agent_use_chat_response") report({ frame: { type, ...rest } });
    },
    onOpen: () => report({ socket: "open" }),
    onClose: (event) => report({ socket: "closed", code: event.code }),
    onIdentity: (name, kind) => report({ identity: { name, agent: kind } }),
    onStateUpdate: (state, source) => report({ stateUpdate: { state, source } }),
    onStateUpdateError: (error) => report({ stateError: error }),
    onMcpUpdate: (mcp) => report({ mcp }),
    onConnectionError: (error) => report({ connectionError: error.message }),
  });
  const chat = useAgentChat({
    agent,
    ...options.chat,
    onToolCall: options.answers && (({ toolCall, addToolOutput }) => {
      report({ toolCall });
      const answer = options.answers[toolCall.toolName];
      if (answer) addToolOutput({ toolCallId: toolCall.toolCallId, ...answer });
    }),
    onTurnEnd: (end) => report({ turnEnd: end }),
    onData: (part) => report({ data: part }),
    onError: (error) => report({ error: error.message }),
    onFinish: ({ finishReason, isAbort, isError, isDisconnect }) =>
      report({ finished: { finishReason, isAbort, isError, isDisconnect } }),
  });
  const { messages, status, isServerStreaming, isRecovering, isToolContinuation } = chat;
  const error = chat.error?.message ?? null;
  useEffect(() => {
    give(agent, chat);
    report({
      view: {
        messages, status, error, isServerStreaming, isRecovering, isToolContinuation,
        identified: agent.identified, state: agent.state ?? null,
      },
    });
  });
  return createElement("ol", null, messages.map((message) =>
    createElement("li", { key: message.id }, message.role)));
}

class Boundary extends Component {
  state = { failed: false };

  static getDerivedStateFromError() {
    return { failed: true };
  }

  componentDidCatch(error) {
    this.props.report({ crashed: String(error) });
  }

  render() {
    return this.state.failed ? null : this.props.children;
  }
}

/** The element to render; `give` gets the hooks' latest objects. */
export function page(options, report, give) {
  return createElement(Boundary, { report },
    createElement(Suspense, { fallback: null },
      createElement(Chat, { options, report, give })));
}
