// A browser's page without a browser: a DOM, its cookies, and a network that
// can be cut. A page's globals stay until the next page is opened.

import diagnostics from "node:diagnostics_channel";
import { Window } from "happy-dom";

const sockets = new Set();
diagnostics.subscribe("net.client.socket", ({ socket }) => {
  sockets.add(socket);
  socket.once("close", () => sockets.delete(socket));
});

// Node has some of these, but the hooks are to get the page's.
const GLOBALS = [
  "CloseEvent", "CustomEvent", "Element", "Event", "EventTarget", "HTMLElement",
  "HTMLIFrameElement", "Headers", "MessageEvent", "Node", "Request", "Response",
  "WebSocket", "document", "fetch", "localStorage", "location", "navigator",
  "sessionStorage", "window",
];

let holding = null;
let held = [];

/** Keeps what the page sends from now on, if it has `text` in it. */
export function hold(text) {
  holding = text;
}

/** Sends all that was kept, and keeps nothing more. */
export function release() {
  const sends = held;
  holding = null;
  held = [];
  for (const send of sends) send();
}

/** Opens an empty page at `url` with `cookies`, a list of `name=value`. */
export function openPage(url, cookies) {
  release();
  const window = new Window({ url });
  for (const cookie of cookies) window.document.cookie = `${cookie}; path=/`;
  window.document.body.innerHTML = "<main></main>";
  for (const name of GLOBALS) {
    const found = window[name];
    const value = name === "fetch" ? found.bind(window)
      : name === "WebSocket" ? holdable(found) : found;
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  }
  return window;
}

function holdable(WebSocket) {
  return class extends WebSocket {
    send(data) {
      if (holding !== null && String(data).includes(holding)) held.push(() => super.send(data));
      else super.send(data);
    }
  };
}

/** Loses the network for a moment: no closing handshake, no FIN. */
export function cutNetwork() {
  for (const socket of sockets) socket.resetAndDestroy();
}

export function closePage(window) {
  window.happyDOM.close().catch(() => {});
}
