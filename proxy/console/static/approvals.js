// Proposals: time that runs out, arguments that must be seen whole, and a list that keeps up.

import { all, find, toast } from "./dom.js";

const started = performance.now();

function shown(seconds) {
  if (seconds <= 0) return "expired";
  const whole = Math.floor(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes >= 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
}

function tick() {
  const gone = (performance.now() - started) / 1000;
  for (const element of all(".countdown")) {
    const left = Number(element.dataset.seconds) - gone;
    element.textContent = shown(left);
    element.classList.toggle("urgent", left < 60);
    if (left <= 0 && find("#decide")) expire();
  }
}

function expire() {
  const form = find("#decide");
  for (const field of form.elements) field.disabled = true;
  find("#state").textContent = "expired";
  find("#state").className = "chip other";
  const hint = find("#shown-hint");
  if (hint) hint.textContent = "Its time is over. The agent may propose again.";
}

if (all(".countdown").length) {
  tick();
  setInterval(tick, 500);
}

// Approve only what was on the screen, to its last line.
const whole = find("#arguments");
const approve = find("#approve");
function look() {
  const rest = whole.scrollHeight - whole.scrollTop - whole.clientHeight;
  const box = whole.getBoundingClientRect();
  const end = Math.min(box.bottom, innerHeight);
  // The end of the box must be in the window as well: on a small screen the page itself scrolls.
  if (rest > 2 || box.bottom > end + 2 || document.hidden) return;
  approve.disabled = false;
  find("#shown").value = "yes";
  find("#shown-hint").textContent = "You have seen all of the arguments.";
  removeEventListener("scroll", look);
}
if (whole && approve) {
  whole.addEventListener("scroll", look);
  addEventListener("scroll", look);
  addEventListener("resize", look);
  document.addEventListener("visibilitychange", look);
  look();
  // Enter in the reason must not decide: it is the button that does.
  find("#reason").addEventListener("keydown", (event) => event.key === "Enter" && event.preventDefault());
}

// The list, and a proposal that somebody else decides, are drawn anew by the server.
document.addEventListener("proposals", (event) => {
  const { ids, fresh } = event.detail;
  const rows = all("#waiting tr[data-id]").map((row) => row.dataset.id);
  const listed = find("#waiting-title") && (rows.length !== ids.length || rows.some((id) => !ids.includes(id)));
  if (listed && !document.activeElement?.closest("form")) location.reload();
  if (fresh.length) toast(fresh.length === 1 ? "A new proposal waits." : `${fresh.length} new proposals wait.`);
});

const button = find("#notify");
if (button && globalThis.Notification?.permission === "default") {
  button.hidden = false;
  button.addEventListener("click", async () => {
    button.hidden = (await Notification.requestPermission()) !== "default";
  });
}
