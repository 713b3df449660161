// The page keeps itself up to date while somebody looks at it.

import { find } from "./dom.js";
import { load, take } from "./swap.js";

const seconds = Number(find("#health").dataset.refresh);
setInterval(async () => {
  if (document.hidden || find("#health :focus") || String(getSelection())) return;
  const fresh = await load(location.pathname).catch(() => null);
  if (fresh) take(fresh, "health");
}, seconds * 1000);
