// One stream of server-sent events for a page. A hidden page has none: browsers allow six connections to a host, and
// tabs in the background would use them up. It asks now and then instead, so that its title still tells of proposals.

import { base } from "./dom.js";

const ASK_SECONDS = 15;
const listeners = new Map();
let query = "";
let source = null;
let timer = null;

export function on(name, listener) {
  listeners.set(name, [...(listeners.get(name) ?? []), listener]);
  source?.addEventListener(name, (event) => listener(JSON.parse(event.data)));
}

/** Ask for calls as well; `filter` is the page's query. */
export function wantCalls(filter) {
  query = `?calls=1&${filter}`;
  if (source) restart();
}

export const close = () => {
  source?.close();
  source = null;
};

const tell = (name, value) => (listeners.get(name) ?? []).forEach((listener) => listener(value));

function open() {
  close();
  source = new EventSource(`${base}/stream${query}`);
  source.addEventListener("open", () => tell("state", "live"));
  source.addEventListener("error", () => tell("state", source?.readyState === EventSource.CLOSED ? "ended" : "waiting"));
  for (const [name, each] of listeners)
    for (const listener of each) source.addEventListener(name, (event) => event.data && listener(JSON.parse(event.data)));
  source.addEventListener("ended", () => {
    close();
    tell("state", "ended");
  });
}

async function ask() {
  const response = await fetch(`${base}/pending`, { headers: { accept: "application/json" } }).catch(() => null);
  if (response?.ok) tell("pending", await response.json());
  if (response?.status === 401) tell("state", "ended");
}

function restart() {
  clearInterval(timer);
  if (document.hidden) {
    close();
    timer = setInterval(ask, ASK_SECONDS * 1000);
  } else open();
}

document.addEventListener("visibilitychange", restart);
// A page that is left must not keep its connection while the browser keeps the page for the way back.
addEventListener("pagehide", close);
addEventListener("pageshow", (event) => event.persisted && restart());

/** Open the stream, once all modules of the page have said what they want. */
export const start = () => setTimeout(() => source ?? restart());
