// The list of calls follows what happens, unless it is paused or its reader has scrolled down.

import { base, find, localiseTimes, setText } from "./dom.js";
import * as stream from "./stream.js";

const MAX_ROWS = 200;
const table = find("#calls");
const body = find("#rows");
const template = find("#call-row").content.firstElementChild;
const waiting = [];
let paused = false;

function made(call) {
  const row = template.cloneNode(true);
  row.dataset.id = call.id;
  row.dataset.decision = call.decision;
  const time = find("time", row);
  time.setAttribute("datetime", call.time);
  const link = setText(row, "a.tool", call.tool || "(no name)");
  link.href = `${base}/calls/${encodeURIComponent(call.id)}`;
  const chip = setText(row, ".chip", call.label);
  chip.classList.add(call.decision);
  for (const name of ["server", "rule", "reason"]) setText(row, `.${name}`, call[name]);
  setText(row, "td.agent", call.agent);
  setText(row, ".arguments-text", call.arguments);
  const masked = setText(row, ".masked", `${call.masked} masked`);
  masked.hidden = !call.masked;
  end(row, call);
  localiseTimes(row);
  return row;
}

function end(row, call) {
  setText(row, ".ending", call.outcome);
  find("td.outcome", row).classList.toggle("failed", call.failed);
  setText(row, "td.ms", call.ms);
}

const rowOf = (id) => find(`tr[data-id="${CSS.escape(id)}"]`, body);

function show() {
  if (!waiting.length) return;
  const fresh = document.createDocumentFragment();
  for (const call of waiting.splice(0).reverse()) {
    const row = made(call);
    row.classList.add("fresh");
    fresh.append(row);
  }
  body.prepend(fresh);
  while (body.childElementCount > MAX_ROWS) body.lastElementChild.remove();
  find("#empty").hidden = true;
  find("#new-calls").hidden = true;
}

/** Whether new lines may come in at the top without taking the place of what is read. */
const reading = () => scrollY > 200;

if (table.dataset.live === "yes") {
  const text = find("#live-text");
  const dot = find("#live-dot");
  const tellState = (state) => {
    dot.dataset.state = paused ? "paused" : state;
    text.textContent = paused ? "paused" : state === "live" ? "live" : "connecting";
  };
  stream.on("call", (call) => {
    if (rowOf(call.id) || waiting.some((one) => one.id === call.id)) return;
    waiting.push(call);
    if (waiting.length > MAX_ROWS) waiting.shift();
    if (!paused && !reading()) return show();
    const button = find("#new-calls");
    button.textContent = `${waiting.length === MAX_ROWS ? "More than " : ""}${waiting.length} new`;
    button.hidden = false;
  });
  stream.on("end", (ending) => {
    const row = rowOf(ending.id);
    if (row) end(row, ending);
    for (const call of waiting) if (call.id === ending.id) Object.assign(call, ending);
  });
  stream.on("skipped", (count) => {
    text.textContent = `live, ${count} more than fit`;
  });
  stream.on("state", tellState);
  find("#pause").addEventListener("click", (event) => {
    paused = !paused;
    event.currentTarget.setAttribute("aria-pressed", String(paused));
    event.currentTarget.textContent = paused ? "Go on" : "Pause";
    tellState("live");
    if (!paused) show();
  });
  find("#new-calls").addEventListener("click", () => {
    scrollTo({ top: 0 });
    if (paused) find("#pause").click();
    else show();
  });
  stream.wantCalls(table.dataset.query);
}

// A filter of several fields need not stand in the address with those that are empty.
find("#filters").addEventListener("submit", (event) => {
  for (const field of event.currentTarget.elements) if (field.name && !field.value) field.disabled = true;
});
for (const select of document.querySelectorAll("#filters select"))
  select.addEventListener("change", () => find("#filters").requestSubmit());
