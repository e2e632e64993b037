// One tab: takes commands on stdin and reports on stdout, a line of JSON each.
//
// A command is {do, ...}; it is answered by {did} or {failed} once it has been
// given to the hooks. Everything else is a report of what the page shows or says.

import readline from "node:readline";
import { closePage, cutNetwork, hold, openPage, release } from "./dom.mjs";

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const text = (value) => (value instanceof Error ? value.stack : String(value));
for (const level of ["error", "warn", "info", "log", "debug"])
  console[level] = (...values) => say({ console: level, text: values.map(text).join(" ") });
process.on("uncaughtException", (error) => console.error("uncaught", error));
process.on("unhandledRejection", (error) => console.error("unhandled", error));

// React looks for a DOM when it is loaded.
let window = openPage("http://127.0.0.1/", []);
const { createRoot } = await import("react-dom/client");
const { page } = await import("./chat.mjs");

let root = null;
let last = null;
let agent = null;
let chat = null;

function open(options) {
  last = options;
  window = openPage(options.url, options.cookies ?? []);
  const here = window;
  root = createRoot(window.document.querySelector("main"));
  // What a closed page still says is nobody's business.
  const report = (line) => here === window && root && say(line);
  root.render(page(options, report, (...objects) => { [agent, chat] = objects; }));
}

function close() {
  // First the network: a page that is closed or reloaded says no goodbye.
  const closing = root;
  root = agent = chat = null;
  cutNetwork();
  closing?.unmount();
  closePage(window);
}

const COMMANDS = {
  open,
  close,
  reload: (changes) => { close(); open({ ...last, ...changes }); },
  cut: cutNetwork,
  hold: ({ text }) => hold(text),
  release,
  send: ({ message, options }) => { chat.sendMessage(message, options); },
  regenerate: ({ options }) => { chat.regenerate(options); },
  stop: () => { chat.stop(); },
  clear: () => chat.clearHistory(),
  setMessages: ({ messages }) => chat.setMessages(messages),
  toolOutput: ({ output }) => chat.addToolOutput(output),
  approve: ({ answer }) => chat.addToolApprovalResponse(answer),
  setState: ({ state }) => agent.setState(state),
  raw: ({ frame }) => agent.send(typeof frame === "string" ? frame : JSON.stringify(frame)),
  call: ({ call, method, args, streaming }) => {
    const stream = streaming && {
      onChunk: (chunk) => say({ call, chunk }),
      onDone: (result) => say({ call, done: result ?? null }),
      onError: (error) => say({ call, error }),
    };
    agent.call(method, args ?? [], stream ? { stream } : undefined).then(
      (result) => say({ call, result: result ?? null }),
      (error) => say({ call, rejected: error.message }),
    );
  },
};

say({ ready: true });
for await (const line of readline.createInterface({ input: process.stdin })) {
  const { do: name, ...rest } = JSON.parse(line);
  try {
    COMMANDS[name](rest);
    say({ did: name });
  } catch (error) {
    say({ failed: name, why: text(error) });
  }
}
close();
process.exit(0);
