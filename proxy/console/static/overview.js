// Plots tell their values to the pointer and to the arrow keys, and the page keeps itself up to date.

import { all, find, localiseTimes } from "./dom.js";
import { load, take } from "./swap.js";

/** Show the values of one column: what its line of the table says. */
function read(plot, at) {
  const rows = all("tbody tr", plot.nextElementSibling);
  const names = all("thead th", plot.nextElementSibling).map((cell) => cell.textContent);
  const chosen = Math.max(0, Math.min(at, rows.length - 1));
  const cells = [...rows[chosen].cells].map((cell) => cell.textContent);
  const cursor = find(".cursor", plot);
  cursor.setAttribute("x", chosen);
  cursor.setAttribute("visibility", "visible");
  plot.dataset.at = chosen;
  find(".readout", plot).textContent = [cells[0], ...cells.slice(1).map((value, i) => `${names[i + 1]} ${value}`)].join(" · ");
}

function leave(plot) {
  find(".cursor", plot).setAttribute("visibility", "hidden");
  find(".readout", plot).textContent = "";
  delete plot.dataset.at;
}

function prepare() {
  for (const plot of all(".plot")) {
    const svg = find("svg", plot);
    const columns = svg.viewBox.baseVal.width;
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      read(plot, Math.floor(((event.clientX - box.left) / box.width) * columns));
    });
    svg.addEventListener("pointerleave", () => document.activeElement !== plot && leave(plot));
    plot.addEventListener("blur", () => leave(plot));
    plot.addEventListener("keydown", (event) => {
      const now = plot.dataset.at === undefined ? columns : Number(plot.dataset.at);
      const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: columns - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      read(plot, to);
    });
  }
}

const seconds = Number(find("#overview").dataset.refresh);
setInterval(async () => {
  // Not while somebody reads a value, or has chosen text.
  if (document.hidden || find(".plot[data-at], #overview :focus") || String(getSelection())) return;
  const fresh = await load(location.pathname + location.search).catch(() => null);
  if (fresh && take(fresh, "overview")) prepare();
}, seconds * 1000);

localiseTimes();
prepare();
