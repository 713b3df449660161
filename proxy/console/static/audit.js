// While a verification runs, its part of the page is drawn anew.

import { find } from "./dom.js";
import { load, take } from "./swap.js";

async function follow() {
  while (find("#verify[data-running]")) {
    await new Promise((resolve) => setTimeout(resolve, 400));
    const fresh = await load(location.pathname).catch(() => null);
    if (fresh) take(fresh, "verify");
  }
}
follow();
