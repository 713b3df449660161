// The editor of a policy: words that fit, and what the text would change, beside it while it is written.

import { complete } from "./completion.js";
import { base, find } from "./dom.js";
import { load, take } from "./swap.js";

const CHECK_MS = 500;
const MAX_WORDS = 40;
const text = find("#text");
const list = find("#completions");
let table = null;
let fit = { typed: "", words: [] };
let chosen = 0;

// What is typed is tried by the server: it knows the rules, the tests and the recorded calls.
let timer = null;
let asking = false;
let again = false;
async function check() {
  if (asking) return void (again = true);
  asking = true;
  find("#verdict").classList.add("stale");
  const fields = Object.fromEntries(new FormData(find("#policy-form")));
  const answer = await load(`${base}/policy/check`, fields).catch(() => null);
  if (answer) take(answer, "verdict");
  asking = false;
  if (again) {
    again = false;
    check();
  }
}

function close() {
  list.hidden = true;
  text.removeAttribute("aria-activedescendant");
}

function choose(at) {
  chosen = (at + list.childElementCount) % list.childElementCount;
  [...list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === chosen)));
  text.setAttribute("aria-activedescendant", list.children[chosen].id);
  list.children[chosen].scrollIntoView({ block: "nearest" });
}

function show() {
  const items = fit.words.slice(0, MAX_WORDS).map(({ word, about }, at) => {
    const item = document.createElement("li");
    item.id = `completion-${at}`;
    item.setAttribute("role", "option");
    const name = document.createElement("strong");
    name.textContent = word;
    const what = document.createElement("small");
    what.textContent = about;
    item.append(name, what);
    // Before the editor loses the focus.
    item.addEventListener("mousedown", (event) => {
      event.preventDefault();
      insert(at);
    });
    return item;
  });
  list.replaceChildren(...items);
  if (!items.length) return close();
  place();
  list.hidden = false;
  choose(0);
}

function place() {
  const lines = text.value.slice(0, text.selectionStart).split("\n");
  const height = parseFloat(getComputedStyle(text).lineHeight);
  list.style.top = `${lines.length * height - text.scrollTop + 12}px`;
  list.style.left = `min(${Math.max(0, lines.at(-1).length - fit.typed.length)}ch, 100% - 240px)`;
}

function insert(at) {
  const { insert: word } = fit.words[at];
  const end = text.selectionStart;
  text.setRangeText(word, end - fit.typed.length, end, "end");
  close();
  text.dispatchEvent(new Event("input"));
}

async function suggest(asked) {
  table ??= await (await fetch(text.dataset.schema, { headers: { accept: "application/json" } })).json();
  fit = complete(table, text.value, text.selectionStart);
  if (asked || fit.typed) show();
  else close();
}

text.addEventListener("input", (event) => {
  clearTimeout(timer);
  timer = setTimeout(check, CHECK_MS);
  if (event.inputType) suggest(false);
});
text.addEventListener("blur", close);
// A word typed at the end scrolls the text, after the list was shown: it moves along, and stays open.
text.addEventListener("scroll", () => list.hidden || place());
text.addEventListener("keydown", (event) => {
  if (event.key === " " && event.ctrlKey) {
    event.preventDefault();
    return suggest(true);
  }
  if (!list.hidden) {
    const actions = {
      ArrowDown: () => choose(chosen + 1),
      ArrowUp: () => choose(chosen - 1),
      Tab: () => insert(chosen),
      Enter: () => insert(chosen),
      Escape: close,
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    return actions[event.key]();
  }
  // A new line begins where the one above does.
  if (event.key === "Enter" && !event.ctrlKey) {
    event.preventDefault();
    const line = text.value.slice(0, text.selectionStart).split("\n").at(-1);
    // Under what stands behind a dash, not under the dash.
    const indent = /^ *(?:- +)*/.exec(line)[0].replaceAll("-", " ");
    text.setRangeText(`\n${indent}`, text.selectionStart, text.selectionEnd, "end");
    text.dispatchEvent(new Event("input"));
  }
});
find("#check").addEventListener("click", (event) => {
  event.preventDefault();
  check();
});
