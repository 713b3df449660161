// One call: the keys of its page.

import { find } from "./dom.js";

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  if (event.key === "e") find("#why")?.scrollIntoView();
  if (event.key === "r") find("#rule")?.scrollIntoView();
  if (event.key === "c") find("[data-copy]")?.click();
});
