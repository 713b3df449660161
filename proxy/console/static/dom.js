// Small helpers. Text from agents and servers becomes text nodes, never markup.

/** What the addresses of this session's pages begin with; its cookie is for these alone. */
export const base = document.documentElement.dataset.base ?? "";

export const find = (selector, within = document) => within.querySelector(selector);
export const all = (selector, within = document) => [...within.querySelectorAll(selector)];

/** Set the text of the element that `selector` finds inside `within`. */
export function setText(within, selector, text) {
  const element = find(selector, within);
  if (element) element.textContent = text;
  return element;
}

const today = new Date().toDateString();
const pad = (number, width = 2) => String(number).padStart(width, "0");

/** Show times of the server, which are UTC, in the reader's own time zone. */
export function localiseTimes(within = document) {
  for (const element of all("time[datetime]", within)) {
    const when = new Date(element.getAttribute("datetime"));
    if (Number.isNaN(when.getTime())) continue;
    const clock = `${pad(when.getHours())}:${pad(when.getMinutes())}:${pad(when.getSeconds())}`;
    const date = `${when.getFullYear()}-${pad(when.getMonth() + 1)}-${pad(when.getDate())}`;
    element.title = when.toISOString();
    if (element.hasAttribute("data-axis")) {
      const near = Math.abs(Date.now() - when.getTime()) < 86_400_000;
      element.textContent = near ? clock.slice(0, when.getSeconds() ? 8 : 5) : `${date.slice(5)} ${clock.slice(0, 5)}`;
      continue;
    }
    const day = when.toDateString() === today && !element.hasAttribute("data-date") ? "" : `${date} `;
    element.textContent = day + clock + (element.hasAttribute("data-seconds") ? "" : `.${pad(when.getMilliseconds(), 3)}`);
  }
}

let fading;
/** Say something for a moment, also to screen readers. */
export function toast(text) {
  const element = find("#toast");
  if (!element) return;
  element.textContent = text;
  element.classList.add("shown");
  clearTimeout(fading);
  fading = setTimeout(() => element.classList.remove("shown"), 3000);
}

export const csrf = () => find('meta[name="csrf-token"]')?.content ?? "";

/** Send a form's fields as the page itself would; return the response. */
export const post = (path, fields) =>
  fetch(path, {
    method: "POST",
    headers: { "x-csrf-token": csrf(), accept: "application/json" },
    body: new URLSearchParams(fields),
  });
