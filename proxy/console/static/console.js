// What every page has: theme, shortcuts, times, the number of proposals that wait, and buttons that copy.

import { all, base, find, localiseTimes, toast } from "./dom.js";
import * as stream from "./stream.js";

const root = document.documentElement;
const title = document.title;

function dark() {
  return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

find("#theme-button")?.addEventListener("click", () => {
  root.dataset.theme = dark() ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
});

const dialog = find("#keys-dialog");
find("#keys-button")?.addEventListener("click", () => dialog.showModal());

for (const button of all("[data-copy]"))
  button.addEventListener("click", async () => {
    const from = button.dataset.copyFrom ? find(button.dataset.copyFrom) : null;
    await navigator.clipboard.writeText(from ? (from.value ?? from.textContent) : button.dataset.copy);
    toast("Copied.");
  });

// Lists: a row is opened by a click anywhere on it, and chosen with j and k.
let chosen = -1;
const rows = () => all("tbody tr[data-id], .line[data-id]");

function choose(index) {
  const lines = rows();
  if (!lines.length) return;
  chosen = Math.max(0, Math.min(index, lines.length - 1));
  lines.forEach((line, at) => line.classList.toggle("chosen", at === chosen));
  lines[chosen].scrollIntoView({ block: "nearest" });
  find("a", lines[chosen])?.focus({ preventScroll: true });
}

document.addEventListener("click", (event) => {
  const line = event.target.closest("tr[data-id]");
  if (line && !event.target.closest("a, button, input") && !String(getSelection())) find("a", line)?.click();
});

let pressedG = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.closest("input, textarea, select, dialog");
  if (event.key === "Escape" && typing && !typing.matches("dialog")) return typing.blur();
  if (typing) return;
  if (pressedG) {
    pressedG = false;
    return find(`nav a[data-key="${CSS.escape(event.key)}"]`)?.click();
  }
  const lines = rows();
  const at = lines.findIndex((line) => line.classList.contains("chosen"));
  const actions = {
    "/": () => find("#search")?.focus(),
    j: () => choose(at + 1),
    k: () => choose(at < 0 ? 0 : at - 1),
    Enter: () => at >= 0 && document.activeElement === document.body && find("a", lines[at])?.click(),
    p: () => find("#pause")?.click(),
    g: () => (pressedG = true),
    "?": () => dialog.showModal(),
    Escape: () => find("a[data-back]")?.click(),
  };
  if (!actions[event.key]) return;
  actions[event.key]();
  if (event.key !== "Enter") event.preventDefault();
});

// Proposals that wait: in the navigation, in the title, and as a notification where that was allowed.
let known = null;
stream.on("pending", (pending) => {
  if (!pending) return;
  const badge = find("#pending-count");
  if (badge) {
    badge.hidden = pending.count === 0;
    badge.textContent = String(pending.count);
    badge.title = `${pending.count} waiting`;
  }
  document.title = pending.count ? `(${pending.count}) ${title}` : title;
  const fresh = known ? pending.ids.filter((id) => !known.has(id)) : [];
  known = new Set(pending.ids);
  if (fresh.length && globalThis.Notification?.permission === "granted") {
    const note = new Notification("Interlock: a call waits for you", { body: `${pending.count} waiting`, tag: "interlock" });
    note.addEventListener("click", () => {
      window.focus();
      location.assign(`${base}/approvals`);
    });
  }
  document.dispatchEvent(new CustomEvent("proposals", { detail: { ...pending, fresh } }));
});
stream.on("state", (state) => {
  const here = location.pathname.slice(base.length) + location.search;
  if (state === "ended") location.assign(`/login?ended=1&next=${encodeURIComponent(here)}`);
});

// So that a link without it, such as that of a notice, leads to this session. Another port is another origin, and has
// a storage of its own.
if (base) localStorage.setItem("place", base);

localiseTimes();
if (document.body.dataset.operator) stream.start();
